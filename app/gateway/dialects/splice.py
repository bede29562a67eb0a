"""Change the messages of a chat request without re-serialising it.

`scan` finds where things lie in the client's own bytes, the builders say what to put where, `splice` does it. Every
byte that no insertion names stays as it was: 1.0, 12345678901234567890, the order of keys, white space, duplicate keys,
escapes. Offsets are byte offsets into the body.

How it stays fast and linear: the body is known to be valid JSON (orjson has read it), so it need not be parsed again,
only skipped. One regular expression skips a whole value per call into C, nested ones too, down to `_DEPTH`; all its
repeats are possessive, so it never backtracks. What it cannot skip (deeper nesting, a string that ends in eight or more
backslashes) is walked token by token, once, without recursion.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Literal, NamedTuple

import orjson
from msgspec import Struct

from app.json_text import read_json

_DEPTH = 12
"""Levels that one expression skips. A tool with a nested JSON schema has some ten."""

# A string. `[^"]*+` runs seven times faster than `[^"\\]*+`, so quotes are found first and judged by the number of
# backslashes before them: odd, the quote is escaped; even, it ends the string. Eight or more: no match.
_STRING = (
    rb'"[^"]*+'
    rb'(?:(?<=\\)(?:(?<=[^\\]\\)|(?<=[^\\]\\{3})|(?<=[^\\]\\{5})|(?<=[^\\]\\{7}))"[^"]*+)*+'
    rb'(?:(?<!\\)|(?<=[^\\]\\{2})|(?<=[^\\]\\{4})|(?<=[^\\]\\{6}))"'
)
_PLAIN = rb'[^"{}\[\]]*+'


def _nested(depth: int) -> bytes:
    """The expression for an object or array with at most `depth` levels inside it."""
    expression = rb"[{\[]" + _PLAIN + rb"(?:" + _STRING + _PLAIN + rb")*+[}\]]"
    for _ in range(depth):
        expression = rb"[{\[]" + _PLAIN + rb"(?:(?:" + _STRING + rb"|" + expression + rb")" + _PLAIN + rb")*+[}\]]"
    return expression


_NESTED = _nested(_DEPTH)
_VALUE = re.compile(_STRING + rb"|" + _NESTED + rb'|[^\s,{}\[\]"]++')
# Python before 3.11.5 gets possessive repeats wrong: there everything is walked, token by token.
_FAST = sys.version_info >= (3, 11, 5)
_OBJECT = re.compile(_NESTED)
_NAME = re.compile(_STRING)
_COLON = re.compile(rb"\s*:\s*")
_BETWEEN = re.compile(rb"[\s,]*")

_SIMPLE = rb'"(?!content")[^"\\]*+"\s*:\s*(?:"[^"\\]*+"|[^\s,{}\[\]"]++)'
# A message with a string as its content and nothing nested, as a tool's result is: one call into C, where the members one by
# one take a dozen.
_PLAIN_MESSAGE = re.compile(
    rb"\{\s*(?:" + _SIMPLE + rb'\s*,\s*)*+"content"\s*:\s*(' + _STRING + rb")\s*(?:,\s*" + _SIMPLE + rb"\s*)*+\}"
)

_ANY_STRING = rb'"(?:[^"\\]|\\.)*"'
_PLAIN_VALUE = re.compile(_ANY_STRING + rb'|[^\s,{}\[\]"]+', re.DOTALL)
_ANY_NAME = re.compile(_ANY_STRING, re.DOTALL)
_TOKEN = re.compile(_ANY_STRING + rb"|[{}\[\]]", re.DOTALL)

_QUOTE, _OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = b'"{}[]'


class ByteSpan(NamedTuple):
    """The bytes from `start` up to, not including, `end`."""

    start: int
    end: int


class ContentSpan(NamedTuple):
    """Where the content of a message lies. `absent`: there is none, and both offsets are just behind its `{`."""

    kind: Literal["string", "array", "null", "absent", "other"]
    start: int
    end: int


class MessageSpan(NamedTuple):
    """One element of `messages`, from its `{` to behind its `}`."""

    start: int
    end: int

    def content(self, body: bytes) -> ContentSpan:
        """The last `content` of this message, as parsers take the last of duplicate keys."""
        plain = _PLAIN_MESSAGE.match(body, self.start, self.end) if _FAST else None
        if plain is not None:
            return ContentSpan("string", *plain.span(1))
        found = _member(body, self.start, "content")
        if found is None:
            return ContentSpan("absent", self.start + 1, self.start + 1)
        first = body[found.start]
        if first == _QUOTE:
            return ContentSpan("string", *found)
        if first == _OPEN_ARRAY:
            return ContentSpan("array", *found)
        return ContentSpan("null" if body[found.start : found.end] == b"null" else "other", *found)


class Envelope(Struct, frozen=True):
    """Where the parts of a request lie in its body; without an array `messages` is empty, and both offsets are 0."""

    messages: list[MessageSpan]
    array_start: int
    """Offset of the `[` of `messages`."""
    array_end: int
    """Offset behind its `]`."""
    members: dict[str, ByteSpan]
    """The value of every top-level key; the last one, where a key is there twice."""


class Insertion(NamedTuple):
    """Put `data` at `pos`, in place of the `drop` bytes that are there."""

    pos: int
    data: bytes
    drop: int = 0


def parts_in(body: bytes, span: MessageSpan, holder: Mapping[str, Any]) -> list[tuple[object, ByteSpan]]:
    """The content of what orjson read at `span`: itself, if it is a text, else its parts; each with its place in the body."""
    content, where = holder.get("content"), span.content(body)
    if isinstance(content, list):
        return [*zip(content, (each for _, each in entries(body, where.start)), strict=True)]
    return [(content, ByteSpan(where.start, where.end))] if isinstance(content, str) else []


def scan(body: bytes, document: object = None, name: str = "messages") -> Envelope | None:
    """Find the messages of a chat request, or the elements of whatever its array is called.

    `document` is the body as `parse_object` read it, or None to read it here. None when the body is not a JSON object,
    or its `name` is not an array of objects.
    """
    if document is None:
        document = parse_object(body)
    parsed = document.get(name) if isinstance(document, dict) else None
    if not isinstance(parsed, list) or not all(isinstance(message, dict) for message in parsed):
        return None
    messages: list[MessageSpan] = []
    members: dict[str, ByteSpan] = {}
    pos = body.index(b"{") + 1
    while (key := _key(body, pos)) is not None:
        member, start = key
        if member == name and body[start] == _OPEN_ARRAY:
            messages, pos = _elements(body, start)
        else:
            pos = _skip(body, start)
        members[member] = ByteSpan(start, pos)
    array = members.get(name)
    if array is None or len(messages) != len(parsed):
        return None
    return Envelope(messages, array.start, array.end, members)


def splice(body: bytes, insertions: Iterable[Insertion]) -> bytes:
    """The body with all insertions made; those for one place come out in the order in which they were given."""
    parts: list[bytes] = []
    done = 0
    for pos, data, drop in sorted(insertions, key=lambda insertion: insertion.pos):
        parts += (body[done:pos], data)
        done = pos + drop
    parts.append(body[done:])
    return b"".join(parts)


def insert_text(body: bytes, message: MessageSpan, text: str, kind: str = "text") -> Insertion | None:
    """Put `text` at the beginning of a message: inside its string, or as a new first text part of type `kind`.

    A null or absent content becomes `text`. None for any other kind of content.
    """
    content = message.content(body)
    if content.kind == "string":
        return Insertion(content.start + 1, escape(text))
    if content.kind == "array":
        first = body[_between(body, content.start + 1)]
        if first in (_CLOSE_ARRAY, _OPEN_OBJECT):
            return Insertion(content.start + 1, _part(text, kind) + (b"," if first == _OPEN_OBJECT else b""))
        return None
    return _new_content(body, message, content, text)


def append_text(body: bytes, message: MessageSpan, text: str, kind: str = "text") -> Insertion | None:
    """Put `text` at the end of a message: inside its string, or as a new last text part. Else as `insert_text`."""
    content = message.content(body)
    if content.kind == "string":
        return Insertion(content.end - 1, escape(text))
    if content.kind == "array":
        last = body[content.start : content.end - 1].rstrip()[-1]
        if last in (_OPEN_ARRAY, _CLOSE_OBJECT):
            return Insertion(content.end - 1, (b"," if last == _CLOSE_OBJECT else b"") + _part(text, kind))
        return None
    return _new_content(body, message, content, text)


def insert_messages(envelope: Envelope, index: int, messages: Sequence[Mapping[str, Any] | bytes]) -> Insertion:
    """Put messages before the one at `index` (at the end, if there is none).

    A message given as bytes goes in as it is. Into an empty array make one insertion only: the commas are its own.
    """
    data = b",".join(message if isinstance(message, bytes) else dump(message) for message in messages)
    if not data or not envelope.messages:
        return Insertion(envelope.array_start + 1, data)
    if index < len(envelope.messages):
        return Insertion(envelope.messages[index].start, data + b",")
    return Insertion(envelope.messages[-1].end, b"," + data)


def replace_value(envelope: Envelope, name: str, value: object) -> Insertion | None:
    """Put `value` in place of the top-level value `name`; None when there is no such key."""
    span = envelope.members.get(name)
    return None if span is None else Insertion(span.start, dump(value), span.end - span.start)


def with_value(body: bytes, name: str, value: object) -> bytes:
    """A JSON object that orjson has read, with another top-level value `name`; as it is where there is none, or that very
    value. Every other byte stays."""
    span = _member(body, body.index(b"{"), name)
    if span is None or read_json(body[span.start : span.end]) == value:
        return body
    return splice(body, [Insertion(span.start, dump(value), span.end - span.start)])


def escape(text: str) -> bytes:
    """`text` as the inside of a JSON string, in UTF-8. A lone surrogate, which UTF-8 cannot carry, becomes U+FFFD."""
    return dump(text)[1:-1]


def parse_object(body: bytes) -> dict[str, Any] | None:
    """Return the body as a JSON object (see `read_json`), or None if it is not one; the upstream then says so."""
    try:
        document = read_json(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def dump(value: object) -> bytes:
    """Compact JSON in UTF-8, for anything that JSON can say."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:  # lone surrogates, integers beyond 64 bits
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def entries(body: bytes, start: int) -> Iterator[tuple[str | int, ByteSpan]]:
    """The members or elements of the object or array at `start`, each with where its value lies; nothing for anything else.

    `body` is valid JSON. Of duplicate keys all are given.
    """
    pos = start + 1
    if body[start] == _OPEN_OBJECT:
        while (key := _key(body, pos)) is not None:
            pos = _skip(body, key[1])
            yield key[0], ByteSpan(key[1], pos)
    elif body[start] == _OPEN_ARRAY:
        for n in count():
            here = _between(body, pos)
            if body[here] == _CLOSE_ARRAY:
                return
            pos = _skip(body, here)
            yield n, ByteSpan(here, pos)


