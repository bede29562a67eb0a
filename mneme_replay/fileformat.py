"""Cassettes as files: JSON that is written the same way every time, one fact a line, and read strictly
(docs/how-to/cassettes.md).

`render` and `parse` are inverse. What is wrong with a file is said with its name and line. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from json import JSONDecodeError, JSONDecoder
from typing import Any

from mneme_replay import bodies
from mneme_replay.cassette import OUTCOMES, VERSION, Cassette, CassetteError, Chunk, Request, Response, moment
from mneme_replay.paths import parse_path

MARK = "mneme_cassette"
"""The first field of a file: the version of its format."""

_ONE_LINE_EACH = frozenset({"headers", "chunks", "sse"})
"""Lists whose elements each stand on one line."""
_SHA = re.compile(r"[0-9a-f]{64}")
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110 §5.6.2."""
_TARGET = re.compile(r"[^\x00-\x20\x7f]+")


class BadCassette(CassetteError):
    """A file that is no cassette, or not a whole one."""

    def __init__(self, file: str, line: int, message: str) -> None:
        super().__init__(f"{file}:{line}: {message}")
        self.file, self.line, self.message = file, line, message


# --- writing ----------------------------------------------------------------------------------------------------------


def document(cassette: Cassette) -> dict[str, Any]:
    """The cassette as the JSON of its file."""
    request, response = cassette.request, cassette.response
    doc: dict[str, Any] = {MARK: VERSION, "id": cassette.id, "recorded_at": cassette.recorded_at}
    doc |= {"labels": list(cassette.labels)} if cassette.labels is not None else {}
    doc["outcome"] = cassette.outcome
    doc |= {"error": cassette.error} if cassette.error is not None else {}
    doc |= {"redacted": list(cassette.redacted)} if cassette.redacted else {}
    doc["request"] = {
        "method": request.method,
        "path": request.path,
        "headers": [list(each) for each in request.headers],
        **_body(request.body, truncated=request.truncated),
    }
    doc["sent"] = None if cassette.sent is None else _body(cassette.sent)
    doc["response"] = response and {
        "status": response.status,
        "headers": [list(each) for each in response.headers],
        **_body(response.body, truncated=response.truncated),
        "chunks": [list(each) for each in response.chunks],
    }
    doc |= {"call": dict(cassette.call)} if cassette.call else {}
    return doc


def render(cassette: Cassette) -> bytes:
    """The file of a cassette."""
    return ("".join(_rendered(document(cassette), "")) + "\n").encode()


def _body(body: bytes, *, truncated: bool = False) -> dict[str, Any]:
    cut = {"truncated": True} if truncated else {}
    return cut | {"sha256": sha256(body).hexdigest(), "body": bodies.encode(body)}


def _rendered(value: Any, indent: str, key: str = "") -> Iterator[str]:
    """Objects and lists with one member a line, but for the elements of some lists."""
    if not isinstance(value, dict | list) or not value:
        yield json.dumps(value, ensure_ascii=False)
        return
    inner = indent + "  "
    is_object = isinstance(value, dict)
    yield "{" if is_object else "["
    members = value.items() if isinstance(value, dict) else (("", each) for each in value)
    for n, (name, member) in enumerate(members):
        yield ",\n" + inner if n else "\n" + inner
        if is_object:
            yield json.dumps(name, ensure_ascii=False) + ": "
        if key in _ONE_LINE_EACH and not is_object:
            yield json.dumps(member, ensure_ascii=False)
        else:
            # Inside a body these names mean whatever the body means by them.
            yield from _rendered(member, inner, name if key != "json" and name != "json" else "json")
    yield f"\n{indent}" + ("}" if is_object else "]")


# --- reading ----------------------------------------------------------------------------------------------------------


class _Wrong(Exception):
    """Something is wrong at this place of the document."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.message, self.path = message, path


def parse(data: bytes, file: str) -> Cassette:
    """The cassette of a file. Raises BadCassette."""
    text, doc = _json(data, file, 1)
    return read(doc, file, lambda path: _line_of(text, path))


def parse_line(data: bytes, file: str, line: int) -> Cassette | None:
    """The cassette of a line of what `GET /api/v1/cassettes` gives; None for its last line. Raises BadCassette."""
    _, doc = _json(data, file, line)
    if isinstance(doc, dict) and MARK not in doc:
        if "end" in doc:
            return None
        if isinstance(broken := doc.get("error"), dict):
            raise BadCassette(file, line, f"here the export broke off: {broken.get('message')}")
    return replace(read(doc, file, lambda path: line), name=f"{file}:{line}")


def _json(data: bytes, file: str, line: int) -> tuple[str, Any]:
    """Text that begins at `line` of a file, and what it says."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BadCassette(file, line + data.count(b"\n", 0, error.start), "this line is not UTF-8") from error
    try:
        return text, bodies.parse_json(text)
    except JSONDecodeError as error:
        cut = ": the file is cut off" if error.pos >= len(text.rstrip()) else ""
        raise BadCassette(file, line - 1 + error.lineno, f"no JSON{cut} ({error.msg})") from error
    except ValueError as error:
        raise BadCassette(file, line, f"no JSON: {error}") from error


