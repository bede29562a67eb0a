"""The user's own clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.question import at_home, temporal_scope, understand, zone_of
from app.store.user_profile import NOTHING, Standing, StandingFact

NIGHT = datetime(2026, 7, 1, 23, 30, tzinfo=UTC)


def standing(value: str, key: str = "time_zone") -> Standing:
    return Standing(facts=(StandingFact(uuid4(), UUID(int=0), key, False, value, None, None, None),))


@pytest.mark.parametrize(
    ("told", "hours"),
    [
        ("Europe/Lisbon", 1), ("europe/lisbon", 1), ("America/New_York", -4), ("america/new_york", -4), ("Asia/Kolkata", 5.5),
        ("Pacific", -7), ("eastern time", -4), ("Eastern Time Zone", -4), ("CET", 2), ("UTC", 0), ("gmt", 0),
        ("UTC+2", 2), ("GMT-5", -5), ("+05:30", 5.5), ("UTC \u22123", -3), ("-0330", -3.5),
    ],
)  # fmt: skip
def test_what_is_a_zone(told: str, hours: float) -> None:
    zone = zone_of(told)
    assert zone is not None
    assert NIGHT.astimezone(zone).utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize(
    "told",
    ["", "Lisbon", "Europe", "Europe/", "Nowhere/Land", "UTC+15", "+99", "../../etc/passwd", "/etc/localtime", "localtime",
     "Europe/../../etc/passwd", "x/" + "y" * 300, "Europe/Lisbon\0", "my wife's"],
)  # fmt: skip
def test_what_is_none(told: str) -> None:
    assert zone_of(told) is None
    assert at_home(NIGHT, standing(told)) == NIGHT
    assert at_home(NIGHT, standing(told)).tzinfo is UTC


@given(st.text(max_size=60))
def test_whatever_a_fact_says(told: str) -> None:
    assert at_home(NIGHT, standing(told)) == NIGHT


def test_yesterday_is_the_users() -> None:
    """At 23:30 UTC it is tomorrow in Lisbon's summer, and July is not last month in Los Angeles yet."""
    for told, yesterday in (("Europe/Lisbon", "2026-07-01"), ("Pacific", "2026-06-30"), ("nowhere", "2026-06-30")):
        span = understand("What did I say yesterday?", at_home(NIGHT, standing(told))).span
        assert temporal_scope(span) == {"start": yesterday, "end": yesterday}


def test_no_fact_no_zone() -> None:
    assert at_home(NIGHT, NOTHING) is NIGHT
    assert at_home(NIGHT, standing("Europe/Lisbon", "wife.time_zone")) is NIGHT


def test_at_the_edge_of_the_calendar() -> None:
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    assert at_home(last, standing("+14:00")) is last
