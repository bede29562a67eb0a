"""Whatever a chat can teach has its provenance and its importance: no type check misses a row."""

from __future__ import annotations

from typing import get_args

from app.memory.candidate import IMPORTANCE, PROVENANCE
from app.memory.drafts import like
from app.store.kinds import LearnedKind


def test_every_kind_that_a_chat_can_teach_is_known() -> None:
    for table in (PROVENANCE, IMPORTANCE):
        assert set(table) == set(get_args(LearnedKind))


def test_what_may_say_the_same() -> None:
    same = [("fact", "preference"), ("correction", "instruction"), ("event", "event"), ("tool_outcome", "tool_outcome")]
    other = [("fact", "event"), ("event", "tool_outcome"), ("summary", "summary"), ("pattern", "fact")]
    assert [like(*each) for each in (*same, *other)] == [True] * len(same) + [False] * len(other)
