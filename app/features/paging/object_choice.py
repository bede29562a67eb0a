"""Which objects a question is answered from (seed 002 §2.3, §3.3). Pure.

What the store found, and what this very request brought, are measured by the same rule, the store's over all of the session. Of
several readings of one thing the last one comes first, and then the best of the earlier ones: it answers what was so before.
"""

from __future__ import annotations

import math
import re
from collections import Counter as Tally
from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from app.features.paging.preview import defused, handle_of
from app.features.paging.quotes import OBJECTS, AnswerSource, hybrid
from app.features.paging.values import SATURATION, Fidelity, Relationship, RelationType, SemanticObject
from app.features.paging.words import MAX_TERMS_CHARS, terms

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
    """How much of a question's words each content has, 0 to 1, as `answering.text_score`, but that a word counts the more the
    fewer contents have it: ln(1 + contents / contents that have it). Of 94 questions over 160 objects the right one is among
    the first three for 82 (76 without)."""
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
