"""Recognizes messages that ask for all that is known of the user, in many languages ("What do you know about me?").

The words are data: `self_questions.txt` has them for more languages than there are rules for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).with_name("self_questions.txt")
MAX_CHARS = 160
"""Characters up to which a message is taken to ask for all that is known of the user; a longer one only mentions that."""
UNSPACED = frozenset(["zh", "ja", "ko", "ar", "hi"])
"""Languages whose patterns stand anywhere: they put no spaces between words, or join particles to them."""
_WORD = re.compile(r"[^\W_]+")


class _Questions(NamedTuple):
    """The questions of a language, and the words of which each question has one."""

    words: frozenset[str]
    is_spaced: bool
    pattern: re.Pattern[str]


@cache
def _read_questions() -> list[_Questions]:
    patterns: dict[str, list[str]] = defaultdict(list)
    words: dict[str, frozenset[str]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        head, _, tail = line.partition(": ")
        code, _, kind = head.partition(" ")
        if kind == "words":
            words[code] = frozenset(tail.split())
        else:
            patterns[code].append(f"(?:{tail})" if code in UNSPACED else rf"\b(?:{tail})(?!\w)")
    return [
        _Questions(words[code], code not in UNSPACED, re.compile("|".join(alternatives)))
        for code, alternatives in patterns.items()
    ]


def asks_for_everything(text: str) -> bool:
    """Return whether a message asks for all that is known of the user.

    Args:
        text: the message in lower case, with white space folded and apostrophes straight.
    """
    if len(text) > MAX_CHARS:
        return False
    message_words = frozenset(_WORD.findall(text))
    for questions in _read_questions():
        if questions.is_spaced:
            has_word = not questions.words.isdisjoint(message_words)
        else:
            has_word = not text.isascii() and any(word in text for word in questions.words)
        if has_word and questions.pattern.search(text) is not None:
            return True
    return False
