"""The user's own clock: what "yesterday" and "last month" are counted by.

The zone is the user's fact `time_zone`, which is text: what was said ("I'm in the Pacific time zone"), or what an application
wrote there (docs/explanation/recall.md). What cannot be read as a zone is UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from app.store.user_profile import Standing

FACT_KEYS = frozenset({"time_zone", "timezone"})
MAX_OFFSET = timedelta(hours=14)
"""The farthest that a clock is from UTC (Kiribati)."""

_SPOKEN = {
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
    if known := _SPOKEN.get(text.lower()):
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
        if fact.key in FACT_KEYS and (zone := zone_of(fact.value)) is not None:
            try:
                return now.astimezone(zone)
            except OverflowError:  # at the edges of the calendar
                return now
    return now
