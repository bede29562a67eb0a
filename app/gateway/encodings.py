"""Decode answers of upstreams that compress although identity was asked for (RFC 9110 §8.4.1).

The client gets the compressed bytes unchanged; Mneme reads the decoded ones. Only codings of the standard library are known.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

MAX_DECODED_BYTES = 32 * 2**20
"""Most bytes of a decoded answer; a stream of 100,000 tokens, an event of some 300 bytes for each, has 30 MB."""
MAX_DECODED_LINES = 2**20
"""Most lines of a decoded answer; 100,000 tokens have at most 300,000. Tiny events compress best and take longest to read."""
MAX_CODINGS = 2
"""Most codings of one body that are decoded; more than one is an upstream's mistake already."""
_SLICE_BYTES = 4 * 1024
"""Compressed bytes that are decoded at a time; of a corrupt body, the slices before the corrupt one are kept."""

_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = 31, 15, -15
"""The `wbits` of zlib's formats, with the largest window."""
_GZIP_START = b"\x1f\x8b"
_KNOWN = frozenset({"gzip", "x-gzip", "deflate"})

Problem = Literal["unknown coding", "corrupt", "truncated", "too large"]


class DecodedBody(NamedTuple):
    """A body as far as it can be decoded. `problem`: why it is incomplete."""

    body: bytes
    problem: Problem | None = None


def find_codings(headers: Iterable[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """Return the content codings of a body in the order in which they were applied, without `identity`."""
    values = [value.decode("latin-1") for name, value in headers if name.lower() == b"content-encoding"]
    codings = (coding.strip().lower() for value in values for coding in value.split(","))
    return tuple(coding for coding in codings if coding not in ("", "identity"))


def is_decodable(codings: Sequence[str]) -> bool:
    """Tell whether all of these codings can be undone."""
    return len(codings) <= MAX_CODINGS and _KNOWN.issuperset(codings)


def decode_body(body: bytes, codings: Sequence[str], limit: int = MAX_DECODED_BYTES) -> DecodedBody:
    """Decode a body; the result is empty if it would have more than `limit` bytes, or too many lines."""
    if not codings or not body:
        return DecodedBody(body)
    if not is_decodable(codings):
        return DecodedBody(b"", "unknown coding")
    problem: Problem | None = None
    for coding in reversed(codings):
        decoded = _inflate(body, _find_format(coding, body), limit)
        body, problem = decoded.body, problem or decoded.problem
    if body.count(b"\n") + body.count(b"\r") > MAX_DECODED_LINES:
        return DecodedBody(b"", "too large")
    return DecodedBody(body, problem)


def _find_format(coding: str, body: bytes) -> int:
    """Return zlib's number for a coding: `deflate` is zlib's format by the standard, and raw from some servers (§8.4.1.2)."""
    if coding != "deflate":
        return _GZIP_BITS
    is_zlib = body[0] & 0x0F == zlib.DEFLATED and int.from_bytes(body[:2], "big") % 31 == 0
    return _ZLIB_BITS if is_zlib else _RAW_BITS


def _inflate(body: bytes, wbits: int, limit: int) -> DecodedBody:
    view, at, size = memoryview(body), 0, 0
    parts: list[bytes] = []
    engine = zlib.decompressobj(wbits)
    while at < len(view):
        piece: bytes | memoryview = view[at : at + _SLICE_BYTES]
        at += len(piece)
        while piece and not engine.eof:
            try:
                parts.append(engine.decompress(piece, limit - size + 1))
            except zlib.error:
                return DecodedBody(b"".join(parts), "corrupt")
            size += len(parts[-1])
            if size > limit:
                return DecodedBody(b"", "too large")
            piece = engine.unconsumed_tail
        if engine.eof:
            at -= len(engine.unused_data)
            if wbits != _GZIP_BITS or bytes(view[at : at + 2]) != _GZIP_START:
                break  # bytes after the end do not belong to the body
            engine = zlib.decompressobj(wbits)
    return DecodedBody(b"".join(parts), None if engine.eof else "truncated")
