"""Dates in a sentence, resolved against the moment in which it was said.

Weeks begin on Monday. "On Friday" and "this Friday" mean the next one to come; "next Friday" the one of the week after
this; "last Friday" the latest past one. A month without a year is the next to come, or, in the past tense, the last.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from functools import cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from app.languages import Language, language, language_of

MONTHS = {name.lower(): i for i, name in enumerate(calendar.month_name) if name}
MONTHS |= {name.lower(): i for i, name in enumerate(calendar.month_abbr) if name} | {"sept": 9}
_DAYS = {name.lower(): i for i, name in enumerate(calendar.day_name)}
_COUNTS_TEXT = "zero one two three four five six seven eight nine ten eleven twelve"
_COUNTS = {word: n for n, word in enumerate(_COUNTS_TEXT.split())} | {"a": 1, "an": 1, "a couple of": 2, "a few": 3}
_MONTH = "(?P<{0}>" + "|".join(sorted(MONTHS, key=len, reverse=True)) + r")\.?"
_DAY = "(?P<{0}>" + "|".join(_DAYS) + ")"
_ORDINAL = r"(?P<{0}>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<{0}>(?:19|20)\d\d)"
_COUNT = r"(?P<count>\d{1,3}|a couple of|a few|an?|" + "|".join(list(_COUNTS)[1:13]) + ")"
_DATE = re.compile(
    "|".join(
        [
            r"(?:on )?(?P<iso>(?:19|20)\d\d-[01]\d-[0-3]\d)",
            r"(?P<after>the day after tomorrow)|(?P<before>the day before yesterday)",
            r"(?P<named>today|tonight|this (?:morning|afternoon|evening)|tomorrow(?: (?:morning|afternoon|evening|"
            r"night))?"
            r"|yesterday(?: (?:morning|afternoon|evening))?|last night)",
            rf"in {_COUNT} (?P<ahead>days?|weeks?|months?|years?)(?:'? time)?",
            rf"{_COUNT.replace('<count>', '<count2>')} (?P<ago>days?|weeks?|months?|years?) ago",
            rf"(?:on )?(?:the )?{_ORDINAL.format('d1')} (?:of )?{_MONTH.format('m1')}(?:(?:,? |,){_YEAR.format('y1')})?",
            rf"(?:on )?{_MONTH.format('m2')} (?:the )?{_ORDINAL.format('d2')}(?!\d)(?:(?:,? |,){_YEAR.format('y2')})?",
            rf"(?P<which>next|last|this|this coming|this past) (?:(?P<unit>week|month|year|weekend)|(?P<season>spring|"
            rf"summer|autumn|fall|winter)|{_DAY.format('wd1')}"
            rf"|{_MONTH.format('m3')})",
            rf"(?:on |this )?(?:the )?{_DAY.format('wd2')}(?: (?:morning|afternoon|evening|night))?",
            rf"(?:in|during|since) (?:early |late |mid-)?{_MONTH.format('m4')}(?: (?:of )?{_YEAR.format('y4')})?",
            rf"(?:in|since) {_YEAR.format('y5')}",
        ]
    ).join((r"\b(?:", r")\b")),
    re.IGNORECASE,
)


class FoundDate(Struct, frozen=True):
    """A date in a text: its place, its ISO form (a day, a month or a year), how it reads after a verb, its days from `first` up
    to, not including, `until`, and whether the text itself says which `year`."""

    start: int
    end: int
    iso: str
    phrase: str
    first: date
    until: date
    year: bool


def find_date(text: str, now: datetime, *, past: bool) -> FoundDate | None:
    """The first date in `text`, or None. `past`: the sentence tells of something that was."""
    return next(find_dates(text, now, past=past), None)


def find_dates(text: str, now: datetime, *, past: bool) -> Iterator[FoundDate]:
    """The dates in `text`, in its order."""
    for match in _DATE.finditer(text):
        try:
            resolved = _resolve(match, now.date(), past)
            first, until = _days(match, *resolved)
        except (ValueError, OverflowError):  # 31 February, or beyond the calendar
            continue
        iso, phrase = resolved
        groups = match.groupdict()
        stated = any(groups[name] for name in ("iso", "y1", "y2", "y4", "y5"))
        yield FoundDate(match.start(), match.end(), iso, phrase, first, until, stated)


def _days(match: re.Match[str], iso: str, phrase: str) -> tuple[date, date]:
    """The days that are meant, the second one not included (but the calendar's last, where it ends with that)."""
    try:
        return _until(match, iso)
    except (ValueError, OverflowError):
        parts = [int(part) for part in iso.split("-")]
        return date(*(*parts, 1, 1)[:3]), date.max


def _until(match: re.Match[str], iso: str) -> tuple[date, date]:
    year, month, day = (int(part) if part else 0 for part in (*iso.split("-"), "", "")[:3])
    if season := match["season"]:
        year, month = int(iso), _SEASONS[season.lower()]
        return date(year, month, 1), _months_on(year, month, 3)
    if day:
        first = date(year, month, day)
        unit = (match["unit"] or "").lower()
        return first, first + timedelta(days={"week": 7, "weekend": 2}.get(unit, 1))
    if month:
        return date(year, month, 1), _months_on(year, month, 1)
    return date(year, 1, 1), date(year + 1, 1, 1)


def _months_on(year: int, month: int, by: int) -> date:
    months = year * 12 + month - 1 + by
    return date(months // 12, months % 12 + 1, 1)


def _resolve(match: re.Match[str], today: date, past: bool) -> tuple[str, str]:
    groups = match.groupdict()
    if groups["iso"]:
        return _day(date.fromisoformat(groups["iso"]))
    if groups["after"] or groups["before"]:
        return _day(today + timedelta(days=2 if groups["after"] else -2))
    if named := groups["named"]:
        shift = {"tomorrow": 1, "yesterday": -1, "last": -1}.get(named.lower().split()[0], 0)
        return _day(today + timedelta(days=shift))
    if unit := groups["ahead"] or groups["ago"]:
        count = (groups["count"] or groups["count2"]).lower()
        number = int(count) if count.isdigit() else _COUNTS[count]
        return _shifted(today, unit.lower().rstrip("s"), number if groups["ahead"] else -number)
    for i in ("1", "2"):
        if month := groups["m" + i]:
            return _day_of_month(today, MONTHS[month.lower()], int(groups["d" + i]), groups["y" + i], past)
    if which := groups["which"]:
        return _relative(today, which.lower(), groups, past)
    if weekday := groups["wd2"]:
        return _day(_weekday(today, _DAYS[weekday.lower()], past))
    if month := groups["m4"]:
        return _month(today, MONTHS[month.lower()], groups["y4"], past)
    return groups["y5"], "in " + groups["y5"]


def _day(when: date) -> tuple[str, str]:
    return when.isoformat(), "on " + when.isoformat()


def _weekday(today: date, wanted: int, past: bool) -> date:
    """The next such day after today, or the last before it."""
    if past:
        return today - timedelta(days=(today.weekday() - wanted - 1) % 7 + 1)
    return today + timedelta(days=(wanted - today.weekday() - 1) % 7 + 1)


def _shifted(today: date, unit: str, by: int) -> tuple[str, str]:
    if unit in ("day", "week"):
        return _day(today + timedelta(days=by * (7 if unit == "week" else 1)))
    if unit == "year":
        return str(today.year + by), f"in {today.year + by}"
    months = today.year * 12 + today.month - 1 + by
    return _month_text(months // 12, months % 12 + 1)


def _month_text(year: int, month: int) -> tuple[str, str]:
    first = date(year, month, 1)
    return first.isoformat()[:7], f"in {calendar.month_name[month]} {year}"


def _month(today: date, month: int, year: str | None, past: bool) -> tuple[str, str]:
    if year:
        return _month_text(int(year), month)
    if past:
        return _month_text(today.year - (month > today.month), month)
    return _month_text(today.year + (month < today.month), month)


def _day_of_month(today: date, month: int, day: int, year: str | None, past: bool) -> tuple[str, str]:
    if year:
        return _day(date(int(year), month, day))
    when = date(today.year, month, day) if (month, day) != (2, 29) else _leap_day(today, past)
    if past and when > today:
        when = when.replace(year=when.year - 1)
    elif not past and when < today:
        when = when.replace(year=when.year + 1)
    return _day(when)


def _leap_day(today: date, past: bool) -> date:
    year = today.year
    while not calendar.isleap(year) or (date(year, 2, 29) > today) is past:
        year += -1 if past else 1
    return date(year, 2, 29)


_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # first months, as the north counts them


def _season(today: date, season: str, past: bool) -> tuple[str, str]:
    begins = _SEASONS[season]
    year = today.year - (begins > today.month) if past else today.year + (begins <= today.month)
    return str(year), f"in {season} {year}"


def _relative(today: date, which: str, groups: dict[str, str | None], past: bool) -> tuple[str, str]:
    step = {"next": 1, "last": -1, "this past": -1}.get(which, 0)
    if weekday := groups["wd1"]:
        number = _DAYS[weekday.lower()]
        if step == 1:
            return _day(today + timedelta(days=7 - today.weekday() + number))
        return _day(_weekday(today, number, past or step == -1))
    if month := groups["m3"]:
        return _month(today, MONTHS[month.lower()], None, past or step == -1)
    if season := groups["season"]:
        return _season(today, season.lower(), past or step == -1)
    unit = groups["unit"] or ""
    if unit.lower() in ("month", "year"):
        return _shifted(today, unit.lower(), step)
    monday = today + timedelta(days=7 * step - today.weekday())
    if unit.lower() == "weekend":
        return _day(monday + timedelta(days=5))
    return monday.isoformat(), f"in the week of {monday.isoformat()}"


# --- words of time in the languages beside English, said again in English words ------------------------------------------
# "el mes pasado" → "last month", "hace {n} semanas" → "2 weeks ago": the lines [times] of app/languages/<code>.txt. Only what
# resolves a date is in one place, whatever the language; a language is data.

_GROUP = re.compile(r"\(\?P<(\w+)>")
_LETTERS = re.compile(r"[^\W\d_]{3,}")
_DIGIT = re.compile(r"\d")
_HINT = 3
"""Letters of a word that tell whether it may begin a word of time: a clause with no such word is not looked at."""
_FIELD = re.compile(r"\{(\w+)\}")
_GAP = re.compile(r"[\s,，的]*")
"""Between two words of time that belong together ("before" and its date) stands nothing else."""
_LEADS = ("before", "after", "since", "until", "between", "and")
""" "Before 3 March", not "before on 3 March"."""


class TimeWords(NamedTuple):
    """(start, end) in the text, and what it is in English: "last month", "before", "and"."""

    start: int
    end: int
    english: str


class _Words(Struct, frozen=True):
    """All time words of a language as one pattern; the groups of its n-th line end in `_n`."""

    pattern: re.Pattern[str]
    hints: frozenset[str]
    templates: tuple[str, ...]
    tables: Mapping[str, Mapping[str, str]]


@cache
def time_rules(code: str) -> _Words:
    """The time words of a language, compiled."""
    spoken = language(code)
    parts = [
        f"(?P<line_{n}>{_GROUP.sub(lambda group, n=n: f'(?P<{group[1]}_{n}>', pattern)})"  # type: ignore[misc]
        for n, (pattern, _) in enumerate(spoken.times)
    ]
    joined = "|".join(parts)
    bounded = joined if spoken.texts.get("spaces") == "no" else rf"(?<!\w)(?:{joined})(?!\w)"
    return _Words(
        re.compile(bounded, re.IGNORECASE),
        frozenset(word[:_HINT] for word in _LETTERS.findall(_GROUP.sub("", joined).lower())),
        tuple(english for _, english in spoken.times),
        {
            "month": _table(spoken, "months", list(calendar.month_name)[1:]),
            "weekday": _table(spoken, "weekdays", list(calendar.day_name)),
            "n": _table(spoken, "numbers", [str(n) for n in range(1, 13)]),
        },
    )


def _table(spoken: Language, name: str, english: list[str]) -> dict[str, str]:
    told = spoken.texts.get(name, "").split()
    return {
        wording.replace("_", " "): meaning
        for each, meaning in zip(told, english, strict=False)
        for wording in each.split("|")
    }


def times_in(text: str, code: str) -> Iterator[TimeWords]:
    """The words of time in a text of that language, in its order."""
    words = time_rules(code)
    spaced = language(code).texts.get("spaces") != "no" and _DIGIT.search(text) is None
    if spaced and words.hints.isdisjoint([word[:_HINT] for word in _LETTERS.findall(text.lower())]):
        return
    for match in words.pattern.finditer(text):
        line = int((match.lastgroup or "_0").rsplit("_", 1)[1])
        groups = {
            key.rsplit("_", 1)[0]: value
            for key, value in match.groupdict().items()
            if key.endswith(f"_{line}") and value
        }

        def meaning(field: re.Match[str], groups: Mapping[str, str] = groups) -> str:
            value = groups.get(field[1], "").lower()
            if value.isdecimal():
                return str(int(value)) if field[1] != "month" else calendar.month_name[min(int(value), 12)]
            return words.tables.get(field[1].rstrip("b"), {}).get(value, value)

        yield TimeWords(match.start(), match.end(), " ".join(_FIELD.sub(meaning, words.templates[line]).split()))


def find_spoken_date(text: str, code: str, now: datetime) -> FoundDate | None:
    """Return the first date of a text in the language `code` ("" reads as English), with its place there, or None."""
    english = code in ("", "en")
    if english and _DATE.search(text) is None:
        return None
    past = language(code or "en").pattern("past").search(text) is not None
    if english:
        return find_date(text, now, past=past)
    for time_words in times_in(text, code):
        found_date = find_date(time_words.english, now, past=past)
        if found_date is not None:
            return replace(found_date, start=time_words.start, end=time_words.end)
    return None


def in_english(question: str) -> str:
    """What a question says of time, in English and without its other words; an English question, or one of which the language
    is unknown, as it is."""
    code = language_of(question)
    if code in ("", "en"):
        return question
    said, end = "", 0
    for words in times_in(question, code):
        apart = not _GAP.fullmatch(question, end, words.start)
        told = words.english
        if not apart and said.endswith(_LEADS):
            told = told.removeprefix("in ").removeprefix("on ")
        said += (" ; " if apart else " ") + told
        end = words.end
    future = language(code).pattern("future").search(question)
    return f"will {said}" if future and said else said
