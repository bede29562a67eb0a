"""A question, understood as far as retrieval needs it: what it names, of which time it speaks, what kind of question it is.

Seed 004, stages 1 and 2 ("Query Understanding & Strategy Selection"), by rules: the words are English. Those of time are also
understood in the other languages, which are said again in English first (`extract_dates`).
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from app.memory.extract_dates import FoundDate, find_dates, in_english
from app.memory.text import names, slug, terms
from app.store.user_profile import Standing

# --- the user's own clock: what "yesterday" and "last month" are counted by ----------------------------------------------
#
# The zone is the user's fact `time_zone`, which is text: what was said ("I'm in the Pacific time zone"), or what an application
# wrote there (docs/explanation/recall.md). What cannot be read as a zone is UTC.

ZONE_FACTS = frozenset({"time_zone", "timezone"})
MAX_OFFSET = timedelta(hours=14)
"""The farthest that a clock is from UTC (Kiribati)."""

_ZONES = {
    "pacific": "America/Los_Angeles", "pst": "America/Los_Angeles", "pdt": "America/Los_Angeles", "pt": "America/Los_Angeles",
    "mountain": "America/Denver", "mst": "America/Denver", "mdt": "America/Denver", "mt": "America/Denver",
    "central": "America/Chicago", "cst": "America/Chicago", "cdt": "America/Chicago", "ct": "America/Chicago",
    "eastern": "America/New_York", "est": "America/New_York", "edt": "America/New_York", "et": "America/New_York",
    "central european": "Europe/Paris", "cet": "Europe/Paris", "cest": "Europe/Paris", "wet": "Europe/Lisbon",
    "eastern european": "Europe/Athens", "eet": "Europe/Athens", "jst": "Asia/Tokyo", "gmt": "UTC", "utc": "UTC", "z": "UTC",
}  # fmt: skip
"""What people call their zones."""
_TIME = re.compile(r"\s+(?:standard |daylight |summer )?time(?: ?zone)?$", re.IGNORECASE)
_OFFSET = re.compile(r"(?:utc|gmt)? ?(?P<sign>[+\u2212-])(?P<hours>\d{1,2})(?::?(?P<minutes>[0-5]\d))?", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z]+/[A-Za-z0-9_+/-]{1,40}")


@lru_cache(maxsize=512)
def zone_of(told: str) -> tzinfo | None:
    """A zone by its IANA name, its offset ("UTC+2", "-05:30") or what people call it; None where it is none of them."""
    text = _TIME.sub("", told.strip())
    if known := _ZONES.get(text.lower()):
        return _named(known)
    if offset := _OFFSET.fullmatch(text):
        away = timedelta(hours=int(offset["hours"]), minutes=int(offset["minutes"] or 0))
        if away > MAX_OFFSET:
            return None
        return timezone(away if offset["sign"] == "+" else -away)
    return _named(text) if _NAME.fullmatch(text) else None


def _named(name: str) -> tzinfo | None:
    if name == "UTC":
        return UTC
    for spelled in (name, name.title()):
        try:
            return ZoneInfo(spelled)
        except (ValueError, OSError, KeyError):  # KeyError: no such zone; OSError: a folder of zones
            continue
    return None


def at_home(now: datetime, standing: Standing) -> datetime:
    """That moment on the clock of the user of whom `standing` tells; as it is, where their zone is not known."""
    for fact in standing.facts:
        if fact.key in ZONE_FACTS and (zone := zone_of(fact.value)) is not None:
            try:
                return now.astimezone(zone)
            except OverflowError:  # at the edges of the calendar
                return now
    return now


# --- periods -------------------------------------------------------------------------------------------------------------
#
# Quarters, weeks and stretches of time in a question: "last quarter", "Q3 2024", "week 34", "the last 30 days". Weeks are those
# of ISO 8601: they begin on Monday, and week 1 has the year's first Thursday.

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
    """A date, or a period, in a text: where it stands, its days (`until` is not one of them), and whether it names its year."""

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
        first = months_on(date(today.year, (today.month + 2) // 3 * 3 - 2, 1), 3 * STEPS[which.lower()])
        return first, months_on(first, 3)
    if number := match["q"] or match["q2"] or match["nth"]:
        if number.lower() == "last" and year is None:
            return None
        first = date(today.year if year is None else year, 3 * (_ORDINALS.get(number.lower()) or int(number)) - 2, 1)
        if year is None:
            first = first.replace(year=_of_year(first, today, past, 3))
        return first, months_on(first, 3)
    if week := match["week"]:
        return _week(int(week), year, today, past) if year or match["calendar"] or int(week) > COUNTED_WEEKS else None
    if match["over"]:
        return back(today, 1, match["unit2"].lower()), today + timedelta(days=1)
    count, unit = _counted(match["count"]), match["unit"].lower()
    if STEPS[match["way"].lower()] > 0:
        return today, back(today, -count, unit) + timedelta(days=1)
    return back(today, count, unit), today + timedelta(days=1)


def _counted(told: str) -> int:
    """The number that is meant by "3", "three" or "a couple of"."""
    told = told.lower().removeprefix("a ").removesuffix(" of")
    return int(told) if told.isdecimal() else COUNTS[told]


def _of_year(first: date, today: date, past: bool, months: int = 1) -> int:
    """The year of what comes every year, for so many months: of the last that has begun, or of the next that is not over."""
    return first.year - (first > today) if past else first.year + (months_on(first, months) <= today)


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


# --- the time that a question speaks of ----------------------------------------------------------------------------------
#
# "last month", "in May", "on 3 March 2025", "before Christmas", "two weeks ago", "in Q3". Days are those of `now`'s own zone. A
# question tells of what was, unless it speaks of what is to come.


class TimeSpan(NamedTuple):
    """From `begin` up to, not including, `end`; None: open."""

    begin: datetime | None
    end: datetime | None


TIME_CHARS = 500
"""Of a longer question the beginning and the end are looked at: what is pasted between has dates of its own."""
AROUND_WEEKS, AROUND_DAYS = 3, 1
"""Days on either side of "two weeks ago", and of "three days ago": nobody means that very day."""
_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec"
)
_NUMBERS = {name[:3]: n for n, name in enumerate(_MONTHS.split("|")[:12], 1)}
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_BARE = re.compile(
    rf"\b(?:(?:early|late|mid|beginning of|end of|start of|half of|week of|weekend of)[ -])?"
    rf"(?:(?P<month>{_MONTHS})\.?,? (?:of )?(?P<year>(?:19|20)\d\d)"
    rf"|(?P<season>{'|'.join(_SEASONS)}),? (?:of )?(?P<year2>(?:19|20)\d\d)"
    rf"|(?:of|by|until|before|after) (?P<month2>{_MONTHS})(?! \d|[a-z])"
    r"|(?P<feast>christmas(?: eve)?|new year(?:'s|s)?(?: eve| day)?|halloween|valentine(?:'s|s)? day)"
    r"(?:,? (?:of |in )?(?P<year3>(?:19|20)\d\d))?"
    r"|(?<=\bof )(?P<year4>(?:19|20)\d\d))\b",
    re.IGNORECASE,
)
_FUTURE = re.compile(
    r"\b(?:will|shall|going to|gonna|next|upcoming|coming|tomorrow|planned for|due|am i \w+ing"
    r"|in \w+ (?:days|weeks|months))\b",
    re.IGNORECASE,
)
_AGO = re.compile(r"(?P<unit>day|week)s? ago$", re.IGNORECASE)
_WEEK_OF = re.compile(
    r"\b(?P<what>week|weekend) (?:of|beginning|starting|commencing|from|with) (?:on )?(?:the )?$", re.IGNORECASE
)
_LEAD = re.compile(
    r"(?:(?:the|last|this) (?P<one>day|week|weekend|month|year|(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
    r" (?P<which>before|after|prior to|following)"
    r"|(?P<count>\w+|a couple of|a few) (?P<unit>day|week|month|year)s? (?P<off>before|after|prior to)"
    r"|(?P<open>before|until|till|by|prior to|up to|as of|after|since|following)"
    r"|(?P<pair>between|from))[ ,]*(?:the |last )?$",
    re.IGNORECASE,
)
_ONE_MONTH = re.compile(
    r"\b(between|from) (?:the )?([0-3]?\d)(?:st|nd|rd|th)? (and|to|until|till) (?:the )?"
    rf"(?=[0-3]?\d(?:st|nd|rd|th)? (?:of )?({_MONTHS})\b)",
    re.IGNORECASE,
)
"""Of "between 3 and 5 May" the first day has the month of the second."""
_RANGE_LEAD = r"\b(?:between|from|during|in) (?:the (?:months? of |years? )?)?"
_RANGE_JOIN = r" ?(?:\band\b|\bto\b|\buntil\b|\btill\b|\bthrough\b|\bup to\b|[-\u2013]) ?(?:the )?"
_OF_YEAR = r"\.?(?:,? (?:of )?(?P<{}>(?:19|20)\d\d)\b)?"
_WHICH = r"(?:last|this past|this|next)"
_MONTH_RANGE = re.compile(
    rf"(?:{_RANGE_LEAD}{_PART}(?:(?P<which>{_WHICH}) )?|\b(?P<alone>{_WHICH}) )(?P<one>{_MONTHS})\b{_OF_YEAR.format('year')}"
    rf"{_RANGE_JOIN}{_PART}(?:(?P<which2>{_WHICH}) )?(?P<other>{_MONTHS})\b{_OF_YEAR.format('year2')}(?! ?\d)",
    re.IGNORECASE,
)
_NTH = r"(?:the )?[0-3]?\d(?:st|nd|rd|th)?"
_DAY_TEXT = rf"(?:{_NTH} (?:of )?(?:{_MONTHS})\b|(?:{_MONTHS})\.? {_NTH}\b(?!\d))"
_YEAR_TEXT = r"(?:,? (?:of )?(?:19|20)\d\d\b)?"
_TO_MONTH = re.compile(
    rf"\b((?:between|from) (?:the )?{_DAY_TEXT}{_YEAR_TEXT}){_RANGE_JOIN}(?={_PART}(?:{_MONTHS})\b(?! ?\d?\d\b))",
    re.IGNORECASE,
)
""" "From 5 March to April" ends with the month."""
_FROM_MONTH = re.compile(
    rf"\b(between|from) ((?:{_MONTHS})\b\.?{_YEAR_TEXT})(?={_RANGE_JOIN}{_DAY_TEXT})", re.IGNORECASE
)
""" "From March to 5 April" begins with the month."""
_OF_THAT_YEAR = re.compile(
    rf"\b((?:{_MONTHS})\.?(?: (?:the )?[0-3]?\d(?:st|nd|rd|th)?)?|{'|'.join(_SEASONS)}|christmas|halloween|q[1-4]|quarter"
    rf"|week \d\d?),? (?:of |in )?(last|this|next) year\b",
    re.IGNORECASE,
)
_YEAR_RANGE = re.compile(
    rf"{_RANGE_LEAD}(?P<one>(?:19|20)\d\d){_RANGE_JOIN}(?P<other>(?:19|20)\d\d)\b(?![-/.]\d)", re.IGNORECASE
)
"""Months and years that stand alone are dates in a range: "between May and July", "from 2019 to 2021"."""
_JOIN = re.compile(r"[ ,]*(?:and|to|until|through|till)[ ,]*(?:the )?", re.IGNORECASE)
_UNITS = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}
_WORD = re.compile(r"[a-z]+|\d")
_HINTS_TEXT = """
    0 1 2 3 4 5 6 7 8 9 hour hours day days week weeks weekend month months quarter quarters year years today tonight
    tomorrow yesterday morning afternoon evening night monday tuesday wednesday thursday friday saturday sunday christmas
    halloween valentine
