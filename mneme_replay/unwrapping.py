"""The texts that stand in bytes in other clothes: escaped as JSON has them, in base64, compressed, as UTF-16. Pure.

For a look at what bytes say, not for reading them back: a wrong guess yields a text that nobody wrote.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode
from collections.abc import Iterator

MOST_INFLATED = 64 * 1024 * 1024
"""Bytes that are unpacked of a compressed body: more than any request of text has."""
MOST_LAYERS = 3
"""Escapes within escapes that are undone: arguments of a tool are JSON in JSON, and may hold JSON."""

_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}")
"""Runs that may be base64 of something as long as a key."""
_GZIP = b"\x1f\x8b"
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def texts_in(data: bytes) -> Iterator[str]:
    """What stands in the bytes, as it is and in each of its clothes."""
    if data.startswith(_GZIP) or data.startswith(_ZLIB):
        data += b"\n" + _inflated(data)
    text = data.decode("utf-8", "replace")
    yield text
    if "\0" in text:  # ASCII as UTF-16 or UTF-32 has it
        text = text.replace("\0", "")
        yield text
    for _ in range(MOST_LAYERS):
        yield from (_unpacked(each) for each in _BASE64.findall(text))
        if "\\" not in text:
            return
        text = _ESCAPE.sub(_unescaped, text)
        yield text


def _unescaped(found: re.Match[str]) -> str:
    code, char = found.groups()
    return chr(int(code, 16)) if code else _CONTROLS.get(char, char)


def _unpacked(run: str) -> str:
    plain = run.replace("-", "+").replace("_", "/")
    return b64decode(plain + "A" * (-len(plain) % 4)).decode("latin-1")


def _inflated(data: bytes) -> bytes:
    """What was compressed, as far as it can be read."""
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(data, MOST_INFLATED)
    except zlib.error:
        return b""
