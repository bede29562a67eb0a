"""A body as a page shows it: JSON laid out, text as it is, anything else as hexadecimal digits. Pure."""

from __future__ import annotations

from typing import Literal

import orjson
from msgspec import Struct

SHOWN_BYTES = 64 * 1024
"""Of a body, bytes that a page shows."""
LAID_OUT = 1024 * 1024
"""Largest JSON that is laid out, bytes."""
HEX_BYTES = 4096
PER_LINE = 16


class Body(Struct, frozen=True):
    """`size`: bytes; None: there is none, and `text` says why. `cut`: there is more than is shown."""

    kind: Literal["json", "text", "binary", "none"]
    text: str
    size: int | None
    cut: bool = False


def body(given: bytes | str) -> Body:
    """`given`: the bytes, or why there are none."""
    if isinstance(given, str):
        return Body("none", given, None)
    try:
        text = given.decode()
    except UnicodeDecodeError:
        return Body("binary", dump(given[:HEX_BYTES]), len(given), len(given) > HEX_BYTES)
    if "\0" in text[:SHOWN_BYTES]:
        return Body("binary", dump(given[:HEX_BYTES]), len(given), len(given) > HEX_BYTES)
    if given[:1] in (b"{", b"[") and len(given) <= LAID_OUT:
        try:
            text = orjson.dumps(orjson.loads(given), option=orjson.OPT_INDENT_2).decode()
        except (orjson.JSONDecodeError, TypeError):
            pass
        else:
            return Body("json", text[:SHOWN_BYTES], len(given), len(text) > SHOWN_BYTES)
    return Body("text", text[:SHOWN_BYTES], len(given), len(text) > SHOWN_BYTES)


def dump(data: bytes) -> str:
    """00000000  68 65 6c 6c 6f …  |hello…|"""
    lines = []
    for at in range(0, len(data), PER_LINE):
        part = data[at : at + PER_LINE]
        seen = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{at:08x}  {part.hex(' '):<{3 * PER_LINE - 1}}  |{seen}|")
    return "\n".join(lines)