def _part(text: str, kind: str) -> bytes:
    return b'{"type":"' + kind.encode() + b'","text":"' + escape(text) + b'"}'


def _new_content(body: bytes, message: MessageSpan, content: ContentSpan, text: str) -> Insertion | None:
    if content.kind == "null":
        return Insertion(content.start, b'"' + escape(text) + b'"', content.end - content.start)
    if content.kind == "absent":
        empty = body[message.start + 1 : message.end - 1].isspace() or message.end - message.start == 2
        return Insertion(content.start, b'"content":"' + escape(text) + (b'"' if empty else b'",'))
    return None


def _name(key: bytes) -> str:
    name: str = read_json(key) if b"\\" in key else key[1:-1].decode("utf-8", "replace")
    return name


def _member(body: bytes, start: int, wanted: str) -> ByteSpan | None:
    """The value of the last key `wanted` of the object at `start`."""
    found: ByteSpan | None = None
    pos = start + 1
    while (key := _key(body, pos)) is not None:
        name, value = key
        pos = _skip(body, value)
        if name == wanted:
            found = ByteSpan(value, pos)
    return found


def _key(body: bytes, pos: int) -> tuple[str, int] | None:
    """The next key from `pos` on, and the offset of its value; None at the end of the object."""
    here = _between(body, pos)
    for pattern in (_NAME, _ANY_NAME) if _FAST else (_ANY_NAME,):
        name = pattern.match(body, here)
        if name is not None and (colon := _COLON.match(body, name.end())) is not None:
            return _name(body[here : name.end()]), colon.end()
    return None


