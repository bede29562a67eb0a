"""Which headers go on, in both directions. Names and values stay bytes, in their order, with their case."""

from __future__ import annotations

import re
from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
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
    passed: Headers = []
    for name, value in given:
        low = name.lower()
        if low in dropped or low.startswith(OWN_PREFIX) or _holds_mneme_key(low, value):
            continue
        passed.append((name, value))
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
    if status in (204, 304) or has(given, b"transfer-encoding"):
        dropped |= {b"content-length"}
    return [
        (name, value)
        for name, value in given
        if (low := name.lower()) not in dropped
        and not low.startswith(OWN_PREFIX)
        and not _BAD_NAME.search(name)
        and not _BAD_VALUE.search(value)
    ]


def find(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The value of the first header called `name` (in lower case), or None."""
    for given, value in headers:
        if given.lower() == name:
            return value
    return None


def has(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bool:
    """Whether there is a header called `name` (in lower case)."""
    return find(headers, name) is not None


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    """The headers that a `Connection` header declares to be hop-by-hop."""
    return frozenset(
        token.strip().lower() for name, value in headers if name.lower() == b"connection" for token in value.split(b",")
    )


def _holds_mneme_key(name: bytes, value: bytes) -> bool:
    return any(part in name for part in _SECRET_NAMES) and _MNEME_KEY.match(value) is not None
