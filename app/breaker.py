"""Whether a server is worth asking: a circuit breaker, pure but for the times it is given.

    closed     every request goes; `failures` in a row open it
    open       none goes, for `open_s` seconds
    half open  one has been let through to see; its answer closes it, its failure opens it again. One that says nothing for
               `open_s` seconds is followed by another, for models may think for minutes before their first byte

A failure is a connection that could not be had, that ended without a byte of an answer, or that stayed silent for too long.
Any answer is a success, a 429 or a 500 too: whoever answers can be asked.
"""

from __future__ import annotations

from typing import Literal

State = Literal["closed", "half_open", "open"]


class Breaker:
    """The breaker of one server: an upstream, a domain. Times are seconds on any clock that only goes forward."""

    __slots__ = ("_again_at", "_failures", "_in_a_row", "_open_s", "_trying")

    def __init__(self, failures: int, open_s: float) -> None:
        """`failures`: how many in a row open it; 0: none ever do."""
        self._failures = failures
        self._open_s = open_s
        self._in_a_row = 0
        self._again_at: float | None = None
        """When the next request may go; None while it is closed."""
        self._trying = False

    @property
    def state(self) -> State:
        if self._again_at is None:
            return "closed"
        return "half_open" if self._trying else "open"

    def admit(self, now: float) -> float:
        """Ask before each request: 0.0, it may go; else the seconds until another may."""
        if self._again_at is None:
            return 0.0
        if now < self._again_at:
            return self._again_at - now
        self._again_at = now + self._open_s
        self._trying = True
        return 0.0

    def succeeded(self) -> None:
        """A request was answered."""
        self._in_a_row = 0
        self._again_at = None
        self._trying = False

    def failed(self, now: float) -> None:
        """A request failed. In an open breaker it is one that went before it opened, and says nothing new."""
        self._in_a_row += 1
        closed_long_enough = self._again_at is None and 0 < self._failures <= self._in_a_row
        if closed_long_enough or self._trying:
            self._again_at = now + self._open_s
            self._trying = False
