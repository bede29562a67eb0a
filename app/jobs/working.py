"""Working memory: made from the history by the learner's job, and again by whoever asks for what was lost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy

from app.clock import Clock
from app.memory.compaction import asks_to_go_on, working_of
from app.store.learning import SourceMessage
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.working import Working, keep_working, read_recent, read_working


async def refresh(
    connection: PoolConnectionProxy[Any], sql: Queries, tenant: UUID, user: UUID, session: UUID, now: datetime
) -> Working:
    """Make it from the session as it stands, and keep it."""
    messages, preferences = await read_recent(connection, sql, tenant, user, session, now)
    working = working_of(messages, preferences)
    await keep_working(connection, sql, tenant, user, session, working, now)
    return working


async def clear(connection: PoolConnectionProxy[Any], sql: Queries, tenant: UUID, user: UUID, session: UUID) -> None:
    """It is not so any more; whoever asks has it made."""
    await connection.execute(sql["consolidation.clear_working"], tenant, user, session)


def fills_working(messages: Sequence[SourceMessage]) -> bool:
    """Whether these messages of a job put something into it: most turns do not, and making it costs as much as learning."""
    return any(
        each.role in ("tool", "function") or (each.role == "assistant" and asks_to_go_on(each.content))
        for each in messages
    )


class WorkingMemory:
    """Reads working memory."""

    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def get(self, tenant: UUID, user: UUID, session: UUID) -> tuple[Working, datetime]:
        """That of a session, and when it was made; made now where it is lost (a crash of Postgres empties its table)."""
        async with self._pool.transaction(tenant) as connection:
            kept = await read_working(connection, self._sql, tenant, user, session)
            if kept is not None:
                return kept
            now = self._clock.now()
            return await refresh(connection, self._sql, tenant, user, session, now), now
