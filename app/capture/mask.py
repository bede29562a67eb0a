"""What does not go into captures: keys in headers and paths, and whatever the settings name, in headers and in JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from app.errors import BadRequest
from mneme_replay import paths
from mneme_replay.paths import MASK, Path
from mneme_replay.secrets import is_secret


def masked(headers: Sequence[tuple[bytes, bytes]]) -> list[list[str]]:
    """Headers as [[name, value], …], with the values of secret ones taken out."""
    shown = []
    for name, value in headers:
        text = name.decode("latin-1")
        shown.append([text, MASK if is_secret(text) else value.decode("latin-1").replace("\0", "\ufffd")])
    return shown


def keyless(query: bytes) -> bytes:
    """A query without its secret parameters."""
    parts = query.split(b"&")
    return b"&".join(part for part in parts if not is_secret(part.partition(b"=")[0].decode("latin-1")))


def without(headers: Sequence[tuple[bytes, bytes]], names: Collection[bytes]) -> Sequence[tuple[bytes, bytes]]:
    """Headers with the values of those called `names` (lower case) taken out."""
    if not names:
        return headers
    return [(name, MASK.encode() if name.lower() in names else value) for name, value in headers]


def parse_path(text: str) -> Path:
    """A JSON path, as `mneme_replay.paths.parse_path` takes it. Raises BadRequest for anything else."""
    try:
        return paths.parse_path(text)
    except ValueError as error:
        raise BadRequest(str(error)) from error
