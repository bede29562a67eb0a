"""Zones of seed 002."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.paging.fidelity import BORDERS, HYSTERESIS, ZONES, at_least, zone
from app.features.paging.values import Zone


def test_the_seeds_example_is_a_warning() -> None:
    """Seed 002 §3.2: 78,000 tokens, 78 % of a budget of 100,000: WARNING."""
    assert zone(78_000, 100_000) == Zone.WARNING


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0, "normal"),
        (59, "normal"),
        (60, "caution"),
        (75, "warning"),
        (85, "critical"),
        (95, "emergency"),
        (200, "emergency"),
    ],
)
def test_borders(share: int, expected: str) -> None:
    assert zone(share, 100) == expected


@pytest.mark.parametrize(
    ("tokens", "before", "expected"),
    [
        (72, Zone.WARNING, Zone.WARNING),
        (70, Zone.WARNING, Zone.WARNING),
        (69, Zone.WARNING, Zone.CAUTION),
        (72, Zone.NORMAL, Zone.CAUTION),
        (40, Zone.EMERGENCY, Zone.NORMAL),
        (82, Zone.EMERGENCY, Zone.CRITICAL),
        (96, Zone.NORMAL, Zone.EMERGENCY),
    ],
)
def test_down_only_below_the_border(tokens: int, before: Zone, expected: Zone) -> None:
    assert zone(tokens, 100, before) == expected


def test_nothing_fits_no_budget() -> None:
    assert zone(0, 0) == Zone.EMERGENCY


@given(st.integers(0, 300), st.sampled_from(ZONES))
def test_a_zone_is_stable_and_never_too_low(tokens: int, before: Zone) -> None:
    found = zone(tokens, 100, before)
    assert zone(tokens, 100, found) == found
    assert at_least(found, zone(tokens, 100))
    assert tokens / 100 >= BORDERS[found] - HYSTERESIS - 1e-9
