"""tests/support/lifecycle.py: the formulas of the seeds with their numbers, and each transition at its borders."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.context.score import effective_confidence
from app.memory.answers import validation_question
from tests.support.lifecycle import (
    EPISODIC,
    EXPIRED,
    POLICY,
    PROCEDURAL,
    SEMANTIC,
    SESSION,
    Life,
    activity,
    ages,
    behavioural,
    confirmed_confidence,
    confirmed_tier,
    decay_due,
    decayed_importance,
    demotes,
    promotes,
    prunes,
    settles,
    utility,
)
from tests.support.tables import each_of

BORN = datetime(2031, 1, 1, 9, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def a_life(**given: Any) -> Life:
    known: dict[str, Any] = {
        "tier": SEMANTIC, "kind": "fact", "status": "active", "provenance_type": 4, "created_at": BORN
    }  # fmt: skip
    return Life(**known | given)


def said(**given: Any) -> Life:
    """A statement of the user's."""
    return a_life(**{"validated_by": "user", "last_validated_at": BORN, "confidence": 0.9} | given)


# --- seed 000 §5.2: utility --------------------------------------------------------------------------------------------


def test_utility_is_the_seeds_formula() -> None:
    # Three uses of 0.8 each after 24 hours: 0.8 · log₂ 4 / (1 + 0.01 · 24).
    assert utility(2.4, 3, 24, 0.01) == pytest.approx(1.6 / 1.24)
    assert utility(0.0, 0, 24, 0.01) == 0.0
    assert utility(2.4, 3, 0, 0.01) == pytest.approx(1.6)


def test_utility_grows_with_use_and_falls_with_age() -> None:
    assert utility(0.5 * 20, 20, 10, 0.001) > utility(0.5 * 10, 10, 10, 0.001)
    assert utility(5, 10, 100, 0.001) < utility(5, 10, 10, 0.001)


@each_of(("tier", "uses", "target"), [(SESSION, 3, EPISODIC), (EPISODIC, 10, SEMANTIC)])
def test_a_promotion_takes_the_least_number_of_uses(tier: int, uses: int, target: int) -> None:
    life = a_life(tier=tier, access_count=uses, relevance=uses * 0.9, sources=2, last_accessed_at=BORN + HOUR)
    assert promotes(life, BORN + 2 * HOUR) == target
    assert promotes(replace(life, access_count=uses - 1), BORN + 2 * HOUR) is None


def test_a_promotion_takes_utility_above_the_threshold() -> None:
    life = a_life(tier=SESSION, access_count=3, relevance=3 * 0.15, last_accessed_at=BORN)
    assert utility(life.relevance, 3, 0, 0.01) == pytest.approx(0.3)  # 0.15 · 2: on the border, not above it
    assert promotes(replace(life, relevance=0.4499), BORN) is None
    assert promotes(replace(life, relevance=0.4501), BORN) == EPISODIC


@each_of(
    ("kind", "provenance", "target"),
    [("fact", 4, SEMANTIC), ("event", 0, SEMANTIC), ("preference", 3, PROCEDURAL), ("instruction", 5, PROCEDURAL),
     ("fact", 3, PROCEDURAL), ("procedure", 1, PROCEDURAL), ("pattern", 1, PROCEDURAL)],
)  # fmt: skip
def test_behaviour_goes_to_l4(kind: str, provenance: int, target: int) -> None:
    life = a_life(tier=EPISODIC, kind=kind, provenance_type=provenance, access_count=10, relevance=9, sources=2)
    assert behavioural(kind, provenance) == (target == PROCEDURAL)
    assert promotes(life, BORN) == target


def test_use_alone_does_not_carry_one_message_into_l3() -> None:
    life = a_life(tier=EPISODIC, access_count=10, relevance=9, sources=1)
    assert promotes(life, BORN) is None
    assert promotes(replace(life, sources=2), BORN) == SEMANTIC
    assert promotes(replace(life, validated_by="user"), BORN) == SEMANTIC
    assert promotes(replace(life, validated_by="domain_row"), BORN) == SEMANTIC
    assert promotes(replace(life, validated_by="system"), BORN) is None
    assert promotes(replace(life, tier=SESSION), BORN) == EPISODIC


def test_what_is_over_or_light_or_at_the_top_does_not_rise() -> None:
    life = a_life(tier=EPISODIC, access_count=99, relevance=90, sources=2)
    assert promotes(life, BORN) == SEMANTIC
    for other in ({"status": "superseded"}, {"expires_at": BORN}, {"kind": "episode"}, {"tier": SEMANTIC}):
        assert promotes(replace(life, **other), BORN) is None


