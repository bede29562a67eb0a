"""The passage of a long message that answers a question: a block of 1,500 tokens holds three pages of text, or thirty points.

A cut begins where a sentence or a line does, and ends there where it can. Nothing is stored for it: the message is indexed
whole, and its passage is found when it is wanted, which is for some thirty messages a prompt.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from app.index.analyse import UNSPACED

PASSAGE_TOKENS = 50
"""What a passage is to cost, tokens. Recall at 1,500 tokens, chat / work: 40: .86 / .74 (too little of a turn to count), 50:
.90 / .77, 60: .89 / .76, 80: .89 / .73."""
WHOLE_TOKENS = 75
"""A message of so many tokens is not cut: half a passage is not worth a cut."""
MAX_CHARS = 20_000
"""Of a longer message the beginning is looked at: a pasted file says what it is about first."""
MOST_STARTS = 400
"""Places at which a passage may begin: some 16,000 characters of prose."""
LEAD = 0.2
"""What the beginning of a message is worth, as a part of its best word: what is meant is said first."""
AGAIN = 0.2
"""What a word's second time in a passage is worth, as a part of its first."""

_STARTS = re.compile(r"(?:[.!?:;][\"')\]]*\s+|\n\s*)(?=\S)")
_UNSPACED = re.compile(f"[{UNSPACED}]")


class Passage(NamedTuple):
    """`text[start:stop]` of the message, and its tokens."""

    start: int
    stop: int
    tokens: int


class Cutter:
    """Cuts messages for one question. `words`: its stems, `gains`: what each is worth; `count`: tokens of a text."""

    def __init__(self, words: Sequence[str], gains: Sequence[float], count: Callable[[str], int]) -> None:
        self._count = count
        self._stems = [word[:-1] if word.endswith("i") else word for word in words]
        self._gains = [max(gain, 0.0) for gain in gains]
        self._lead = LEAD * max(self._gains, default=1.0)

    @cached_property
    def _words(self) -> re.Pattern[str]:
        """The words of the question, each a group of its own. Made when the first message is long: many questions have none."""
        if not any(_UNSPACED.match(stem) for stem in self._stems):
            pattern = "|".join(f"({re.escape(stem)})" for stem in self._stems)
            return re.compile(rf"\b(?:{pattern})", re.IGNORECASE)
        # Where words stand without spaces between them, most begin in the middle of a run of letters.
        starts = ["" if _UNSPACED.match(stem) else r"\b" for stem in self._stems]
        pattern = "|".join(f"({start}{re.escape(stem)})" for start, stem in zip(starts, self._stems, strict=True))
        return re.compile(pattern, re.IGNORECASE)

    def cut(self, text: str, tokens: int) -> Passage | None:
        """The passage of a message of so many tokens; None: it is short enough to be shown whole."""
        if tokens <= WHOLE_TOKENS:
            return None
        seen = text[:MAX_CHARS]
        width = max(1, PASSAGE_TOKENS * len(text) // tokens)
        first = len(seen) - len(seen.lstrip())
        starts = [first, *(each.end() for each in _STARTS.finditer(seen, first))][:MOST_STARTS]
        start, stop = self._best(seen, starts, width)
        while True:
            passage = text[start:stop]
            stripped = passage.strip()
            start += len(passage) - len(passage.lstrip())
            stop = start + len(stripped)
            cost = self._count(stripped)
            if cost <= WHOLE_TOKENS or len(stripped) < 2:
                return Passage(start, stop, cost)
            shorter = start + max(1, len(stripped) * PASSAGE_TOKENS // cost)
            space = text.rfind(" ", start, shorter)
            stop = space if space > start else shorter

    def _best(self, text: str, starts: Sequence[int], width: int) -> tuple[int, int]:
        """The passage of about that many characters that has the most words of the question."""
        best, top = (starts[0], _end(text, starts, starts[0], width)), -1.0
        if not self._stems:
            return best
        hits = [(each.start(), (each.lastindex or 1) - 1) for each in self._words.finditer(text)]
        places = [place for place, _ in hits]
        for start in starts:
            low = bisect_left(places, start)
            if low == len(places):
                break
            if places[low] > start + width:
                continue
            stop = _end(text, starts, start, width)
            worth = 0.0 if start > starts[0] else self._lead
            seen: set[int] = set()
            for _, word in hits[low : bisect_left(places, stop)]:
                worth += self._gains[word] * (AGAIN if word in seen else 1.0)
                seen.add(word)
            if worth > top:
                best, top = (start, stop), worth
        return best


def _end(text: str, starts: Sequence[int], start: int, width: int) -> int:
    """Where the passage ends: with its last whole sentence, or else with a word."""
    limit = start + width + width // 7
    if limit >= len(text):
        return len(text)
    last = bisect_right(starts, limit) - 1
    if starts[last] > start + width // 2:
        return starts[last]
    space = text.rfind(" ", start + width // 2, start + width)
    return space if space > start else start + width
