"""Bodies as JSON that people can read and compare, from which the exact bytes come back.

A body takes the first of these forms that gives it back to the byte:

    null                                        nothing
    {"style": "compact", "json": …}             JSON, in one of the ways in which the common serialisers write it
    {"style": "compact", "sse": [event, …]}     server-sent events: {"data": …} or {"event": "…", "data": …} with JSON
                                                inside, and whatever is written otherwise as text
    {"text": [line, …]}                         text, each line with its end; {"base64": "…"} for a line that is no UTF-8
    {"base64": [line, …]}                       anything
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from typing import Any

Form = dict[str, Any] | None
"""A body in a cassette."""

STYLES: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":"), "ensure_ascii": False},
    "spaced": {"separators": (", ", ": "), "ensure_ascii": False},
    "compact-ascii": {"separators": (",", ":"), "ensure_ascii": True},
    "spaced-ascii": {"separators": (", ", ": "), "ensure_ascii": True},
    "indented": {"indent": 2, "ensure_ascii": False},
    "indented-ascii": {"indent": 2, "ensure_ascii": True},
}
"""How serialisers write JSON: JavaScript, orjson, pydantic and httpx compactly, Python's own json with spaces."""

_ENCODERS = {name: json.JSONEncoder(**style) for name, style in STYLES.items()}
"""Made once: for an event of a stream that is most of what its writing costs."""
BASE64_LINE = 96
"""Characters of one line of base64."""
MAX_DEPTH = 64
"""Levels of nesting that are written out; JSON that nests deeper stays text."""
MOSTLY = 0.9
"""Share of the bytes that must be text for a body with some that are none to be shown as lines."""

_EVENT = re.compile(rb"(?:event: ([!-~]+)\n)?data: ([\[{].*)\n\n", re.DOTALL)
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")


class BadForm(ValueError):
    """Not a body. `path` says where in it."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


# --- bytes to form ----------------------------------------------------------------------------------------------------


def encode(body: bytes) -> Form:
    """The form of a body."""
    if not body:
        return None
    return _json(body) or _sse(body) or _text(body) or {"base64": _wrapped(body)}


def parse_json(text: str) -> Any:
    """A JSON value, strictly: no NaN. Raises ValueError, also where it nests too deep to be looked at."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def dump(value: Any, style: str) -> bytes:
    """A JSON value in a style. Raises ValueError for a lone surrogate in a style that does not escape it."""
    return _ENCODERS[style].encode(value).encode()


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _json(body: bytes) -> Form:
    if body[:1] not in (b"{", b"["):
        return None
    found = _styled(body, list(STYLES))
    return {"style": found[0], "json": found[1]} if found else None


def _styled(body: bytes, styles: list[str]) -> tuple[str, Any] | None:
    """The value, and the first of the styles in which it is these bytes."""
    try:
        value = parse_json(body.decode())
        if _too_deep(body, value):
            return None
        json.dumps(value, ensure_ascii=False).encode()  # a cassette is UTF-8: a lone surrogate would not go into it
        for style in styles:
            if dump(value, style) == body:
                return style, value
    except (ValueError, RecursionError):
        pass
    return None


def _too_deep(body: bytes, value: Any) -> bool:
    level = [value]
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return False
    for _ in range(MAX_DEPTH):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


def _sse(body: bytes) -> Form:
    if not _FIELD.match(body):
        return None
    styles, entries, shown = list(STYLES), list[Any](), False
    for block in _blocks(body):
        event = _EVENT.fullmatch(block)
        found = _styled(event[2], styles) if event else None
        if event is None or found is None:
            entries.append(_line(block))
            continue
        styles, shown = [found[0]], True  # one style for all: what is written otherwise stays text
        entries.append(({"event": event[1].decode()} if event[1] else {}) | {"data": found[1]})
    return {"style": styles[0], "sse": entries} if shown else None