"""
_HINTS = frozenset(_HINTS_TEXT.split()).union(_MONTHS.replace("sept?", "sep|sept").split("|"), _SEASONS)
"""A question without one of these speaks of no time: it is looked at no further."""
LEAD_CHARS = 40
"""Characters before a date in which its preposition stands."""


def asked_time(query: str, now: datetime) -> TimeSpan | None:
    """When what is asked for was said or happened, or None where the question does not say.

    Of several dates the first with a year counts, else the first; "between" joins two.
    """
    if len(query) > 2 * TIME_CHARS:
        query = f"{query[:MAX_CHARS]}\n{query[-MAX_CHARS:]}"
    query = in_english(query)
    if _HINTS.isdisjoint(_WORD.findall(query.lower())):
        return None
    query = _ONE_MONTH.sub(r"\1 \2 \4 \3 ", query)
    try:
        query = _spelled_out(query, now.date())
        days = _found(query, now)
        if not days:
            return None
        at = next((n for n, each in enumerate(days) if each.year), 0)
        for one, other in pairwise(days):
            lead = _lead(query, one)
            joined = lead is not None and lead["pair"] and _JOIN.fullmatch(query[one.stop : other.start])
            if joined and days[at] in (one, other):
                return _span(*_from_to(one, other), now)
        return _led(days[at], _lead(query, days[at]), now)
    except (OverflowError, ValueError):  # beyond the calendar
        return None


def _spelled_out(query: str, today: date) -> str:
    """The question with what its ranges of months and years leave out."""
    query = _OF_THAT_YEAR.sub(lambda match: f"{match[1]} {today.year + STEPS[match[2].lower()]}", query)
    query = _YEAR_RANGE.sub(
        lambda match: "between January {} and December {}".format(*sorted(match.group("one", "other"))), query
    )
    query = _FROM_MONTH.sub(r"\1 1 \2", _TO_MONTH.sub(r"\1 until ", query))
    past = _FUTURE.search(query) is None
    return _MONTH_RANGE.sub(lambda match: _months(match, today, past), query)


def _months(match: re.Match[str], today: date, past: bool) -> str:
    """A range of months with the years of both."""
    one, other = (_NUMBERS[match[name].lower()[:3]] for name in ("one", "other"))
    joined = match[0][match.end("one") - match.start() : match.start("other") - match.start()]
    which = match["which"] or match["alone"]
    if match[0][:2].lower() in ("in", "du") and "and" in joined and one % 12 + 1 != other:
        return match[0]  # "in May and August" are two months
    turned = int(one > other)
    if match["year"] or which:
        first = int(match["year"] or _which_year(today, one, which))
        last = int(match["year2"] or first + turned)
    else:
        last = int(match["year2"] or _which_year(today, other, match["which2"] or ("last" if past else "next")))
        first = last - turned
    return f"between {match['one']} {first} and {match['other']} {last}"


def _which_year(today: date, month: int, which: str) -> int:
    """The year of last May, this May or next May."""
    step = STEPS[which.lower()]
    return _of_year(date(today.year, month, 1), today, step < 0) if step else today.year


def _lead(query: str, days: Period) -> re.Match[str] | None:
    return _LEAD.search(query[max(0, days.start - LEAD_CHARS) : days.start])


def _led(days: Period, lead: re.Match[str] | None, now: datetime) -> TimeSpan:
    """The time that a date stands for, after the words before it."""
    if lead is None or lead["pair"]:
        return _span(days.first, days.until, now)
    if lead["open"] is None:
        return _shifted(days.first, days.until, lead, now)
    word = lead["open"].lower()
    if word in ("after", "following", "since"):
        return _span(days.first if word == "since" else days.until, None, now)
    return _span(None, days.first if word in ("before", "prior to") else days.until, now)


def _found(query: str, now: datetime) -> list[Period]:
    """The dates of a question, in its order."""
    past = _FUTURE.search(query) is None
    found = list(find_periods(query, now.date(), past=past))
    for each in find_dates(query, now, past=past):
        if not _stands_in(found, each.start, each.end):
            found.append(_dated(query, each))
    for match in _BARE.finditer(query):
        if not _stands_in(found, match.start(), match.end()):
            found.append(_bare(match, now.date(), past))
    return sorted(found)


def _stands_in(found: Sequence[Period], start: int, stop: int) -> bool:
    """Whether what stands there is part of something longer."""
    return any(each.start < stop and start < each.stop for each in found)


def _dated(query: str, date_there: FoundDate) -> Period:
    """A date, with the days around it that are meant as well."""
    start, first, until = date_there.start, date_there.first, date_there.until
    text = query[start : date_there.end]
    if ago := _AGO.search(text):
        around = timedelta(days=AROUND_WEEKS if ago["unit"].lower() == "week" else AROUND_DAYS)
        first, until = first - around, until + around
    if text.lower().startswith("since "):
        start += len("since ")
    if until - first == timedelta(days=1) and (week := _WEEK_OF.search(query[max(0, start - LEAD_CHARS) : start])):
        start -= len(week[0])
        first -= timedelta(days=first.weekday())
        until = first + timedelta(days=7)
        if week["what"].lower() == "weekend":
            first += timedelta(days=5)
    return Period(start, date_there.end, first, until, date_there.year)


def _bare(match: re.Match[str], today: date, past: bool) -> Period:
    groups = match.groupdict()
    year = groups["year"] or groups["year2"] or groups["year3"] or groups["year4"]
    start = match.start()
    if groups["feast"]:
        first, until = _feast(groups["feast"].lower(), year, today, past)
    elif month := groups["month"] or groups["month2"]:
        start = match.start("month" if groups["month"] else "month2")
        number = _NUMBERS[month.lower()[:3]]
        first = date(int(year) if year else _of_year(date(today.year, number, 1), today, past), number, 1)
        until = months_on(first, 1)
    elif groups["season"]:
        first = date(int(year or 0), _SEASONS[groups["season"].lower()], 1)
        until = months_on(first, 3)
    else:
        first, until = date(int(year or 0), 1, 1), date(int(year or 0) + 1, 1, 1)
    return Period(start, match.end(), first, until, year is not None)


def _feast(name: str, year: str | None, today: date, past: bool) -> tuple[date, date]:
    """Christmas is three days, as people count it; the turn of the year two."""
    month, day, days = (12, 24, 3) if name.startswith("christmas") else (12, 31, 2)
    if name.startswith("halloween"):
        month, day, days = 10, 31, 1
    elif name.startswith("valentine"):
        month, day, days = 2, 14, 1
    first = date(today.year, month, day)
    first = first.replace(year=int(year) if year else _of_year(first, today, past))
    return first, first + timedelta(days=days)


def _from_to(one: Period, other: Period) -> tuple[date, date]:
    """From one date to another; a year that only one of them says holds for both."""
    first, until = one.first, other.until
    if one.year and not other.year:
        until = until.replace(year=first.year + (other.first.month < first.month) + until.year - other.first.year)
    elif other.year and not one.year:
        first = first.replace(year=other.first.year - (first.month > other.first.month))
    return min(first, other.first), max(until, first + (one.until - one.first))


def _shifted(first: date, until: date, lead: re.Match[str], now: datetime) -> TimeSpan:
    """ "Two weeks before it", "the week after it": that long, on that side."""
    back = (lead["off"] or lead["which"]).lower() in ("before", "prior to")
    if lead["one"]:
        length = timedelta(days=_UNITS.get(lead["one"].lower(), 7))  # "the Sunday before it": within a week
        return _span(first - length, first, now) if back else _span(until, until + length, now)
    told = lead["count"].lower().rsplit(" ", 1)[-1].replace("of", "couple")
    count = int(told) if told.isdecimal() and len(told) < 4 else COUNTS.get(told)
    if count is None:  # "some days before it"
        return _span(None, first, now) if back else _span(until, None, now)
    unit = lead["unit"].lower()
    by = timedelta(days=count * _UNITS[unit]) * (-1 if back else 1)
    around = timedelta(days=AROUND_DAYS if unit == "day" else AROUND_WEEKS if unit == "week" else 15)
    return _span(first + by - around, until + by + around, now)


def _span(first: date | None, until: date | None, now: datetime) -> TimeSpan:
    begin, end = (None if each is None else datetime.combine(each, time(), now.tzinfo) for each in (first, until))
    return TimeSpan(begin, end)


# --- the question --------------------------------------------------------------------------------------------------------

Strategy = Literal["factual_entity_focused", "procedural", "exploratory", "temporal_focused"]
"""The four of seed 004."""

MAX_CHARS = 2000
"""Of a longer question the beginning is looked at."""

_PROCEDURAL = re.compile(
    r"\bhow (?:do|does|can|could|should|would|did|to)\b(?! (?:you|i|we) (?:feel|like|think))"
    r"|\b(?:steps? (?:to|for)|way to|procedure|workflow|instructions? for|usual(?:ly)? (?:do|handle|go about))\b"
    # German, Spanish, French, Portuguese, Chinese
    r"|^\W*wie (?:kann|können|könnte|muss|müssen|soll|sollte|(?!hei[ßs])\w+ (?:ich|man|wir))\b"
    r"|^\W*cómo (?:se(?! llama)|puedo|podemos|debo|hago|\w+o)\b"
    r"|^\W*comment (?:puis-je|peut-on|faire|faut-il|dois-je|\w+[ei]r)\b"
    r"|^\W*como (?:se(?! chama)|posso|podemos|devo|faço|fazer|\w+o)\b|怎么(?!样)|怎样|如何|步骤",
    re.IGNORECASE,
)
_EXPLORATORY = re.compile(
    r"\b(?:tell me (?:more )?about|what (?:do|did) (?:you|we|i) know|overview|summari[sz]e|summary|describe|walk me through"
    r"|everything (?:about|on)|catch me up|what(?:'s| is| are| has been) (?:new|going on))\b"
    r"|\b(?:erzähl\w*|alles (?:über|zu)|überblick|was wei(?:ß|ss)t du|fass\w* .{1,60}zusammen|zusammenfassung)\b"
    r"|\b(?:háblame|cuéntame|qué sabes|todo sobre|resum\w+)\b|\b(?:parle-moi|raconte-moi|que sais-tu|tout sur|résum\w+)\b"
    r"|\b(?:fala-me|fale-me|me fale|conta-me|o que (?:você )?sabes?|tudo sobre)\b|说说|讲讲|介绍|总结|概述|了解多少|知道什么",
    re.IGNORECASE,
)
_TALK = r"(?:conversation|chat|discussion|session|talk|call|exchange)s?"
_RECAP = re.compile(
    r"\bwhat (?:all |else |things |topics |subjects )?(?:did|have|had|were|was) (?:we|you and i|i and you)"
    r"(?: \w+)?? (?:talk|discuss|chat|speak|spoke|cover|go over|gone over|been over|work(?:ed|ing)? (?:on|through))"
    rf"|\b(?:recap|summari[sz]e|sum up|summary of|overview of|gist of|catch me up on|remind me of|minutes of)"
    rf" (?:\w+ ){{0,4}}{_TALK}\b"
    rf"|\bwhat (?:was|were) (?:\w+ ){{0,3}}{_TALK} (?:\w+ ){{0,3}}about\b"
    r"|\b(?:recap|summari[sz]e|sum up) (?:what|everything|all) (?:that )?(?:we|you and i)\b"
    r"|\bwhere (?:did we (?:leave|stop)|were we)\b",
    re.IGNORECASE,
)
_HAPPENED = re.compile(
    r"\b(?:what (?:has |had )?happened|what (?:was|were) .{1,40}\bdoing|when (?:did|was|were|is|will|do|does|has|had)|timeline"
    r"|how long ago|in (?:which|what) (?:order|year|month)|what order|chronological)\b"
    r"|^\W*(?:wann|cuándo|quand|quando)\b|\bwas ist .{0,40}(?:passiert|geschehen)|\bqué (?:ha )?pas[óa]\w*|\bs'est-il passé"
    r"|\bo que aconteceu|什么时候|何时|发生了什么",
    re.IGNORECASE,
)
_MESSAGES = r"(?:questions?|messages?|turns?|prompts?|exchanges?|answers?|repl(?:y|ies))"
_TURNS = re.compile(
    rf"\b(?:(?P<count>\d{{1,2}}|a couple of|a few|an?|{'|'.join(WORDS)}) {_MESSAGES} (?:ago|back|before|earlier)"
    rf"|(?P<last>(?:my|your|the) (?:last|previous|prior|preceding) {_MESSAGES})(?! (?:of|from|in|on)\b)"
    r"|(?:earlier|before|already|previously|so far|above|(?:at|near) the (?:start|beginning|top)) (?:in|of|during)"
    r" (?:this|our|the) (?:\w+ )?(?:conversation|chat|discussion|session|thread)"
    r"|(?:earlier|so far|already) in here|(?:further|farther) up)\b",
    re.IGNORECASE,
)
EARLIER = 0
"""Of `Asked.turns`: somewhere before in this conversation."""


class Asked(NamedTuple):
    """`entities`: ids of what the question names, else (not `named`) of what it is about, as memories have them; `about`: of
    both together. `span`: the time that it speaks of. `recap`: it asks what a conversation was about, as a whole. `turns`: it
    speaks of this very conversation, of so many questions ago (`EARLIER`: it does not say how many). `things`: of the
    `entities` those that are known things ("customer:gai_123"), each with the slugs of its names."""

    text: str
    entities: frozenset[str] = frozenset()
    about: frozenset[str] = frozenset()
    named: bool = False
    span: TimeSpan | None = None
    recap: bool = False
    turns: int | None = None
    things: Mapping[str, frozenset[str]] = MappingProxyType({})

    @property
    def timed(self) -> bool:
        """Whether it speaks of a time, on the clock or in the conversation."""
        return self.span is not None or self.turns is not None

    @property
    def strategy(self) -> Strategy:
        """Which strategy of seed 004 the question calls for; the first rule that holds.

        1. It asks how something is done → procedural. 2. It asks what happened, or when → temporal. 3. It asks for whatever
        there is → exploratory. 4. It names something → factual, of an entity. 5. It speaks of a time → temporal. Else
        exploratory, which looks the widest.
        """
        if _PROCEDURAL.search(self.text):
            return "procedural"
        if _HAPPENED.search(self.text):
            return "temporal_focused"
        if _EXPLORATORY.search(self.text):
            return "exploratory"
        if self.named:
            return "factual_entity_focused"
        return "temporal_focused" if self.timed else "exploratory"


class QueryType(NamedTuple):
    """Seed 004's classification of a question (stage 1, step 2). `requires_domain_db`: what it names may have changed, and the
    business's own database says how it is now."""

    category: str
    """The first word of the strategy: factual, procedural, exploratory or temporal."""
    entity_focused: bool
    time_focused: bool
    procedural: bool
    requires_domain_db: bool
    strategy: Strategy


