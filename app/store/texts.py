"""Text as Postgres takes it. Pure."""

from __future__ import annotations

import re

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
