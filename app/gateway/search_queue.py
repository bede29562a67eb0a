"""Limits the searches of one process: a search runs at once, waits for its turn, or is shed (left out).

As long as the queue becomes empty from time to time, a search waits until its request's deadline. A queue that has not been
empty for `STANDING_S` grows faster than it is served: a search that arrives then waits at most `SHORT_WAIT_S`. So a search that
begins ends in time. This is controlled delay as request servers use it (B. Maurer, "Fail at Scale", ACM Queue 13(8), 2015).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque

SEARCHES_AT_ONCE = 16
"""Searches that run at once. They share one processor, so more would only end later. Even if each waits 0.1 s for a
remote embedder, 16 at once make 160 a second, more than one process can run."""
STANDING_S = 0.3
"""Seconds for which a queue that is not empty is only a burst, for example of users who come back after a restart."""
SHORT_WAIT_S = 0.1
"""Most seconds that a search waits if the queue stood when it arrived, not empty for `STANDING_S`. With 16 searches of 10 ms
running, it ends after 0.26 s, half of the default deadline."""


class SearchTurn:
    """One search's place in the queue. `decided` is set when `admitted` says whether it may search."""

    __slots__ = ("admitted", "arrived_at", "decided", "wait_until")

    def __init__(self, arrived_at: float, wait_until: float) -> None:
        self.arrived_at = arrived_at
        self.wait_until = wait_until
        self.admitted = False
        self.decided = asyncio.Event()

    def decide(self, *, admitted: bool) -> None:
        self.admitted = admitted
        self.decided.set()


class SearchQueue:
    """First come, first served. Times are seconds on any clock that only goes forward."""

    def __init__(self) -> None:
        self._running = 0
        self._waiting: deque[SearchTurn] = deque()
        self._standing_since = 0.0
        """Time since which the queue has not been empty; unused while it is empty."""

    def enter(self, now: float) -> SearchTurn:
        """Queue a search and return its turn, whose `decided` is set once it may run or is shed. Every turn must `leave`."""
        if not self._waiting:
            self._standing_since = now
        stands = now - self._standing_since > STANDING_S
        turn = SearchTurn(now, now + SHORT_WAIT_S if stands else math.inf)
        self._waiting.append(turn)
        self._advance(now)
        return turn

    def leave(self, turn: SearchTurn, now: float) -> None:
        """Remove a search that has ended or gives up."""
        if turn.admitted:
            self._running -= 1
        elif not turn.decided.is_set():
            self._waiting.remove(turn)
        self._advance(now)

    def _advance(self, now: float) -> None:
        """Shed the searches at the head of the queue that have waited too long, then admit as many as may run."""
        while self._waiting and now > self._waiting[0].wait_until:
            self._waiting.popleft().decide(admitted=False)
        while self._waiting and self._running < SEARCHES_AT_ONCE:
            self._running += 1
            self._waiting.popleft().decide(admitted=True)
