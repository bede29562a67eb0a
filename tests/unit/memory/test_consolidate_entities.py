"""Which entities get a summary (seed 004, transformation 3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from app.memory.summaries import (
    ENTITY_EPISODES,
    KnownSummary,
    aliases,
    display_name,
    due_entities,
    key_facts,
)
from app.store.derived import Episode, KnownFact

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


GAI = "customer:gai_123"


def naming(n: int, *called: str) -> Episode:
    """An episode of a session of its own in which Gai Media Entertainment was called so."""
    mentions = [{"text": each, "position": 0, "confidence": 0.95, "is_coreference": False} for each in called]
    mentions.append({"text": "they", "position": 9, "confidence": 0.6, "is_coreference": True})
    thing = {"canonical_id": GAI, "canonical_name": "Gai Media Entertainment", "type": "customer", "mentions": mentions}
    slugs = tuple(each.lower().replace(" ", "-") for each in called)
    at = BEGAN + timedelta(hours=n)
    return Episode(UUID(int=n + 1), UUID(int=500 + n), at, "question", (GAI, *slugs), things=(thing,))


def test_a_thing_by_any_name_is_one() -> None:
    """Seed 004, transformation 3: three sessions that name it "Gai", "Gai Media" and in full are three about one thing."""
    told = [naming(0, "Gai"), naming(1, "Gai Media"), naming(2, "Gai Media Entertainment")]
    (due,) = due_entities(told, [], {})
    assert (due.entity, due.name, due.sessions, due.episode_count) == (GAI, "Gai Media Entertainment", 3, 3)
    assert due.key == "entity:customer:gai_123"
    assert due.slugs == ("gai", "gai-media", "gai-media-entertainment")
    (asked,) = due_entities(told[:2], [], {}, ["Gai Media"])
    assert asked.entity == GAI
    (by_id,) = due_entities(told[:2], [], {}, [GAI])
    assert by_id.asked_for


def test_what_was_known_by_name_belongs_to_the_thing() -> None:
    facts = [fact(1, "gai media", predicate="prefers", value="tea"), fact(2, GAI, "gai-media")]
    old = KnownSummary(UUID(int=9), frozenset(), 0, 0)
    (due,) = due_entities([naming(n, "Gai Media") for n in range(3)], facts, {"gai-media": old})
    assert len(due.facts) == 2
    assert due.previous == old
    assert due.keys == [f"entity:{GAI}", "entity:gai-media", "entity:gai-media-entertainment"]
