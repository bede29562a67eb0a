"""Which statements say the same, and which memories a statement concerns."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from app.memory.candidate import Kind
from app.memory.compare import concerned, says_same
from app.memory.drafts import known_item
from app.memory.text import content_hash
from app.store.learning import Member
from tests.unit.memory.test_memory_ingest import candidate, draft, known

TAU = 0.9


@pytest.mark.parametrize(
    ("new", "old", "cosine", "same"),
    [
        ("Likes tea", "likes tea.", None, True),
        ("Likes hiking", "Loves hiking", 0.95, True),
        ("Likes hiking", "Loves hiking", 0.85, False),
        ("Cite your sources", "Always cite your sources", 0.85, True),
        ("Prefers posts under 800 words", "Prefers posts under 500 words", 0.99, False),
        ("Runs a small bakery", "Runs a small brewery", 0.95, False),
    ],
)
def test_by_their_words(new: str, old: str, cosine: float | None, same: bool) -> None:
    assert says_same(draft(candidate(new)), known_item(known(old)), cosine, TAU) is same
    assert says_same(draft(candidate(old)), known_item(known(new)), cosine, TAU) is same


@pytest.mark.parametrize(("kind", "same"), [("preference", True), ("event", False)])
def test_only_of_one_class(kind: Kind, same: bool) -> None:
    assert says_same(draft(candidate("Likes hiking")), known_item(known("Loves hiking", kind=kind)), 0.95, TAU) is same


def test_by_their_triples() -> None:
    said = draft(candidate("Home is in Lisbon", triple=("user", "lives_in", "Lisbon")))
    claim: dict[str, Any] = {"subject_entity_id": "user", "predicate": "lives_in"}
    assert says_same(said, known_item(known("Lives in Lisbon", object_value="Lisbon", **claim)), None, TAU)
    assert not says_same(said, known_item(known("Home is in Lissabon", object_value="Porto", **claim)), 0.99, TAU)


def member(number: int, root: int, text: str, predicate: str | None = None, value: str | None = None) -> Member:
    subject = "user" if predicate else None
    return Member(UUID(int=number), UUID(int=root), text, content_hash(text), "fact", subject, predicate, value)


def test_only_what_a_statement_may_change_is_held() -> None:
    said = [draft(candidate("Lives in Porto", triple=("user", "lives_in", "Porto"))), draft(candidate("Likes hiking"))]
    members = [
        member(1, 1, "Lives in Lisbon", "lives_in", "Lisbon"),
        member(2, 1, "Home is in Lisbon", "lives_in", "Lisbon"),
        member(3, 3, "Does not live in Porto", "not_lives_in", "Porto"),
        member(4, 4, "Loves hiking"),
        member(5, 5, "Likes swimming"),
        member(6, 6, "Lives with a cat"),
    ]
    near = {0: {UUID(int=6): 0.85}, 1: {UUID(int=4): 0.95, UUID(int=5): 0.89}}
    assert {each.int for each in concerned(said, members, near, TAU)} == {1, 3, 4}
