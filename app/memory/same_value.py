"""When two values are the same, however they are written: "NET 30" and "net-30 days", "$3,500" and "3500.00". Pure.

What counts is told in docs/explanation/conflicts.md. In doubt two values differ: then somebody looks, and nothing is lost.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from app.memory.extract_dates import MONTHS

_CURRENCIES = {"$": "usd", "€": "eur", "£": "gbp", "¥": "jpy", "us$": "usd"}
_CODES = frozenset({"usd", "eur", "gbp", "jpy", "chf", "cad", "aud", "sek", "nok", "dkk", "pln", "inr", "cny"})
_TRUE = frozenset({"true", "yes", "y", "t"})
_FALSE = frozenset({"false", "no", "n", "f"})
_SPAN_UNITS = frozenset({"day", "days"})
"""After a word and a number they add nothing: "NET 30 days". After a number alone they are its unit."""
MAX_VALUE_CHARS = 400
"""Characters of a value that are compared: longer ones are texts, and compared as they begin."""

_NUMBER = re.compile(
    r"(?P<before>us\$|[$€£¥]|[a-z]{3}\b)?\s*(?P<sign>[+-]?)(?P<digits>\d{1,3}(?:[,' ]\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
    r"\s*(?P<after>[$€£¥%]|[a-z]+)?"
)
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[t ](\d{2}:\d{2}.*))?")
_SPOKEN = re.compile(
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day,? )?"
    r"(?:(?P<d1>\d{1,2})(?:st|nd|rd|th)?(?: of)? (?P<m1>[a-z]+)\.?|(?P<m2>[a-z]+)\.? (?P<d2>\d{1,2})(?:st|nd|rd|th)?)"
    r",? (?P<y>\d{4})"
)
_RUNS = re.compile(r"[^\W\d_]+|\d+")


class _Number(NamedTuple):
    amount: Decimal
    unit: str


def same_value(one: str, other: str) -> bool:
    """Whether two values say the same. Symmetric, and every value is the same as itself."""
    ours, theirs = _plain(one), _plain(other)
    if ours == theirs:
        return True
    if (left := _moment(ours)) is not None and (right := _moment(theirs)) is not None:
        return _same_moment(left, right)
    if (first := _number(ours)) is not None and (second := _number(theirs)) is not None:
        return first.amount == second.amount and (first.unit == second.unit or not first.unit or not second.unit)
    left_truth, right_truth = _truth(ours), _truth(theirs)
    if left_truth is not None and right_truth is not None:
        return left_truth == right_truth
    said, told = _words(ours), _words(theirs)
    return said == told and said != ""


def _plain(text: str) -> str:
    """Without case, widths of letters, outer marks and doubled spaces."""
    plain = unicodedata.normalize("NFKC", text[:MAX_VALUE_CHARS]).casefold().replace("’", "'")
    return " ".join(plain.split()).strip(" .,;:!\"'“”")


def _truth(text: str) -> bool | None:
    return True if text in _TRUE else False if text in _FALSE else None


def _moment(text: str) -> date | datetime | None:
    if match := _MOMENT.fullmatch(text):
        try:
            if match[2] is None:
                return date.fromisoformat(match[1])
            moment = datetime.fromisoformat(f"{match[1]}T{match[2].upper().replace(' ', '')}")
        except ValueError:
            return None
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if match := _SPOKEN.fullmatch(text):
        month = MONTHS.get(match["m1"] or match["m2"])
        try:
            return date(int(match["y"]), month, int(match["d1"] or match["d2"])) if month is not None else None
        except ValueError:
            return None
    return None


def _same_moment(one: date | datetime, other: date | datetime) -> bool:
    """A day is the same as any moment of it."""
    if isinstance(one, datetime) and isinstance(other, datetime):
        return one == other
    return _day(one) == _day(other)


def _day(moment: date | datetime) -> date:
    return moment.date() if isinstance(moment, datetime) else moment


def _number(text: str) -> _Number | None:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    before, after = match["before"] or "", match["after"] or ""
    if before and before not in _CURRENCIES and before not in _CODES:
        return None  # "net 30" is a term, and no thirty of anything
    units = {_CURRENCIES.get(each, each) for each in (before, after) if each}
    if len(units) > 1:
        return None
    unit = next(iter(units), "")
    try:
        amount = Decimal(match["sign"] + re.sub(r"[,' ]", "", match["digits"]))
    except InvalidOperation:  # pragma: no cover - the pattern admits numbers only
        return None
    return _Number(amount, unit.removesuffix("s") if unit not in _CODES else unit)


def _words(text: str) -> str:
    """Letters and digits alone, numbers apart from each other; without the days of "net 30 days"."""
    runs = _RUNS.findall(text)
    if len(runs) > 2 and runs[-1] in _SPAN_UNITS and runs[-2].isdigit():
        runs.pop()
    parts: list[str] = []
    for before, run in zip(["", *runs], runs, strict=False):
        parts += ["|", run] if before.isdigit() and run.isdigit() else [run]
    return "".join(parts)