def read(doc: Any, file: str, line_of: Callable[[Sequence[str | int]], int] = lambda path: 1) -> Cassette:
    """The cassette of a document; `line_of` finds the line of a path in it. Raises BadCassette."""
    try:
        return _cassette(doc, file)
    except _Wrong as error:
        where = "".join(f".{each}" if isinstance(each, str) else f"[{each}]" for each in error.path).lstrip(".")
        told = f"{where}: {error.message}" if where else error.message
        raise BadCassette(file, line_of(error.path), told) from error


def _cassette(doc: Any, file: str) -> Cassette:
    if not isinstance(doc, dict) or MARK not in doc:
        raise _Wrong(f'this is no cassette: it does not begin with "{MARK}"')
    version = doc[MARK]
    if type(version) is not int or version < 1:
        raise _Wrong("a version is a whole number from 1 on", MARK)
    if version > VERSION:
        raise _Wrong(f"it was written by a newer Mneme: version {version}, and this one reads up to {VERSION}", MARK)
    known = {
        MARK,
        "id",
        "recorded_at",
        "label",
        "labels",
        "outcome",
        "error",
        "redacted",
        "request",
        "sent",
        "response",
        "call",
    }
    _no_others(doc, known)
    outcome = _of(doc, "outcome", str)
    if outcome not in OUTCOMES:
        raise _Wrong(f"an outcome is one of {', '.join(OUTCOMES)}", "outcome")
    response = None if doc.get("response") is None else _response(_of(doc, "response", dict))
    if (response is None) != (outcome == "failed") and outcome in ("failed", "complete", "broken"):
        raise _Wrong("there is no response exactly where the outcome is `failed`", "response")
    sent = doc.get("sent")
    return Cassette(
        id=_of(doc, "id", str),
        recorded_at=_time(doc),
        labels=_labels(doc),
        outcome=outcome,
        error=_maybe(doc, "error"),
        redacted=tuple(_redacted(doc)) if "redacted" in doc else (),
        request=_request(_of(doc, "request", dict)),
        sent=None if sent is None else _exact(_of(doc, "sent", dict), "sent"),
        response=response,
        call=_of(doc, "call", dict) if "call" in doc else {},
        name=file,
    )


def _labels(doc: Mapping[str, Any]) -> tuple[str, ...] | None:
    """`label` is how a file says it that was written when a call had one at most."""
    if "label" in doc and "labels" in doc:
        raise _Wrong("this stands in `labels`", "label")
    if "label" in doc:
        return (_of(doc, "label", str),)
    return tuple(_each(doc, "labels", str)) if "labels" in doc else None


def _time(doc: Mapping[str, Any]) -> str:
    text: str = _of(doc, "recorded_at", str)
    try:
        moment(text)
    except (ValueError, OverflowError) as error:
        raise _Wrong("this is no time in ISO 8601", "recorded_at") from error
    return text


def _redacted(doc: Mapping[str, Any]) -> Iterator[str]:
    for n, each in enumerate(_each(doc, "redacted", str)):
        try:
            parse_path(each)
        except ValueError as error:
            raise _Wrong(str(error), "redacted", n) from error
        yield each


def _request(part: Mapping[str, Any]) -> Request:
    _no_others(part, {"method", "path", "headers", "truncated", "sha256", "body"}, "request")
    method, path = _of(part, "method", str, "request"), _of(part, "path", str, "request")
    if not _METHOD.fullmatch(method):
        raise _Wrong("this is no method of HTTP", "request", "method")
    if not _TARGET.fullmatch(path):
        raise _Wrong("a path is not empty, and has neither spaces nor control characters", "request", "path")
    return Request(
        method=method,
        path=path,
        headers=_headers(part, "request"),
        body=_exact(part, "request"),
        truncated=_flag(part, "request"),
    )


