"""The four-part score of seed 002."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.paging import segment
from app.features.paging.segment import (
    ALWAYS_TOKENS,
    MIN_TOKENS,
    PREVIEW_CHARS,
    THRESHOLD,
    admit,
    novelty,
    recency,
    utility,
)
from app.features.paging.values import ObjectType

ONE = UUID(int=1)


def test_the_seeds_example_is_above_the_threshold() -> None:
    """Seed 002 §3.1, step 4: S(m) = 0.72. It gives the sum alone; these parts are a file of 200 lines (1,600 tokens), of
    whose names 12 % are known, read just now: 0.25·0.8 + 0.25·0.88 + 0.40·0.5 + 0.10·1 = 0.72."""
    made = admit(ONE, ObjectType.FILE_CONTEXT, "text", 1600, 0.88, 0)
    assert (made.type, made.novelty, made.utility, made.recency) == (0.8, 0.88, 0.5, 1.0)
    assert made.total == pytest.approx(0.72)
    assert made.total > made.threshold
    assert made.admitted
    assert made.object_id == ONE


def test_every_type_has_a_score() -> None:
    assert segment.TYPES.keys() == set(ObjectType)


def test_what_is_rejected_has_a_preview_and_no_id() -> None:
    made = admit(ONE, ObjectType.TOOL_RESULT, "y" * 5000, 250, 0.2, 40)
    assert not made.admitted
    assert made.object_id is None
    assert made.content_preview == "y" * PREVIEW_CHARS
    assert made.total < THRESHOLD


def test_size_decides_at_both_ends() -> None:
    assert not admit(ONE, ObjectType.PLAN, "", MIN_TOKENS - 1, 1.0, 0).admitted
    assert admit(ONE, ObjectType.TOOL_RESULT, "", ALWAYS_TOKENS, 0.0, 1000).admitted


def test_parts_by_hand() -> None:
    assert utility(1600) == 0.5
    assert utility(0) == 0.0
    assert recency(20) == 0.5
    assert recency(-3) == 1.0
    assert novelty(frozenset("abcdefgh"), [frozenset("efghij"), frozenset("z")]) == 0.5
    assert novelty(frozenset("ab"), [frozenset("ab")]) == 0.75, "two names are too few to be judged by"
    assert novelty(frozenset("ab"), []) == 1.0
    assert novelty(frozenset(), [frozenset("a")]) == 1.0


@given(st.sampled_from(ObjectType), st.integers(0, 10**7), st.floats(0, 1), st.integers(0, 10**4))
def test_scores_are_shares_and_more_is_never_less(kind: ObjectType, tokens: int, new: float, age: int) -> None:
    made = admit(ONE, kind, "", tokens, new, age)
    assert 0 <= made.total <= 1
    assert admit(ONE, kind, "", tokens + 1000, new, age).total >= made.total
    assert admit(ONE, kind, "", tokens, new, age + 10).total <= made.total
