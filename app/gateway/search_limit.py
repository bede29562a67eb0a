"""How many requests search memory at once, so that those that do end within their deadline.

A server with more requests than it has CPU for would begin all searches and end none in time: every prompt would go without,
and the work would be lost. So, once one was late, no more run at once than were in time (additive increase, multiplicative
decrease: Chiu and Jain 1989, as in TCP); a request that is one too many goes on at once with its history and what is known of
the user.
"""

from __future__ import annotations

import math

DECREASE = 0.5
"""What a late search leaves of those that ran at once, as in TCP."""
LEAST = 2.0
"""Searches that run at once in any case: while one waits for Postgres, another has the processor."""


class SearchLimit:
    """Counts the searches of one process. There is no limit until one was late."""

    def __init__(self) -> None:
        self.most = math.inf
        self.running = 0
        self._cuts = 0

    def begin(self) -> int | None:
        """A search begins, and is to `end` with this number; None: it is one too many."""
        if self.running >= self.most:
            return None
        self.running += 1
        return self._cuts

    def end(self, begun: int, *, late: bool) -> None:
        """One has ended. `begun`: what `begin` said."""
        running = self.running
        self.running -= 1
        if late and begun == self._cuts:  # what began under an earlier limit says nothing of this one
            self.most = max(LEAST, min(self.most, running) * DECREASE)
            self._cuts += 1
        elif not late and running >= self.most:
            self.most += 1 / self.most
