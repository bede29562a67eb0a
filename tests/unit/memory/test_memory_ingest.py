"""app/memory/ingest.py and drafts.py: what becomes of a statement, decided on plain values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from app.memory.candidate import MemoryCandidate, Provenance, Triple
from app.memory.drafts import (
    EPISODIC,
    PROCEDURAL,
    SEMANTIC,
    SESSION,
    Draft,
    StatementPlace,
    like,
    make_drafts,
)
from app.memory.ingest import GLOBAL, LOCAL, Ingest
from app.memory.text import content_hash, normalise
from app.store.kinds import LearnedKind
from app.store.learning import MAX_SOURCES, Changes, KnownMemory, Member, SourceMessage

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SAID = datetime(2026, 11, 1, 9, tzinfo=UTC)
EARLIER = datetime(2026, 10, 1, 9, tzinfo=UTC)
LATER = datetime(2026, 11, 10, 9, tzinfo=UTC)
TTL, EVENT_TTL = timedelta(hours=24), timedelta(days=90)
HERE = StatementPlace(UUID(int=1), "chat-1")
ELSEWHERE = UUID(int=2)
THRESHOLD = 0.92


def candidate(
    content: str,
    kind: LearnedKind = "fact",
    provenance: Provenance = Provenance.FACT,
    *,
    triple: tuple[str, str, str] | None = None,
    explicit: bool = False,
    secret: bool = False,
    importance: float = 0.6,
    confidence: float = 0.9,
) -> MemoryCandidate:
    return MemoryCandidate(
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


def message(number: int = 10, turn: int = 3, at: datetime = SAID) -> SourceMessage:
    return SourceMessage(UUID(int=number), turn, "user", "…", [], at, {"topic": "food"})


def draft(of: MemoryCandidate, *, number: int = 10, vector: list[float] | None = None, at: datetime = SAID) -> Draft:
    (made,) = make_drafts([(of, message(number, at=at))], len, store_secrets=True)
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
        "validated_by": None,
        "provenance_type": Provenance.FACT,
        "valid_from": EARLIER,
        "stated_at": EARLIER,
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
    near: dict[int, list[int]] | None = None,
    place: StatementPlace = HERE,
    *,
    members: list[Member] | None = None,
) -> Changes:
    numbers = iter(range(1000, 2000))
    taken = Ingest(
        place,
        memories or [],
        members or [],
        {n: dict.fromkeys((UUID(int=each) for each in found), 0.95) for n, found in (near or {}).items()},
        threshold=THRESHOLD,
        now=NOW,
        ttl={SESSION: TTL, EPISODIC: EVENT_TTL},
        new_id=lambda: UUID(int=next(numbers)),
    )
    return taken.take_all(statements)


def events(changes: Changes) -> list[tuple[int, str]]:
    return [(each.memory_id.int, each.event) for each in changes.events]


def superseded(changes: Changes) -> list[tuple[int, int, str]]:
    return [(each.memory_id.int, each.heir.int, each.how) for each in changes.superseded]


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
def test_the_tier_where_a_memory_begins(kind: LearnedKind, provenance: Provenance, explicit: bool, tier: int) -> None:
    assert draft(candidate("x y", kind, provenance, explicit=explicit)).tier == tier


# --- new -------------------------------------------------------------------------------------------------------------


def test_what_the_user_states_is_kept_for_good_and_everywhere() -> None:
    changes = ingest([draft(candidate("Lives in Lisbon", triple=("user", "lives_in", "Lisbon")))])
    (row,) = changes.new
    assert (row.tier, row.scope, row.expires_at, row.validated) == (SEMANTIC, GLOBAL, None, True)
    assert (row.subject, row.predicate, row.object) == ("user", "lives_in", "Lisbon")
    assert row.confidence == 0.7, "seed 004: of a first statement"
    assert (row.predicate_type, row.created_at, row.valid_from, row.valid_to) == ("attribute", SAID, SAID, None)
    assert events(changes) == [(1000, "created")]


def test_what_is_concluded_stays_in_the_session_for_a_day() -> None:
    (row,) = ingest([draft(candidate("Seems to cook", provenance=Provenance.SYSTEM_INFERRED))]).new
    assert (row.tier, row.scope, row.expires_at, row.validated) == (SESSION, LOCAL, NOW + TTL, False)
    assert row.confidence == 0.5


# --- exact duplicates ------------------------------------------------------------------------------------------------


def test_the_same_words_reinforce() -> None:
    changes = ingest([draft(candidate("lives in Lisbon.", importance=0.7))], [known("Lives in Lisbon", importance=0.5)])
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
    assert said.confidence == pytest.approx(0.85), "the third confirmation"
    assert not said.validated


def test_what_is_concluded_in_two_sessions_belongs_to_both() -> None:
    there = known("Likes tea", memory_tier=SESSION, memory_scope=LOCAL, expires_at=NOW, session_id=ELSEWHERE)
    said = ingest([draft(candidate("Likes tea", provenance=Provenance.SYSTEM_INFERRED))], [there]).reinforced[0]
    assert (said.tier, said.scope, said.expires_at) == (SESSION, GLOBAL, NOW + TTL)


# --- near duplicates -------------------------------------------------------------------------------------------------

SHORT = "Prefers short blog posts"
EXACT = "Prefers short blog posts under 800 words"


def test_the_more_specific_takes_the_place_of_the_older() -> None:
    changes = ingest([draft(candidate(EXACT, "preference", importance=0.4))], [known(SHORT)], {0: [100]})
    (row,) = changes.new
    assert row.text == EXACT
    assert superseded(changes) == [(100, row.memory_id.int, "merged")]
    assert (row.access_count, row.reinforcement_count) == (5, 3)
    assert row.importance == pytest.approx(0.55)
    assert row.sources[0] == {"message_id": "old"}
    assert row.source_message_ids == [UUID(int=9), UUID(int=10)]
    assert changes.reinforced == []
    assert events(changes) == [(1000, "merged"), (100, "superseded")]


def test_another_number_is_another_claim() -> None:
    changes = ingest(
        [draft(candidate("Prefers posts under 500 words"))],
        [known("Prefers posts under 800 words")],
        {0: [100]},
    )
    assert len(changes.new) == 1
    assert changes.superseded == []
    assert changes.reinforced == []


def test_another_value_where_there_may_be_two_is_kept_beside_it() -> None:
    changes = ingest(
        [draft(candidate("is allergic to soy", triple=("user", "allergic_to", "soy")))],
        [known("is allergic to nuts", subject_entity_id="user", predicate="allergic_to", object_value="nuts")],
        {0: [100]},
    )
    assert len(changes.new) == 1
    assert changes.superseded == []
    assert changes.conflicts == []


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


def test_what_was_replaced_in_this_job_leads_to_what_replaced_it() -> None:
    statements = [
        draft(candidate(EXACT, "preference"), number=10),
        draft(candidate(SHORT, "preference"), number=11),
    ]
    (row,) = ingest(statements, [known(SHORT)], {0: [100], 1: [100]}).new
    assert (row.text, row.reinforcement_count) == (EXACT, 4)


def test_what_says_less_is_kept_as_another_wording() -> None:
    changes = ingest([draft(candidate(SHORT, "preference"))], [known(EXACT)], {0: [100]})
    (row,) = changes.new
    assert (row.text, row.superseded_by, row.superseded_how) == (SHORT, UUID(int=100), "merged")
    assert events(changes) == [(100, "reinforced")]


def test_another_wording_leads_to_the_memory() -> None:
    """What is near a wording of a memory, and says less, is that memory; what says more takes its place."""
    wording = Member(UUID(int=101), UUID(int=100), SHORT, content_hash(SHORT), "preference", None, None, None)
    same = ingest([draft(candidate(SHORT, "preference"))], [known(EXACT)], members=[wording])
    assert [each.memory_id.int for each in same.reinforced] == [100]
    assert same.new == []
    less = ingest(
        [draft(candidate("Prefers short posts", "preference"))], [known(EXACT)], {0: [101]}, members=[wording]
    )
    assert [(each.superseded_by, each.text) for each in less.new] == [(UUID(int=100), "Prefers short posts")]
    more = ingest([draft(candidate(SHORT + " on travel", "preference"))], [known(EXACT)], {0: [101]}, members=[wording])
    assert [each.superseded_by for each in more.new] == [None], (
        "it is not near that memory itself: nothing of it is lost"
    )
    assert more.superseded == []


def test_sources_are_bounded() -> None:
    many = [{"message_id": str(n)} for n in range(100, 100 + MAX_SOURCES)]
    old = known(SHORT, sources=many, source_message_ids=[UUID(int=n) for n in range(100, 100 + MAX_SOURCES)])
    (row,) = ingest([draft(candidate(EXACT, "preference"))], [old], {0: [100]}).new
    assert len(row.sources) == len(row.source_message_ids) == MAX_SOURCES
    assert row.source_message_ids[-1] == UUID(int=10)


# --- corrections -----------------------------------------------------------------------------------------------------


def correction(value: str) -> MemoryCandidate:
    return candidate(
        f"Lives in {value}", "correction", Provenance.CORRECTION, triple=("user", "lives_in", value)
    )  # fmt: skip


def lives(value: str, number: int = 100, **other: Any) -> KnownMemory:
    claim = {"subject_entity_id": "user", "predicate": "lives_in", "object_value": value}
    return known(f"Lives in {value}", number, **claim | other)


def test_a_correction_ends_what_it_corrects() -> None:
    changes = ingest([draft(correction("Porto"))], [lives("Lisbon")])
    (row,) = changes.new
    assert superseded(changes) == [(100, row.memory_id.int, "corrected")]
    assert events(changes) == [(1000, "created"), (100, "superseded")]


def test_a_correction_that_is_known_already_ends_the_others() -> None:
    changes = ingest([draft(correction("Porto"))], [lives("Lisbon", 100), lives("Porto", 101)])
    assert changes.new == []
    assert superseded(changes) == [(100, 101, "corrected")]
    assert [each.memory_id for each in changes.reinforced] == [UUID(int=101)]


# --- triples (seed 004, transformation 2) --------------------------------------------------------------------------------


def test_a_correction_is_no_conflict_whichever_is_learned_first() -> None:
    in_order = ingest([draft(correction("Porto"), at=LATER)], [lives("Lisbon", stated_at=SAID)])
    assert (superseded(in_order)[0][2], in_order.conflicts) == ("corrected", [])
    corrected = lives("Porto", kind="correction", valid_from=LATER, stated_at=LATER)
    late = ingest([draft(candidate("Lives in Lisbon", triple=("user", "lives_in", "Lisbon")))], [corrected])
    (row,) = late.new
    assert (row.superseded_by, row.superseded_how, late.conflicts) == (UUID(int=100), "corrected", [])


def test_a_domain_row_outranks_what_was_said_later() -> None:
    (row,) = ingest(
        [draft(candidate("Lives in Porto", triple=("user", "lives_in", "Porto")))],
        [lives("Lisbon", validated_by="domain")],
    ).new
    assert row.superseded_by == UUID(int=100)


def test_confidence_grows_with_each_confirmation() -> None:
    """Seed 004: 0.7, then 0.15, 0.10, 0.05 and 0.02 more, never above 0.95."""
    said = candidate("Lives in Lisbon")
    figures = [ingest([draft(said, number=n) for n in range(times)]).new[0].confidence for times in range(1, 6)]
    assert figures == pytest.approx([0.7, 0.85, 0.95, 0.95, 0.95])
    liked = candidate("Likes tea", "preference", Provenance.PREFERENCE)
    figures = [ingest([draft(liked, number=n) for n in range(times)]).new[0].confidence for times in range(1, 7)]
    assert figures == pytest.approx([0.6, 0.75, 0.85, 0.90, 0.92, 0.94])
    (row,) = ingest([draft(liked, number=n) for n in range(3)]).new
    assert row.confidence_factors == {
        "base_confidence": 0.6, "reinforcement_boost": 0.25, "reinforcement_count": 2, "source_type": "episodic",
        "final_confidence": 0.85,
    }  # fmt: skip


# --- the order of arrival ------------------------------------------------------------------------------------------------

POSTS = ["Prefers posts", "Prefers short posts", "Prefers posts under 800 words", "Prefers posts under 500 words"]


@given(st.permutations(range(4)), st.lists(st.integers(0, 3), max_size=6))
def test_what_is_in_force_does_not_depend_on_the_order(order: list[int], again: list[int]) -> None:
    vectors: list[list[float]] = [[1, 0.1], [1, 0.05], [1, 0], [1, -0.05]]
    said = [draft(candidate(POSTS[n], "preference"), number=n, vector=vectors[n]) for n in [*order, *again]]
    in_force = {row.text for row in ingest(said).new if row.superseded_by is None}
    assert in_force == {"Prefers posts under 800 words", "Prefers posts under 500 words"}


@given(st.permutations(range(5)))
def test_nor_do_facts_that_follow_each_other(order: list[int]) -> None:
    """Lisbon, then Porto, then Lisbon again, then no longer there, then Rome; learned in any order."""
    told = [
        ("lives_in", "Lisbon"),
        ("lives_in", "Porto"),
        ("lives_in", "Lisbon"),
        ("not_lives_in", "Lisbon"),
        ("lives_in", "Rome"),
    ]
    said = [
        draft(
            candidate(f"{predicate} {value}", triple=("user", predicate, value)),
            number=n,
            at=SAID + timedelta(days=n),
        )
        for n, (predicate, value) in enumerate(told)
    ]
    rows = [row for row in ingest([said[n] for n in order]).new if row.superseded_by is None]
    assert {row.text for row in rows} == {"not_lives_in Lisbon", "lives_in Rome"}


# --- which memories may be compared at all, and what is told of a confidence ------------------------------------------


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


# --- guesses: what nobody vouches for ----------------------------------------------------------------------------------


def guess(text: str) -> MemoryCandidate:
    return candidate(text, provenance=Provenance.SYSTEM_INFERRED, confidence=0.4)


def guess_known(text: str, number: int = 100) -> KnownMemory:
    return known(
        text, number, memory_tier=SESSION, memory_scope=LOCAL, expires_at=NOW, session_id=HERE.session_id,
        provenance_type=Provenance.SYSTEM_INFERRED, is_validated=False, confidence=0.4, access_count=2,
    )  # fmt: skip


def test_a_guess_contradicts_nothing() -> None:
    lives = known("Lives in Porto", subject_entity_id="user", predicate="lives_in", object_value="Porto")
    changes = ingest([draft(guess("Perhaps: Lives in Lisbon"))], [lives])
    (row,) = changes.new
    assert (row.tier, row.scope, row.confidence, row.validated) == (SESSION, LOCAL, 0.4, False)
    assert not changes.superseded
    assert not changes.conflicts


def test_a_guess_that_is_stated_goes_on_as_what_was_stated() -> None:
    changes = ingest([draft(candidate("Likes jazz"))], [guess_known("Perhaps: Likes jazz")])
    (row,) = changes.new
    assert (row.text, row.tier, row.validated) == ("Likes jazz", SEMANTIC, True)
    assert row.access_count == 3, "what the guess had gathered goes on with it"
    assert [each.heir for each in changes.superseded] == [row.memory_id]


def test_what_is_known_is_no_guess_any_more() -> None:
    assert not ingest([draft(guess("Perhaps: Likes jazz"))], [known("Likes jazz")]).new


def test_a_guess_never_speaks_for_a_statement() -> None:
    """However near the two are: the guess is the longer one."""
    near = ingest(
        [draft(candidate("Likes jazz"), vector=[1, 0])], [guess_known("Perhaps: Likes jazz")], near={0: [100]}
    )
    assert [each.text for each in near.new] == ["Likes jazz"]