def query_type(asked: Asked, *, resolved: bool = False, domain: bool = False) -> QueryType:
    """What kind of question it is. `resolved`: something that it names is a thing that is known, however it is spelled;
    `domain`: there is a database that knows such things. What was said of them, as a whole, is not asked there."""
    known = asked._replace(named=asked.named or resolved)
    strategy = known.strategy
    return QueryType(
        category=strategy.partition("_")[0],
        entity_focused=known.named,
        time_focused=asked.timed,
        procedural=strategy == "procedural",
        requires_domain_db=domain and resolved and not asked.recap,
        strategy=strategy,
    )


def temporal_scope(span: TimeSpan | None) -> dict[str, str | None] | None:
    """The time that is asked for as seed 004 shows it: its first and its last day, both included, None where it is open."""
    if span is None:
        return None
    last = span.end - timedelta(days=1) if span.end is not None else None
    return {
        "start": span.begin.date().isoformat() if span.begin is not None else None,
        "end": last.date().isoformat() if last is not None else None,
    }


def turns_ago(query: str) -> int | None:
    """How many questions ago that was of which a question speaks: "three questions ago", "my last message", "earlier in this
    conversation" (`EARLIER`); None where it speaks of no such thing."""
    match = _TURNS.search(query)
    if match is None:
        return None
    if match["last"]:
        return 1
    if match["count"] is None:
        return EARLIER
    return _counted(match["count"])


def understand(query: str, now: datetime) -> Asked:
    """What a question says of what it wants; `now` is when it is asked, on the clock of who asks."""
    head = query[:MAX_CHARS]
    named = frozenset(found for each in names(head) if each[:1].isupper() and (found := slug(each)))
    about = named.union(found for each in terms(head) if (found := slug(each)))
    return Asked(
        text=query,
        entities=named or about,
        about=about,
        named=bool(named),
        span=asked_time(query, now),
        recap=_RECAP.search(head) is not None,
        turns=turns_ago(head),
    )