def _response(part: Mapping[str, Any]) -> Response:
    _no_others(part, {"status", "headers", "truncated", "sha256", "body", "chunks"}, "response")
    status = _of(part, "status", int, "response")
    if not 100 <= status <= 599:
        raise _Wrong("a status is a number from 100 to 599", "response", "status")
    body = _exact(part, "response")
    return Response(
        status=status,
        headers=_headers(part, "response"),
        body=body,
        chunks=tuple(_chunks(part, len(body))),
        truncated=_flag(part, "response"),
    )


def _exact(part: Mapping[str, Any], name: str) -> bytes:
    try:
        body = bodies.decode(part.get("body"))
    except bodies.BadForm as error:
        raise _Wrong(str(error), name, "body", *error.path) from error
    if "sha256" in part:
        told = _of(part, "sha256", str, name)
        if not _SHA.fullmatch(told):
            raise _Wrong("a SHA-256 is 64 hexadecimal digits", name, "sha256")
        if sha256(body).hexdigest() != told:
            raise _Wrong(
                "the body is not the recorded one; if it was changed on purpose, remove this line and `chunks`",
                name,
                "sha256",
            )
    return body


def _chunks(part: Mapping[str, Any], size: int) -> Iterator[Chunk]:
    """Without any, the body comes in one piece, at once."""
    if "chunks" not in part:
        yield from [Chunk(0, size)] if size else []
        return
    at, total = 0, 0
    for n, each in enumerate(_each(part, "chunks", list, "response")):
        if len(each) != 2 or not all(type(number) is int and number >= 0 for number in each) or each[0] < at:
            raise _Wrong("a chunk is [microseconds, bytes], never before the one before it", "response", "chunks", n)
        at = each[0]
        total += each[1]
        yield Chunk(*each)
    if total != size:
        raise _Wrong(f"the chunks add up to {total} bytes, and the body has {size}", "response", "chunks")


def _headers(part: Mapping[str, Any], where: str) -> tuple[tuple[str, str], ...]:
    found = []
    for n, each in enumerate(_each(part, "headers", list, where)):
        if len(each) != 2 or not all(isinstance(text, str) and _latin(text) for text in each) or not each[0]:
            raise _Wrong("a header is [name, value], of the characters of ISO 8859-1", where, "headers", n)
        found.append((each[0], each[1]))
    return tuple(found)


def _latin(text: str) -> bool:
    return all(ord(each) < 256 and each not in "\r\n\0" for each in text)


def _flag(part: Mapping[str, Any], where: str) -> bool:
    return bool(_of(part, "truncated", bool, where)) if "truncated" in part else False


def _of(part: Mapping[str, Any], name: str, kind: type, *path: str) -> Any:
    if name not in part:
        raise _Wrong(f"`{name}` is missing", *path)
    if type(part[name]) is not kind:
        raise _Wrong(f"this must be a JSON {_KINDS[kind]}", *path, name)
    return part[name]


def _maybe(part: Mapping[str, Any], name: str) -> str | None:
    return None if part.get(name) is None else str(_of(part, name, str))


def _each(part: Mapping[str, Any], name: str, kind: type, *path: str) -> list[Any]:
    found: list[Any] = _of(part, name, list, *path)
    for n, each in enumerate(found):
        if type(each) is not kind:
            raise _Wrong(f"this must be a JSON {_KINDS[kind]}", *path, name, n)
    return found


def _no_others(part: Mapping[str, Any], known: set[str], *path: str) -> None:
    for name in part:
        if name not in known:
            raise _Wrong("nothing of this name is known", *path, name)


_KINDS = {str: "string", int: "number without a fraction", dict: "object", list: "array", bool: "true or false"}


# --- where in the text ------------------------------------------------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = JSONDecoder()


def _line_of(text: str, path: Sequence[str | int]) -> int:
    """The line on which the value at a path begins, or as much of the path as there is. `text` is valid JSON."""
    at = _skip(text, 0)
    for step in path:
        found = next((start for key, start in _members(text, at) if key == step), None)
        if found is None:
            break
        at = found
    return text.count("\n", 0, at) + 1


def _members(text: str, at: int) -> Iterator[tuple[str | int, int]]:
    """Key or number, and place, of each member of the object or array that begins at `at`."""
    if text[at] not in "{[":
        return
    is_object, n = text[at] == "{", 0
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        key: str | int = n
        if is_object:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        yield key, at
        _, end = _DECODER.raw_decode(text, at)
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
        n += 1


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
