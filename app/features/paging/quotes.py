"""Answers to micro-faults without a language model: from which objects, and the passages that answer, quoted with their place
(seed 002 §2.3, §3.3). Pure.

Objects are found by vectors and by words (`WEIGHTS`); within the best of them the lines with the rarest words of the question
answer it, each with what stands around it. What is found is quoted, never put in other words: a quote cannot be wrong.
"""

from __future__ import annotations

import math
import re
from collections import Counter as Tally
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from app.features.paging.outline import LINE_CHARS, Outline, OutlineLine, clip
from app.features.paging.shrink import outline_of
from app.features.paging.values import (
    MAX_TERMS_CHARS,
    SATURATION,
    WEIGHTS,
    ContentKind,
    Counter,
    Fidelity,
    Relationship,
    RelationType,
    SemanticObject,
    defused,
    handle_of,
    terms,
)

OBJECTS = 3
"""Objects whose content is looked through (seed 002 §3.3: LIMIT 3)."""
ANSWER_TOKENS = 300
"""Most tokens of an answer: seven times the seed's example (45), and still a tenth of what a restore costs."""
PRIOR = 0.35
"""What an object counts that is not alike at all, beside its hybrid score: a passage with all the words beats a likeness."""
NEAR = 0.6
"""What a word of the question counts on the line next to a passage's middle, as a part of one on it; on the next but
one its square."""
REACH = 2
"""Lines on each side whose words count."""
FIGURE = 0.25
"""What a figure adds to a line, as a part of the best word, where the question asks for one."""
LEAST = 0.5
"""What a passage must score, as a part of the best one's: what is far behind it answers something else."""
MOST_WORDS = 24
"""Words of a question that are looked for, the rarest: a question is not a document."""

AROUND = {
    ContentKind.CODE: (3, 6),
    ContentKind.LOG: (1, 3),
    ContentKind.JSON: (4, 5),
    ContentKind.TABLE: (0, 0),
    ContentKind.DIFF: (3, 4),
    ContentKind.LISTING: (1, 1),
    ContentKind.PROSE: (1, 1),
}
"""Lines before and after a passage's middle that are quoted with it: a record, a statement, a sentence beside it."""

_ASKS_FIGURE = re.compile(
    r"\b(?:how (?:many|much|long|often|big|large|old|far)|number|count|size|port|limit|timeout|percent\w*|rate|version|status"
    r"|code|when|date|line|total|sum|cost|price|latency|duration|what time)\b",
    re.IGNORECASE,
)
_FIGURE = re.compile(r"\d")


class AnswerSource(NamedTuple):
    """An object to answer from: its whole content, and how like the question it is (0 to 1 each)."""

    object_id: UUID
    name: str
    kind: ContentKind
    content: str
    vector: float = 0.0
    text: float = 0.0
    key: str | None = None


class Quote(NamedTuple):
    """Lines `first` to `last` of an object's content (0: told of the whole), and how well they answer."""

    object_id: UUID
    place: str
    text: str
    score: float


class QuotedAnswer(NamedTuple):
    """`text`: the quotes with their places, empty when nothing answers."""

    text: str
    tokens: int
    quotes: tuple[Quote, ...]


def hybrid(vector: float, text: float, weights: tuple[float, float] = WEIGHTS) -> float:
    """Seed 002 §2.3: likeness and text score, weighted."""
    return weights[0] * vector + weights[1] * text


def answer(
    question: str,
    sources: Sequence[AnswerSource],
    count: Counter,
    budget: int = ANSWER_TOKENS,
    weights: tuple[float, float] = WEIGHTS,
) -> QuotedAnswer:
    """The best passages of the best `OBJECTS` sources within `budget` tokens, best first."""
    best = sorted(sources, key=lambda each: (-hybrid(each.vector, each.text, weights), each.object_id.int))[:OBJECTS]
    pages = [_Page(each, outline_of(each.content, each.kind, each.key)) for each in best]
    words = _weights(question, pages)
    found: list[tuple[float, int, int]] = []
    for number, page in enumerate(pages):
        prior = PRIOR + hybrid(page.source.vector, page.source.text, weights)
        found += [
            (-score * prior, number, at) for at, score in page.scores(words, _ASKS_FIGURE.search(question) is not None)
        ]
    found.sort()
    quotes: list[Quote] = []
    told: list[str] = []
    used = 0
    for score, number, at in found[: OBJECTS * 12]:
        if quotes and -score < LEAST * quotes[0].score:
            break
        page = pages[number]
        if at in page.taken:
            continue
        span = page.span(at)
        line = page.quoted(span, at)
        cost = count(line) + 1
        if used + cost > budget:  # then the line itself, without what stands around it
            line = page.quoted(range(at, at + 1), at)
            cost = count(line) + 1
            if used + cost > budget:
                continue
        page.taken.update(span)
        quotes.append(Quote(page.source.object_id, page.place(span), line.partition("\n")[2], -score))
        told.append(line)
        used += cost
    text = "\n".join(told)
    return QuotedAnswer(text, count(text) if text else 0, tuple(quotes))


