"""Semantic objects as they are looked at from outside, and what people say of them (seed 002). What requests read and write is
in `store.py`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple
from uuid import UUID

from msgspec import Struct

from app.store.pools import Pool
from app.store.queries import Queries

Wish = Literal["pin", "unpin", "release"]


class StoredObject(Struct, frozen=True):
    """An object without its texts. `wanted`: of the next decision (restore, raise or release). Tokens of L1 and L2 are None
    until they were made, and where they would not be shorter; `shrunk_at` None: nobody has tried yet."""

    object_id: UUID
    session_id: UUID
    ordinal: int
    object_type: str
    kind: str
    source_tool: str | None
    source_key: str | None
    stub: str
    key_entities: list[str]
    tags: list[str]
    current_fidelity: int
    wanted: str | None
    pinned: bool
    pin_reason: str | None
    created_at: datetime
    last_accessed: datetime
    accessed_turn: int
    access_count: int
    fault_count: int
    micro_fault_count: int
    tokens_l0: int
    tokens_l1: int | None
    tokens_l2: int | None
    tokens_l3: int
    source_turn_start: int
    source_turn_end: int
    shrunk_at: datetime | None


class WholeObject(StoredObject, frozen=True):
    """The same with its texts. `turn`: of its session's last decision."""

    content_full: str
    content_hash: bytes
    summary_detailed: str | None
    summary_compact: str | None
    losses_l1: list[str]
    losses_l2: list[str]
    can_answer_l1: list[str]
    can_answer_l2: list[str]
    fault_when: list[str]
    turn: int


class ObjectEdge(NamedTuple):
    """A relationship of an object."""

    source_id: UUID
    target_id: UUID
    relationship: str


class StoredFault(Struct, frozen=True):
    """A row of `fault_history`. `call_id` None: asked through the API."""

    fault_id: UUID
    call_id: UUID | None
    object_id: UUID | None
    fault_type: str
    turn_number: int
    content_hash: bytes | None
    question: str | None
    answer: str | None
    answer_tokens: int
    avoided_tokens: int
    latency_ms: int
    created_at: datetime


class StoredTransition(Struct, frozen=True):
    """A row of `fidelity_transitions`. `token_count`: of the whole prompt before the changes of that turn."""

    object_id: UUID
    call_id: UUID
    from_fidelity: int
    to_fidelity: int
    trigger: str
    turn_number: int
    pressure_zone: str
    token_count: int
    created_at: datetime


class StoredPressure(Struct, frozen=True):
    """How full a session's prompt was at its last decision. `total_context_tokens`: of its objects, at the level they are shown
    at (seed 002 §2.4)."""

    zone: str
    turn: int
    budget: int
    tokens: int
    shown_tokens: int
    avoided_tokens: int
    offered: bool
    updated_at: datetime
    total_context_tokens: int
    objects_at_l0: int
    objects_at_l1: int
    objects_at_l2: int
    objects_at_l3: int
    objects_evicted: int
    objects_pinned: int


class ObjectFilter(Struct, frozen=True):
    """Which objects; None is any."""

    session: UUID | None = None
    type: str | None = None
    fidelity: int | None = None
    tag: str | None = None
    key: str | None = None
    pinned: bool | None = None


class ObjectStore:
    """The objects of a tenant's users."""

    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def page(
        self,
        tenant: UUID,
        user: UUID,
        wanted: ObjectFilter,
        *,
        after: tuple[datetime, int, UUID] | None,
        limit: int,
        among: Sequence[UUID] | None = None,
    ) -> list[StoredObject]:
        """Objects, newest first, after (created_at, ordinal, object_id); only those `among` these, if any are named."""
        rows = await self._fetch(
            "objects.list",
            tenant, user, wanted.session, wanted.type, wanted.fidelity, wanted.tag, wanted.key, wanted.pinned,
            *(after or (None, None, None)), limit, None if among is None else list(among),
        )  # fmt: skip
        return [StoredObject(**dict(row)) for row in rows]

    async def one(self, tenant: UUID, user: UUID, object_id: UUID) -> WholeObject | None:
        """An object of this user."""
        rows = await self._fetch("objects.one", tenant, user, object_id)
        return WholeObject(**dict(rows[0])) if rows else None

    async def relationships(self, tenant: UUID, user: UUID, object_id: UUID) -> list[ObjectEdge]:
        """From and to an object."""
        return [ObjectEdge(*row) for row in await self._fetch("objects.relationships", tenant, user, object_id)]

    async def asked(self, tenant: UUID, user: UUID, object_id: UUID, since: int) -> list[tuple[int, str]]:
        """The questions about an object from a turn on, each with its turn."""
        rows = await self._fetch("objects.asked", tenant, user, object_id, since)
        return [(row["turn_number"], row["question"]) for row in rows]

    async def faults(
        self,
        tenant: UUID,
        user: UUID,
        session: UUID,
        *,
        object_id: UUID | None = None,
        kind: str | None = None,
        after: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[StoredFault]:
        """What was asked of a session's objects, newest first, after (created_at, fault_id)."""
        bound = (tenant, user, session, object_id, kind, *(after or (None, None)), limit)
        return [StoredFault(**dict(row)) for row in await self._fetch("objects.faults", *bound)]

    async def transitions(
        self,
        tenant: UUID,
        user: UUID,
        session: UUID,
        *,
        object_id: UUID | None = None,
        trigger: str | None = None,
        after: tuple[datetime, UUID, UUID] | None,
        limit: int,
    ) -> list[StoredTransition]:
        """Changes of fidelity in a session, newest first, after (created_at, call_id, object_id)."""
        bound = (tenant, user, session, object_id, trigger, *(after or (None, None, None)), limit)
        return [StoredTransition(**dict(row)) for row in await self._fetch("objects.transitions", *bound)]

    async def pressure(self, tenant: UUID, user: UUID, session: UUID) -> StoredPressure | None:
        """Of a session; None where it was never paged."""
        rows = await self._fetch("objects.pressure", tenant, user, session)
        return StoredPressure(**dict(rows[0])) if rows else None

    async def wish(self, tenant: UUID, user: UUID, object_id: UUID, wish: Wish) -> bool:
        """Pin, unpin or release an object; False: there is none."""
        return bool(await self._fetch(f"objects.{wish}", tenant, user, object_id))

    async def _fetch(self, name: str, tenant: UUID, *bound: object) -> Sequence[Any]:
        async with self._pool.transaction(tenant) as connection:
            rows: Sequence[Any] = await connection.fetch(self._sql[name], tenant, *bound)
        return rows
