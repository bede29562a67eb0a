"""Which memories may be compared at all, and what is told of a confidence."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.memory.drafts import factors, known_item, like, member_item
from app.store.learning import Member
from tests.unit.memory.test_memory_ingest import known


@pytest.mark.parametrize(
    ("one", "other", "may"),
    [
        ("fact", "preference", True), ("correction", "fact", True), ("event", "event", True), ("event", "fact", False),
        ("tool_outcome", "fact", False), ("summary", "summary", False), ("fact", "pattern", False), ("episode", "event", False),
    ],
)  # fmt: skip
def test_what_was_learned_is_not_compared_with_what_was_drawn_together(one: str, other: str, may: bool) -> None:
    assert like(one, other) is may
    assert like(other, one) is may


def test_the_factors_of_a_confidence() -> None:
    """Seed 004, `confidence_factors`."""
    item = known_item(known("Lives in Lisbon", confidence=0.95, reinforcement_count=2))
    assert factors(item) == {
        "base_confidence": 0.7, "reinforcement_boost": 0.25, "reinforcement_count": 2, "source_type": "episodic",
        "final_confidence": 0.95,
    }  # fmt: skip


def test_another_wording_has_its_memory_as_heir() -> None:
    item = member_item(Member(UUID(int=2), UUID(int=1), "Home is Lisbon", b"h", "fact", "user", "lives_in", "Lisbon"))
    assert (item.heir, item.how) == (UUID(int=1), "merged")
    assert item.triple is not None
    assert item.triple.value == "Lisbon"
