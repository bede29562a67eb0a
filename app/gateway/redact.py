"""Values that are not to be stored, taken out of requests, answers and streams before they are recorded.

What goes to the upstream and to the client is never touched. A recipe is made of the redacted body, with its SHA-256, so that
it is checked on reading as any other; equal messages stay equal, and share their blobs. Hashes by which a transcript is
recognised are those of what was said, redacted or not. Where paths are set, what claims to be JSON and cannot be read is not
stored: nobody could say what is in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from app.capture.mask import parse_path, without
from app.dialects.splice import ByteSpan, Insertion, entries, splice
from app.dialects.sse import DONE, EventParser, data_of
from app.gateway.headers import Headers
from app.store.records import StreamRecord
from mneme_replay.paths import MASK, Path, further, redacted

_MASKED = orjson.dumps(MASK)
_MASKED_EVENT = b"data: " + _MASKED + b"\n\n"
_JSON_BEGINS = b"{["
_BEFORE_JSON = b" \t\r\n\0\xef\xbb\xbf\xfe\xff"
"""White space, byte order marks, and the empty halves of UTF-16: some servers read through them."""


class Redactor:
    """Takes out what the settings name."""

    def __init__(self, paths: Sequence[str] = (), headers: Sequence[str] = ()) -> None:
        """`paths`: JSON paths; `headers`: names. Raises BadRequest for a path that is none."""
        self._paths: list[Path] = [parse_path(each) for each in paths]
        self._names = frozenset(each.lower().encode() for each in headers)

    def __bool__(self) -> bool:
        """Whether any value of a body is to be taken out."""
        return bool(self._paths)

    def headers(self, headers: Headers) -> Headers:
        """Headers as they may be stored."""
        return list(without(headers, self._names))

    def value(self, value: Any) -> Any:
        """A JSON value as it may be stored; the same object, where nothing is taken out."""
        return redacted(value, self._paths) if self._paths else value

    def body(self, body: bytes) -> bytes:
        """A body as it may be stored; the same object, where nothing is taken out."""
        if not self._paths:
            return body
        start = _begin(body)
        if start is None:
            return body
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError:
            return _MASKED
        edits = list(_edits(body, start, self._paths))
        return splice(body, edits) if edits else body

    def stream(self, stream: StreamRecord) -> StreamRecord:
        """An answer as it may be stored, its offsets with it; the same object, where nothing is taken out."""
        if not self._paths:
            return stream
        if not len(stream.event_offsets):
            body = self.body(stream.body)
            return stream if body is stream.body else _moved(stream, body, [Insertion(0, body, len(stream.body))])
        edits = [edit for start, end in _events(stream.body) for edit in self._event(stream.body, start, end)]
        return _moved(stream, splice(stream.body, edits), edits) if edits else stream

    def _event(self, body: bytes, start: int, end: int) -> Iterator[Insertion]:
        event = body[start:end]
        data = data_of(event)
        if data is None or data == DONE:
            return
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            yield Insertion(start, _MASKED_EVENT, end - start)
            return
        if redacted(value, self._paths) is value:
            return
        at = event.find(data)
        if at < 0:  # in several lines
            yield Insertion(start, _MASKED_EVENT, end - start)
            return
        inner = _begin(data)
        for edit in _edits(data, inner or 0, self._paths):
            yield edit._replace(pos=edit.pos + start + at)


def _begin(body: bytes) -> int | None:
    """Where the object or array of a JSON body begins; None where it is none."""
    rest = body.lstrip(_BEFORE_JSON)
    return len(body) - len(rest) if rest[:1] and rest[0] in _JSON_BEGINS else None


def _edits(body: bytes, start: int, paths: Sequence[Path]) -> Iterator[Insertion]:
    for key, span in entries(body, start):
        left = further(paths, key)
        if () in left:
            yield _mask(span)
        elif left:
            yield from _edits(body, span.start, left)


def _mask(span: ByteSpan) -> Insertion:
    return Insertion(span.start, _MASKED, span.end - span.start)


def _events(body: bytes) -> Iterator[tuple[int, int]]:
    parser = EventParser()
    yield from parser.feed(body)
    if (last := parser.finish()) is not None:
        yield last


def _moved(stream: StreamRecord, body: bytes, edits: Sequence[Insertion]) -> StreamRecord:
    """The stream with another body. An offset inside of what was taken out leads to where that stood."""
    starts = [edit.pos for edit in edits]
    grown = [0]
    for edit in edits:
        grown.append(grown[-1] + len(edit.data) - edit.drop)

    def moved(offset: int) -> int:
        n = bisect_right(starts, offset)
        if n and offset < edits[n - 1].pos + edits[n - 1].drop:
            return edits[n - 1].pos + grown[n - 1]
        return offset + grown[n]

    return stream._replace(
        body=body,
        chunk_offsets=[moved(each) for each in stream.chunk_offsets],
        event_offsets=[moved(each) for each in stream.event_offsets],
    )
