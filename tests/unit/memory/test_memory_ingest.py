"""app/memory/ingest.py and drafts.py: what becomes of a statement, decided on plain values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from app.memory.candidate import Candidate, Kind, Provenance, Triple
from app.memory.drafts import EPISODIC, PROCEDURAL, SEMANTIC, SESSION, Draft, Place, make_drafts
from app.memory.ingest import GLOBAL, LOCAL, Ingest
from app.memory.ingest_text import content_hash, normalise
from app.store.learning import MAX_SOURCES, Changes, KnownMemory, Near, SourceMessage

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SAID = datetime(2026, 11, 1, 9, tzinfo=UTC)
TTL = timedelta(hours=24)
HERE = Place(UUID(int=1), "chat-1")
ELSEWHERE = UUID(int=2)
THRESHOLD = 0.92


def candidate(
    content: str,
    kind: Kind = "fact",
    provenance: Provenance = Provenance.FACT,
    *,
    triple: tuple[str, str, str] | None = None,
    explicit: bool = False,
    secret: bool = False,
    importance: float = 0.6,
    confidence: float = 0.9,
) -> Candidate:
    return Candidate(
        content,
        kind,
        provenance,
        quote=f"I said: {content}",
        span=(0, 5),
        confidence=confidence,
        importance=importance,
        explicit=explicit,
        triple=Triple(*triple) if triple else None,
        secret=secret,
    )


def message(number: int = 10, turn: int = 3) -> SourceMessage:
    return SourceMessage(UUID(int=number), turn, "user", "…", [], SAID, {"topic": "food"})


def draft(of: Candidate, *, number: int = 10, vector: list[float] | None = None) -> Draft:
    (made,) = make_drafts([(of, message(number))], len, store_secrets=True)
    return made if vector is None else replace(made, vector=np.array(vector, np.float32) / np.linalg.norm(vector))


def known(text: str, number: int = 100, **other: Any) -> KnownMemory:
    fields: dict[str, Any] = {
        "memory_tier": SEMANTIC,
        "memory_scope": GLOBAL,
        "session_id": HERE.session_id,
        "kind": "fact",
        "confidence": 0.8,
        "importance": 0.5,
        "access_count": 4,
        "reinforcement_count": 2,
        "expires_at": None,
        "is_validated": False,
        "sources": [{"message_id": "old"}],
        "source_message_ids": [UUID(int=9)],
        "subject_entity_id": None,
        "predicate": None,
        "object_value": None,
    }
    return KnownMemory(UUID(int=number), text, content_hash(text), **fields | other)


def ingest(
    statements: list[Draft],
    memories: list[KnownMemory] | None = None,
    near: list[Near] | None = None,
    place: Place = HERE,
) -> Changes:
    numbers = iter(range(1000, 2000))
    taken = Ingest(
        place,
        memories or [],
        near or [],
        threshold=THRESHOLD,
        now=NOW,
        l1_ttl=TTL,
        new_id=lambda: UUID(int=next(numbers)),
    )
    return taken.take_all(statements)


def events(changes: Changes) -> list[tuple[int, str]]:
    return [(each.memory_id.int, each.event) for each in changes.events]


# --- drafts ----------------------------------------------------------------------------------------------------------


def test_a_draft_is_normalised_hashed_and_counted() -> None:
    (made,) = make_drafts(
        [(candidate("Lives  in Lisbon."), message())], lambda text: len(text.split()), store_secrets=False
    )
    assert made.text == normalise("Lives  in Lisbon.") == "Lives in Lisbon"
    assert made.content_hash == content_hash("lives in lisbon")
    assert made.token_count == 3


def test_what_says_nothing_is_no_draft() -> None:
    assert make_drafts([(candidate(" … "), message())], len, store_secrets=False) == []


@pytest.mark.parametrize("wanted", [False, True])
def test_secrets_are_refused_unless_wanted(wanted: bool) -> None:
    found = make_drafts([(candidate("Password is hunter2", secret=True), message())], len, store_secrets=wanted)
    assert bool(found) is wanted


@pytest.mark.parametrize(
    ("kind", "provenance", "explicit", "tier"),
    [
        ("fact", Provenance.FACT, False, SEMANTIC),
        ("fact", Provenance.USER_STATED, False, SEMANTIC),
        ("correction", Provenance.CORRECTION, False, SEMANTIC),
        ("preference", Provenance.PREFERENCE, False, PROCEDURAL),
        ("instruction", Provenance.INSTRUCTION, False, PROCEDURAL),
        ("event", Provenance.USER_STATED, False, EPISODIC),
        ("event", Provenance.USER_STATED, True, SEMANTIC),
        ("fact", Provenance.SYSTEM_INFERRED, False, SESSION),
        ("preference", Provenance.SYSTEM_INFERRED, False, SESSION),
        ("preference", Provenance.SYSTEM_INFERRED, True, PROCEDURAL),
        ("tool_outcome", Provenance.TOOL_OUTPUT, False, SESSION),
    ],
)
def test_the_tier_where_a_memory_begins(kind: Kind, provenance: Provenance, explicit: bool, tier: int) -> None:
    assert draft(candidate("x y", kind, provenance, explicit=explicit)).tier == tier


# --- new -------------------------------------------------------------------------------------------------------------


def test_what_the_user_states_is_kept_for_good_and_everywhere() -> None:
    changes = ingest([draft(candidate("Lives in Lisbon", triple=("user", "lives_in", "Lisbon")))])
    (row,) = changes.new
    assert (row.tier, row.scope, row.expires_at, row.validated) == (SEMANTIC, GLOBAL, None, True)
    assert (row.subject, row.predicate, row.object) == ("user", "lives_in", "Lisbon")
    assert row.confidence == pytest.approx(0.9)
    assert row.created_at == SAID
    assert events(changes) == [(1000, "created")]


def test_what_is_concluded_stays_in_the_session_for_a_day() -> None:
    (row,) = ingest([draft(candidate("Seems to cook", provenance=Provenance.SYSTEM_INFERRED))]).new
    assert (row.tier, row.scope, row.expires_at, row.validated) == (SESSION, LOCAL, NOW + TTL, False)
    assert row.confidence == 0.5


def test_an_event_lives_ninety_days() -> None:
    (row,) = ingest([draft(candidate("Has an exam on 5 May", "event", Provenance.USER_STATED))]).new
    assert (row.tier, row.scope, row.expires_at) == (EPISODIC, GLOBAL, NOW + timedelta(days=90))


def test_provenance_points_to_the_message_and_the_words() -> None:
    (row,) = ingest([draft(candidate("Lives in Lisbon"))]).new
    assert (row.turn_id, row.turn_index, row.source_message_ids) == (UUID(int=10), 3, [UUID(int=10)])
    assert row.sources == [
        {
            "session": "chat-1",
            "session_id": HERE.session_id,
            "message_id": UUID(int=10),
            "turn_index": 3,
            "quote": "I said: Lives in Lisbon",
            "created_at": SAID,
            "metadata": {"topic": "food"},
        }
    ]


def test_of_nobody_nothing_leaves_the_session() -> None:
    place = Place(UUID(int=1), "chat-1", confined=True)
    (row,) = ingest([draft(candidate("Lives in Lisbon", explicit=True))], place=place).new
    assert (row.tier, row.scope) == (SEMANTIC, LOCAL)


# --- exact duplicates ------------------------------------------------------------------------------------------------


def test_the_same_words_reinforce() -> None:
    changes = ingest([draft(candidate("lives in LISBON.", importance=0.7))], [known("Lives in Lisbon", importance=0.5)])
    assert changes.new == []
    (said,) = changes.reinforced
    assert (said.memory_id, said.times) == (UUID(int=100), 1)
    assert said.importance == pytest.approx(0.75)
    assert [each["message_id"] for each in said.sources] == [UUID(int=10)]
    assert said.validated
    assert events(changes) == [(100, "reinforced")]


def test_the_same_words_twice_in_one_job_are_one_memory() -> None:
    changes = ingest([draft(candidate("Likes tea"), number=10), draft(candidate("Likes tea"), number=11)])
    (row,) = changes.new
    assert (row.access_count, row.reinforcement_count) == (1, 1)
    assert row.source_message_ids == [UUID(int=10), UUID(int=11)]
    assert len(row.sources) == 2


def test_three_times_the_same_counts_three() -> None:
    changes = ingest([draft(candidate("Likes tea"), number=n) for n in (10, 11, 12)], [known("Likes tea")])
    (said,) = changes.reinforced
    assert said.times == 3
    assert said.source_message_ids == [UUID(int=10), UUID(int=11), UUID(int=12)]


def test_stating_what_was_concluded_raises_it() -> None:
    concluded = known("Likes tea", memory_tier=SESSION, memory_scope=LOCAL, expires_at=NOW, confidence=0.5)
    ((said,),) = (ingest([draft(candidate("Likes tea", "preference", Provenance.PREFERENCE))], [concluded]).reinforced,)
    assert (said.tier, said.scope, said.expires_at, said.validated) == (PROCEDURAL, GLOBAL, None, True)
    assert said.confidence == pytest.approx(0.9)


def test_concluding_what_was_stated_lowers_nothing() -> None:
    said = ingest(
        [draft(candidate("Likes tea", provenance=Provenance.SYSTEM_INFERRED))], [known("Likes tea")]
    ).reinforced[0]
    assert (said.tier, said.scope, said.expires_at) == (SEMANTIC, GLOBAL, None)
    assert said.confidence == pytest.approx(0.8)
    assert not said.validated


def test_what_is_concluded_in_two_sessions_belongs_to_both() -> None:
    there = known("Likes tea", memory_tier=SESSION, memory_scope=LOCAL, expires_at=NOW, session_id=ELSEWHERE)
    said = ingest([draft(candidate("Likes tea", provenance=Provenance.SYSTEM_INFERRED))], [there]).reinforced[0]
    assert (said.tier, said.scope, said.expires_at) == (SESSION, GLOBAL, NOW + TTL)


# --- near duplicates -------------------------------------------------------------------------------------------------

SHORT = "Prefers short blog posts"
EXACT = "Prefers short blog posts under 800 words"


def test_the_more_specific_takes_the_place_of_the_older() -> None:
    changes = ingest(
        [draft(candidate(EXACT, "preference", importance=0.4))], [known(SHORT)], [Near(0, UUID(int=100), 0.95)]
    )
    (row,) = changes.new
    assert row.text == EXACT
    assert changes.superseded == [(UUID(int=100), row.memory_id)]
    assert (row.access_count, row.reinforcement_count) == (5, 3)
    assert row.importance == pytest.approx(0.55)
    assert row.sources[0] == {"message_id": "old"}
    assert row.source_message_ids == [UUID(int=9), UUID(int=10)]
    assert changes.reinforced == []
    assert events(changes) == [(1000, "merged"), (100, "superseded")]


def test_the_less_specific_reinforces_the_older() -> None:
    changes = ingest([draft(candidate(SHORT, "preference"))], [known(EXACT)], [Near(0, UUID(int=100), 0.95)])
    assert changes.new == []
    assert [each.memory_id for each in changes.reinforced] == [UUID(int=100)]


def test_another_number_is_another_claim() -> None:
    changes = ingest(
        [draft(candidate("Prefers posts under 500 words"))],
        [known("Prefers posts under 800 words")],
        [Near(0, UUID(int=100), 0.99)],
    )
    assert len(changes.new) == 1
    assert changes.superseded == []
    assert changes.reinforced == []


def test_another_value_of_the_same_fact_is_kept_beside_it() -> None:
    changes = ingest(
        [draft(candidate("lives in porto", triple=("user", "lives_in", "porto")))],
        [known("lives in lisbon", subject_entity_id="user", predicate="lives_in", object_value="lisbon")],
        [Near(0, UUID(int=100), 0.95)],
    )
    assert len(changes.new) == 1
    assert changes.superseded == []


def test_near_duplicates_within_one_job() -> None:
    one = draft(candidate(SHORT, "preference"), number=10, vector=[1, 0.05])
    two = draft(candidate(EXACT, "preference"), number=11, vector=[1, 0])
    changes = ingest([one, two])
    first, second = changes.new
    assert (first.superseded_by, second.superseded_by) == (second.memory_id, None)
    assert second.source_message_ids == [UUID(int=10), UUID(int=11)]
    assert changes.superseded == []


def test_what_is_not_near_enough_within_one_job_is_apart() -> None:
    one = draft(candidate(SHORT, "preference"), number=10, vector=[1, 0])
    two = draft(candidate(EXACT, "preference"), number=11, vector=[1, 1])
    assert [each.superseded_by for each in ingest([one, two]).new] == [None, None]


def test_what_was_replaced_in_this_job_is_not_met_again() -> None:
    statements = [
        draft(candidate(EXACT, "preference"), number=10),
        draft(candidate(SHORT, "preference"), number=11),
    ]
    near = [Near(0, UUID(int=100), 0.95), Near(1, UUID(int=100), 1.0)]
    changes = ingest(statements, [known(SHORT)], near)
    # The words of the replaced memory are said again: they are kept anew, for no vector tells that its heir says more.
    assert [each.text for each in changes.new] == [EXACT, SHORT]
    assert changes.reinforced == []


def test_sources_are_bounded() -> None:
    many = [{"message_id": str(n)} for n in range(MAX_SOURCES)]
    old = known(SHORT, sources=many, source_message_ids=[UUID(int=n) for n in range(MAX_SOURCES)])
    (row,) = ingest([draft(candidate(EXACT, "preference"))], [old], [Near(0, UUID(int=100), 0.95)]).new
    assert len(row.sources) == len(row.source_message_ids) == MAX_SOURCES
    assert row.source_message_ids[-1] == UUID(int=10)


# --- corrections -----------------------------------------------------------------------------------------------------


def correction(value: str) -> Candidate:
    return candidate(
        f"Lives in {value}", "correction", Provenance.CORRECTION, triple=("user", "lives_in", value)
    )  # fmt: skip


def lives(value: str, number: int = 100) -> KnownMemory:
    return known(f"Lives in {value}", number, subject_entity_id="user", predicate="lives_in", object_value=value)


def test_a_correction_ends_what_it_corrects() -> None:
    changes = ingest([draft(correction("Porto"))], [lives("Lisbon")])
    (row,) = changes.new
    assert changes.superseded == [(UUID(int=100), row.memory_id)]
    assert events(changes) == [(1000, "created"), (100, "superseded")]


def test_a_correction_that_is_known_already_ends_the_others() -> None:
    changes = ingest([draft(correction("Porto"))], [lives("Lisbon", 100), lives("Porto", 101)])
    assert changes.new == []
    assert changes.superseded == [(UUID(int=100), UUID(int=101))]
    assert [each.memory_id for each in changes.reinforced] == [UUID(int=101)]


def test_a_correction_touches_no_other_predicate() -> None:
    other = known("Works in Lisbon", subject_entity_id="user", predicate="works_in", object_value="Lisbon")
    assert ingest([draft(correction("Porto"))], [other]).superseded == []


def test_a_plain_fact_corrects_nothing() -> None:
    plain = candidate("Lives in Porto", triple=("user", "lives_in", "Porto"))
    assert ingest([draft(plain)], [lives("Lisbon")]).superseded == []


def test_a_correction_within_one_job() -> None:
    said = candidate("Lives in Lisbon", triple=("user", "lives_in", "Lisbon"))
    first, second = ingest([draft(said, number=10), draft(correction("Porto"), number=11)]).new
    assert (first.superseded_by, second.superseded_by) == (second.memory_id, None)