def _between(body: bytes, pos: int) -> int:
    """The offset behind white space and commas."""
    found = _BETWEEN.match(body, pos)
    assert found is not None, "it matches nothing, too"
    return found.end()


def _elements(body: bytes, start: int) -> tuple[list[MessageSpan], int]:
    """The objects of the array at `start`, and the offset behind the array. Stops at the first that is no object."""
    messages: list[MessageSpan] = []
    pos = start + 1
    while True:
        here = _between(body, pos)
        if body[here] != _OPEN_OBJECT:
            return messages, _skip(body, start) if body[here] != _CLOSE_ARRAY else here + 1
        element = _OBJECT.match(body, here) if _FAST else None
        pos = element.end() if element is not None else _walk(body, here)
        messages.append(MessageSpan(here, pos))


def _skip(body: bytes, start: int) -> int:
    """The offset behind the value that begins at `start`."""
    value = (_VALUE if _FAST else _PLAIN_VALUE).match(body, start)
    return value.end() if value is not None else _walk(body, start)


def _walk(body: bytes, start: int) -> int:
    """As `_skip`, for any string and any depth, token by token."""
    depth = 0
    for token in _TOKEN.finditer(body, start):
        first = body[token.start()]
        if first in (_OPEN_OBJECT, _OPEN_ARRAY):
            depth += 1
        elif first != _QUOTE:
            depth -= 1
        if depth == 0:
            return token.end()
    return len(body)
