"""Which headers go on, in both directions (names and values stay bytes, in their order, with their case), and which values of
headers, requests and answers are not stored (`Redactor`)."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from app.capture.record import parse_path, without
from app.gateway.dialects.splice import Insertion, entries, splice
from app.gateway.dialects.sse import DONE, EventParser, data_of
from app.json_text import read_json
from app.store.records import StreamRecord
from mneme_replay.paths import MASK, Path, further, redacted

Headers = list[tuple[bytes, bytes]]

_HOP_TEXT = (
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding upgrade"
)
HOP_BY_HOP = frozenset(_HOP_TEXT.encode().split())
"""Headers that speak of one connection only (RFC 9110 §7.6.1)."""

OWN_PREFIX = b"x-mneme-"
"""Headers between a client and Mneme."""

_ALWAYS_REPLACED = frozenset({b"host", b"expect"})
"""Host names the upstream; what `Expect: 100-continue` asks for was
granted when the body was read, and an upstream that never answers it would hold the body up."""

_CODING = b"accept-encoding"
_IDENTITY = (_CODING, b"identity")
_MNEME_KEY = re.compile(rb"\s*(?:\S+\s+)?mneme_", re.IGNORECASE)
_SECRET_NAMES = (b"auth", b"key", b"token")
"""A header whose name has one of these in it may carry a key."""

_BAD_NAME = re.compile(rb'[\x00-\x20\x7f()<>@,;:\\"\[\]={}]')
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def request_headers(
    headers: Iterable[tuple[bytes, bytes]],
    *,
    api_key: str | None,
    streamed: bool = False,
    unread: bool = False,
    x_api_key: bool = False,
) -> Headers:
    """The client's headers as the upstream gets them.

    Dropped: what belongs to the connection, `Host`, `Expect`, `X-Mneme-*`, `Content-Length` (the transport counts
    itself; kept when the body is `streamed` through unread, so that its framing stays), and any Mneme key, wherever it
    is. Identity is asked for, so that the answer can be read; where nobody reads it (`unread`), what the client asks
    for. `api_key`, Mneme's own for this upstream, takes the place of the client's `Authorization` and
    `X-Api-Key`; it goes into the second, too, where the path wants it there (`x_api_key`).
    """
    given = list(headers)
    dropped = HOP_BY_HOP | _ALWAYS_REPLACED | _named_by_connection(given)
    if not streamed:
        dropped |= {b"content-length"}
    if not unread:
        dropped |= {_CODING}
    if api_key is not None:
        dropped |= {b"authorization", b"x-api-key"}
    passed = [
        (name, value)
        for name, value in given
        if (low := name.lower()) not in dropped
        and not low.startswith(OWN_PREFIX)
        and not (any(part in low for part in _SECRET_NAMES) and _MNEME_KEY.match(value))
    ]
    if not unread:
        passed.append(_IDENTITY)
    if api_key is not None:
        passed.append((b"authorization", b"Bearer " + api_key.encode()))
        if x_api_key:
            passed.append((b"x-api-key", api_key.encode()))
    return passed


def response_headers(headers: Iterable[tuple[bytes, bytes]], status: int) -> Headers:
    """The upstream's headers as the client gets them.

    Dropped: what belongs to the connection, `X-Mneme-*` (they would speak of another Mneme), what is no valid header,
    and a `Content-Length` that announces no body: with `Transfer-Encoding`, with 204, with 304.
    """
    given = list(headers)
    dropped = HOP_BY_HOP | _named_by_connection(given)
    if status in (204, 304) or find(given, b"transfer-encoding") is not None:
        dropped |= {b"content-length"}
    return [
        (name, value)
        for name, value in given
        if (low := name.lower()) not in dropped
        and not low.startswith(OWN_PREFIX)
        and not _BAD_NAME.search(name)
        and not _BAD_VALUE.search(value)
    ]


def offers_websocket(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether a client asks for WebSocket. Other upgrades are offers, which a server may ignore (RFC 9110 §7.8)."""
    values = [value for name, value in headers if name.lower() == b"upgrade"]
    protocols = (protocol.partition(b"/")[0].strip().lower() for value in values for protocol in value.split(b","))
    return b"websocket" in protocols


def find(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The value of the first header called `name` (in lower case), or None."""
    for given, value in headers:
        if given.lower() == name:
            return value
    return None


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    """The headers that a `Connection` header declares to be hop-by-hop."""
    return frozenset(
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    )


# --- values that are not to be stored ------------------------------------------------------------------------------------
#
# What goes to the upstream and to the client is never touched. A recipe is made of the redacted body, with its SHA-256; equal
# messages stay equal, and share their blobs. Hashes by which a transcript is recognised are those of what was said, redacted or
# not. Where paths are set, what claims to be JSON and cannot be read is not stored: nobody could say what is in it.

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
            read_json(body)
        except ValueError:
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
        parser = EventParser()
        events = [*parser.feed(stream.body), parser.finish() or (0, 0)]
        edits = [edit for start, end in events for edit in self._event(stream.body, start, end)]
        return _moved(stream, splice(stream.body, edits), edits) if edits else stream

    def hide(self, stream: StreamRecord) -> StreamRecord:
        """Return a record with the whole body masked, for an answer that cannot be decoded to mask parts of it."""
        return _moved(stream, _MASKED, [Insertion(0, _MASKED, len(stream.body))])

    def _event(self, body: bytes, start: int, end: int) -> Iterator[Insertion]:
        event = body[start:end]
        data = data_of(event)
        if data is None or data == DONE:
            return
        try:
            value = read_json(data)
        except ValueError:
            yield Insertion(start, _MASKED_EVENT, end - start)
            return
        if redacted(value, self._paths) is value:
            return
        at = event.find(data)
        if at < 0:  # in several lines
            yield Insertion(start, _MASKED_EVENT, end - start)
            return
        for edit in _edits(data, _begin(data) or 0, self._paths):
            yield edit._replace(pos=edit.pos + start + at)


def _begin(body: bytes) -> int | None:
    """Where the object or array of a JSON body begins; None where it is none."""
    rest = body.lstrip(_BEFORE_JSON)
    return len(body) - len(rest) if rest[:1] and rest[0] in _JSON_BEGINS else None


def _edits(body: bytes, start: int, paths: Sequence[Path]) -> Iterator[Insertion]:
    for key, span in entries(body, start):
        left = further(paths, key)
        if () in left:
            yield Insertion(span.start, _MASKED, span.end - span.start)
        elif left:
            yield from _edits(body, span.start, left)


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
