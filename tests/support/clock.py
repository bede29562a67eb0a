"""A clock that tests set."""

from __future__ import annotations

from datetime import datetime, timedelta


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def move(self, by: timedelta) -> None:
        """Go forward (or, negative, back) by `by`."""
        self._now += by
