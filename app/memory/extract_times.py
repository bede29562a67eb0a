"""Words of time in the languages beside English, said again in the English words that `extract_dates` and `timing` read.

"el mes pasado" → "last month", "hace {n} semanas" → "2 weeks ago": the lines [times] of app/languages/<code>.txt. Only what
resolves a date is in one place, whatever the language; a language is data.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from app.languages.data import Language, language
from app.languages.detect import language_of
from app.memory.extract_dates import Found, find_date

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


def timetime_rules(text: str, code: str) -> Iterator[TimeWords]:
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


def is_time(text: str, code: str) -> bool:
    """Is the whole text a word of time ("la semaine prochaine")?"""
    return time_rules(code).pattern.fullmatch(text.strip()) is not None


def find_time(text: str, now: datetime, spoken: Language, *, past: bool) -> Found | None:
    """The first date of a clause, with its place there."""
    for words in timetime_rules(text, spoken.code):
        found = find_date(words.english, now, past=past)
        if found is not None:
            return replace(found, start=words.start, end=words.end)
    return None


def in_english(question: str) -> str:
    """What a question says of time, in English and without its other words; an English question, or one of which the language
    is unknown, as it is."""
    code = language_of(question)
    if code in ("", "en"):
        return question
    said, end = "", 0
    for words in timetime_rules(question, code):
        apart = not _GAP.fullmatch(question, end, words.start)
        told = words.english
        if not apart and said.endswith(_LEADS):
            told = told.removeprefix("in ").removeprefix("on ")
        said += (" ; " if apart else " ") + told
        end = words.end
    future = language(code).pattern("future").search(question)
    return f"will {said}" if future and said else said
