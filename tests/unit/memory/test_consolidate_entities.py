"""Which entities get a summary (seed 004, transformation 3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from app.memory.consolidate_entities import (
    ENTITY_EPISODES,
    KnownSummary,
    aliases,
    display_name,
    due_entities,
    key_facts,
)
from app.store.drawing import KnownFact
from app.store.episodes import Episode

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def episodes(count: int, sessions: int, entity: str = "gai-media") -> list[Episode]:
    return [
        Episode(UUID(int=n + 1), UUID(int=500 + n % sessions), BEGAN + timedelta(hours=n), "question", (entity,))
        for n in range(count)
    ]


def fact(n: int, *about: str, predicate: str | None = None, value: str | None = None, session: int = 500) -> KnownFact:
    source = {"session_id": str(UUID(int=session)), "message_id": str(UUID(int=n))}
    return KnownFact(
        UUID(int=1000 + n), f"Fact {n}", "fact", 0.8, 0.7, BEGAN, frozenset(about), about[0] if about else None,
        predicate, value, (UUID(int=n),), (source,),
    )  # fmt: skip


def test_three_sessions_or_twenty_episodes_or_a_request() -> None:
    assert due_entities(episodes(5, 2), [], {}) == []
    (due,) = due_entities(episodes(3, 3), [], {})
    assert (due.entity, due.sessions, due.episode_count) == ("gai-media", 3, 3)
    assert due_entities(episodes(ENTITY_EPISODES - 1, 1), [], {}) == []
    assert due_entities(episodes(ENTITY_EPISODES, 1), [], {})
    (asked,) = due_entities(episodes(2, 1), [], {}, ["Gai Media"])
    assert asked.asked_for
    assert due_entities(episodes(1, 1), [], {}, ["Gai Media"]) == []  # nothing to draw together
    assert due_entities([], [], {}, ["Nobody Knows"]) == []


def test_sessions_of_facts_count_as_well() -> None:
    facts = [fact(n, "gai-media", session=600 + n) for n in range(3)]
    (due,) = due_entities([], facts, {})
    assert due.sessions == 3
    assert sorted(each.text for each in due.facts) == ["Fact 0", "Fact 1", "Fact 2"]


def test_the_user_is_no_entity_of_their_own() -> None:
    assert due_entities([], [fact(n, "user", session=600 + n) for n in range(5)], {}) == []


def test_a_summary_is_made_anew_only_for_news() -> None:
    facts = [fact(n, "gai-media", session=600 + n) for n in range(4)]
    known = {"gai-media": KnownSummary(UUID(int=9), frozenset(each.memory_id for each in facts), 4, 0)}
    assert due_entities([], facts, known) == []
    assert due_entities([], [*facts, fact(10, "gai-media")], known) == []
    assert due_entities([], [*facts, fact(10, "gai-media")], known, ["gai-media"])
    (due,) = due_entities([], [*facts, *(fact(n, "gai-media") for n in (10, 11, 12))], known)
    assert due.previous == known["gai-media"]
    assert due_entities(episodes(ENTITY_EPISODES, 1), facts, known)
    assert due_entities(episodes(3, 3), facts, {"gai-media": KnownSummary(UUID(int=9), frozenset(), 4, 0)})


def test_a_relative_whose_name_is_known_is_one_entity() -> None:
    facts = [
        fact(1, "sister", "clara", predicate="name", value="Clara"),
        fact(2, "sister", "porto", predicate="lives_in", value="Porto", session=501),
        fact(3, "sister", "nurse", predicate="occupation", value="a nurse", session=502),
    ]
    assert aliases(facts) == {"sister": "clara"}
    (due,) = due_entities([], facts, {})
    assert due.entity == "clara"
    assert key_facts(due.facts)["lives_in"] == {"value": "Porto", "confidence": 0.8}


def test_those_asked_for_come_first_then_those_spoken_of_most() -> None:
    found = due_entities([*episodes(4, 3, "a1"), *episodes(9, 3, "b2"), *episodes(3, 1, "c3")], [], {}, ["c3"])
    assert [each.entity for each in found] == ["c3", "b2", "a1"]


def test_names_as_they_are_written() -> None:
    assert display_name("gai-media", ["We met Gai Media.", "and Gai Media called"]) == "Gai Media"
    assert display_name("gai-media", []) == "Gai media"
