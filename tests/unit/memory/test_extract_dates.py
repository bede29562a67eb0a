"""Dates in sentences, said on Friday 2026-11-20."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from app.memory.extract_dates import find_date
from tests.support.tables import each_of

FRIDAY = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)


@each_of(
    ("text", "past", "iso"),
    [
        ("today", False, "2026-11-20"),
        ("tonight", False, "2026-11-20"),
        ("tomorrow morning", False, "2026-11-21"),
        ("yesterday", True, "2026-11-19"),
        ("last night", True, "2026-11-19"),
        ("the day after tomorrow", False, "2026-11-22"),
        ("the day before yesterday", True, "2026-11-18"),
        ("in 3 days", False, "2026-11-23"),
        ("in two weeks", False, "2026-12-04"),
        ("in a month", False, "2026-12"),
        ("in 14 months", False, "2028-01"),
        ("a year ago", True, "2025"),
        ("three days ago", True, "2026-11-17"),
        ("on Monday", False, "2026-11-23"),
        ("on Monday", True, "2026-11-16"),
        ("on Friday", False, "2026-11-27"),  # a week from today, not today
        ("this Friday", False, "2026-11-27"),
        ("next Friday", False, "2026-11-27"),  # of next week
        ("next Monday", False, "2026-11-23"),
        ("last Friday", True, "2026-11-13"),
        ("next week", False, "2026-11-23"),
        ("last week", True, "2026-11-09"),
        ("this weekend", False, "2026-11-21"),
        ("last weekend", True, "2026-11-14"),
        ("next month", False, "2026-12"),
        ("last month", True, "2026-10"),
        ("next year", False, "2027"),
        ("in June", False, "2027-06"),
        ("in November", False, "2026-11"),
        ("in June", True, "2026-06"),
        ("last May", True, "2026-05"),
        ("next May", False, "2027-05"),
        ("in June 2031", False, "2031-06"),
        ("since 2019", True, "2019"),
        ("3 March", False, "2027-03-03"),
        ("on the 3rd of March", False, "2027-03-03"),
        ("March 3rd, 2025", True, "2025-03-03"),
        ("3 March", True, "2026-03-03"),
        ("December 1", False, "2026-12-01"),
        ("on 2027-02-28", False, "2027-02-28"),
        ("29 February", False, "2028-02-29"),
        ("29 February", True, "2024-02-29"),
        ("next summer", False, "2027"),
        ("last summer", True, "2026"),
    ],
)
def test_dates(text: str, past: bool, iso: str) -> None:
    sentence = f"I do it {text} again"
    found = find_date(sentence, FRIDAY, past=past)
    assert found is not None
    assert found.iso == iso
    assert sentence[found.start : found.end].strip() in text


@each_of("text", ["I may go", "march on", "31 February", "some day", "at 10", "version 3.12", "the 3rd time"])
def test_no_dates(text: str) -> None:
    assert find_date(text, FRIDAY, past=False) is None


@each_of(
    ("now", "text", "iso"),
    [
        (datetime(2026, 12, 31, tzinfo=UTC), "tomorrow", "2027-01-01"),
        (datetime(2026, 12, 31, tzinfo=UTC), "next month", "2027-01"),
        (datetime(2028, 2, 28, tzinfo=UTC), "tomorrow", "2028-02-29"),
        (datetime(2026, 11, 23, tzinfo=UTC), "on Monday", "2026-11-30"),
        (datetime(2026, 11, 22, tzinfo=UTC), "next week", "2026-11-23"),
        (datetime(9999, 12, 31, tzinfo=UTC), "today", "9999-12-31"),
    ],
)
def test_at_the_edges_of_the_calendar(now: datetime, text: str, iso: str) -> None:
    found = find_date(text, now, past=False)
    assert found is not None
    assert found.iso == iso


def test_beyond_the_calendar_there_is_nothing() -> None:
    assert find_date("tomorrow", datetime(9999, 12, 31, tzinfo=UTC), past=False) is None


@given(
    st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)),
    st.sampled_from(["on monday", "next friday", "29 february", "in june", "last may", "in 12 months", "next week"]),
    st.booleans(),
)
def test_any_day_can_be_counted_from(now: datetime, text: str, past: bool) -> None:
    found = find_date(text, now, past=past)
    assert found is not None
    assert found.iso[:4].isdigit()