class _Page:
    """A source as lines: the outline's, which has also the lines that tell of the whole (counts, shapes, ranges)."""

    def __init__(self, source: AnswerSource, outline: Outline) -> None:
        self.source = source
        self.lines: list[OutlineLine] = [*(OutlineLine(each, 0) for each in outline.head), *outline.lines]
        self.taken: set[int] = set()
        self.words: dict[int, frozenset[str]] = {}

    def scores(self, weights: dict[str, float], figure: bool) -> list[tuple[int, float]]:
        """How well each line answers, 0 to some 1: the share of the question's weight that it and its neighbours have."""
        total = sum(weights.values()) or 1.0
        best = max(weights.values(), default=0.0)
        found: list[tuple[int, float]] = []
        for i in self.words:
            worth: dict[str, float] = {}
            for away in range(-REACH, REACH + 1):
                for word in self.words.get(i + away, ()):
                    if word in weights:
                        worth[word] = max(worth.get(word, 0.0), NEAR ** abs(away))
            score = sum(weights[word] * share for word, share in worth.items())
            if score and figure and _FIGURE.search(self.lines[i].text):
                score += FIGURE * best
            if score:
                found.append((i, score / total))
        return found

    def span(self, at: int) -> range:
        """The lines around one that are quoted with it."""
        before, after = AROUND[self.source.kind]
        if (
            self.lines[at].at == 0 and self.source.kind != ContentKind.JSON
        ):  # a line that tells of the whole stands alone
            return range(at, at + 1)
        return range(max(0, at - before), min(len(self.lines), at + after + 1))

    def place(self, span: range) -> str:
        numbers = [self.lines[i].at for i in span if self.lines[i].at]
        if not numbers:
            return self.source.name
        first, last = min(numbers), max(numbers)
        return f"{self.source.name}, line{'s' if last > first else ''} {first}" + (f"–{last}" if last > first else "")

    def quoted(self, span: range, at: int) -> str:
        shown = [clip(self.lines[i].text, LINE_CHARS * (2 if i == at else 1)) for i in span]
        if self.source.kind == ContentKind.TABLE and self.lines[at].at:
            shown.insert(0, self.lines[0].text)
        text = defused("\n".join(shown))
        return f"{self.place(span)}:\n{text}"


def _weights(question: str, pages: Sequence[_Page]) -> dict[str, float]:
    """What each word of the question tells: ln(1 + lines / lines that have it). Words that no line has tell nothing."""
    words = list(dict.fromkeys(terms(question)))
    if not words:
        return {}
    pattern = re.compile("|".join(re.escape(each) for each in words), re.IGNORECASE)
    holding: Tally[str] = Tally()
    for page in pages:
        # Lines that have none of the question's words are passed over.
        having = ((i, line.text) for i, line in enumerate(page.lines) if pattern.search(line.text[: LINE_CHARS * 8]))
        page.words = {i: frozenset(terms(text)) for i, text in having}
        for each in page.words.values():
            holding.update(each.intersection(words))
    total = sum(len(page.lines) for page in pages)
    found = {each: math.log1p(total / holding[each]) for each in words if holding[each]}
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0]))[:MOST_WORDS])


# --- which objects a question is answered from ---------------------------------------------------------------------------
#
# What the store found and what this very request brought are measured by the same rule. Of several readings of one thing the
# last one comes first, then the best of the earlier ones: it answers what was so before.

CANDIDATES = 12
"""Objects whose words are counted in full (0.25 ms for 1,000 characters): four times those that answer."""
NAME_CHARS = 120
"""Longest name of an object in front of its quotes."""


def name_of(made: SemanticObject, stands: bool = False, older: bool = False) -> str:
    """What a quote's place begins with: the key or the stub, the handle, and how it relates to what the prompt shows."""
    name = " ".join(defused(made.source_key or made.stub).split())[:NAME_CHARS]
    told = [handle_of(made.id), *(["earlier reading"] if older else []), *(["in full above"] if stands else [])]
    return f"{name} [{', '.join(told)}]"


