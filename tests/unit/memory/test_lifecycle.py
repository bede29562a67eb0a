"""The numbers of the seeds in tests/support/lifecycle.py, which test_lifecycle_sql.py holds the sweeps to."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.context.score import effective_confidence
from app.memory.claims import validation_question
from tests.support.lifecycle import (
    EPISODIC,
    SEMANTIC,
    SESSION,
    Life,
    activity,
    ages,
    confirmed_confidence,
    decayed_importance,
    promotes,
    prunes,
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


# --- seed 004: confidence, aging, validation ---------------------------------------------------------------------------


def test_activity_is_uses_by_idle_hours() -> None:
    assert activity(10, 40) == 0.25
    assert activity(10, 0) == math.inf
    assert activity(0, 0) == activity(0, 5) == 0.0


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


def test_a_yes_adds_to_confidence_and_never_takes() -> None:
    assert confirmed_confidence(0.85) == pytest.approx(0.9)
    assert confirmed_confidence(0.93) == 0.95
    assert confirmed_confidence(0.97) == 0.97


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


def test_nothing_rests_on_the_border_for_ever() -> None:
    """001 decays what is > 0.1 and prunes what is < 0.1: what comes to exactly 0.1 would do neither."""
    life = a_life(importance=0.1)
    assert decayed_importance(life, BORN + 8 * DAY) == pytest.approx(0.099)
    assert decayed_importance(life, BORN + 900 * DAY) == pytest.approx(0.099)
    assert decayed_importance(a_life(importance=0.05), BORN + 900 * DAY) == 0.05


@each_of(("importance", "day"), [(0.5, 107), (0.9, 207)])
def test_what_nobody_vouches_for_goes_when_nobody_uses_it(importance: float, day: int) -> None:
    """The days that the decay rate was chosen by."""
    life = a_life(importance=importance, validated_by="system")
    assert not prunes(life, BORN + (day - 1) * DAY)
    assert prunes(life, BORN + (day + 1) * DAY)
    assert not prunes(replace(life, last_accessed_at=BORN + (day - 10) * DAY), BORN + (day + 1) * DAY)


def test_thirty_idle_days_come_first() -> None:
    life = a_life(importance=0.05)
    assert not prunes(life, BORN + 30 * DAY)
    assert prunes(life, BORN + 31 * DAY)
