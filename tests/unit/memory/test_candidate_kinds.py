"""Whatever a chat can teach has its provenance, its importance, and what it may repeat: no type check misses a row."""

from __future__ import annotations

from typing import get_args

from app.memory import drafts
from app.memory.candidate import IMPORTANCE, PROVENANCE
from app.store.kinds import LearnedKind


def test_every_kind_that_a_chat_can_teach_is_known() -> None:
    for table in (PROVENANCE, IMPORTANCE, drafts._CLASSES):
        assert set(table) == set(get_args(LearnedKind))
