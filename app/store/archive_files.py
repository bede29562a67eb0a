"""Archives as files: a part of a month is gzipped JSON lines, a row each, in the order of users; each month has a manifest.

A file is written under a temporary name, synced, and renamed; its name holds the beginning of its SHA-256. None is ever
changed: what differs is another file. So a folder may be any disk, or an object store that is mounted as one.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

LEVEL = 6
"""gzip's own default."""
PIECE = 1 << 20
"""Bytes read at once."""
UNDONE = ".part"
"""Ends the name of a file that is being written."""
NAMED = 16
"""Hexadecimal digits of the SHA-256 in a file's name."""


class Written(Struct, frozen=True):
    """A file of an archive. `file`: its path under the folder; `size`: its bytes."""

    file: str
    rows: int
    size: int
    sha256: bytes


class Manifest(Struct, frozen=True):
    """What a month's files are, for those who check them without the database: `sha256` as `sha256sum` prints it."""

    format: int
    table: str
    month: str
    files: list[dict[str, str | int]]


class _Who(Struct, frozen=True):
    """Of a row, whose it is and what it said."""

    user_id: UUID
    tenant_id: UUID
    content_hash: str | None = None


_read_who = msgspec.json.Decoder(_Who).decode


class Sink:
    """A file that is being written, as `with` block; `done` gives it its name."""

    def __init__(self, folder: Path, part: str) -> None:
        self._folder, self._part = folder, part
        self._rows = 0

    def __enter__(self) -> Sink:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path = self._folder / f"{self._part}{UNDONE}"
        self._raw = open(self._path, "wb")
        # Without name and time: the same rows are the same file.
        self._gzip = gzip.GzipFile("", "wb", LEVEL, self._raw, mtime=0)
        return self

    def write(self, lines: bytes) -> None:
        """Some lines, whole or not."""
        self._rows += lines.count(b"\n")
        self._gzip.write(lines)

    def done(self) -> Written:
        """On the disk, under its name."""
        self._gzip.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        digest = digest_of(self._path)
        path = self._folder / f"{self._part}.{digest.hex()[:NAMED]}.jsonl.gz"
        os.replace(self._path, path)
        sync(self._folder)
        return Written(f"{self._folder.name}/{path.name}", self._rows, path.stat().st_size, digest)

    def __exit__(self, *_: object) -> None:
        self._gzip.close()
        self._raw.close()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()


def lines_of(path: Path) -> Iterator[bytes]:
    """The rows of a file, each with its newline."""
    with gzip.open(path, "rb") as stream:
        yield from stream


def digest_of(path: Path) -> bytes:
    """SHA-256 of a file."""
    whole = hashlib.sha256()
    with open(path, "rb") as stream:
        while piece := stream.read(PIECE):
            whole.update(piece)
    return whole.digest()


def without_user(path: Path, part: str, tenant: UUID, user: UUID) -> tuple[Written, list[bytes]] | None:
    """Write the file again without a user's rows, beside the old one; with the content hashes of those. None: it has no row of
    them, and stays."""
    mark = str(user).encode()
    # Most files have nothing of a user: a look at the bytes is ten times as fast as to read every row.
    if not any(mark in line for line in lines_of(path)):
        return None
    hashes: list[bytes] = []
    with Sink(path.parent, part) as sink:
        gone = 0
        for line in lines_of(path):
            if mark in line and (who := _read_who(line)).user_id == user and who.tenant_id == tenant:
                gone += 1
                if who.content_hash is not None:
                    hashes.append(bytes.fromhex(who.content_hash.removeprefix("\\x")))
            else:
                sink.write(line)
        return (sink.done(), hashes) if gone else None


def write_manifest(folder: Path, month: str, table: str, files: Sequence[Written]) -> None:
    """A month's, in place of the one before."""
    told: list[dict[str, str | int]] = [
        {"file": Path(each.file).name, "rows": each.rows, "bytes": each.size, "sha256": each.sha256.hex()}
        for each in files
    ]
    text = msgspec.json.format(msgspec.json.encode(Manifest(1, table, month, told)))
    undone = folder / f"manifest.json{UNDONE}"
    with open(undone, "wb") as stream:
        stream.write(text + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(undone, folder / "manifest.json")
    sync(folder)


def take_away(folder: Path, part: str, but: str | None) -> int:
    """Remove the files of a part but the one in force; how many."""
    gone = 0
    for path in folder.glob(f"{part}.*"):
        if but is None or path.name != Path(but).name:
            path.unlink(missing_ok=True)
            gone += 1
    return gone


def sync(folder: Path) -> None:
    """The names in a folder are on the disk. (Of a mounted object store there is nothing to sync: it says so.)"""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
