"""Memories: as they are stored and asked for; added by hand, listed, changed, ended, brought back and forgotten.

Every change leaves an event. Forgetting leaves the fact that there was a memory, a keyed hash of its words, so that they are
not learned again, and nothing else.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID, uuid5

from asyncpg.exceptions import UniqueViolationError
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct, field

from app.clock import Clock
from app.errors import Conflict
from app.store import ids
from app.store.item_columns import MEMORY_KIND
from app.store.kinds import DERIVED, MemoryOrigin
from app.store.pools import Pool, UserRows, halfvec
from app.store.queries import Queries
from app.store.records import Vector
from app.store.tenancy import UserRef, ensure_user
from app.store.tuning import lives

Status = Literal["active", "aging", "superseded", "invalidated", "expired", "forgotten"]
STATUSES: tuple[str, ...] = get_args(Status)
IN_FORCE = ("active", "aging")

MOST_CONFIDENCE = 0.95
"""The highest confidence of a memory, 0 to 1: seed 004's cap for repeated statements. A statement through the API begins with
it."""

_LOCAL, _GLOBAL = 0, 1
_PROVENANCE = {"correction": 2, "preference": 3, "instruction": 5}
_USER_STATED = 0
_ACTOR = "api"
"""Who changes memories here, in their history."""
_HASH = "content_hash"
"""In the event of an edit: what the text hashed to before. Forgetting needs it, and nobody is shown it."""


class Memory(Struct, frozen=True):
    """A memory as stored, with the names of its user and session. `sources`: see `memory_store`."""

    memory_id: UUID
    user_id: UUID
    user_external_id: str | None
    session_id: UUID | None
    session_external_id: str | None
    memory_tier: int
    memory_scope: int
    kind: str
    content_text: str
    provenance_type: int
    sources: list[dict[str, Any]]
    confidence: float
    confidence_factors: dict[str, Any]
    importance: float
    access_count: int
    reinforcement_count: int
    last_accessed_at: datetime | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    valid_from: datetime | None
    valid_to: datetime | None
    status: str
    is_validated: bool
    validated_by: str | None
    token_count: int
    superseded_by: UUID | None
    subject_entity_id: str | None
    predicate: str | None
    object_value: str | None
    speaker: str | None
    entity_ids: list[str]
    tags: list[str]
    details: dict[str, Any]
    metadata: dict[str, Any]

    @property
    def origin(self) -> MemoryOrigin | None:
        """The way by which the memory was learned, from its first source; None where its sources do not say."""
        if self.kind in DERIVED:
            return "derived"
        if not self.sources:
            return "stated"
        return next((source["way"] for source in self.sources if source.get("way")), None)


class NewMemory(Struct, frozen=True):
    """A memory to add. `content_hash`: SHA-256 of the normalised text; `vector`: None where there is none."""

    text: str
    content_hash: bytes
    token_count: int
    vector: Vector | None = None
    kind: str = "fact"
    tier: int = 3
    tags: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    importance: float = 0.5
    session: UUID | None = None


class MemoryText(Struct, frozen=True):
    """A new text of a memory, with what is derived from it."""

    text: str
    content_hash: bytes
    token_count: int
    vector: Vector | None


class MemoryChange(Struct, frozen=True):
    """What to change; None leaves what is stored. `expires_at` counts where `set_expiry`: None then means never."""

    text: MemoryText | None = None
    kind: str | None = None
    tier: int | None = None
    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    importance: float | None = None
    confidence: float | None = None
    set_expiry: bool = False
    expires_at: datetime | None = None


class MemoryFilter(Struct, frozen=True):
    """Which memories to list; None: any."""

    tiers: list[int] | None = None
    kinds: list[str] | None = None
    statuses: Sequence[str] = IN_FORCE
    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    superseded_by: UUID | None = None


class MemoryEvent(Struct, frozen=True):
    """One change of a memory."""

    at: datetime
    event: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    actor: str


class Memories:
    """The memories of a tenant's users."""

    def __init__(self, pool: Pool, queries: Queries, clock: Clock, *, space: int | None) -> None:
        """`space`: the embedding space of the vectors that come with texts; None: there are none."""
        self._pool = pool
        self._sql = queries
        self._clock = clock
        self._space = space
        self._secret: bytes | None = None

    async def owner(self, tenant: UUID, memory: UUID) -> UUID | None:
        """Whose a memory is, by the routes."""
        async with self._pool.transaction(tenant) as connection:
            owner: UUID | None = await connection.fetchval(self._sql["memories.resolve"], tenant, memory)
            return owner

    async def one(self, tenant: UUID, user: UUID, memory: UUID) -> Memory | None:
        """A memory; one that is forgotten, too, without its words."""
        async with self._pool.transaction(tenant) as connection:
            return await self._one(UserRows(connection, self._sql, tenant, user), memory)

    async def page(
        self,
        tenant: UUID,
        user: UUID | None,
        wanted: MemoryFilter,
        *,
        after: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[Memory]:
        """Memories of a user, or of all, newest first, after (created_at, memory_id)."""
        filters = (
            wanted.tiers, wanted.kinds, list(wanted.statuses), wanted.tags or None, wanted.metadata or None,
            wanted.superseded_by, *(after or (None, None)), limit,
        )  # fmt: skip
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            if user is None:
                rows = await connection.fetch(self._sql["memories.list_of_tenant"], tenant, now, *filters)
            else:
                rows = await connection.fetch(self._sql["memories.list_of_user"], tenant, now, user, *filters)
        return [Memory(**dict(row)) for row in rows]

    async def matching(
        self,
        tenant: UUID,
        user: UUID,
        *,
        memories: Sequence[UUID],
        messages: Mapping[UUID, datetime],
        tags: Sequence[str],
        metadata: Mapping[str, Any] | None,
    ) -> frozenset[UUID]:
        """Those of these memories and messages (by when they were said) that have all the tags and contain the metadata."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self._sql["memories.matching"],
                tenant, user, list(memories), list(tags), metadata, list(messages), list(messages.values()),
            )  # fmt: skip
        return frozenset(row["id"] for row in rows)

    async def events(self, tenant: UUID, user: UUID, memory: UUID, *, after: int, limit: int) -> list[MemoryEvent]:
        """What became of a memory, oldest first, after its first `after` changes."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["memories.events"], tenant, user, memory, after, limit)
        return [MemoryEvent(**dict(row)) for row in rows]

    async def add(
        self,
        tenant: UUID,
        user: UserRef,
        new: Sequence[NewMemory],
        within: Callable[[Sequence[UUID]], Callable[[PoolConnectionProxy[Any]], Awaitable[None]]] | None = None,
    ) -> list[tuple[Memory, bool]]:
        """Add memories of one user, in one transaction. A text that is in force already is not added twice: the memory
        that says so is reinforced and returned, with False. `within`: of their ids, what is done last in that transaction."""
        now = self._clock.now()
        fresh = {ids.uuid7(now): each for each in new}
        results: list[tuple[UUID, bool]] = []
        async with self._pool.transaction(tenant) as connection:
            await ensure_user(connection, self._sql, tenant, user, now)
            rows, ttl = UserRows(connection, self._sql, tenant, user.id), await lives(connection, self._sql)
            payload = [_row(memory, each, _expiry(ttl, each.tier, now)) for memory, each in fresh.items()]
            added = {row["memory_id"] for row in await rows.rows("memories.add", payload, now)}
            for memory, each in fresh.items():
                if memory in added:
                    after = {"text": each.text, "tier": each.tier, "kind": each.kind}
                    await rows.run("memories.event", memory, now, "created", None, after, _ACTOR)
                    results.append((memory, True))
                else:
                    results.append((await self._reinforce(rows, each, _expiry(ttl, each.tier, now), now), False))
            if added:
                await rows.run("memories.route", [memory for memory in fresh if memory in added])
                await self._add_vectors(
                    rows, {memory: fresh[memory].vector for memory in fresh if memory in added}, now
                )
            stored = {memory: await self._one(rows, memory) for memory, _ in results}
            if within is not None:
                await within([memory for memory, _ in results])(connection)
        return [(found, made) for memory, made in results if (found := stored[memory]) is not None]

    async def _reinforce(self, rows: UserRows, new: NewMemory, expires: datetime | None, now: datetime) -> UUID:
        arguments = (new.content_hash, new.tier, _scope(new), MOST_CONFIDENCE, expires, now)
        memory: UUID | None = await rows.value("memories.reinforce", *arguments)
        if memory is None:
            raise Conflict("This memory was changed by somebody else at this very moment; try again.")
        await rows.run("memories.event", memory, now, "reinforced", None, {"tier": new.tier}, _ACTOR)
        return memory

    async def _add_vectors(self, rows: UserRows, texts: Mapping[UUID, Vector | None], created_at: datetime) -> None:
        found = {memory: halfvec(vector) for memory, vector in texts.items() if vector is not None}
        if self._space is not None and found:
            at = [created_at] * len(found)
            await rows.run("history.add_vectors", self._space, MEMORY_KIND, list(found), at, list(found.values()))

    async def change(self, tenant: UUID, user: UUID, memory: UUID, change: MemoryChange) -> Memory | None:
        """Change a memory; None when there is none (or it is forgotten). Raises Conflict when another memory in force
        says the new text already."""
        now, text = self._clock.now(), change.text
        async with self._pool.transaction(tenant) as connection:
            rows = UserRows(connection, self._sql, tenant, user)
            held = await self._lock(rows, memory)
            if held is None:
                return None
            with _one_per_text():
                await self._update(rows, memory, change, now)
            if text is not None:
                await rows.run("memories.drop_vectors", [memory])
            found = await self._one(rows, memory)
            assert found is not None, "it is held"
            before, after = _difference(held, found)
            if text is not None:
                await self._add_vectors(rows, {memory: text.vector}, found.created_at)
                before[_HASH] = held["content_hash"].hex()
            await rows.run("memories.event", memory, now, "edited", before, after, _ACTOR)
        return found

    async def _update(self, rows: UserRows, memory: UUID, change: MemoryChange, now: datetime) -> None:
        text = change.text
        scope = _GLOBAL if change.tier is not None and change.tier > 1 else None
        expires, set_expiry = change.expires_at, change.set_expiry
        if change.tier is not None and not set_expiry:
            expires, set_expiry = _expiry(await lives(rows.connection, self._sql), change.tier, now), True
        await rows.run(
            "memories.update",
            memory,
            *((text.text, text.content_hash, text.token_count) if text else (None, None, None)),
            *(change.kind, change.tier, scope, change.tags, change.metadata, change.importance, change.confidence),
            *(set_expiry, expires, now),
        )

    async def invalidate(self, tenant: UUID, user: UUID, memory: UUID, reason: str | None) -> Memory | None:
        """Say that a memory is not true any more. None: there is none. Raises Conflict when it is not in force."""
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            rows = UserRows(connection, self._sql, tenant, user)
            held = await self._lock(rows, memory)
            if held is None:
                return None
            if held["status"] not in IN_FORCE:
                raise Conflict(f"This memory is {held['status']} already.")
            await rows.run("memories.set_status", memory, "invalidated", now, now)
            before, after = (
                {"status": held["status"]},
                {"status": "invalidated"} | ({"reason": reason} if reason else {}),
            )
            await rows.run("memories.event", memory, now, "invalidated", before, after, _ACTOR)
            return await self._one(rows, memory)

    async def restore(self, tenant: UUID, user: UUID, memory: UUID) -> Memory | None:
        """Bring a memory back into force. None: there is none. Raises Conflict when it is in force, or when another
        memory says the same by now."""
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            rows = UserRows(connection, self._sql, tenant, user)
            held = await self._lock(rows, memory)
            if held is None:
                return None
            over = held["expires_at"] is not None and held["expires_at"] <= now
            if held["is_active"] and not over:
                raise Conflict("This memory is in force.")
            with _one_per_text():
                await rows.run("memories.set_status", memory, "active", None, now)
            await rows.rows("commands.unforget", [memory])
            before = {"status": held["status"]}
            await rows.run("memories.event", memory, now, "restored", before, {"status": "active"}, _ACTOR)
            return await self._one(rows, memory)

    async def forget(self, tenant: UUID, user: UUID, memory: UUID) -> bool:
        """Take a memory's words away for good. False: there is none, or it was forgotten before."""
        key = await self._hmac_key(tenant)
        async with self._pool.transaction(tenant) as connection:
            rows = UserRows(connection, self._sql, tenant, user)
            await self._alone(rows, memory)
            held = await hold(rows, [memory])
            if held:
                await forget(rows, key, held, self._clock.now())
        return bool(held)

    async def _hmac_key(self, tenant: UUID) -> bytes:
        if self._secret is None:
            async with self._pool.transaction(tenant) as connection:
                self._secret = bytes.fromhex(await connection.fetchval(self._sql["memories.secret"]))
        return self._secret

    async def _alone(self, rows: UserRows, memory: UUID) -> None:
        """Wait until no job writes for the memory's user (of nobody's: for its session), and keep further ones waiting.

        What was drawn from a memory changes with it, and the two would take rows in another order.
        """
        alone = await rows.value("lifecycle.alone", memory)
        await rows.connection.execute(self._sql["learning.lock"], alone or rows.user)

    async def _lock(self, rows: UserRows, memory: UUID) -> Any:
        """A memory that is not forgotten, held as it is."""
        await self._alone(rows, memory)
        held = await rows.row("memories.lock", memory)
        return held if held is not None and held["status"] != "forgotten" else None

    async def _one(self, rows: UserRows, memory: UUID) -> Memory | None:
        row = await rows.row("memories.one", memory, self._clock.now())
        return Memory(**dict(row)) if row is not None else None


@contextmanager
def _one_per_text() -> Iterator[None]:
    """What the unique index refuses is a conflict."""
    try:
        yield
    except UniqueViolationError as error:
        raise Conflict("Another memory in force says the same.") from error


def _expiry(ttl: Mapping[int, timedelta], tier: int, now: datetime) -> datetime | None:
    life = ttl.get(tier)
    return now + life if life is not None else None


def _scope(new: NewMemory) -> int:
    """A session memory stays in its session; all others are for every session of the user."""
    return _LOCAL if new.tier <= 1 and new.session is not None else _GLOBAL


def _row(memory: UUID, new: NewMemory, expires: datetime | None) -> dict[str, Any]:
    return {
        "memory_id": memory,
        "session_id": new.session,
        "tier": new.tier,
        "scope": _scope(new),
        "kind": new.kind,
        "text": new.text,
        "content_hash": new.content_hash.hex(),
        "provenance": _PROVENANCE.get(new.kind, _USER_STATED),
        "confidence": MOST_CONFIDENCE,
        "importance": new.importance,
        "token_count": new.token_count,
        "tags": new.tags,
        "metadata": new.metadata,
        "expires_at": expires,
    }


def _difference(held: Any, found: Memory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What changed, before and after."""
    named = {"content_text": "text", "memory_tier": "tier"}
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    for column in (*named, "kind", "tags", "metadata", "importance", "confidence", "expires_at"):
        old, new = held[column], getattr(found, column)
        if old != new:
            name = named.get(column, column)
            before[name], after[name] = old, new
    return before, after


class LockedMemory(NamedTuple):
    """A memory that is held against other writers, until the end of the transaction: what is forgotten, by itself or with the
    message that said it, is held first."""

    memory_id: UUID
    status: str
    content_hash: bytes


async def hold(rows: UserRows, memories: Sequence[UUID]) -> list[LockedMemory]:
    """Those of these memories that are there and not forgotten."""
    found = await rows.rows("memories.hold", list(memories))
    return [LockedMemory(row["memory_id"], row["status"], row["content_hash"]) for row in found]


async def forget(rows: UserRows, key: bytes, held: Sequence[LockedMemory], now: datetime) -> None:
    """Leave of memories that there were some, and keyed hashes (`key`) of what they said, so that it is not learned again."""
    memories = [each.memory_id for each in held]
    earlier = await rows.rows("memories.hashes_before", memories)
    await rows.run("memories.void", memories, now)
    for each in held:
        await rows.run("memories.event", each.memory_id, now, "deleted", {"status": each.status}, None, _ACTOR)
    # Under its own id what it said last; what it said before it was edited is what a transcript would bring back.
    marks = {each.memory_id: content_hmac(key, each.content_hash) for each in held}
    for row in earlier:
        marks[uuid5(row["memory_id"], row["content_hash"].hex())] = content_hmac(key, row["content_hash"])
    await rows.run("memories.suppress", list(marks), "forgotten", list(marks.values()), now)


def content_hmac(key: bytes, content_hash: bytes) -> bytes:
    """What is kept of a forgotten text: HMAC-SHA256 over its content hash, so that nobody without the key can guess it."""
    return hmac.digest(key, content_hash, sha256)
