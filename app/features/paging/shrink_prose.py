"""Prose by its headings, the beginning of each part, and the sentences with the weightiest words. Pure."""

from __future__ import annotations

import re
from collections import Counter

from app.features.paging.outline import Group, Outline, OutlineLine, beyond, source_lines
from app.features.paging.words import terms

GROUPS = (
    Group("what it is about and how it is divided", "{n} of {of} headings", ""),
    Group("how each part begins", "{n} of {of} first sentences", "you need a part of which nothing is shown"),
    Group(
        "its weightiest statements",
        "{n} of {of} weighty sentences",
        "you need a detail, a number or a name that is not shown",
    ),
    Group("", "{n} of {of} other sentences", "you need its exact words"),
)
HEADING, LEAD, SALIENT, REST = range(len(GROUPS))

SALIENT_SHARE = 0.3
"""The share of sentences that count as weighty."""
SENTENCE_CHARS = 400
"""Longest sentence, characters; a longer one is cut in pieces."""
FIGURE = 0.5
"""What a figure in a sentence adds, as a part of its mean word: details are asked for, adjectives are not."""

_END = re.compile(r"(?<=[.!?…])[\"'”’)]*\s+(?=[\"'“(\[]?[A-Z0-9À-Þ])")
_HEADING = re.compile(r"#{1,6}\s|[A-Z][^.!?]{2,70}:?\s*\Z|[-=]{4,}\s*\Z")
_BULLET = re.compile(r"\s*(?:[-*•]|\d{1,3}[.)])\s")


def outline(text: str) -> Outline:
    lines, first = source_lines(text)
    units: list[tuple[str, int, bool, bool]] = []  # text, line, heading, opens a part
    opens = True
    for i, line in enumerate(lines):
        if not line.strip():
            opens = True
            continue
        if _HEADING.match(line) and (line.startswith("#") or opens) and not _BULLET.match(line):
            units.append((line.rstrip(), first + i, True, False))
            opens = True
            continue
        for piece in sentences(line):
            units.append((piece, first + i, False, opens))
            opens = False
    weights = salience([each[0] for each in units])
    ranked = sorted((i for i, each in enumerate(units) if not each[2] and not each[3]), key=lambda i: (-weights[i], i))
    weighty = set(ranked[: int(len(units) * SALIENT_SHARE) + 1])
    made = []
    for i, (piece, at, heading, lead) in enumerate(units):
        group = HEADING if heading else LEAD if lead else SALIENT if i in weighty else REST
        made.append(OutlineLine(piece, group, at, weights[i] if group in (SALIENT, REST) else 0.0))
    return Outline((), GROUPS, made, beyond(text))


def sentences(line: str) -> list[str]:
    """The sentences of a line, long ones in pieces."""
    found: list[str] = []
    for piece in _END.split(line.strip()):
        found += [piece[at : at + SENTENCE_CHARS] for at in range(0, len(piece), SENTENCE_CHARS)]
    return [each for each in found if each.strip()]


def salience(pieces: list[str]) -> list[float]:
    """What each sentence weighs: the mean number of times that its words come up in the whole, more for a figure in it.

    What a text is about it says again and again (Luhn 1958); a sentence of such words tells most of it.
    """
    words = [terms(each) for each in pieces]
    often = Counter(word for each in words for word in set(each))
    weights = []
    for piece, each in zip(pieces, words, strict=True):
        mean = sum(often[word] for word in set(each)) / (
            len(set(each)) + 2
        )  # 2: a short sentence is not the weightiest
        weights.append(mean * (1.0 + FIGURE * any(c.isdigit() for c in piece)))
    return weights
