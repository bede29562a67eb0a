"""The sentences of a message in any of the languages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_SENTENCES = 60
MAX_SENTENCE_CHARS = 600
"""A longer sentence is nobody's talk."""
_STOP = re.compile(r"[.!?…]+(?=[\s)\"'”»]|$)|[。！？；]+|\n+|;\s")
_ABBREVIATED = re.compile(r"(?:\b(?:dr|sr|sra|st|mme|prof|z\.b|bzw|ca|etc|p\.ex|\d{1,2}|[A-Z]))$", re.IGNORECASE)
"""A full stop after "Dr" or, of a German day, after "3" ends no sentence."""
_BULLET = re.compile(r"[\s*•\-–—>#¿¡]*(?:\d{1,2}[.)]\s+)?[\s*•\-–—¿¡]*")
_CLOSING = " .!?…。！？;；,，:：)）"


class Sentence(NamedTuple):
    """(start, end) in the message, its closing marks left out; `asked`: it ends in a question mark."""

    start: int
    end: int
    asked: bool


def sentences(text: str) -> Iterator[Sentence]:
    """The sentences of a masked message, those that are too long for talk left out."""
    begin, count = 0, 0
    for at, end in _stops(text):
        begin = _BULLET.match(text, begin, at).end()  # type: ignore[union-attr]  # it matches the empty text
        stop = at
        while stop > begin and text[stop - 1] in _CLOSING:
            stop -= 1
        if begin < stop <= begin + MAX_SENTENCE_CHARS:
            yield Sentence(begin, stop, "?" in text[stop:end] or "？" in text[stop:end])
            count += 1
        begin = end
        if count >= MAX_SENTENCES:
            return


def _stops(text: str) -> Iterator[tuple[int, int]]:
    for stop in _STOP.finditer(text):
        if not (stop[0] == "." and _ABBREVIATED.search(text, max(0, stop.start() - 6), stop.start())):
            yield stop.span()
    yield len(text), len(text)
