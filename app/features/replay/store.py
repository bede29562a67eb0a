"""What a captured request was compiled from, as it was then, as far as it may still be shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from app.store.pools import Pool
from app.store.queries import Queries
from app.store.spaces import Shared
from app.store.turns import StoredBlock, StoredMessage
from app.store.user_profile import FACT_FLOOR, MAX_FACTS, MAX_WISHES, Standing, take_standing


class StoredInputs(Struct, frozen=True):
    """What was kept of a compile (`app.context.inputs`) and what it decided (`app.context.audit`)."""

    user_id: UUID
    session_id: UUID | None
    inputs: dict[str, Any]
    audit: dict[str, Any]
    eta: float | None


class RecordedItem(NamedTuple):
    """A message or memory as it was. `in_force`: it is today. `origin`: the only message that a memory comes from today."""

    id: UUID
    memory: bool
    text: str
    role: int | None
    name: str | None
    session_id: UUID | None
    external_id: str | None
    turn_index: int | None
    token_count: int
    created_at: datetime
    content_hash: bytes | None
    entity_ids: list[str] | None
    origin: UUID | None
    sources: list[dict[str, Any]] | None
    metadata: dict[str, Any] | None
    in_force: bool
    space: str | None = None
    """The shared space that it is of; None: it is the user's own."""
    space_id: UUID | None = None


class FactWords(NamedTuple):
    """What a fact said. `many`: a user may have several of its key."""

    key: str
    many: bool
    value: str


class Cost(Struct, frozen=True):
    """What an answer that was asked for again came to. `priced`: the model's price is known; costs are in micro-cents."""

    model: str
    prompt: int
    completion: int
    cached: int
    microcents: int
    priced: bool


class ReplayStore:
    """Reads for replays; of a tenant, and always of one user."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def inputs(self, tenant: UUID, call: UUID, user: UUID | None) -> StoredInputs | None:
        """What a call's context was compiled from; None: it was not. `user`: only that user's. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["replays.inputs"], tenant, call, user)
        return StoredInputs(**dict(row)) if row is not None else None

    async def items(
        self, tenant: UUID, user: UUID, wanted: Collection[UUID], then: datetime, spaces: Sequence[Shared] = ()
    ) -> dict[UUID, RecordedItem]:
        """Those of these items that may still be shown, as they were: the user's own, and those of these spaces. Raises
        StoreUnavailable."""
        if not wanted:
            return {}
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["replays.items"], tenant, user, list(wanted), then)
            found = {row["id"]: RecordedItem(**dict(row)) for row in rows}
            missing = [each for each in wanted if each not in found]
            for space, name in spaces:
                rows = await connection.fetch(self._sql["replays.items"], tenant, space, missing, then)
                found |= {row["id"]: RecordedItem(**dict(row), space=name, space_id=space) for row in rows}
        return found

    async def facts(
        self, tenant: UUID, user: UUID, wanted: Sequence[tuple[UUID, UUID]], then: datetime
    ) -> dict[UUID, FactWords]:
        """What facts (id, and id of the note) said at a moment, by note, as far as it may still be said. Raises
        StoreUnavailable."""
        if not wanted:
            return {}
        facts, notes = zip(*wanted, strict=True)
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["replays.facts"], tenant, user, facts, notes, then)
        return {row["note"]: FactWords(row["key"], row["many"], row["value"]) for row in rows}

    async def standing(self, tenant: UUID, user: UUID, *, pooled: bool, quoted: Collection[UUID] = ()) -> Standing:
        """What holds for a user today (`pooled`: there is one), and for the tenant. `quoted`: items of memory blocks. Raises
        StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            (row,) = await connection.fetch(
                self._sql["replays.standing"], tenant, user, pooled, MAX_FACTS, FACT_FLOOR, list(quoted), MAX_WISHES
            )
        return take_standing(dict(row))

    async def blocks(
        self, tenant: UUID, user: UUID, session: UUID, epoch: int, messages: Sequence[UUID]
    ) -> list[StoredBlock]:
        """Those of these memory blocks that are still stored, oldest first. Raises StoreUnavailable."""
        if not messages:
            return []
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["replays.blocks"], tenant, user, session, epoch, list(messages))
        return [StoredBlock(**dict(row) | {"item_ids": tuple(row["item_ids"])}) for row in rows]

    async def system_prompt(self, tenant: UUID, digest: bytes) -> str | None:
        """A system prompt by its SHA-256. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            text: str | None = await connection.fetchval(self._sql["replays.system_prompt"], tenant, digest)
        return text

    async def summaries(self, tenant: UUID, user: UUID, session: UUID) -> list[str]:
        """The summaries of a session that are still stored. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["replays.summaries"], tenant, user, session)
        return [row["text"] for row in rows]

    def messages_at(self, then: datetime) -> RecordedMessages:
        """Stored messages as they were shown at a moment."""
        return RecordedMessages(self._pool, self._sql, then)

    async def note_spend(
        self, tenant: UUID, user: UUID, call: UUID, replay: UUID, key: UUID | None, at: datetime, cost: Cost
    ) -> None:
        """Count what an answer cost that was asked for again: there is no call that would. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["replays.hold_user"], user)
            await connection.execute(
                self._sql["replays.note_spend"],
                tenant, replay, call, user, key, cost.model, at, cost.prompt, cost.completion, cost.cached, cost.priced,
                cost.microcents,
            )  # fmt: skip


class RecordedMessages:
    """A `gateway.reconcile.Messages` of a moment: what was compacted later is shown, what was forgotten is not."""

    def __init__(self, pool: Pool, queries: Queries, then: datetime) -> None:
        self._pool = pool
        self._sql = queries
        self._then = then

    async def session_messages(
        self, tenant: UUID, user: UUID, line: Sequence[tuple[UUID, int]], *, limit: int
    ) -> list[StoredMessage]:
        """As `TurnStore.session_messages`. Raises StoreUnavailable."""
        sessions, befores = [each for each, _ in line], [before for _, before in line]
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self._sql["replays.session_messages"], tenant, user, sessions, befores, limit, self._then
            )
        return list(map(StoredMessage.of, rows))
