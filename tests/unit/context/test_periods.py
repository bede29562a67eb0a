"""Quarters, weeks and stretches of time, asked on Friday 2026-11-20 (of ISO week 47)."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.question import COUNTED_WEEKS, Period, back, find_periods, months_on

FRIDAY = date(2026, 11, 20)


def found(text: str, today: date = FRIDAY, *, past: bool = True) -> list[tuple[str, str]]:
    return [(each.first.isoformat(), each.until.isoformat()) for each in find_periods(text, today, past=past)]


@pytest.mark.parametrize(
    ("text", "first", "until"),
    [
        ("What did we sell last quarter?", "2026-07-01", "2026-10-01"),
        ("What did we sell in the previous quarter?", "2026-07-01", "2026-10-01"),
        ("What did we sell this quarter?", "2026-10-01", "2027-01-01"),
        ("What is planned for next quarter?", "2027-01-01", "2027-04-01"),
        ("What did we sell in Q3?", "2026-07-01", "2026-10-01"),
        ("What did we sell in Q4?", "2026-10-01", "2027-01-01"),
        ("What did we sell in Q3 2024?", "2024-07-01", "2024-10-01"),
        ("What did we sell in q3 of 2024?", "2024-07-01", "2024-10-01"),
        ("What did we sell in 2024-Q3?", "2024-07-01", "2024-10-01"),
        ("What did we sell in the third quarter of 2024?", "2024-07-01", "2024-10-01"),
        ("What did we sell in the 1st quarter?", "2026-01-01", "2026-04-01"),
        ("What did we sell in the last quarter of 2024?", "2024-10-01", "2025-01-01"),
        ("What was it in week 34?", "2026-08-17", "2026-08-24"),
        ("What was it in week 50?", "2025-12-08", "2025-12-15"),  # this December is still to come
        ("What was it in week 34 of 2025?", "2025-08-18", "2025-08-25"),
        ("What was it in week 1, 2026?", "2025-12-29", "2026-01-05"),
        ("What was it in calendar week 3?", "2026-01-12", "2026-01-19"),
        ("What came in the last 30 days?", "2026-10-21", "2026-11-21"),
        ("What came in the past two weeks?", "2026-11-06", "2026-11-21"),
        ("What came over the last few months?", "2026-08-20", "2026-11-21"),
        ("What came in the past couple of days?", "2026-11-18", "2026-11-21"),
        ("What came in the last two quarters?", "2026-05-20", "2026-11-21"),
        ("What came in the last 48 hours?", "2026-11-18", "2026-11-21"),
        ("What came in the past year?", "2025-11-20", "2026-11-21"),
        ("What came over the last month?", "2026-10-20", "2026-11-21"),
        ("What comes in the next two weeks?", "2026-11-20", "2026-12-05"),
    ],
)
def test_what_is_meant(text: str, first: str, until: str) -> None:
    assert found(text) == [(first, until)]


def test_of_what_is_to_come_the_next() -> None:
    assert found("Q3", past=False) == [("2027-07-01", "2027-10-01")]
    assert found("Q4", past=False) == [("2026-10-01", "2027-01-01")], "it is not over"
    assert found("week 34", past=False) == [("2027-08-23", "2027-08-30")]
    assert found("week 50", past=False) == [("2026-12-07", "2026-12-14")]


@pytest.mark.parametrize(
    "text",
    ["", "a quarter of the cake", "the third quarter of the game", "last month", "the last week of May", "week 54 of 2025",
     f"week {COUNTED_WEEKS}", "the last two times", "Q5", "the FAQ2", "the last quarter of the cake", "weeks 34"],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    assert found(text) == []


def test_where_it_stands_and_whether_it_names_its_year() -> None:
    text = "What did we sell by the end of Q2 2025?"
    (there,) = find_periods(text, FRIDAY, past=True)
    assert there == Period(text.index("the end"), len(text) - 1, date(2025, 4, 1), date(2025, 7, 1), True)
    (there,) = find_periods("in Q2", FRIDAY, past=True)
    assert not there.year


@pytest.mark.parametrize(
    ("count", "unit", "expected"),
    [(1, "month", "2026-02-28"), (13, "month", "2025-02-28"), (1, "quarter", "2025-12-31"), (25, "hour", "2026-03-29"),
     (1, "week", "2026-03-24"), (-1, "month", "2026-04-30")],
)  # fmt: skip
def test_so_long_before(count: int, unit: str, expected: str) -> None:
    assert back(date(2026, 3, 31), count, unit).isoformat() == expected


@given(st.dates(date(2, 1, 1), date(9998, 1, 1)), st.integers(-11, 11))
def test_months_on_is_undone(day: date, by: int) -> None:
    first = day.replace(day=1)
    assert months_on(months_on(first, by), -by) == first
