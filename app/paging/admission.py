"""Which contents become objects: the four-part score of seed 002 (§1.6, §3.1). Pure.

The seed names the parts (type, novelty, utility, recency) and one sum, 0.72; what they are and weigh is ours. What is rejected
stays in the transcript as it is: it is not worth a handle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from uuid import UUID

from app.paging.words import overlap
from app.store.paging_values import Admission, ObjectType

WEIGHT_TYPE = 0.25
WEIGHT_NOVELTY = 0.25
WEIGHT_UTILITY = 0.40
WEIGHT_RECENCY = 0.10
"""Weights of the four scores; they sum to 1. Utility leads: it is what paging is for."""

THRESHOLD = 0.40
"""A total below this is rejected: a few hundred tokens that mostly repeat what is an object already."""
MIN_TOKENS = 200
"""Contents under so many tokens are never scored: their stub with its handle would save less than half of them."""
ALWAYS_TOKENS = 2_000
"""Contents of so many tokens are admitted whatever their score: not to be able to page them out costs more than a row."""
UTILITY_HALF_TOKENS = 1_600
"""Tokens of a content of which the utility is one half: some 200 lines of code."""
FEW_NAMES = 8
"""Names of a content that are too few to be judged by: one known name among three does not make it a third known."""
RECENCY_HALF_TURNS = 20
"""Turns after which the recency is one half: only history that is seen late (an import, a first request) is old at all."""
PREVIEW_CHARS = 200
"""Seed 002 §1.6."""

TYPES: Mapping[ObjectType, float] = MappingProxyType(
    {
        ObjectType.DESIGN_DECISION: 1.0,
        ObjectType.PLAN: 0.9,
        ObjectType.ERROR_CONTEXT: 0.9,
        ObjectType.FILE_CONTEXT: 0.8,
        ObjectType.DEBUGGING_SESSION: 0.8,
        ObjectType.EXTERNAL_REFERENCE: 0.7,
        ObjectType.CONVERSATION_PHASE: 0.6,
        ObjectType.TOOL_RESULT: 0.5,
    }
)
"""How likely each type is to be asked for again."""


def novelty(words: frozenset[str], others: Iterable[frozenset[str]]) -> float:
    """1 − the largest share of its words that one of the others has. `others`: of the objects under another key; what was read
    again is told by `supersedes`, not by this."""
    weight = len(words) / max(len(words), FEW_NAMES)
    return 1.0 - weight * max((overlap(words, each) for each in others), default=0.0)


def utility(tokens: int) -> float:
    """tokens / (tokens + 1600): what paging it out can save, 0 to 1."""
    return tokens / (tokens + UTILITY_HALF_TOKENS) if tokens > 0 else 0.0


def recency(age_turns: int) -> float:
    """2^(−age / 20)."""
    return float(2.0 ** (-max(0, age_turns) / RECENCY_HALF_TURNS))


def score(type_score: float, novelty_score: float, utility_score: float, recency_score: float) -> float:
    """S(m) = 0.25·type + 0.25·novelty + 0.40·utility + 0.10·recency."""
    return (
        WEIGHT_TYPE * type_score
        + WEIGHT_NOVELTY * novelty_score
        + WEIGHT_UTILITY * utility_score
        + WEIGHT_RECENCY * recency_score
    )


def admit(
    object_id: UUID, object_type: ObjectType, text: str, tokens: int, novelty_score: float, age_turns: int
) -> Admission:
    """The decision on a content that would become this object."""
    parts = (TYPES[object_type], novelty_score, utility(tokens), recency(age_turns))
    total = score(*parts)
    admitted = tokens >= MIN_TOKENS and (total >= THRESHOLD or tokens >= ALWAYS_TOKENS)
    return Admission(object_id if admitted else None, admitted, total, *parts, THRESHOLD, text[:PREVIEW_CHARS])
