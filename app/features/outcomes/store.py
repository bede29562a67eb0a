"""What answers were worth, and what that says of the memories in their prompts (seed 001: outcomes)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct

from app.clock import Clock
from app.store.pools import Pool
from app.store.queries import Queries


class AnswerRating(Struct, frozen=True):
    """What an answer was worth, -1 to 1. `memories`: {id, change} of each memory in its prompt, change being what the outcome
    did to its importance."""

    call_id: UUID
    user_id: UUID
    user_external_id: str | None
    session_id: UUID | None
    score: float
    comment: str | None
    metadata: dict[str, Any]
    answered_at: datetime
    created_at: datetime
    updated_at: datetime
    memories: list[dict[str, Any]]


class MemoryReport(Struct, frozen=True):
    """Rated answers with a memory in the prompt, against (`other_…`) those without it since it was learned. Mean scores are
    -1 to 1, None where there were no answers."""

    memory_id: UUID
    content_text: str
    kind: str
    status: str
    importance: float
    answers: int
    positive: int
    negative: int
    mean_score: float
    other_answers: int
    other_positive: int
    other_negative: int
    other_mean_score: float | None


class Outcomes:
    """The outcomes of a tenant's answers."""

    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def owner(self, tenant: UUID, call: UUID, user: UUID | None) -> UUID | None:
        """Whose call this is (of `user`, if one is named)."""
        async with self._pool.transaction(tenant) as connection:
            found: UUID | None = await connection.fetchval(self._sql["outcomes.owner"], tenant, call, user)
        return found

    async def block_items(self, tenant: UUID, user: UUID, session: UUID, call: UUID, blocks: int) -> list[UUID]:
        """What the session's last `blocks` memory blocks before the call hold, messages as well as memories."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["outcomes.block_items"], tenant, user, session, blocks, call)
        return [row["item_id"] for row in rows]

    async def rate(
        self,
        tenant: UUID,
        user: UUID,
        call: UUID,
        *,
        score: float | None,
        comment: str | None = None,
        metadata: dict[str, Any] | None = None,
        memories: Sequence[UUID] = (),
    ) -> bool | None:
        """Say what the answer was worth (None: take it back), and move the importance of `memories`, which count when it is
        said for the first time. True: something had been said of it before; None: there is no such call."""
        async with self._pool.transaction(tenant) as connection:
            known: bool | None = await connection.fetchval(
                self._sql["outcomes.rate"],
                tenant, user, call, score, comment, metadata or {}, list(memories), self._clock.now(),
            )  # fmt: skip
        return known

    async def page(
        self, tenant: UUID, user: UUID | None, *, before: UUID | None = None, limit: int = 1, call: UUID | None = None
    ) -> list[AnswerRating]:
        """Outcomes of a user, or of all, the latest calls first, before the call `before`; of that user's `call` only, if it
        is named."""
        async with self._pool.transaction(tenant) as connection:
            if user is None:
                rows = await connection.fetch(self._sql["outcomes.page_of_tenant"], tenant, before, limit)
            else:
                rows = await connection.fetch(self._sql["outcomes.page"], tenant, user, before, limit, call)
        return [AnswerRating(**dict(row)) for row in rows]

    async def report(
        self, tenant: UUID, user: UUID | None, *, after: tuple[int, UUID] | None, limit: int
    ) -> list[MemoryReport]:
        """Memories of a user, or of all, by how many rated answers they stood in, after (answers, memory)."""
        place = (*(after or (None, None)), limit)
        async with self._pool.transaction(tenant) as connection:
            if user is None:
                rows = await connection.fetch(self._sql["outcomes.report_of_tenant"], tenant, *place)
            else:
                rows = await connection.fetch(self._sql["outcomes.report"], tenant, user, *place)
        return [MemoryReport(**dict(row)) for row in rows]
