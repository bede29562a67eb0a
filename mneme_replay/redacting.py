"""What of a cassette is not for others: values that JSON paths name, headers by name, and keys wherever they stand. Pure.

A body keeps its other bytes; where one was changed the pieces of an answer move with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote_to_bytes

from mneme_replay import bodies
from mneme_replay.cassette import Cassette, CassetteError, Chunk, Headers, Response
from mneme_replay.paths import MASK, Path, parse_path, redacted
from mneme_replay.secrets import is_secret, keys_in, masked_path, without_keys
from mneme_replay.unwrapping import texts_in

_TELLING = frozenset(
    {"content", "text", "delta", "arguments", "reasoning", "reasoning_content", "refusal", "partial_json"}
)
"""Members of a streamed event that carry a piece of what is said: a key may be cut in two between them."""
_NUMBERS = ("output_index", "content_index", "summary_index", "index")
"""Members that say of which choice, item or tool call it is a piece."""
_LINE_END = re.compile(rb"\r\n|\r|\n")


class KeyFound(CassetteError):
    """There is a key in a cassette; where, and how each begins."""

    def __init__(self, cassette: Cassette, found: Sequence[tuple[str, str]], *, masked: bool = False) -> None:
        places = "; ".join(f"{where} has {key}" for where, key in dict.fromkeys(found))
        remedy = ", where no mask reaches it" if masked else ", or mask all keys"
        super().__init__(
            f"call {cassette.id} holds what looks like a key: {places}. Take it out by its JSON path{remedy}."
        )
        self.found = found


class Redaction:
    """`paths`: JSON paths that are taken out of the bodies; `headers`: names of headers that lose their values, besides those
    whose name says that they carry a key; `mask_keys`: keys become asterisks. Raises ValueError for a path that is none."""

    def __init__(self, paths: Sequence[str] = (), headers: Sequence[str] = (), *, mask_keys: bool = False) -> None:
        self._texts = tuple(dict.fromkeys(paths))
        self._paths = [parse_path(each) for each in self._texts]
        self._names = frozenset(each.lower() for each in headers)
        self._mask = mask_keys

    def apply(self, cassette: Cassette) -> Cassette:
        """The cassette as it may be shown to others. Raises KeyFound."""
        request, response = cassette.request, cassette.response
        shown = replace(
            cassette,
            request=replace(
                request,
                path=masked_path(request.path),
                headers=self._headers(request.headers),
                body=self._body(request.body),
            ),
            sent=None if cassette.sent is None else self._body(cassette.sent),
            response=response and self._response(response),
            redacted=tuple(dict.fromkeys((*cassette.redacted, *self._texts))),
        )
        if self._mask:
            shown = _masked(shown)
        if found := list(find_keys(shown)):
            raise KeyFound(shown, found, masked=self._mask)
        return shown

    def _headers(self, headers: Headers) -> Headers:
        return tuple(
            (name, MASK if is_secret(name) or name.lower() in self._names else value) for name, value in headers
        )

    def _body(self, body: bytes) -> bytes:
        return b"".join(part for _, part in redact_body(body, self._paths))

    def _response(self, response: Response) -> Response:
        parts = list(redact_body(response.body, self._paths))
        return replace(
            response,
            headers=_of_length(self._headers(response.headers), response.body, sum(len(part) for _, part in parts)),
            body=b"".join(part for _, part in parts),
            chunks=_moved(response.chunks, parts),
        )


def redact_body(body: bytes, paths: Sequence[Path]) -> Iterator[tuple[int, bytes]]:
    """The pieces of a body without what the paths name, each with the size that it had. What claims to be JSON and cannot be
    read is masked whole: nobody could say what is in it."""
    form = bodies.encode(body) if paths else None
    if form is None:
        yield len(body), body
    elif "json" in form:
        yield len(body), _dumped(form["json"], paths, form["style"], body)
    elif "sse" in form:
        for entry in form["sse"]:
            one = bodies.decode({"style": form["style"], "sse": [entry]})
            yield len(one), _event(entry, form["style"], paths, one)
    elif body.lstrip()[:1] in (b"{", b"["):
        try:
            value = bodies.parse_json(body.decode())
            yield len(body), _dumped(value, paths, "compact", body)
        except (ValueError, RecursionError):
            yield len(body), bodies.dump(MASK, "compact")
    else:
        yield len(body), body


def _event(entry: Any, style: str, paths: Sequence[Path], as_it_was: bytes) -> bytes:
    if isinstance(entry, dict) and "data" in entry:
        kept = redacted(entry["data"], paths)
        if kept is entry["data"]:
            return as_it_was
        return bodies.decode({"style": style, "sse": [entry | {"data": kept}]})
    said = as_it_was.removeprefix(b"data:").strip()
    if said != as_it_was.strip() and said[:1] in (b"{", b"[") and said != b"[DONE]":
        return b"data: " + bodies.dump(MASK, "compact") + b"\n\n"
    return as_it_was


def _dumped(value: Any, paths: Sequence[Path], style: str, as_it_was: bytes) -> bytes:
    kept = redacted(value, paths)
    return as_it_was if kept is value else bodies.dump(kept, style)


def _of_length(headers: Headers, body: bytes, size: int) -> Headers:
    """Headers that tell the length of the body that there is now."""
    if size == len(body):
        return headers
    return tuple(
        (name, str(size) if name.lower() == "content-length" and value == str(len(body)) else value)
        for name, value in headers
    )


def _moved(chunks: Sequence[Chunk], parts: Sequence[tuple[int, bytes]]) -> tuple[Chunk, ...]:
    """The chunks of a body whose parts have changed their sizes: a border inside of a part stays in it."""
    borders, total = [], 0
    for chunk in chunks:
        total += chunk.size
        borders.append(total)
    new, before, after, n = list[int](), 0, 0, 0
    for border in borders:
        while n < len(parts) and before + parts[n][0] <= border:
            before, after, n = before + parts[n][0], after + len(parts[n][1]), n + 1
        new.append(after + (min(border - before, len(parts[n][1])) if n < len(parts) else 0))
    starts = [0, *new]
    return tuple(Chunk(each.at_us, starts[i + 1] - starts[i]) for i, each in enumerate(chunks))


# --- keys -------------------------------------------------------------------------------------------------------------


def find_keys(cassette: Cassette) -> Iterator[tuple[str, str]]:
    """Where there is a key in a cassette, and how it begins."""
    for where, data in _places(cassette):
        yield from ((where, key) for key in _keys(data))
    if cassette.response is not None and not _keys(cassette.response.body):
        for text in _said(cassette.response.body):
            yield from (("response.body, in several events", key) for key in _keys(text.encode(errors="replace")))


def _keys(data: bytes) -> list[str]:
    """The keys in bytes as they are, or else in what is packed into them."""
    return next((found for text in texts_in(data) if (found := list(keys_in(text)))), [])


def _places(cassette: Cassette) -> Iterator[tuple[str, bytes]]:
    request, response = cassette.request, cassette.response
    yield "request.path", unquote_to_bytes(request.path)
    yield from ((f"request header {name}", _bytes(value)) for name, value in request.headers)
    yield "request.body", request.body
    yield "sent.body", cassette.sent or b""
    if response is not None:
        yield from ((f"response header {name}", _bytes(value)) for name, value in response.headers)
        yield "response.body", response.body
    yield "error", _bytes(cassette.error or "")
    yield from (("labels", _bytes(each)) for each in cassette.labels or ())
    yield "call", _bytes(json.dumps(dict(cassette.call), default=str))


def _bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def _said(body: bytes) -> Iterator[str]:
    """What a stream says, put together: once for each kind of piece and each of the things that it tells side by side."""
    pieces: dict[tuple[object, ...], list[str]] = {}
    for line in _LINE_END.split(body):
        if line.startswith(b"data:"):
            try:
                _gather(bodies.parse_json(line[5:].decode()), pieces, ())
            except (ValueError, RecursionError):
                continue  # [DONE], or what broke off
    yield from ("".join(each) for each in pieces.values())


def _gather(value: Any, pieces: dict[tuple[object, ...], list[str]], place: tuple[object, ...]) -> None:
    if isinstance(value, Mapping):
        place += tuple(value[name] for name in _NUMBERS if isinstance(value.get(name), int))
        for name, child in value.items():
            if name in _TELLING and isinstance(child, str):
                pieces.setdefault((*place, name), []).append(child)
            else:
                _gather(child, pieces, place)
    elif isinstance(value, list):
        for child in value:
            _gather(child, pieces, place)


def _masked(cassette: Cassette) -> Cassette:
    request, response = cassette.request, cassette.response

    def headers(given: Headers) -> Headers:
        return tuple((name, without_keys(value)) for name, value in given)

    def body(given: bytes) -> bytes:
        # Byte for byte as long as it was, so that no border moves; what is no UTF-8 stays what it is.
        return without_keys(given.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def call(given: Mapping[str, Any]) -> Any:
        return json.loads(without_keys(json.dumps(dict(given), default=str)))

    return replace(
        cassette,
        request=replace(
            request, path=without_keys(request.path), headers=headers(request.headers), body=body(request.body)
        ),
        sent=None if cassette.sent is None else body(cassette.sent),
        response=response and replace(response, headers=headers(response.headers), body=body(response.body)),
        error=without_keys(cassette.error) if cassette.error else cassette.error,
        labels=cassette.labels and tuple(map(without_keys, cassette.labels)),
        call=call(cassette.call),
    )
