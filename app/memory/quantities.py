"""Vague measures and the bounds that make them exact: "short blog posts", "blog posts under 800 words" (seed 001 §4.3).

Pure functions over texts of all languages that have rules but Chinese, whose texts have no spaces between words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_SMALL_TEXT = """
short brief concise small little tiny light cheap early quick few
kurz kurze kurzen kurzer knapp knappe knappen klein kleine kleinen früh frühe frühen
corto corta cortos cortas breve breves pequeño pequeña pequeños pequeñas temprano temprana tempranas
court courte courts courtes bref brève brefs brèves petit petite petits petites
curto curta curtos curtas pequeno pequena pequenos pequenas cedo
"""
SMALL = frozenset(_SMALL_TEXT.split())
"""Words for a small measure, which an upper bound makes exact."""
_LARGE_TEXT = """
long large big heavy late expensive many
lang lange langen langer groß große großen spät späte späten
largo larga largos largas grande grandes tarde tardía tardías
longue longs longues
longo longa longos longas
"""
LARGE = frozenset(_LARGE_TEXT.split())
"""Words for a large measure, which a lower bound makes exact."""

_AT_MOST = re.compile(
    r"\b(?:under|below|within|before|up to|at (?:the )?most|max(?:imum)?|(?:less|fewer|shorter|smaller|cheaper|earlier) than"
    r"|unter|höchstens|weniger als|kürzer als|bis zu|vor"
    r"|menos de|como máximo|máximo|hasta|antes de|moins de|au plus|au maximum|avant|até|no máximo|antes das)\b",
    re.IGNORECASE,
)
_AT_LEAST = re.compile(
    r"\b(?:over|above|after|beyond|at least|min(?:imum)?|(?:more|longer|larger|bigger|heavier|later) than"
    r"|über|mindestens|mehr als|länger als|nach"
    r"|más de|al menos|por lo menos|después de|plus de|au moins|après|mais de|pelo menos|depois das)\b",
    re.IGNORECASE,
)
_DENIED_MORE = re.compile(
    r"\b(?:no|not) (?:more|longer|larger|bigger|heavier|later) than\b"
    r"|\bnicht (?:mehr|länger) als\b|\bno más de\b|\bpas plus de\b|\bnão mais de\b",
    re.IGNORECASE,
)
_UNWANTED_MORE = re.compile(
    r"\b(?:does not|doesn't|do not|don't) (?P<verb>want|like)s? (?P<what>[^,.;]{1,60}?)"
    r" (?:more|longer|larger|bigger|later) than\b",
    re.IGNORECASE,
)


def rewrite_bounds(text: str) -> str:
    """Return `text` with a denied bound ("no longer than", "does not want … longer than") rewritten as "under"."""
    return _UNWANTED_MORE.sub(r"\g<verb>s \g<what> under", _DENIED_MORE.sub("under", text))


def makes_exact(vague: Collection[str], text: str, words: Sequence[str]) -> bool:
    """Tell whether `text` makes a vague word exact by a number with a bound of the same direction.

    "Under 800 words" makes "short" exact, and contradicts "long".

    Args:
        vague: Words that only the other text has; the result is False unless this is one word of measure.
        text: A text as `rewrite_bounds` returns it.
        words: Its words, number words as digits.
    """
    if len(vague) != 1 or not any(char.isdigit() for word in words for char in word):
        return False
    (word,) = vague
    most, least = _AT_MOST.search(text) is not None, _AT_LEAST.search(text) is not None
    return most != least and word in (SMALL if most else LARGE)
