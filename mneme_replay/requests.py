"""What makes two requests the same: the readings of a request by which it finds its cassette. Pure.

strict      the method, the path with its query, and every byte of the body
normalised  the body's JSON whatever its key order and white space, without what does not bear on the answer (`VOLATILE`)
prompt      what is asked (messages, input, prompt, instructions) and whether as a stream; of all else nothing
sequence    the method and the path: the first request gets the first cassette
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, urlencode

from mneme_replay import bodies
from mneme_replay.cassette import Cassette, Headers
from mneme_replay.paths import Path, parse_path, redacted
from mneme_replay.secrets import is_secret

Matching = Literal["strict", "normalised", "prompt", "sequence"]
MATCHINGS: tuple[str, ...] = get_args(Matching)

VOLATILE = frozenset(
    {"user", "safety_identifier", "metadata", "seed", "prompt_cache_key", "prompt_cache_retention", "service_tier", "store"}
)  # fmt: skip
"""Fields of a request that name its sender, its bookkeeping or its luck, and not what is asked."""

_PROMPT = ("instructions", "system", "messages", "input", "prompt")
_ABSENT = object()
KEY_BYTES = 16
"""Length of a key: 128 bits, enough among the cassettes of any suite."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that wants its cassette. `path` with its query, from `/v1` on."""

    method: str
    path: str
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads requests. `ignore`: JSON paths in the body that do not count, besides the volatile fields."""

    matching: Matching = "normalised"
    ignore: Sequence[Path] = ()

    @classmethod
    def of(cls, matching: str, ignore: Sequence[str] = ()) -> Reader:
        """Raises ValueError for a matching that is none, or a path that is none."""
        if matching not in MATCHINGS:
            raise ValueError(f"A matching is one of {', '.join(MATCHINGS)}, not {matching!r}.")
        return cls(matching, tuple(parse_path(each) for each in ignore))  # type: ignore[arg-type]

    def key(self, asked: Asked, redactions: Sequence[str] = ()) -> bytes:
        """By which equal requests are known. `redactions`: JSON paths that are taken out of the cassette."""
        body = (
            self._exact(asked)
            if self.matching == "strict" and not redactions
            else self.text(asked, redactions).encode()
        )
        return blake2b(self.target(asked).encode() + b"\0" + body, digest_size=KEY_BYTES).digest()

    def target(self, asked: Asked) -> str:
        """What is asked for: the method and the path. A query counts in any order, without what carries a key."""
        path, _, query = asked.path.partition("?")
        pairs = parse_qsl(query, keep_blank_values=True, encoding="latin-1")
        if self.matching in ("normalised", "strict"):
            kept = [(name, value) for name, value in pairs if not is_secret(name)]
            kept = kept if self.matching == "strict" else sorted(kept)
            path += "?" + urlencode(kept, encoding="latin-1") if kept else ""
        return f"{asked.method.upper()} {path}"

    def text(self, asked: Asked, redactions: Sequence[str] = ()) -> str:
        """What counts of the body, to be compared and to be read."""
        if self.matching == "sequence":
            return ""
        value = _value(asked.body)
        if value is _ABSENT:
            return _plain(asked)
        value = redacted(value, [*(parse_path(each) for each in redactions), *self.ignore])
        if isinstance(value, Mapping) and self.matching == "normalised":
            value = {name: each for name, each in value.items() if name not in VOLATILE and each is not None}
        elif isinstance(value, Mapping) and self.matching == "prompt":
            value = _prompt(value)
        return json.dumps(_canonical(value), ensure_ascii=True, sort_keys=True, indent=2)

    def _exact(self, asked: Asked) -> bytes:
        return _bounded(asked)


def asked_of(cassette: Cassette) -> Asked:
    """The request of a cassette."""
    request = cassette.request
    return Asked(request.method, request.path, request.headers, request.body)


def _value(body: bytes) -> Any:
    if body.lstrip()[:1] not in (b"{", b"["):
        return _ABSENT
    try:
        return bodies.parse_json(body.decode())
    except ValueError:
        return _ABSENT


def _canonical(value: Any) -> Any:
    """1.0 is 1: serialisers differ."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, Mapping):
        return {name: _canonical(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_canonical(each) for each in value]
    return value


def _prompt(value: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked; a text is the same as one part of text."""
    kept: dict[str, Any] = {name: _spoken(value[name]) for name in _PROMPT if value.get(name) is not None}
    return kept | ({"stream": True} if value.get("stream") else {})


def _spoken(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, list):
        if value and all(isinstance(each, Mapping) and isinstance(each.get("text"), str) for each in value):
            return "".join(each["text"] for each in value).strip()
        return [_spoken(each) for each in value]
    if isinstance(value, Mapping):
        named = ("role", "content", "tool_calls", "tool_call_id", "type", "call_id", "name", "arguments", "output")
        known = {name: value[name] for name in named if value.get(name) not in (None, [])}
        return {
            name: _spoken(each) if name in ("content", "output") else each for name, each in (known or value).items()
        }
    return value


def _bounded(asked: Asked) -> bytes:
    """The body; the border between the parts of a form is drawn anew each time, and does not count."""
    kind = next((value for name, value in asked.headers if name.lower() == "content-type"), "")
    media, _, rest = kind.partition(";")
    name, _, border = rest.strip().partition("=")
    if media.strip().lower().startswith("multipart/") and name.lower() == "boundary" and border:
        return asked.body.replace(border.strip('"').encode("latin-1"), b"boundary")
    return asked.body


def _plain(asked: Asked) -> str:
    return _bounded(asked).decode("utf-8", "backslashreplace")
