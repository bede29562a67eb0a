"""Buckets of time, and what is worked out from a part of their calls."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.features.overview import MAX_BUCKETS, MAX_CALLS, Bucket, CallFigures, Spread, scale, spans, together

NOW = datetime(2026, 3, 4, 10, 17, 30, tzinfo=UTC)


@given(st.integers(1, 744), st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)))
def test_buckets_cover_the_window_without_gaps_and_are_few(hours: int, naive: datetime) -> None:
    now = naive.replace(tzinfo=UTC)
    found = spans(hours, now)
    assert 2 <= len(found) <= MAX_BUCKETS
    assert found[0].since <= now - timedelta(hours=hours)
    assert found[-1].since <= now < found[-1].until <= now + timedelta(milliseconds=1)
    assert all(one.until == two.since for one, two in pairwise(found))
    assert len({each.until - each.since for each in found[:-1]}) == 1


def test_buckets_begin_when_clocks_strike() -> None:
    found = spans(24, NOW)
    assert (found[0].since.hour, found[0].since.minute, len(found)) == (10, 0, 49)
    assert {each.since.minute for each in found} == {0, 30}


def test_what_was_read_stands_for_all() -> None:
    span = Bucket(NOW, NOW + timedelta(minutes=10))
    assert scale(MAX_CALLS - 1, NOW + timedelta(minutes=9), span) == 1
    assert scale(MAX_CALLS, NOW + timedelta(minutes=9), span) == 10
    assert scale(MAX_CALLS, NOW, span) == 1
    assert scale(MAX_CALLS, span.until, span) == 600_000, "all in one millisecond: no division by nothing"


def test_sums_have_the_spreads_of_all_that_was_read() -> None:
    one = CallFigures(calls=3, errors=1, degraded={"late": 1}, memory_tokens=5)
    two = CallFigures(calls=30, degraded={"late": 2, "compile": 1}, sampled=True)
    total = together([one, two], CallFigures(calls=7, overhead=Spread(1, 2), eta=0.5))
    assert (total.calls, total.errors, total.memory_tokens, total.sampled) == (33, 1, 5, True)
    assert total.degraded == {"late": 3, "compile": 1}
    assert (total.overhead, total.eta) == (Spread(1, 2), 0.5)
