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
from msgspec.structs import replace

from app.clock import Clock
from app.errors import BadBody, Conflict, NotFound
from app.store import ids
from app.store.item_columns import MEMORY_KIND
from app.store.memories import IN_FORCE, MemoryText
from app.store.pools import Pool, UserRows, halfvec
from app.store.queries import Queries


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


class Validation(Struct, frozen=True):
    """Finds what to ask the user about, and does what the answer says. `space`: the embedding space of the vectors that come
    with corrections. `actor`: who answers, in the memories' history: api, or user for an answer that was found in a
    conversation."""

    pool: Pool
    queries: Queries
    clock: Clock
    space: int | None
    actor: str = "api"

    async def due(self, tenant: UUID, user: UUID, *, limit: int, confine: UUID | None = None) -> list[Due]:
        """What to ask the user about, what matters most first. `confine`: of this session only."""
        async with self.pool.transaction(tenant) as connection:
            rows = await connection.fetch(self.queries["lifecycle.due"], tenant, user, self.clock.now(), limit, confine)
        return [Due(**dict(row)) for row in rows]

    async def asked(self, tenant: UUID, user: UUID, memories: Sequence[UUID]) -> None:
        """Note that these were asked about: not again for a while."""
        async with self.pool.transaction(tenant) as connection:
            await connection.execute(self.queries["lifecycle.asked"], tenant, user, list(memories), self.clock.now())

    async def pending(self, tenant: UUID, user: UUID, session: UUID, turn: int) -> list[PendingValidation]:
        """What this session asked about and has no answer to yet, where the message before `turn` is the assistant's."""
        async with self.pool.transaction(tenant) as connection:
            rows = await connection.fetch(self.queries["lifecycle.pending"], user, session, turn)
        return [PendingValidation(**dict(row)) for row in rows]

    async def confirm(self, tenant: UUID, user: UUID, memory: UUID) -> None:
        """It is right. Raises NotFound, or Conflict where it is not in force."""
        async with self._held(tenant, user, memory) as held:
            await held.confirm()

    async def deny(self, tenant: UUID, user: UUID, memory: UUID) -> None:
        """It is wrong. Raises as `confirm`."""
        async with self._held(tenant, user, memory) as held:
            await held.deny()

    async def correct(self, tenant: UUID, user: UUID, memory: UUID, text: MemoryText, value: str | None = None) -> UUID:
        """It is other than that: the memory that says so from now on, a new one or one that said so already. `value`: the
        object of its triple. Raises as `confirm`, and BadBody where the text says the same."""
        async with self._held(tenant, user, memory) as held:
            if held.before["content_hash"] == text.content_hash:
                raise BadBody("The correction says what the memory says: answer yes, or say what is right.")
            return await held.correct(text, value)

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
        held = await self._hold(UserRows(connection, self.queries, tenant, user), memory)
        if held is None or held.before["status"] not in IN_FORCE or held.before["content_hash"] == text.content_hash:
            return None
        return await held.correct(text, value)

    async def settle(self, rows: UserRows, memory: UUID, answer: ValidationAnswer) -> None:
        """Do what the user's answer in a conversation says, within the caller's transaction, in which nobody else learns about
        the user; nothing where the memory is in doubt no more, for the same message said so in other words."""
        held = await self._hold(rows, memory)
        if held is None or held.before["status"] != "aging":
            return
        if answer.right:
            await held.confirm()
            return
        for said in answer.said:
            heir = await held.twin(said)
            if heir is not None and heir != memory:
                await held.give_way(heir)
                return
        if answer.text is not None and answer.text.content_hash != held.before["content_hash"]:
            await held.correct(answer.text, answer.value)
        else:
            await held.deny()

    async def _hold(self, rows: UserRows, memory: UUID) -> _HeldMemory | None:
        row = await rows.row("lifecycle.hold", memory)
        if row is None:
            return None
        whose = (rows.connection, rows.sql, rows.tenant, rows.user)
        return _HeldMemory(*whose, memory, row, self.clock.now(), self.space, self.actor)

    @asynccontextmanager
    async def _held(self, tenant: UUID, user: UUID, memory: UUID) -> AsyncIterator[_HeldMemory]:
        """A transaction in which nobody else learns about the user, nor changes the memory, which is in force."""
        async with self.pool.transaction(tenant) as connection:
            rows = UserRows(connection, self.queries, tenant, user)
            alone = await rows.value("lifecycle.alone", memory)
            if alone is not None:
                await connection.execute(self.queries["learning.lock"], alone)
            held = await self._hold(rows, memory)
            if held is None or held.before["status"] == "forgotten":
                raise NotFound("There is no such memory.")
            status, expires = held.before["status"], held.before["expires_at"]
            over = expires is not None and expires <= self.clock.now()
            if status not in IN_FORCE or over:
                raise Conflict(f"This memory is {'expired' if over else status}: restore it first.")
            yield held


class _HeldMemory(UserRows, frozen=True):
    """A memory that is held, and was as `before` says. `space`, `actor`: as in `Validation`."""

    memory: UUID
    before: Any
    now: datetime
    space: int | None
    actor: str

    async def confirm(self) -> None:
        row = await self.row("lifecycle.confirm", self.memory, self.now)
        assert row is not None, "it is held"
        held = self.before
        before = {"status": held["status"], "tier": held["memory_tier"], "confidence": held["confidence"]}
        after = {"status": "active", "tier": row["memory_tier"], "confidence": row["confidence"]}
        await self._tell("confirmed", before, after)

    async def deny(self) -> None:
        await self.run("lifecycle.deny", self.memory, self.now, self.now)
        before = {"status": self.before["status"], "confidence": self.before["confidence"]}
        await self._tell("invalidated", before, {"status": "invalidated", "confidence": 0.0, "reason": "validation"})

    async def correct(self, text: MemoryText, value: str | None) -> UUID:
        heir = await self.twin(text.content_hash)
        if heir is not None:
            twin = replace(self, memory=heir, before=await self.row("lifecycle.hold", heir))
            await twin.confirm()
        else:
            heir = ids.uuid7(self.now)
            await self._insert(heir, text, value)
        await self.give_way(heir)
        return heir

    async def twin(self, content_hash: bytes) -> UUID | None:
        """The memory in force beside it that says this."""
        heir: UUID | None = await self.value("lifecycle.twin", self.before["dedup_scope"], content_hash)
        return heir

    async def give_way(self, heir: UUID) -> None:
        await self.run("lifecycle.supersede", self.memory, heir, self.now)
        after = {"status": "superseded", "superseded_by": heir, "reason": "validation"}
        await self._tell("superseded", {"status": self.before["status"]}, after)

    async def _insert(self, new: UUID, text: MemoryText, value: str | None) -> None:
        said = (text.text, text.content_hash, text.token_count, value)
        try:
            await self.run("lifecycle.correct", self.memory, new, *said, self.now)
        except UniqueViolationError as error:
            raise Conflict("Another memory that says so was added at this very moment; try again.") from error
        await self.run("memories.route", [new])
        if self.space is not None and text.vector is not None:
            await self.run("history.add_vectors", self.space, MEMORY_KIND, [new], [self.now], [halfvec(text.vector)])
        after = {"text": text.text, "corrects": self.memory}
        await self.run("memories.event", new, self.now, "created", None, after, self.actor)

    async def _tell(self, event: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        await self.run("memories.event", self.memory, self.now, event, before, after, self.actor)
