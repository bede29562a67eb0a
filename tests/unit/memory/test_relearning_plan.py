"""Tests of the plan of learning again: what it adds, keeps, changes and retires."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from app.memory.relearning import RelearnPlan, ReviewedMemory, plan_relearning
from app.memory.text import content_hash
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, tzinfo=UTC)
MESSAGE = UUID(int=1)


def build(number: int, text: str, quote: str = "", **fields: Any) -> ReviewedMemory:
    source = {"message_id": str(MESSAGE), "quote": quote or text}
    columns: dict[str, Any] = {"sources": [source], "details": {}, "valid_to": None, "memory_tier": 3}
    plain: dict[str, Any] = {
        "kind": "fact", "status": "active", "superseded_by": None, "superseded_how": None, "subject": None,
        "predicate": None, "value": None, "source_message_ids": [MESSAGE], "stated_at": NOW - timedelta(days=9),
        "updated_at": NOW - timedelta(days=9), "expires_at": None, "columns": columns, "is_fixed": False,
    }  # fmt: skip
    return ReviewedMemory(UUID(int=number), text, content_hash(text), **plain | fields)


def describe(plan: RelearnPlan) -> dict[str, list[str]]:
    named = {
        "added": [memory.content_text for memory in plan.added],
        "reworded": [entry.found.content_text for entry in plan.reworded],
        "settled": [f"{entry.memory.content_text}: {entry.status}" for entry in plan.settled],
        "retired": [memory.content_text for memory in plan.retired],
    }
    return {name: texts for name, texts in named.items() if texts}


STORED, FOUND = 10, 20
ENDED: dict[str, Any] = {"status": "invalidated"}
OVER = NOW - timedelta(days=1)


@each_of(
    ("stored", "found", "changes"),
    [
        ([build(STORED, "Likes tea")], [build(FOUND, "Likes tea")], {}),
        ([build(STORED, "Likes tea")], [], {"retired": ["Likes tea"]}),
        ([], [build(FOUND, "Likes tea")], {"added": ["Likes tea"]}),
        ([build(STORED, "Likes tea", is_fixed=True)], [], {}),
        ([build(STORED, "Likes tea", source_message_ids=[UUID(int=2)])], [], {}),
        # What somebody ended stays so, unless it is said again later.
        ([build(STORED, "Likes tea", is_fixed=True, **ENDED)], [build(FOUND, "Likes tea")], {}),
        (
            [build(STORED, "Likes tea", is_fixed=True, updated_at=NOW - timedelta(days=20), **ENDED)],
            [build(FOUND, "Likes tea")],
            {"added": ["Likes tea"]},
        ),
        # A fixed memory in force and a reading of the same words are one.
        (
            [build(STORED, "Likes Iron", "I like Iron Man", is_fixed=True)],
            [build(FOUND, "Likes Iron Man", "I like Iron Man")],
            {},
        ),
        (
            [build(STORED, "Likes Iron", "I like Iron Man")],
            [build(FOUND, "Likes Iron Man", "I like Iron Man")],
            {"reworded": ["Likes Iron Man"]},
        ),
        (
            [build(STORED, "Likes Iron", "I like Iron"), build(STORED + 1, "Is a welder")],
            [build(FOUND, "Likes Iron Man", "Iron Man rules")],
            {"added": ["Likes Iron Man"], "retired": ["Likes Iron", "Is a welder"]},
        ),
        ([build(STORED, "Likes tea")], [build(FOUND, "Likes tea", **ENDED)], {"settled": ["Likes tea: invalidated"]}),
        ([build(STORED, "Likes tea", **ENDED)], [build(FOUND, "Likes tea")], {"settled": ["Likes tea: active"]}),
        # Of what ended, one memory of a text is enough.
        ([], [build(FOUND, "Likes tea", **ENDED), build(FOUND + 1, "Likes tea", **ENDED)], {"added": ["Likes tea"]}),
        ([build(STORED, "Likes tea", **ENDED)], [build(FOUND, "Likes tea", **ENDED)], {}),
        ([], [build(FOUND, "Perhaps: likes tea", expires_at=OVER)], {}),
        ([build(STORED, "Perhaps: likes tea")], [build(FOUND, "Perhaps: likes tea", expires_at=OVER)], {}),
        # Another wording leads to its memory.
        (
            [build(STORED, "Likes green tea")],
            [
                build(
                    FOUND, "Likes green tea", status="superseded", superseded_how="merged", superseded_by=UUID(int=21)
                ),
                build(FOUND + 1, "Likes green tea with mint"),
            ],
            {"reworded": ["Likes green tea with mint"]},
        ),
    ],
)
def test_a_plan_has_the_differences_alone(
    stored: list[ReviewedMemory], found: list[ReviewedMemory], changes: dict[str, list[str]]
) -> None:
    assert describe(plan_relearning(stored, found, {MESSAGE}, set(), NOW)) == changes