def _blocks(body: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(body):
        end = body.find(b"\n\n", at)
        end = len(body) if end < 0 else end + 2
        yield body[at:end]
        at = end


def _text(body: bytes) -> Form:
    *ended, rest = body.split(b"\n")
    lines = [_line(each + b"\n") for each in ended] + ([_line(rest)] if rest else [])
    plain = sum(len(each.encode()) for each in lines if isinstance(each, str))
    return {"text": lines} if plain >= MOSTLY * len(body) else None


def _line(line: bytes) -> str | dict[str, str]:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(line).decode()}


def _wrapped(body: bytes) -> list[str]:
    text = b64encode(body).decode()
    return [text[n : n + BASE64_LINE] for n in range(0, len(text), BASE64_LINE)]


# --- form to bytes ----------------------------------------------------------------------------------------------------


def decode(form: Any) -> bytes:
    """The body of a form. Raises BadForm."""
    if form is None:
        return b""
    if not isinstance(form, dict):
        raise BadForm("a body is null or an object")
    kinds = [kind for kind in _READERS if kind in form]
    if len(kinds) != 1 or form.keys() - {"style", *kinds}:
        raise BadForm("a body has exactly one of json, sse, text and base64, and beside the first two its style")
    return _READERS[kinds[0]](form)


def _style(form: dict[str, Any]) -> str:
    style = form.get("style", "compact")
    if not isinstance(style, str) or style not in STYLES:
        raise BadForm(f"a style is one of {', '.join(STYLES)}", "style")
    return style


def _read_json(form: dict[str, Any]) -> bytes:
    return _dumped(form["json"], _style(form), "json")


def _dumped(value: Any, style: str, *path: str | int) -> bytes:
    try:
        return dump(value, style)
    except (ValueError, RecursionError) as error:
        raise BadForm(f"this cannot be written as JSON: {error}", *path) from error


def _read_sse(form: dict[str, Any]) -> bytes:
    style, parts = _style(form), []
    for n, entry in enumerate(_list(form, "sse")):
        if isinstance(entry, dict) and "data" in entry:
            name = entry.get("event")
            if entry.keys() - {"event", "data"} or not isinstance(name, str | None):
                raise BadForm("an event has its data, and beside it at most the name of the event", "sse", n)
            parts += [f"event: {name}\n".encode()] if name is not None else []
            parts += [b"data: ", _dumped(entry["data"], style, "sse", n), b"\n\n"]
        else:
            parts.append(_read_line(entry, "sse", n))
    return b"".join(parts)


def _read_text(form: dict[str, Any]) -> bytes:
    return b"".join(_read_line(each, "text", n) for n, each in enumerate(_list(form, "text")))


def _read_line(line: Any, *path: str | int) -> bytes:
    if isinstance(line, str):
        try:
            return line.encode()
        except UnicodeEncodeError as error:
            raise BadForm("a lone surrogate is no text: write such bytes as base64", *path) from error
    if isinstance(line, dict) and line.keys() == {"base64"} and isinstance(line["base64"], str):
        return _unwrapped(line["base64"], *path)
    raise BadForm('text is a string, or {"base64": "…"}', *path)


def _read_base64(form: dict[str, Any]) -> bytes:
    lines = _list(form, "base64")
    if not all(isinstance(each, str) for each in lines):
        raise BadForm("base64 is a list of strings", "base64")
    return _unwrapped("".join(lines), "base64")


def _unwrapped(text: str, *path: str | int) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise BadForm(f"this is no base64: {error}", *path) from error


def _list(form: dict[str, Any], kind: str) -> list[Any]:
    if not isinstance(form[kind], list):
        raise BadForm(f"{kind} is a list", kind)
    return list(form[kind])


_READERS: dict[str, Callable[[dict[str, Any]], bytes]] = {
    "json": _read_json,
    "sse": _read_sse,
    "text": _read_text,
    "base64": _read_base64,
}
