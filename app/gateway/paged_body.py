"""Ranges of a message's text, as `context.transcript.text_of` gives it, changed in the client's own bytes.

A text may stand there as a string or as several text parts, and with any escapes (`\\n`, `\\u00e9`, a surrogate pair for one
character). Every byte outside the ranges stays as it was. Pure, and linear: between two escapes the bytes are the text's own
UTF-8, so only escapes are walked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from app.context.transcript import TEXT_PARTS
from app.gateway.splice import Insertion, MessageSpan, Span, entries, splice

KEPT = "…"
"""What is left of a text part whose text is shown in an earlier one: some upstreams refuse an empty one."""

_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.",
)
"""One character that is written as an escape."""


class Change(NamedTuple):
    """Put `data` (the inside of a JSON string) in place of `text[start:stop]` of a message."""

    start: int
    stop: int
    data: bytes


class Piece(NamedTuple):
    """A part of a message's text: where it begins in the text, and where its bytes lie, without the quotes."""

    at: int
    text: str
    inside: Span


def pieces(body: bytes, span: MessageSpan, message: Mapping[str, Any]) -> list[Piece]:
    """The texts that `text_of` joins with line feeds; none where the content is neither a string nor a list of parts.

    `message`: what orjson read at `span`.
    """
    content = message.get("content")
    where = span.content(body)
    if where.kind == "string" and isinstance(content, str):
        return [Piece(0, content, Span(where.start + 1, where.end - 1))]
    found: list[Piece] = []
    at = 0
    if where.kind == "array" and isinstance(content, list):
        for part, (_, element) in zip(content, entries(body, where.start), strict=True):
            name = _text_name(part)
            if name is None:
                continue
            text = part[name] if name else part
            inside = dict(entries(body, element.start))[name] if name else element
            found.append(Piece(at, text, Span(inside.start + 1, inside.end - 1)))
            at += len(text) + 1
    return found


def changed(
    body: bytes, span: MessageSpan, message: Mapping[str, Any], changes: Iterable[Change]
) -> list[Insertion] | None:
    """What makes the changes, which do not overlap; None where the text does not lie in the content like that.

    Of a range that goes over several parts the first gets the data, and of each further one `KEPT` is left.
    """
    found = pieces(body, span, message)
    made: list[Insertion] = []
    for start, stop, data in changes:
        covered = [each for each in found if max(start, each.at) < min(stop, each.at + len(each.text))]
        if not covered or stop > found[-1].at + len(found[-1].text):
            return None
        for each in covered:
            first, last = _bytes(body, each, max(0, start - each.at), min(len(each.text), stop - each.at))
            made.append(Insertion(first, data if each is covered[0] else KEPT.encode(), last - first))
    return made


def after(body: bytes, span: MessageSpan, insertions: Sequence[Insertion]) -> Any:
    """The message as it is read with insertions made that lie within it."""
    moved = [each._replace(pos=each.pos - span.start) for each in insertions]
    return orjson.loads(splice(body[span.start : span.end], moved))


def _text_name(part: object) -> str | None:
    """The member of a content part that holds its text: empty for a part that is a string; None for one without a text."""
    if isinstance(part, str):
        return ""
    if not isinstance(part, Mapping):
        return None
    kind = part.get("type", "text")
    if not isinstance(kind, str) or (kind not in TEXT_PARTS and kind != "refusal"):
        return None
    name = "refusal" if kind == "refusal" else "text"
    return name if isinstance(part.get(name), str) else None


def _bytes(body: bytes, piece: Piece, start: int, stop: int) -> tuple[int, int]:
    """Where `piece.text[start:stop]` lies in the body."""
    first, last = piece.inside
    if last - first == len(piece.text):  # a byte for each character: no escapes, and ASCII alone
        return first + start, first + stop
    if start == 0 and stop == len(piece.text):
        return first, last
    wanted = [start, stop]
    found: list[int] = []
    for text, pos, run in _runs(body, piece):
        while len(found) < 2 and wanted[len(found)] <= text + run:
            rest = wanted[len(found)] - text
            found.append(pos + len(piece.text[text : text + rest].encode()))
        if len(found) == 2:
            break
    return found[0], found[1]


def _runs(body: bytes, piece: Piece) -> Iterator[tuple[int, int, int]]:
    """The stretches without an escape: (characters before it, its offset in the body, its characters), empty ones too."""
    text = 0
    pos, end = piece.inside
    for escape in _ESCAPE.finditer(body, pos, end):
        length = len(body[pos : escape.start()].decode())
        yield text, pos, length
        text += length + 1
        pos = escape.end()
    yield text, pos, len(piece.text) - text