def test_nothing_rises_that_would_fall_again_at_once() -> None:
    life = a_life(tier=EPISODIC, access_count=10, relevance=20, sources=2)
    late = BORN + 100 * DAY
    assert utility(20, 10, 2400, 0.001) > 0.5
    assert promotes(life, late) is None
    assert promotes(replace(life, last_accessed_at=late - DAY), late) == SEMANTIC


# --- seed 000 §5.3: demotion -------------------------------------------------------------------------------------------


def test_activity_is_uses_by_idle_hours() -> None:
    assert activity(10, 40) == 0.25
    assert activity(10, 0) == math.inf
    assert activity(0, 0) == activity(0, 5) == 0.0


def test_the_floors_are_what_a_promotion_leaves_behind() -> None:
    assert POLICY.floors[EPISODIC].per_hour == pytest.approx(3 / 1080)
    assert POLICY.floors[SEMANTIC].per_hour == POLICY.floors[PROCEDURAL].per_hour == pytest.approx(10 / 2160)


@each_of("tier", [SEMANTIC, PROCEDURAL])
def test_what_rose_by_use_falls_for_want_of_it(tier: int) -> None:
    life = a_life(tier=tier, access_count=10, last_accessed_at=BORN, validated_by="system")
    assert demotes(life, BORN + 90 * DAY) is None  # exactly φ
    assert demotes(life, BORN + 91 * DAY) == EPISODIC
    assert demotes(replace(life, access_count=20), BORN + 91 * DAY) is None
    assert demotes(replace(life, tier=EPISODIC, access_count=3), BORN + 46 * DAY) == EXPIRED
    assert demotes(replace(life, tier=SESSION), BORN + 91 * DAY) is None  # it has its hours


def test_what_was_just_made_is_not_idle() -> None:
    life = a_life(validated_by="system")
    assert demotes(life, BORN + 6 * DAY) is None
    assert demotes(life, BORN + 7 * DAY) == EPISODIC


def test_the_users_word_holds_until_it_is_in_doubt() -> None:
    late = BORN + 400 * DAY
    assert demotes(said(), late) is None
    assert demotes(said(status="aging"), late) == EPISODIC
    assert demotes(said(status="aging", tier=EPISODIC), late) is None  # it has its L2 life
    assert demotes(said(status="aging", provenance_type=0), late) is None  # asked for: "never" (000 §5.1)
    assert demotes(said(status="aging", by_hand=True), late) is None


# --- seed 004: confidence, aging, validation ---------------------------------------------------------------------------


@each_of(("day", "left"), [(0, 0.85), (30, 0.63), (60, 0.47), (90, 0.35), (45, 0.54)])
def test_confidence_fades_as_in_seed_004(day: int, left: float) -> None:
    """Its timeline from 0.85, and the 45 days of its scoring example."""
    assert effective_confidence(0.85, BORN, BORN + day * DAY) == pytest.approx(left, abs=0.005)


def test_the_seeds_one_per_cent_a_day_is_a_rate() -> None:
    """e^−0.01 takes 0.995% a day; over 90 days 59%, where 1% compounded would take 60%."""
    assert 1 - effective_confidence(1.0, BORN, BORN + DAY) == pytest.approx(0.00995, abs=1e-5)


def test_days_are_whole_and_never_negative() -> None:
    assert effective_confidence(0.8, BORN, BORN + 23 * HOUR) == 0.8
    assert effective_confidence(0.8, BORN, BORN - 5 * DAY) == 0.8


def test_an_old_statement_ages() -> None:
    """Seed 004 puts "triggers AGING" at day 90 of its timeline; its criterion says more than 90 days: from then on."""
    assert not ages(said(), BORN + 90 * DAY)
    assert ages(said(), BORN + 90 * DAY + timedelta(seconds=1))


@each_of(
    "other",
    [
        {"reinforcement_count": 1},  # said twice: 004 counts from 1
        {"tier": EPISODIC},
        {"kind": "event"},
        {"kind": "summary"},
        {"status": "aging"},
        {"status": "invalidated"},
        {"expires_at": BORN + 90 * DAY},
        {"last_validated_at": BORN + 30 * DAY},
    ],
)
def test_what_does_not_age(other: dict[str, Any]) -> None:
    assert ages(said(), BORN + 91 * DAY)
    assert not ages(replace(said(), **other), BORN + 91 * DAY)


def test_a_confidence_that_has_not_sunk_below_half_keeps_a_memory_from_aging() -> None:
    """At 91 days e^−0.91 leaves 0.4025 of it: none can be above half. A slower decay leaves more."""
    slow = replace(POLICY, confidence_decay=0.005)
    assert not ages(said(), BORN + 91 * DAY, slow)
    assert ages(said(confidence=0.7), BORN + 91 * DAY, slow)


