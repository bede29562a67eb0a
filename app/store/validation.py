"""What the user says of his memories: right, wrong, or other than that (seed 004, active validation flow)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from asyncpg.exceptions import UniqueViolationError
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from app.clock import Clock
from app.errors import BadBody, Conflict, NotFound
from app.store import ids
from app.store.memories import IN_FORCE, MemoryText
from app.store.pools import Pool, halfvec
from app.store.queries import Queries

_MEMORY = 1  # item_kind


class Due(Struct, frozen=True):
    """A memory to ask about. `noted_at`: when it was said, or last confirmed; `confidence`: effective, by now."""

    memory_id: UUID
    content_text: str
    noted_at: datetime
    confidence: float
    importance: float


class PendingValidation(Struct, frozen=True):
    """A memory that the user was asked about. `said`: what the assistant said last."""

    memory_id: UUID
    content_text: str
    object_value: str | None
    predicate: str | None
    subject_entity_id: str | None
    dedup_scope: UUID
    said: str


class ValidationAnswer(Struct, frozen=True):
    """What the user said of a memory. `text`, `value`: what is right instead; `said`: content hashes of what else the same
    message says about it, which comes first."""

    right: bool
    text: MemoryText | None = None
    value: str | None = None
    said: Sequence[bytes] = ()


class Validation:
    """Finds what to ask the user about, and does what the answer says."""

    def __init__(self, pool: Pool, queries: Queries, clock: Clock, *, space: int | None, actor: str = "api") -> None:
        """`space`: the embedding space of the vectors that come with corrections. `actor`: who answers, in the memories'
        history: api, or user for an answer that was found in a conversation."""
        self._pool = pool
        self._sql = queries
        self._clock = clock
        self._space = space
        self._actor = actor

    async def due(self, tenant: UUID, user: UUID, *, limit: int, confine: UUID | None = None) -> list[Due]:
        """What to ask the user about, what matters most first. `confine`: of this session only."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["lifecycle.due"], tenant, user, self._clock.now(), limit, confine)
        return [Due(**dict(row)) for row in rows]

    async def asked(self, tenant: UUID, user: UUID, memories: Sequence[UUID]) -> None:
        """Note that these were asked about: not again for a while."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["lifecycle.asked"], tenant, user, list(memories), self._clock.now())

    async def pending(self, tenant: UUID, user: UUID, session: UUID, turn: int) -> list[PendingValidation]:
        """What this session asked about and has no answer to yet, where the message before `turn` is the assistant's."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["lifecycle.pending"], user, session, turn)
        return [PendingValidation(**dict(row)) for row in rows]

    async def confirm(self, tenant: UUID, user: UUID, memory: UUID) -> None:
        """It is right. Raises NotFound, or Conflict where it is not in force."""
        async with self._held(tenant, user, memory) as (connection, held):
            await self._confirm(connection, tenant, user, memory, held)

    async def deny(self, tenant: UUID, user: UUID, memory: UUID) -> None:
        """It is wrong. Raises as `confirm`."""
        async with self._held(tenant, user, memory) as (connection, held):
            await self._deny(connection, tenant, user, memory, held)

    async def correct(self, tenant: UUID, user: UUID, memory: UUID, text: MemoryText, value: str | None = None) -> UUID:
        """It is other than that: the memory that says so from now on, a new one or one that said so already. `value`: the
        object of its triple. Raises as `confirm`, and BadBody where the text says the same."""
        async with self._held(tenant, user, memory) as (connection, held):
            if held["content_hash"] == text.content_hash:
                raise BadBody("The correction says what the memory says: answer yes, or say what is right.")
            return await self._correct(connection, tenant, user, memory, held, text, value)

    async def replace(
        self,
        connection: PoolConnectionProxy[Any],
        tenant: UUID,
        user: UUID,
        memory: UUID,
        text: MemoryText,
        value: str | None,
    ) -> UUID | None:
        """As `correct`, within the caller's transaction, in which nobody else learns about the user. None: the memory is not in
        force, or says so already."""
        held = await connection.fetchrow(self._sql["lifecycle.hold"], tenant, user, memory)
        if held is None or held["status"] not in IN_FORCE or held["content_hash"] == text.content_hash:
            return None
        return await self._correct(connection, tenant, user, memory, held, text, value)

    async def settle(
        self, connection: PoolConnectionProxy[Any], tenant: UUID, user: UUID, memory: UUID, answer: ValidationAnswer
    ) -> bool:
        """Do what the user's answer in a conversation says, within the caller's transaction, in which nobody else learns about
        the user. False: it is in doubt no more, for the same message said so in other words."""
        held = await connection.fetchrow(self._sql["lifecycle.hold"], tenant, user, memory)
        if held is None or held["status"] != "aging":
            return False
        if answer.right:
            await self._confirm(connection, tenant, user, memory, held)
            return True
        for said in answer.said:
            heir = await connection.fetchval(self._sql["lifecycle.twin"], tenant, user, held["dedup_scope"], said)
            if heir is not None and heir != memory:
                await self._give_way(connection, tenant, user, memory, held, heir)
                return True
        if answer.text is not None and answer.text.content_hash != held["content_hash"]:
            await self._correct(connection, tenant, user, memory, held, answer.text, answer.value)
        else:
            await self._deny(connection, tenant, user, memory, held)
        return True

    @asynccontextmanager
    async def _held(
        self, tenant: UUID, user: UUID, memory: UUID
    ) -> AsyncIterator[tuple[PoolConnectionProxy[Any], Any]]:
        """A transaction in which nobody else learns about the user, nor changes the memory, which is in force."""
        async with self._pool.transaction(tenant) as connection:
            alone = await connection.fetchval(self._sql["lifecycle.alone"], tenant, user, memory)
            if alone is not None:
                await connection.execute(self._sql["learning.lock"], alone)
            held = await connection.fetchrow(self._sql["lifecycle.hold"], tenant, user, memory)
            if held is None or held["status"] == "forgotten":
                raise NotFound("There is no such memory.")
            over = held["expires_at"] is not None and held["expires_at"] <= self._clock.now()
            if held["status"] not in IN_FORCE or over:
                raise Conflict(f"This memory is {'expired' if over else held['status']}: restore it first.")
            yield connection, held

    async def _deny(
        self, connection: PoolConnectionProxy[Any], tenant: UUID, user: UUID, memory: UUID, held: Any
    ) -> None:
        await connection.execute(self._sql["lifecycle.deny"], tenant, user, memory, self._clock.now())
        before = {"status": held["status"], "confidence": held["confidence"]}
        after = {"status": "invalidated", "confidence": 0.0, "reason": "validation"}
        await self._tell(connection, tenant, user, memory, "invalidated", before, after)

    async def _correct(
        self,
        connection: PoolConnectionProxy[Any],
        tenant: UUID,
        user: UUID,
        memory: UUID,
        held: Any,
        text: MemoryText,
        value: str | None,
    ) -> UUID:
        heir: UUID | None = await connection.fetchval(
            self._sql["lifecycle.twin"], tenant, user, held["dedup_scope"], text.content_hash
        )
        if heir is not None:
            twin = await connection.fetchrow(self._sql["lifecycle.hold"], tenant, user, heir)
            await self._confirm(connection, tenant, user, heir, twin)
        else:
            heir = ids.uuid7(self._clock.now())
            await self._insert(connection, tenant, user, memory, heir, text, value)
        await self._give_way(connection, tenant, user, memory, held, heir)
        return heir

    async def _give_way(
        self, connection: PoolConnectionProxy[Any], tenant: UUID, user: UUID, memory: UUID, held: Any, heir: UUID
    ) -> None:
        await connection.execute(self._sql["lifecycle.supersede"], tenant, user, memory, heir, self._clock.now())
        after = {"status": "superseded", "superseded_by": heir, "reason": "validation"}
        await self._tell(connection, tenant, user, memory, "superseded", {"status": held["status"]}, after)

    async def _confirm(
        self, connection: PoolConnectionProxy[Any], tenant: UUID, user: UUID, memory: UUID, held: Any
    ) -> None:
        row = await connection.fetchrow(self._sql["lifecycle.confirm"], tenant, user, memory, self._clock.now())
        assert row is not None, "it is held"
        before = {"status": held["status"], "tier": held["memory_tier"], "confidence": held["confidence"]}
        after = {"status": "active", "tier": row["memory_tier"], "confidence": row["confidence"]}
        await self._tell(connection, tenant, user, memory, "confirmed", before, after)

    async def _insert(
        self,
        connection: PoolConnectionProxy[Any],
        tenant: UUID,
        user: UUID,
        old: UUID,
        new: UUID,
        text: MemoryText,
        value: str | None,
    ) -> None:
        now = self._clock.now()
        try:
            await connection.execute(
                self._sql["lifecycle.correct"],
                tenant, user, old, new, text.text, text.content_hash, text.token_count, value, now,
            )  # fmt: skip
        except UniqueViolationError as error:
            raise Conflict("Another memory that says so was added at this very moment; try again.") from error
        await connection.execute(self._sql["memories.route"], tenant, user, [new])
        if self._space is not None and text.vector is not None:
            await connection.execute(
                self._sql["history.add_vectors"],
                tenant, user, self._space, _MEMORY, [new], [now], [halfvec(text.vector)],
            )  # fmt: skip
        await self._tell(connection, tenant, user, new, "created", None, {"text": text.text, "corrects": old})

    async def _tell(
        self,
        connection: PoolConnectionProxy[Any],
        tenant: UUID,
        user: UUID,
        memory: UUID,
        event: str,
        before: dict[str, Any] | None,
        after: dict[str, Any],
    ) -> None:
        await connection.execute(
            self._sql["memories.event"], tenant, user, memory, self._clock.now(), event, before, after, self._actor
        )
