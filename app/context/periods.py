"""Quarters, weeks and stretches of time in a question: "last quarter", "Q3 2024", "week 34", "the last 30 days".

Weeks are those of ISO 8601: they begin on Monday, and week 1 has the year's first Thursday.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import NamedTuple

STEPS = {"last": -1, "this past": -1, "past": -1, "previous": -1, "this": 0, "current": 0, "next": 1, "coming": 1}
"""How many periods away from the current one."""
COUNTED_WEEKS = 12
"""Up to this number "week 3", without a year, is rather one of a course or of a plan, which count their weeks from 1."""

_COUNTS_TEXT = "zero one two three four five six seven eight nine ten eleven twelve"
WORDS = _COUNTS_TEXT.split()[1:]
"""The numbers from one on."""
COUNTS = {word: n for n, word in enumerate(_COUNTS_TEXT.split())} | {"a": 1, "an": 1, "couple": 2, "few": 3}
_ORDINALS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4, "last": 4}
_NUMBER = rf"(?:\d{{1,3}}|(?:a )?(?:couple(?: of)?|few)|{'|'.join(WORDS)})"
_YEAR = r"(?:19|20)\d\d"
_PART = r"(?:(?:early|late|mid|(?:the )?(?:beginning|start|middle|end) of)[ -])?"

_PERIOD = re.compile(
    rf"\b{_PART}(?:the )?(?:"
    r"(?P<which>last|this past|past|previous|this|current|next|coming) quarter(?! of)"
    rf"|(?P<nth>{'|'.join(_ORDINALS)}) quarter(?:,? (?:of |in )?(?P<year>{_YEAR})|(?! of| mile| final))"
    rf"|q(?P<q>[1-4])(?:,? ?(?:of |in )?(?P<year2>{_YEAR}))?|(?P<year3>{_YEAR})[ -]?q(?P<q2>[1-4])"
    rf"|(?P<calendar>calendar |iso )?week (?:number |no\.? )?(?P<week>[0-5]?\d)(?:,? (?:of |in )?(?P<year4>{_YEAR}))?(?! of)"
    rf"|(?P<way>last|past|previous|next|coming) (?P<count>{_NUMBER}) (?P<unit>hour|day|week|month|quarter|year)s?"
    r"|(?P<over>(?<=over the |thin the )(?:last|past)|(?<=in the )past) (?P<unit2>day|week|month|quarter|year)"
    r")\b",
    re.IGNORECASE,
)
_HOURS_A_DAY = 24


class Period(NamedTuple):
    """Where it stands in the text, its days (`until` is not one of them), and whether it names its year."""

    start: int
    stop: int
    first: date
    until: date
    year: bool


def find_periods(text: str, today: date, *, past: bool) -> Iterator[Period]:
    """The periods in `text`, in its order. `past`: it tells of what was. Raises ValueError or OverflowError beyond the
    calendar."""
    for match in _PERIOD.finditer(text):
        year = match["year"] or match["year2"] or match["year3"] or match["year4"]
        days = _days(match, int(year) if year else None, today, past)
        if days is not None:
            yield Period(match.start(), match.end(), *days, year is not None)


def _days(match: re.Match[str], year: int | None, today: date, past: bool) -> tuple[date, date] | None:
    if which := match["which"]:
        first = months_on(_quarter(today.year, (today.month + 2) // 3), 3 * STEPS[which.lower()])
        return first, months_on(first, 3)
    if number := match["q"] or match["q2"] or match["nth"]:
        if number.lower() == "last" and year is None:
            return None
        first = _quarter(today.year if year is None else year, _ORDINALS.get(number.lower()) or int(number))
        if year is None:
            first = first.replace(year=_nearest(first, months_on(first, 3), today, past))
        return first, months_on(first, 3)
    if week := match["week"]:
        return _week(int(week), year, today, past) if year or match["calendar"] or int(week) > COUNTED_WEEKS else None
    if match["over"]:
        return back(today, 1, match["unit2"].lower()), today + timedelta(days=1)
    told = match["count"].lower().removeprefix("a ").removesuffix(" of")
    count, unit = int(told) if told.isdecimal() else COUNTS[told], match["unit"].lower()
    if STEPS[match["way"].lower()] > 0:
        return today, back(today, -count, unit) + timedelta(days=1)
    return back(today, count, unit), today + timedelta(days=1)


def _quarter(year: int, number: int) -> date:
    return date(year, 3 * number - 2, 1)


def _nearest(first: date, until: date, today: date, past: bool) -> int:
    """The year of what comes every year: of the last that has begun, or of the next that is not over."""
    return first.year - (first > today) if past else first.year + (until <= today)


def _week(number: int, year: int | None, today: date, past: bool) -> tuple[date, date] | None:
    """The days of an ISO week; None where the year has none of that number."""
    try:
        if year is None:
            own = date.fromisocalendar(today.isocalendar().year, number, 1)
            year = today.isocalendar().year
            year += -(own > today) if past else own + timedelta(days=7) <= today
        first = date.fromisocalendar(year, number, 1)
    except ValueError:
        return None
    return first, first + timedelta(days=7)


def back(day: date, count: int, unit: str) -> date:
    """`count` units before a day (of hours: of that many days as they touch): the same day of the month, or its last."""
    if unit in ("month", "quarter", "year"):
        first = months_on(day.replace(day=1), -count * {"month": 1, "quarter": 3, "year": 12}[unit])
        return first.replace(day=min(day.day, calendar.monthrange(first.year, first.month)[1]))
    if unit == "hour":
        return day - timedelta(days=-(-count // _HOURS_A_DAY))
    return day - timedelta(days=count * (7 if unit == "week" else 1))


def months_on(first: date, by: int) -> date:
    """The first day of the month that is `by` months later."""
    months = first.year * 12 + first.month - 1 + by
    return date(months // 12, months % 12 + 1, 1)