def test_said_again_it_is_no_longer_in_doubt() -> None:
    aging = said(status="aging")
    assert not settles(aging, BORN + 91 * DAY)
    assert settles(replace(aging, last_validated_at=BORN + 91 * DAY), BORN + 92 * DAY)
    assert not settles(said(last_validated_at=BORN + 91 * DAY), BORN + 92 * DAY)


def test_a_yes_adds_to_confidence_and_never_takes() -> None:
    assert confirmed_confidence(0.85) == pytest.approx(0.9)
    assert confirmed_confidence(0.93) == 0.95
    assert confirmed_confidence(0.97) == 0.97


def test_a_yes_puts_a_statement_where_it_belongs() -> None:
    assert confirmed_tier(said(tier=EPISODIC)) == SEMANTIC
    assert confirmed_tier(said(tier=SESSION, kind="preference")) == PROCEDURAL
    assert confirmed_tier(said(tier=PROCEDURAL)) == PROCEDURAL
    assert confirmed_tier(said(tier=EPISODIC, kind="event")) == EPISODIC


def test_the_question() -> None:
    asked = validation_question("Prefers Friday deliveries", datetime(2031, 9, 3, tzinfo=UTC))
    assert asked == "I have a note from 3 September 2031 that says “Prefers Friday deliveries”; is that still right?"


# --- seed 001 §4.4: importance ------------------------------------------------------------------------------------------


def test_importance_stands_still_for_a_week_and_then_fades() -> None:
    life = a_life(importance=0.5)
    assert decayed_importance(life, BORN + 7 * DAY) == 0.5
    assert decayed_importance(life, BORN + 7 * DAY + 6 * HOUR) == pytest.approx(0.499)
    assert decayed_importance(life, BORN + 17 * DAY) == pytest.approx(0.46)
    assert decayed_importance(replace(life, last_accessed_at=BORN + 10 * DAY), BORN + 17 * DAY) == 0.5


def test_decay_that_was_written_is_not_taken_twice() -> None:
    at = BORN + 20 * DAY
    left = decayed_importance(a_life(importance=0.5), at)
    written = a_life(importance=left, importance_at=at)
    assert decayed_importance(written, at) == left
    assert decayed_importance(written, at + 10 * DAY) == pytest.approx(
        decayed_importance(a_life(importance=0.5), at + 10 * DAY)
    )


def test_nothing_rests_on_the_border_for_ever() -> None:
    """001 decays what is > 0.1 and prunes what is < 0.1: what comes to exactly 0.1 would do neither."""
    life = a_life(importance=0.1)
    assert decayed_importance(life, BORN + 8 * DAY) == pytest.approx(0.099)
    assert decayed_importance(life, BORN + 900 * DAY) == pytest.approx(0.099)
    assert decayed_importance(a_life(importance=0.05), BORN + 900 * DAY) == 0.05


def test_only_a_whole_step_is_written_or_the_last_one() -> None:
    life = a_life(importance=0.5)
    assert not decay_due(life, BORN + 19 * DAY)
    assert decay_due(life, BORN + 19.5 * DAY)
    assert decay_due(a_life(importance=0.101), BORN + 8 * DAY)
    assert not decay_due(a_life(importance=0.099), BORN + 800 * DAY)
    assert not decay_due(replace(life, status="expired"), BORN + 30 * DAY)


@each_of(("importance", "day"), [(0.5, 107), (0.9, 207)])
def test_what_nobody_vouches_for_goes_when_nobody_uses_it(importance: float, day: int) -> None:
    """The days that the decay rate was chosen by."""
    life = a_life(importance=importance, validated_by="system")
    assert not prunes(life, BORN + (day - 1) * DAY)
    assert prunes(life, BORN + (day + 1) * DAY)
    assert not prunes(replace(life, last_accessed_at=BORN + (day - 10) * DAY), BORN + (day + 1) * DAY)


def test_idleness_counts_from_when_it_was_learned() -> None:
    old = a_life(importance=0.0, made_at=BORN + 700 * DAY)
    assert not prunes(old, BORN + 730 * DAY)
    assert prunes(old, BORN + 731 * DAY)
    assert demotes(old, BORN + 706 * DAY) is None
    assert demotes(old, BORN + 707 * DAY) == 2
    assert decayed_importance(replace(old, importance=0.5), BORN + 707 * DAY) == 0.5


def test_thirty_idle_days_come_first() -> None:
    life = a_life(importance=0.05)
    assert not prunes(life, BORN + 30 * DAY)
    assert prunes(life, BORN + 31 * DAY)


def test_the_users_word_is_not_pruned_while_it_holds() -> None:
    late = BORN + 900 * DAY
    assert not prunes(said(importance=0.0), late)
    assert prunes(said(importance=0.0, status="aging"), late)
    assert not prunes(said(importance=0.0, status="aging", by_hand=True), late)
    assert not prunes(said(importance=0.0, status="aging", expires_at=late), late)
