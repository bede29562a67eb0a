"""Words of prose and of code, brought to one form: a question says "expired tokens" where the code says
`TOKEN_EXPIRED`. Linear."""

from __future__ import annotations

import re

from app.memory.text import NO_TOPIC

MAX_TERMS_CHARS = 262_144
"""Characters of a text whose words are looked at (some 65,000 tokens): a larger one is known by its beginning."""

_WORD = re.compile(r"[^\W_]+")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ied", "ers", "ed", "er", "es", "s", "y", "e")
_LEFT = 3
"""Letters that a word keeps when its ending is taken off."""


def stem(word: str) -> str:
    """A lower-case word without its ending, so that expire, expires, expired and expiry are one. Rough on purpose: it is only
    ever compared with itself."""
    if word.isdigit() or not word.isascii():
        return word
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEFT:
            word = word[: -len(ending)]
            break
    # stopped and stop, running and run
    return word[:-1] if len(word) > _LEFT and word[-1] == word[-2] and word[-1] not in "aeiouls" else word


def terms(text: str) -> list[str]:
    """The words of a text with a content, in order: `authMiddleware` is three, itself and its two halves; numbers count."""
    found: list[str] = []
    for word in _WORD.findall(text[:MAX_TERMS_CHARS]):
        lower = word.lower()
        if lower in NO_TOPIC or (len(lower) < 2 and not lower.isdigit()):
            continue
        found.append(stem(lower))
        if word.isascii() and not (word.islower() or word.isdigit()):
            humps = _HUMPS.findall(word)
            if len(humps) > 1:
                found += [stem(each.lower()) for each in humps if len(each) > 1 and each.lower() not in NO_TOPIC]
    return found


def overlap(words: frozenset[str], others: frozenset[str]) -> float:
    """The share of `words` that is in `others`, 0 to 1; 0 for no words."""
    return len(words & others) / len(words) if words else 0.0