def likeliest(question: str, objects: Sequence[SemanticObject], most: int = CANDIDATES) -> list[SemanticObject]:
    """Those with the most and the rarest of the question's words, by one fast pass: a first request of a long session brings
    all its objects at once, and counting every word of them would take longer than anybody waits."""
    words = list(dict.fromkeys(terms(question)))
    if len(objects) <= most or not words:
        return list(objects)[:most]
    pattern = re.compile("|".join(map(re.escape, words)), re.IGNORECASE)
    has = [{each.lower() for each in pattern.findall(made.content, 0, MAX_TERMS_CHARS)} for made in objects]
    held = Tally(word for each in has for word in each)
    worth = [sum(math.log1p(len(objects) / held[word]) for word in sorted(each)) for each in has]
    best = sorted(range(len(objects)), key=lambda at: (-worth[at], -at))
    return [objects[at] for at in best[:most]]


def choose(
    question: str,
    candidates: Sequence[tuple[SemanticObject, float, float | None]],
    newer: Mapping[UUID, Collection[UUID]],
    stands: Collection[UUID] = (),
) -> list[AnswerSource]:
    """The sources to answer from, best first: objects with their contents, how like the question they are, and how much of its
    words they have (0 to 1 each; None: not measured over the session, and so over these).

    `newer`: what took the place of an object (`superseded`); `stands`: objects that the prompt shows in full.
    """
    unknown = any(words is None for _, _, words in candidates)
    own = word_scores(question, [Tally(terms(made.content)) for made, _, _ in candidates]) if unknown else []
    found: dict[UUID, AnswerSource] = {}
    for at, (made, vector, told) in enumerate(candidates):
        name = name_of(made, made.id in stands, made.id in newer)
        words = told if told is not None else own[at]
        found[made.id] = AnswerSource(made.id, name, made.kind, made.content, vector, words, made.source_key)
    ranked = sorted(found, key=lambda each: (-hybrid(found[each].vector, found[each].text), each.int))
    return [found[each] for each in _last_first(ranked, newer)[:OBJECTS]]


def _last_first(ranked: Sequence[UUID], newer: Mapping[UUID, Collection[UUID]]) -> list[UUID]:
    """No reading before the last one of the same thing; and behind everything those but the best earlier one, which may be what
    is asked for ("what was it before?"): three readings of one file would leave nothing else to answer from."""
    last: list[UUID] = []
    behind: list[UUID] = []
    told: set[UUID] = set()
    for each in ranked:
        if each in last:
            continue
        known = [other for other in ranked if other in newer.get(each, ()) and other != each]
        latest = next((other for other in known if not newer.get(other)), known[0] if known else None)
        if latest is None:
            last.append(each)
            continue
        if latest not in last:
            last.append(latest)
        if latest in told:
            behind.append(each)
        else:
            told.add(latest)
            last.append(each)
    return [*last, *behind]


def word_scores(question: str, held: Sequence[Mapping[str, int]]) -> list[float]:
    """How much of a question's words each content has, 0 to 1: the mean of n / (n + 1.2) over them, in which a word counts the
    more the fewer contents have it: ln(1 + contents / contents that have it). Of 94 questions over 160 objects the right one
    is among the first three for 82 (76 without). `held`: how often each content has each word."""
    having = {word: sum(word in each for each in held) for word in sorted(set(terms(question)))}
    worth = {word: math.log1p(len(held) / count) for word, count in having.items() if count}
    total = sum(worth.values())
    if not total:
        return [0.0] * len(held)
    return [
        sum(each * words.get(word, 0) / (words.get(word, 0) + SATURATION) for word, each in worth.items()) / total
        for words in held
    ]


def superseded(relationships: Iterable[Relationship]) -> dict[UUID, set[UUID]]:
    """By each object that was read again since, all that took its place, directly or by way of others."""
    direct: dict[UUID, set[UUID]] = {}
    for each in relationships:
        if each.relation == RelationType.SUPERSEDES:
            direct.setdefault(each.target, set()).add(each.source)
    whole: dict[UUID, set[UUID]] = {}
    for target in direct:
        reached: set[UUID] = set()
        edge = direct[target]
        while edge:
            reached |= edge
            edge = {later for each in edge for later in direct.get(each, ())} - reached
        whole[target] = reached
    return whole


def standing(objects: Iterable[SemanticObject]) -> frozenset[UUID]:
    """Of the objects of a prompt, those that it shows in full."""
    return frozenset(each.id for each in objects if each.fidelity == Fidelity.FULL)
