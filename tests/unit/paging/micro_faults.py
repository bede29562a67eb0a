"""A labelled set of micro-faults: objects of all kinds, and questions with the words that an answer must have."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import yaml

from app.features.paging.quotes import ANSWER_TOKENS, AnswerSource, QuotedAnswer, answer
from app.features.paging.shrink import kind_of, stub
from app.features.paging.values import SATURATION, WEIGHTS, ContentKind, terms
from app.features.paging.values import Counter as TokenCounter

FOLDER = Path(__file__).parents[2] / "fixtures" / "micro_faults"


class Question(NamedTuple):
    """`held_out`: every second one; nothing was tuned on those."""

    text: str
    needed: tuple[str, ...]
    source: AnswerSource
    held_out: bool


@cache
def questions() -> tuple[Question, ...]:
    found: list[Question] = []
    for number, each in enumerate(yaml.safe_load((FOLDER / "questions.yaml").read_text()), 1):
        content = (FOLDER / each["file"]).read_text()
        tool, key = each["tool"], each["key"]
        kind = kind_of(content, tool, key)
        name = key or stub(content, kind, len, tool, key)
        source = AnswerSource(UUID(int=number), name, kind, content, key=key)
        for text, needed in each["questions"]:
            found.append(Question(text, tuple(map(str, needed)), source, len(found) % 2 == 1))
    return tuple(found)


def sources() -> tuple[AnswerSource, ...]:
    return tuple({each.source.object_id: each.source for each in questions()}.values())


@cache
def held(content: str) -> Counter[str]:
    return Counter(terms(content))


def text_score(question: str, held: Counter[str]) -> float:
    """How much of a question's words a content has, 0 to 1: the mean of n / (n + 1.2) over them, as the store has it."""
    words = set(terms(question))
    return sum(held[each] / (held[each] + SATURATION) for each in words) / max(1, len(words))


def asked(
    each: Question,
    count: TokenCounter,
    likeness: dict[UUID, float],
    budget: int = ANSWER_TOKENS,
    weights: tuple[float, float] = WEIGHTS,
) -> QuotedAnswer:
    """The answer over all objects. `likeness`: of the question to each object by vectors, 0 to 1."""
    found = [
        one._replace(vector=likeness.get(one.object_id, 0.0), text=text_score(each.text, held(one.content)))
        for one in sources()
    ]
    return answer(each.text, found, count, budget, weights)


def hit(each: Question, given: QuotedAnswer) -> bool:
    return all(word in given.text for word in each.needed)


def by_kind(hits: dict[Question, bool]) -> dict[ContentKind, tuple[int, int]]:
    """Hits and questions of each kind of object."""
    told: dict[ContentKind, tuple[int, int]] = {}
    for each, found in hits.items():
        right, total = told.get(each.source.kind, (0, 0))
        told[each.source.kind] = (right + found, total + 1)
    return told
