"""A session with those that it branched off: the stretches of turns that one conversation is made of."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy

from app.store.queries import Queries
from app.store.sessions import SessionRef

MAX_LINEAGE = 100
"""Branches of branches followed; a conversation edited more often than this shows its newest hundred stretches."""


class Line(NamedTuple):
    """Sessions, nearest first, each with the turns that it gives, above `lows` up to `highs` (None: open); and the time of the
    first and the last message of all."""

    sessions: list[UUID]
    lows: list[int]
    highs: list[int | None]
    first: datetime
    last: datetime

    def upto(self, turn: int | None) -> Line:
        """Of it what was there when this turn was the last one; None: all."""
        if turn is None:
            return self
        return self._replace(highs=[turn if high is None else min(high, turn) for high in self.highs])


async def line_of(
    connection: PoolConnectionProxy[Any] | Connection[Any], sql: Queries, tenant: UUID, ref: SessionRef
) -> Line | None:
    """The line of a session; None where nothing was said."""
    rows = await connection.fetch(sql["history.lineage"], tenant, ref.user_id, ref.session_id, MAX_LINEAGE)
    times = [row["first_message_at"] for row in rows] + [row["last_message_at"] for row in rows]
    known = [each for each in times if each is not None]
    if not known:
        return None
    lows, highs = [row["low"] for row in rows], [row["high"] for row in rows]
    return Line([row["session_id"] for row in rows], lows, highs, min(known), max(known))
