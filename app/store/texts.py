"""Text as Postgres takes it, and JSON as the API can write it. Pure."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

MAX_LEVELS = 200
"""Of arrays and objects within each other, in a message's parts, that the API writes: orjson and pydantic end at some 255, and
an answer has a few of its own around them. (orjson reads 1,024, and what was read is forwarded and stored.)"""

_LONE = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """A text without what Postgres refuses, U+0000 and lone surrogates: U+FFFD stands for each, so that places stay where they
    are. The bytes that came have it as it was."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE.sub("\ufffd", text)
    return text


def plain(value: object) -> object:
    """What orjson does not know (its `default`): a struct by its fields, anything else as text."""
    return asdict(value) if isinstance(value, Struct) else str(value)


def nested(value: Any) -> bool:
    """Whether JSON is nested deeper than can be written."""
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [
            each
            for one in level
            if isinstance(one, dict | list)
            for each in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def content_of(text: str | None, parts: Any) -> str | list[Any] | None:
    """A stored message's content: its parts as they came, or its text, where it has none or they cannot be written."""
    return parts if isinstance(parts, list) and not nested(parts) else text
