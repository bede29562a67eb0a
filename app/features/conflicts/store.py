"""The log of contradictions (seed 004, table 9), read, and what is open of it decided.

    open ──the user answers, or says what is right; its memory ends; the row comes to agree, or says something else──> resolved
      └──POST /api/v1/conflicts/{id}/resolve ──────────────────────────────────────────────────────────────────────> resolved

What a row decides is logged as resolved (`app/features/knowledge/jobs.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from asyncpg.exceptions import UniqueViolationError
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from app.clock import Clock
from app.errors import BadBody, Conflict, NotFound
from app.store.conflicts import LoggedConflict
from app.store.memories import IN_FORCE
from app.store.pools import Pool
from app.store.queries import Queries

Keep = Literal["memory", "domain", "other", "both"]


class ConflictFilter(Struct, frozen=True):
    """Which contradictions: None is any. `user`: whose; `open`: whether nobody has decided yet."""

    user: UUID | None = None
    open: bool | None = None
    type: str | None = None
    entity: str | None = None


class ConflictStore:
    """Reads and decides contradictions of a tenant."""

    def __init__(self, pool: Pool, sql: Queries, clock: Clock, *, actor: str = "api") -> None:
        """`actor`: who decides, in the memories' history."""
        self._pool = pool
        self._sql = sql
        self._clock = clock
        self._actor = actor

    async def page(
        self, tenant: UUID, wanted: ConflictFilter, *, after: tuple[datetime, UUID] | None, limit: int
    ) -> list[LoggedConflict]:
        """Contradictions, newest first, after a place in that order."""
        asked: list[object] = [tenant, wanted.open, wanted.type, wanted.entity, *(after or (None, None)), limit]
        name = "conflicts.list_of_tenant"
        if wanted.user is not None:
            name = "conflicts.list_of_user"
            asked.append(wanted.user)
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql[name], *asked)
        return [LoggedConflict(**dict(row)) for row in rows]

    async def one(self, tenant: UUID, conflict: UUID, user: UUID | None = None) -> LoggedConflict | None:
        """A contradiction; `user`: only of this one. None: there is none."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["conflicts.one"], tenant, conflict, user)
        return LoggedConflict(**dict(row)) if row is not None else None

    async def resolve(
        self,
        tenant: UUID,
        user: UUID,
        conflict: UUID,
        keep: Keep,
        *,
        memory: UUID | None = None,
        note: str | None = None,
    ) -> None:
        """Decide it: what stands is in force, what does not is not. `memory`: which memory stands, where there are two. Raises
        NotFound, Conflict where it is decided, or BadBody where it has no such side."""
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["learning.lock"], user)
            held = await connection.fetchrow(self._sql["conflicts.hold"], tenant, user, conflict)
            if held is None:
                raise NotFound("There is no such conflict.")
            if held["resolved_at"] is not None:
                raise Conflict("This conflict is resolved already.", code="resolved")
            stays, goes = _sides(held["memory_ids"], "db_source" in held["conflict_data"], keep, memory)
            rows = await connection.fetch(self._sql["conflicts.held_memories"], tenant, user, [*stays, *goes])
            memories = {row["memory_id"]: row for row in rows}
            outcome: dict[str, Any] = {
                "action": "keep_both" if keep == "both" else "keep_memory" if stays else "supersede_memory",
                "keep": keep,
                "memory_updates": [{"memory_id": each, "new_status": "active"} for each in stays if each in memories]
                + [
                    {"memory_id": each, "new_status": "superseded" if stays else "invalidated"}
                    for each in goes
                    if each in memories
                ],
                "user_response": keep,
            }
            if note:
                outcome["note"] = note
            # First the log: what follows for the memories decides open contradictions.
            await connection.execute(self._sql["conflicts.resolve"], tenant, user, conflict, outcome, now)
            effects = _Effects(connection, self._sql, tenant, user, now, self._actor)
            if keep == "both":
                await effects.stand(stays)
                return
            for each in goes:
                if each in memories:
                    await effects.end(memories[each], stays[0] if stays else None)
            for each in stays:
                if each in memories:
                    await effects.keep(memories[each])


def _sides(memories: Sequence[UUID], has_row: bool, keep: Keep, memory: UUID | None) -> tuple[list[UUID], list[UUID]]:
    """The memories that stay, and those that go."""
    if memory is not None and memory not in memories:
        raise BadBody("This memory has no part in the conflict.", param="memory_id")
    if keep == "domain":
        if not has_row:
            raise BadBody("No row has a part in this conflict: keep `memory`, `other` or `both`.", param="keep")
        return [], list(memories)
    if keep == "both":
        return list(memories), []
    if keep == "other" and len(memories) < 2:
        raise BadBody("This conflict has one memory: keep `memory`, `domain` or `both`.", param="keep")
    stays = memory if memory is not None else memories[0 if keep == "memory" else 1]
    return [stays], [each for each in memories if each != stays]


class _Effects(Struct, frozen=True):
    """What a decision does to memories, within its transaction."""

    connection: PoolConnectionProxy[Any]
    sql: Queries
    tenant: UUID
    user: UUID
    now: datetime
    actor: str

    async def end(self, row: Any, heir: UUID | None) -> None:
        if row["status"] not in IN_FORCE:
            return
        memory = row["memory_id"]
        after: dict[str, Any]
        if heir is None:
            await self._run("memories.set_status", memory, "invalidated", self.now, self.now)
            after = {"status": "invalidated"}
        else:
            await self._run("lifecycle.supersede", memory, heir, self.now)
            after = {"status": "superseded", "superseded_by": heir}
        await self._tell(memory, after["status"], row["status"], after)

    async def keep(self, row: Any) -> None:
        """The user vouches for it: back in force, where it was not."""
        memory = row["memory_id"]
        if row["status"] in IN_FORCE:
            await self.connection.fetchrow(self.sql["lifecycle.confirm"], self.tenant, self.user, memory, self.now)
            await self._tell(memory, "confirmed", row["status"], {"status": "active"})
            return
        try:
            async with self.connection.transaction():
                await self._run("memories.set_status", memory, "active", None, self.now)
        except UniqueViolationError as error:
            raise Conflict("Another memory in force says the same.") from error
        await self._tell(memory, "restored", row["status"], {"status": "active"})

    async def stand(self, memories: Sequence[UUID]) -> None:
        """In doubt no more, for this reason; nobody vouches for them."""
        sql = self.sql["conflicts.stand"]
        for row in await self.connection.fetch(sql, self.tenant, self.user, list(memories), self.now):
            await self._tell(row["memory_id"], "confirmed", "aging", {"status": "active"})

    async def _tell(self, memory: UUID, event: str, before: str, after: dict[str, Any]) -> None:
        told = after | {"reason": "conflict"}
        await self._run("memories.event", memory, self.now, event, {"status": before}, told, self.actor)

    async def _run(self, name: str, *arguments: object) -> None:
        await self.connection.execute(self.sql[name], self.tenant, self.user, *arguments)
