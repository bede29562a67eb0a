"""Triples: what two are to each other, which side stands, and how far a memory is believed. The figures are the seeds'."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memory.candidate import MemoryCandidate, Provenance, Triple
from app.memory.claims import (
    SHIPPED,
    ClaimSide,
    TripleRelation,
    base_confidence,
    confirmed,
    gained,
    opposite,
    predicate_type,
    prefer,
    relation,
    replaces,
    same_value,
)
from app.store.kinds import LearnedKind

NOW = datetime(2026, 11, 20, tzinfo=UTC)


def test_the_boosts_of_the_seed() -> None:
    """Seed 004, "Reinforcement Boost Formula"."""
    assert [gained(times) for times in range(6)] == pytest.approx([0.0, 0.15, 0.25, 0.30, 0.32, 0.34])


def test_the_seeds_example_of_a_reinforcement() -> None:
    """Seed 004: "confidence += 0.15 → 0.85"."""
    assert confirmed(0.7, 0, 0.7, 1) == pytest.approx(0.85)


@pytest.mark.parametrize(
    ("kind", "explicit", "sure", "believed"),
    [
        ("fact", True, 0.95, 0.7), ("preference", False, 0.9, 0.6), ("correction", False, 0.9, 0.85), ("fact", False, 0.9, 0.7),
        ("fact", False, 0.4, 0.4),
    ],
)  # fmt: skip
def test_what_is_believed_at_first(kind: LearnedKind, explicit: bool, sure: float, believed: float) -> None:
    """Seed 004, `should_extract_semantic`."""
    said = MemoryCandidate("x", kind, Provenance.FACT, "x", (0, 1), sure, 0.5, explicit=explicit)
    assert base_confidence(said) == believed


@given(st.permutations([0.6, 0.7, 0.85, 0.7]))
def test_confidence_does_not_depend_on_the_order(bases: list[float]) -> None:
    confidence, count = bases[0], 0
    for base in bases[1:]:
        confidence, count = confirmed(confidence, count, base, 1), count + 1
    assert confidence == pytest.approx(0.95)


@given(st.floats(0, 1), st.integers(0, 50), st.floats(0, 1), st.integers(1, 5))
def test_confirmation_never_lowers_and_never_makes_sure(now: float, count: int, base: float, times: int) -> None:
    after = confirmed(now, count, base, times)
    assert after >= now
    assert after <= max(now, SHIPPED.most)


LIVES = Triple("user", "lives_in", "Lisbon")


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (Triple("user", "lives_in", "lisbon"), TripleRelation.SAME),
        (Triple("user", "lives_in", "Lisbon, Portugal"), TripleRelation.SAME),
        (Triple("user", "lives_in", "Porto"), TripleRelation.CONFLICT),
        (Triple("user", "not_lives_in", "Lisbon"), TripleRelation.CONFLICT),
        (Triple("user", "not_lives_in", "Porto"), TripleRelation.NONE),
        (Triple("wife", "lives_in", "Porto"), TripleRelation.NONE),
        (Triple("user", "works_in", "Lisbon"), TripleRelation.NONE),
        (None, TripleRelation.NONE),
    ],
)
def test_relations(other: Triple | None, expected: TripleRelation) -> None:
    assert relation(LIVES, other) is expected
    assert relation(other, LIVES) is expected


def test_where_there_may_be_more_than_one() -> None:
    peanuts = Triple("user", "allergic_to", "peanuts")
    assert relation(peanuts, Triple("user", "allergic_to", "a peanut")) is TripleRelation.SAME
    assert relation(peanuts, Triple("user", "allergic_to", "soy")) is TripleRelation.NONE
    assert relation(Triple("sister", "lives_in", "Rome"), Triple("sister", "lives_in", "Oslo")) is TripleRelation.BESIDE
    assert relation(Triple("user", "diet", "vegan"), Triple("user", "diet", "vegetarian")) is TripleRelation.BESIDE
    assert relation(Triple("user", "diet", "vegan"), Triple("user", "diet", "gluten-free")) is TripleRelation.NONE
    assert relation(Triple("user", "likes", "tea"), Triple("user", "dislikes", "tea")) is TripleRelation.CONFLICT


def test_what_a_correction_replaces() -> None:
    assert replaces(Triple("user", "diet", "vegan"), Triple("user", "diet", "vegetarian"))
    assert replaces(Triple("user", "payment_terms", "NET15"), Triple("user", "payment_terms", "NET30"))
    assert not replaces(Triple("user", "diet", "gluten free"), Triple("user", "diet", "vegan"))
    assert not replaces(Triple("user", "likes", "tea"), Triple("user", "likes", "coffee"))
    assert not replaces(LIVES, Triple("user", "works_at", "Bosch"))
    assert not replaces(None, LIVES)


def test_opposites() -> None:
    assert (opposite("likes"), opposite("lives_in"), opposite("not_lives_in")) == (
        "dislikes",
        "not_lives_in",
        "lives_in",
    )


@pytest.mark.parametrize(
    ("kind", "predicate", "expected"),
    [
        ("preference", "likes", "preference"), ("fact", "allergic_to", "requirement"), ("event", "visits", "observation"),
        ("instruction", "called", "policy"), ("fact", "lives_in", "attribute"),
    ],
)  # fmt: skip
def test_types_of_predicates(kind: LearnedKind, predicate: str, expected: str) -> None:
    assert predicate_type(kind, predicate) == expected


def side(
    domain: bool = False, days: int = 0, authority: int = 3, confidence: float = 0.7, text: str = "a"
) -> ClaimSide:
    return ClaimSide(domain, NOW + timedelta(days=days), authority, confidence, text)


@pytest.mark.parametrize(
    ("winner", "loser", "strategy"),
    [
        (side(domain=True), side(days=9, confidence=0.9), "trust_db"),
        (side(days=1, authority=0, confidence=0.1), side(authority=3, confidence=0.9), "trust_recent"),
        (side(authority=3, confidence=0.1), side(authority=2, confidence=0.9), "trust_authority"),
        (side(confidence=0.8), side(confidence=0.7), "trust_confidence"),
        (side(text="b"), side(text="a"), "trust_confidence"),
    ],
)
def test_who_stands(winner: ClaimSide, loser: ClaimSide, strategy: str) -> None:
    """A domain row first; then seed 000 §5.5: recency, authority, confidence."""
    assert prefer(winner, loser) == (True, strategy)
    assert prefer(loser, winner) == (False, strategy)


# --- things ----------------------------------------------------------------------------------------------------------

GAI = "customer:gai_123"


@pytest.mark.parametrize(
    ("predicate", "one", "other", "found"),
    [
        ("payment_terms", "NET30", "NET15", TripleRelation.CONFLICT),
        ("payment_terms", "NET30", "net-30 days", TripleRelation.SAME),
        ("status", "in_fulfillment", "In Fulfillment", TripleRelation.SAME),
        ("delivery_day_preference", "Friday", "Thursday", TripleRelation.CONFLICT),
        ("prefers", "email", "tea", TripleRelation.NONE),
        ("not_status", "open", "closed", TripleRelation.NONE),
    ],
)
def test_a_thing_has_each_attribute_once(predicate: str, one: str, other: str, found: TripleRelation) -> None:
    """As a row has one value in a column; whom only a name is known of may have several."""
    ours, theirs = Triple(GAI, predicate, one), Triple(GAI, predicate, other)
    assert relation(ours, theirs) is relation(theirs, ours) is found
    unknown = relation(Triple("gai", "some_field", one), Triple("gai", "some_field", other))
    assert unknown in (TripleRelation.NONE, TripleRelation.SAME)


# --- when two values are the same -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NET30", "NET 30"),
        ("NET30", "net-30 days"),
        ("NET30", "Net 30."),
        ("in_fulfillment", "In Fulfillment"),
        ("e-mail", "email"),
        ("  Friday ", "friday"),
        ("$3,500", "3500.00"),
        ("$3,500", "3,500 USD"),
        ("1'200", "1200"),
        ("30 days", "30 day"),
        ("true", "Yes"),
        ("f", "no"),
        ("2025-05-03", "3 May 2025"),
        ("2025-05-03", "May 3rd, 2025"),
        ("2025-05-03", "2025-05-03 00:00:00+00:00"),
        ("2025-05-03T10:00:00+00:00", "2025-05-03 12:00:00+02:00"),
        ("“Friday”", "Friday"),
    ],
)
def test_what_is_the_same(one: str, other: str) -> None:
    assert same_value(one, other)
    assert same_value(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NET30", "NET15"),
        ("NET30", "30 days"),
        ("NET30", "30"),
        ("Friday", "Thursday"),
        ("$3,500", "€3,500"),
        ("3500", "3500.50"),
        ("30 days", "30 weeks"),
        ("10%", "10 kg"),
        ("true", "1"),
        ("yes", "no"),
        ("2025-05-03", "2025-05-04"),
        ("2025-05-03T10:00:00+00:00", "2025-05-03T11:00:00+00:00"),
        ("3 May", "2025-05-03"),
        ("1 23", "12 3"),
        ("!", "?"),
        ("active", "inactive"),
        ("31 February 2025", "2025-03-03"),
    ],
)
def test_what_is_not(one: str, other: str) -> None:
    assert not same_value(one, other)
    assert not same_value(other, one)


NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=0, max_value=10**9)
VALUES = st.one_of(
    st.text(max_size=40),
    NUMBERS.map(lambda n: f"${n:,}"),
    NUMBERS.map(str),
    st.datetimes().map(str),
    st.dates().map(str),
    st.sampled_from(["yes", "false", "NET 30", "net-30 days", "3 May 2025"]),
)


@given(VALUES)
def test_every_value_is_the_same_as_itself(value: str) -> None:
    assert same_value(value, value)


@given(VALUES, VALUES)
def test_either_way_round(one: str, other: str) -> None:
    assert same_value(one, other) == same_value(other, one)


@given(NUMBERS)
def test_separators_do_not_matter(number: object) -> None:
    assert same_value(f"{number:,}", f"{number}")
