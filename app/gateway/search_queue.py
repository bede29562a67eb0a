"""The queue before the searches of one process: who searches at once, who waits, and who goes without.

While the queue empties again and again, a search waits for its turn as long as its request's deadline lets it. A queue that
has not been empty for a while grows faster than it is served: a search that comes then waits a short time at most, and goes
without. So the searches that run end in time, and those that cannot are not begun. This is controlled delay as request servers
use it (B. Maurer, "Fail at Scale", ACM Queue 13(8), 2015).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque

SEARCHES_AT_ONCE = 16
"""Searches that run at once. They share one processor, so that more would only end later; a search that waits for a distant
embedder (0.1 s) does not use it, and 16 of those still are 160 a second, more than one process carries."""
STANDING_S = 0.3
"""Seconds for which a queue that does not empty is a burst, such as the users who come back after a start or an import."""
SHORT_WAIT_S = 0.1
"""Most seconds that a search waits in a queue that stood when it came. With 16 that run, of 10 ms each, it ends after 0.26 s:
half of the default deadline."""


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
        """Since when the queue has not been empty; means nothing while it is."""

    def enter(self, now: float) -> SearchTurn:
        """Queue a search, which has its turn when `decided` is set. It has to `leave`, whatever becomes of it."""
        if not self._waiting:
            self._standing_since = now
        stands = now - self._standing_since > STANDING_S
        turn = SearchTurn(now, now + SHORT_WAIT_S if stands else math.inf)
        self._waiting.append(turn)
        self._advance(now)
        return turn

    def leave(self, turn: SearchTurn, now: float) -> None:
        """A search has ended, or gives up its place."""
        if turn.admitted:
            self._running -= 1
        elif not turn.decided.is_set():
            self._waiting.remove(turn)
        self._advance(now)

    def _advance(self, now: float) -> None:
        """Shed the first in the queue that have waited too long, then admit what there is room for."""
        while self._waiting and now > self._waiting[0].wait_until:
            self._waiting.popleft().decide(admitted=False)
        while self._waiting and self._running < SEARCHES_AT_ONCE:
            self._running += 1
            self._waiting.popleft().decide(admitted=True)
