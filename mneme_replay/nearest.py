"""Of many texts, the one that has most in common with another. Pure.

What two texts have in common are lines and words. Each is kept with the texts that hold it, so that a search looks at those
only, what is rare first: what nearly all texts hold tells them apart least, and is looked at no further than `MOST_LOOKED_AT`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from zlib import crc32

MOST_LOOKED_AT = 200_000
"""Places that a search counts, some 10 ms; beyond it common lines and words are left out."""
MOST_FEATURES = 4_000
"""Lines and words of one text that count, the last ones: what was said last is what differs."""

_WORD = re.compile(r"\w+")


class Nearest:
    """Texts, each with a number of its own."""

    def __init__(self) -> None:
        self._holders: dict[int, list[int]] = {}
        self._sizes: dict[int, int] = {}

    def add(self, number: int, text: str) -> None:
        """One more text."""
        found = features(text)
        self._sizes[number] = len(found)
        for each in found:
            self._holders.setdefault(each, []).append(number)

    def to(self, text: str) -> Iterable[tuple[float, int]]:
        """Texts that have something in common with this one (any text, where none has): how much of all that either holds (0
        to 1), and their numbers."""
        found = features(text)
        held = sorted((holders for each in found if (holders := self._holders.get(each)) is not None), key=len)
        shared = Counter[int]()
        left = MOST_LOOKED_AT
        for holders in held:
            if len(holders) > left:
                break
            shared.update(holders)
            left -= len(holders)
        for number, count in shared.items():
            yield count / (len(found) + self._sizes[number] - count), number
        if not shared:
            yield from ((0.0, number) for number in self._sizes)


def features(text: str) -> set[int]:
    """Lines and words of a text, as numbers that are the same in every process."""
    found: set[int] = set()
    for line in reversed(text.splitlines()):
        found.add(crc32(line.encode("utf-8", "surrogatepass")))
        found.update(crc32(each.encode("utf-8", "surrogatepass")) for each in _WORD.findall(line))
        if len(found) >= MOST_FEATURES:
            break
    return found
