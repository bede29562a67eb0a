"""What there is to tie to things and to check, as the worker reads and writes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, JobRecord
from app.store.resolution import Claim


class RowClash(Struct, frozen=True):
    """A memory that a row contradicts, ready for the log. `stands`: the side that does (domain, memory, both), None: the user
    is asked. `outcome` None: it stays open."""

    conflict_id: UUID
    claim: Claim
    field: str
    row_value: str
    data: dict[str, Any]
    strategy: str
    stands: str | None
    outcome: dict[str, Any] | None


class CheckedMemories(NamedTuple):
    """What came of a check: memories by what became of them."""

    logged: int = 0
    invalidated: int = 0
    doubted: int = 0
    confirmed: int = 0
    revived: int = 0


class CheckStore:
    """Reads what there is to tie and to check."""

    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def things_known(self, tenant: UUID, user: UUID) -> bool:
        """Whether the tenant, or this user, has spoken of things at all."""
        async with self._pool.transaction(tenant) as connection:
            found: bool = await connection.fetchval(self._sql["checking.things_known"], tenant, user)
        return found

    async def said_before(
        self, tenant: UUID, user: UUID, session: UUID, turn: int, limit: int
    ) -> list[tuple[str, str]]:
        """(role, text) of the last messages of the session before a turn, oldest first."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["checking.said_before"], user, session, turn, limit)
        return [(ROLE_NAMES[row["role"]], row["content"]) for row in rows]

    async def preferred_days(self, tenant: UUID, user: UUID, scope: UUID, things: Collection[str]) -> dict[str, str]:
        """By thing, the predicate of its preferred day, where one alone is known."""
        if not things:
            return {}
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["checking.preferred_days"], user, scope, list(things))
        found = [row["thing"] for row in rows]
        return {row["thing"]: row["predicate"] for row in rows if found.count(row["thing"]) == 1}

    async def claimed(self, tenant: UUID, user: UUID, job_key: str) -> bool:
        """Whether a job had its effect."""
        async with self._pool.transaction(tenant) as connection:
            had: bool = await connection.fetchval(self._sql["checking.claimed"], user, job_key)
        return had

    async def claims(
        self, tenant: UUID, user: UUID, scope: UUID, thing: str, predicates: Collection[str], now: datetime
    ) -> list[Claim]:
        """What is in force and says one of these of the thing, whenever it was learned."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["checking.claims"], user, scope, thing, list(predicates), now)
        return [Claim(**dict(row)) for row in rows]

    async def enqueue(self, tenant: UUID, user: UUID, epoch: int | None, jobs: Sequence[JobRecord]) -> None:
        """Jobs for later; none of a user who was erased meanwhile."""
        async with self._pool.transaction(tenant) as connection:
            if epoch is not None and await connection.fetchval(self._sql["learning.epoch"], user) == epoch:
                await connection.execute(self._sql["queue.enqueue"], list(jobs))


class Checking(Struct, frozen=True):
    """What is written of it, within a job's effect."""

    connection: PoolConnectionProxy[Any]
    sql: Queries
    tenant: UUID
    user: UUID
    scope: UUID
    now: datetime

    async def name_things(self, named: Sequence[Mapping[str, Any]]) -> None:
        """Episodes name their things: [{message_id, ids, things}]."""
        await self._run("name_things", list(named))

    async def tie(self, named: Mapping[str, str]) -> None:
        """Memories whose subject is a name (lower case) have the thing of that name for their subject."""
        names, things = list(named), list(named.values())
        await self._run("tie", names, things, self.now, self.scope)

    async def settle(
        self,
        thing: str,
        message: UUID,
        session: UUID,
        clashes: Sequence[RowClash],
        agreeing: Sequence[Claim],
        same: Callable[[str, str], bool],
    ) -> CheckedMemories:
        """Log what a row contradicts and do what follows; confirm what it agrees with; what had lost to a memory that the row
        ends, and says what the row says (`same`), comes back. Twice is as good as once."""
        held = await self._held([each.claim for each in clashes] + list(agreeing))
        counts = dict.fromkeys(CheckedMemories._fields, 0)
        for each in clashes:
            status = held.get(each.claim.memory_id)
            if status is None or await self._known(thing, each):
                continue
            await self._end_open(thing, each.claim.memory_id, {"action": "row_changed"})
            await self._log(thing, message, session, each)
            counts["logged"] += 1
            if each.stands == "domain":
                await self._invalidate(each, status)
                counts["invalidated"] += 1
                counts["revived"] += await self._revive(each, same)
            elif each.stands is None:
                await self._run("doubt", each.claim.memory_id, each.conflict_id, self.now)
                await self._tell(each.claim.memory_id, "aging", {"status": status}, {"status": "aging"})
                counts["doubted"] += 1
        for claim in agreeing:
            if claim.memory_id in held:
                await self._agree(thing, claim)
                counts["confirmed"] += 1
        return CheckedMemories(**counts)

    async def _held(self, claims: Sequence[Claim]) -> dict[UUID, str]:
        values = [each.value for each in claims]
        rows = await self.connection.fetch(
            self.sql["checking.hold_claims"], self.tenant, self.user, [each.memory_id for each in claims], values
        )
        return {row["memory_id"]: row["status"] for row in rows}

    async def _known(self, thing: str, clash: RowClash) -> bool:
        claim = clash.claim
        known: bool = await self.connection.fetchval(
            self.sql["checking.known_clash"],
            self.tenant, self.user, thing, claim.memory_id, claim.value, clash.field, clash.row_value,
        )  # fmt: skip
        return known

    async def _log(self, thing: str, message: UUID, session: UUID, clash: RowClash) -> None:
        row = {
            "conflict_id": clash.conflict_id,
            "detected_at_message": message,
            "conflict_type": "memory_vs_db",
            "conflict_data": clash.data,
            "resolution_strategy": clash.strategy,
            "resolution_outcome": clash.outcome,
            "memory_ids": [clash.claim.memory_id],
            "session_id": session,
            "entity_id": thing,
        }
        await self.connection.execute(
            self.sql["learning.log_conflicts"], self.tenant, self.user, [row], self.scope, self.now
        )

    async def _end_open(self, thing: str, memory: UUID, outcome: dict[str, Any]) -> None:
        await self._run("end_clashes", thing, memory, self.now, outcome)

    async def _invalidate(self, clash: RowClash, status: str) -> None:
        memory = clash.claim.memory_id
        await self._run("invalidate", memory, self.now)
        after = {"status": "invalidated", "reason": "domain", "conflict": clash.conflict_id}
        await self._tell(memory, "invalidated", {"status": status}, after)

    async def _revive(self, clash: RowClash, same: Callable[[str, str], bool]) -> int:
        sql = self.sql
        rows = await self.connection.fetch(sql["checking.beaten"], self.tenant, self.user, clash.claim.memory_id)
        memory = next((row["memory_id"] for row in rows if same(row["value"], clash.row_value)), None)
        if memory is None:
            return 0
        await self.connection.execute(
            sql["memories.set_status"], self.tenant, self.user, memory, "active", None, self.now
        )
        await self.connection.fetchrow(sql["checking.agree"], self.tenant, self.user, memory, self.now)
        await self._tell(memory, "restored", {"status": "superseded"}, {"status": "active", "reason": "domain"})
        return 1

    async def _agree(self, thing: str, claim: Claim) -> None:
        await self._end_open(thing, claim.memory_id, {"action": "row_agrees"})
        row = await self.connection.fetchrow(
            self.sql["checking.agree"], self.tenant, self.user, claim.memory_id, self.now
        )
        if row is not None and (row["status"] != "active" or row["validated_by"] != "domain"):
            before = {"status": row["status"], "validated_by": row["validated_by"]}
            await self._tell(claim.memory_id, "confirmed", before, {"status": "active", "validated_by": "domain"})

    async def _tell(self, memory: UUID, event: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        await self.connection.execute(
            self.sql["memories.event"], self.tenant, self.user, memory, self.now, event, before, after, "system"
        )

    async def _run(self, name: str, *arguments: object) -> None:
        await self.connection.execute(self.sql[f"checking.{name}"], self.tenant, self.user, *arguments)
