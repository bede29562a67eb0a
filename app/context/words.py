"""The words of a text: runs of letters and digits."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")
_APART = {code: " " for code in range(128) if not chr(code).isalnum()}


def words_in(text: str) -> list[str]:
    """In lower case. (Of ASCII without the regular expression, which takes four times as long.)"""
    text = text.lower()
    return text.translate(_APART).split() if text.isascii() else _WORD.findall(text)
