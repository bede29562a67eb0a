"""What a turn taught."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import ROLES


class TurnMessages(NamedTuple):
    """The messages of a turn, in order; `question`: the user's own, None where there is none."""

    messages: tuple[UUID, ...]
    question: UUID | None


class MadeMemory(NamedTuple):
    """A memory that a turn gave."""

    memory_id: UUID
    kind: str
    text: str
    confidence: float


class Made(NamedTuple):
    """All that a turn gave. `event_type`: of its episode (seed 004, layer 3); None: it has none."""

    event_type: str | None
    memories: tuple[MadeMemory, ...]


class LearnedTurns:
    """Looks for what became of turns."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def said(
        self, tenant: UUID, user: UUID, session: UUID, call: UUID, since: datetime, until: datetime
    ) -> TurnMessages | None:
        """The messages that a call added to its session; None: none. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["chat.said"], user, session, call, since, until)
        if not rows:
            return None
        question = next((row["message_id"] for row in rows if row["role"] == ROLES["user"]), None)
        return TurnMessages(tuple(row["message_id"] for row in rows), question)

    async def done(self, tenant: UUID, user: UUID, said: TurnMessages) -> bool:
        """Whether the job that learns from these messages has had its effect. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            found: bool = await connection.fetchval(self._sql["chat.learned"], user, f"learn:{said.messages[0]}")
        return found

    async def made(self, tenant: UUID, user: UUID, said: TurnMessages, since: datetime) -> Made:
        """What was learned from these messages, said at `since`. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            event = await connection.fetchval(self._sql["chat.episode"], user, said.question)
            rows = await connection.fetch(self._sql["chat.made"], user, list(said.messages), since)
        return Made(event, tuple(MadeMemory(*row.values()) for row in rows))
