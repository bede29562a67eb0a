"""When a request is sent once more, and after how long: plain functions over plain values."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct

from app.gateway.headers import Headers, find
from app.settings import Settings

JITTER = 0.5
"""Share of a back-off that is left to chance, so that those who were refused together do not come back together."""


class RetryPolicy(Struct, frozen=True):
    """`attempts`: most requests to one upstream. `statuses`: answers that are no answer yet. Seconds: `first_wait_s` before
    the second attempt, doubled for each one after it; `longest_wait_s` bounds every wait."""

    attempts: int
    statuses: frozenset[int]
    first_wait_s: float
    longest_wait_s: float

    @classmethod
    def from_settings(cls, settings: Settings) -> RetryPolicy:
        return cls(
            settings.upstream_attempts,
            frozenset(settings.retry_statuses),
            settings.retry_wait_s,
            settings.retry_wait_max_s,
        )

    def wait_s(self, done: int, retry_after_s: float | None, chance: float) -> float | None:
        """Seconds until the next attempt at the same upstream after `done` of them; None: there is none.

        `retry_after_s`: what the upstream asked for. It is kept to; where it is longer than we wait, its answer stands.
        `chance`: a random number in [0, 1).
        """
        if done >= self.attempts:
            return None
        if retry_after_s is not None:
            return retry_after_s if retry_after_s <= self.longest_wait_s else None
        wait = min(self.longest_wait_s, self.first_wait_s * 2.0 ** (done - 1))
        return wait * (1.0 - JITTER * chance)


def retry_after(headers: Headers, now: datetime) -> float | None:
    """The seconds that an answer asks for: `retry-after-ms` (OpenAI), else `Retry-After` (RFC 9110 §10.2.3), as a number or
    as a date. None where it says nothing that can be read."""
    for name, unit in ((b"retry-after-ms", 0.001), (b"retry-after", 1.0)):
        value = find(headers, name)
        if value is None:
            continue
        text = value.decode("latin-1").strip()
        try:
            seconds = float(text) * unit
        except ValueError:
            seconds = _until(text, now)
        if 0.0 <= seconds < float("inf"):
            return seconds
    return None


def _until(text: str, now: datetime) -> float:
    """Seconds until an HTTP date; not a number where it is none."""
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return float("nan")
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds())
