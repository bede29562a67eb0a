"""Read JSON whose text is invalid Unicode, as some clients and upstreams send it.

JSON can name half of a surrogate pair (`"\\ud83d"`), and a program that cuts UTF-16 at any place writes one. Bytes may be
invalid UTF-8, and a byte order mark may come first. U+FFFD replaces all that is invalid, as in a browser (WHATWG Encoding
§4.1). Valid JSON is read by orjson alone, at no further cost.
"""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_REPLACEMENT = "\ufffd"

# A run of backslashes is matched from its start, so that an escaped backslash before `ud83d` begins no escape.
_SURROGATE_ESCAPE = re.compile(
    r"(?<!\\)((?:\\\\)*+)\\u(?:([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def read_json(data: bytes | str) -> Any:
    """Return the value of a JSON text; U+FFFD stands for lone surrogates and for bytes that are no UTF-8.

    Raises:
        ValueError: the text is no JSON for another reason.
    """
    try:
        return orjson.loads(data)
    except ValueError:
        return orjson.loads(_SURROGATE_ESCAPE.sub(_replace_escape, _decode(data)))


def read_json_piece(data: bytes) -> tuple[Any, bool]:
    """Return the value of one event of a stream, and whether its texts may hold lone surrogates.

    The other half of a pair may come with the next event: `pair_surrogates` makes valid text of what was joined.

    Raises:
        ValueError: the event is no JSON.
    """
    try:
        return orjson.loads(data), False
    except ValueError:
        text = _decode(data)
        repaired = orjson.loads(_SURROGATE_ESCAPE.sub(_replace_escape, text))
        try:
            return json.loads(text), True
        except RecursionError:
            return repaired, False


def pair_surrogates(value: Any) -> Any:
    """Return a JSON value with the halves of surrogate pairs joined into characters, and U+FFFD for each lone surrogate."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [pair_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {pair_surrogates(name): pair_surrogates(item) for name, item in value.items()}
    return value


def _decode(data: bytes | str) -> str:
    if isinstance(data, str):
        return pair_surrogates(data)  # type: ignore[no-any-return]  # a str gives a str
    return bytes(data).removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace")


def _replace_escape(escape: re.Match[str]) -> str:
    return escape[0] if escape[2] else f"{escape[1]}{_REPLACEMENT}"
