"""Cassettes on disk: a folder with one file for each call; what `GET /api/v1/cassettes` gave is read as well."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mneme_replay.cassette import Cassette, CassetteError
from mneme_replay.fileformat import parse, parse_line, render

SUFFIX, LINES = ".json", ".jsonl"
"""A file with a cassette; with one on each line."""
SLUG_CHARS = 40
"""Characters of the path that stand in the name of a file."""

_NO_SLUG = re.compile(r"[^a-z0-9]+")


class Duplicate(CassetteError):
    """Two files have the same call."""


def load(paths: Iterable[Path], *, answers: bool = True) -> list[Cassette]:
    """The cassettes of files, and of folders with all that is in them, in the order in which they were recorded.

    Without `answers` the files are read and checked as well, and only the requests are kept: `answered` reads an answer when it
    is to be played. Raises CassetteError: for a path that is not there, for a file that is no whole cassette, for a call that
    is there twice.
    """
    found: dict[str, Cassette] = {}
    for cassette in (each for file in _files(paths) for each in _in(file)):
        if (other := found.get(cassette.id)) is not None:
            raise Duplicate(f"{cassette.name}: call {cassette.id} is there twice: {other.name} has it, too.")
        found[cassette.id] = cassette if answers else _asking(cassette)
    return sorted(found.values(), key=lambda each: (each.at, each.name))


def _asking(cassette: Cassette) -> Cassette:
    """Without what only its answer needs."""
    response = cassette.response and replace(cassette.response, headers=(), body=b"", chunks=())
    return replace(cassette, sent=None, response=response, call={})


def answered(cassette: Cassette) -> Cassette:
    """A cassette of `load` with its answer, from its file. Raises CassetteError, also where the file has another by now."""
    file, _, line = cassette.name.rpartition(":")
    in_lines = file.endswith(LINES)
    whole = next(_in(Path(file), int(line)), None) if in_lines else read(Path(cassette.name))
    if whole is None or (whole.id, whole.request) != (cassette.id, cassette.request):
        raise CassetteError(f"{cassette.name} was changed since it was loaded.")
    return whole


def read(file: Path) -> Cassette:
    """The cassette of a file. Raises CassetteError."""
    with _reading(file):
        return parse(file.read_bytes(), str(file))


def _in(file: Path, only: int | None = None) -> Iterator[Cassette]:
    """The cassettes of a file; of JSON lines, all or that of one line."""
    if file.suffix != LINES:
        yield read(file)
        return
    with _reading(file), file.open("rb") as lines:
        for n, line in enumerate(lines, 1):
            if line.strip() and only in (None, n) and (cassette := parse_line(line, str(file), n)) is not None:
                yield cassette


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CassetteError(f"{file} cannot be read: {error.strerror}.") from error


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    seen = set[tuple[int, int]]()
    for path in paths:
        if not path.exists():
            raise CassetteError(f"{path} is not there.")
        inside = (each for each in path.rglob("*.json*") if each.suffix in (SUFFIX, LINES))
        for file in sorted(inside) if path.is_dir() else [path]:
            if any(part.startswith(".") for part in file.relative_to(path).parts):
                continue
            with contextlib.suppress(OSError):  # what it is, reading it says
                known = file.stat()
                if (known.st_dev, known.st_ino) in seen:
                    continue
                seen.add((known.st_dev, known.st_ino))
            yield file


def write(folder: Path, cassettes: Iterable[tuple[str, Cassette]]) -> list[Path]:
    """Write files (name, cassette) into a folder, made where it is missing. Each is there whole or not at all.

    Raises CassetteError.
    """
    done = []
    with _writing(folder):
        for name, cassette in cassettes:
            with _part(folder, cassette) as part:
                done.append(part.replace(folder / name))
    return done


def add(folder: Path, cassettes: Iterable[Cassette]) -> list[Path]:
    """The same under the next free numbers, whoever else writes there at the same time."""
    done = []
    with _writing(folder):
        for cassette in cassettes:
            with _part(folder, cassette) as part:
                done.append(_placed(folder, part, cassette))
    return done


def _placed(folder: Path, part: Path, cassette: Cassette) -> Path:
    for n in itertools.count(1):
        file = folder / numbered([cassette], n)[0][0]
        with contextlib.suppress(FileExistsError):
            if not list(folder.glob(f"{n:03d}-*")):
                file.hardlink_to(part)
                return file
    raise AssertionError("numbers do not end")


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise CassetteError(f"{folder} cannot be written: {error.strerror}.") from error


@contextlib.contextmanager
def _part(folder: Path, cassette: Cassette) -> Iterator[Path]:
    part = folder / f".part-{os.getpid()}-{threading.get_ident()}"
    try:
        part.write_bytes(render(cassette))
        yield part
    finally:
        part.unlink(missing_ok=True)


def name_of(cassette: Cassette) -> str:
    """The file of an exported call: names sort as the calls came, and one call always has the same."""
    at = re.sub(r"[-:]", "", cassette.recorded_at).partition("+")[0].rstrip("Z").replace(".", "-")
    return f"{at}-{slug(cassette.request.path)}-{_NO_SLUG.sub('', cassette.id.lower())[-12:]}{SUFFIX}"


def numbered(cassettes: Sequence[Cassette], first: int = 1) -> list[tuple[str, Cassette]]:
    """Cassettes with names by their order, which a new recording keeps."""
    return [(f"{n:03d}-{slug(each.request.path)}{SUFFIX}", each) for n, each in enumerate(cassettes, first)]


def slug(path: str) -> str:
    """A path in the name of a file."""
    plain = _NO_SLUG.sub("-", path.partition("?")[0].lower().removeprefix("/v1/")).strip("-")
    return plain[:SLUG_CHARS].strip("-") or "call"
