"""What of a session's objects becomes memory: what speaks for each, where it was said, and the memories that there are of it.

Row-level security holds it to a job's tenant. Nothing is held between reading and writing (see `LearningStore.effect`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from app.store.consolidation import key_hmac
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.sessions import SessionRef, line_of

QUESTIONS = 2
"""Questions about an object whose answers its memory quotes, the latest."""


class ObjectEvidence(Struct, frozen=True):
    """An object of a session, without its content, and what speaks for it. `marks`: of the messages that it stands in
    (`segment.marks`). `asked_turns`: turns in which it was asked about. `again`: another conversation had the same before.
    `remembered`: evidence that has become memory."""

    object_id: UUID
    object_type: str
    kind: str
    tool: str | None
    key: str | None
    family: str
    content_hash: bytes
    stub: str
    marks: tuple[bytes, ...]
    tokens: int
    created_at: datetime
    restores: int
    asked_turns: int
    pinned: bool
    again: bool
    remembered: int


class Origin(NamedTuple):
    """A message of the session's conversation; `usable`: something may be learned from it."""

    message_id: UUID
    session_id: UUID
    turn_index: int
    created_at: datetime
    message_hash: bytes
    content_hash: bytes | None
    usable: bool


class PersistenceState(Struct, frozen=True):
    """A session as its objects are looked through. `until`: what is seen of it; `since`: what was seen before. `epoch`: its
    user's erasure epoch, None: there is no such user. `hmac_key`: of this database's keyed hashes."""

    epoch: int | None
    hmac_key: bytes
    name: str
    since: datetime | None
    until: datetime
    readings: tuple[ObjectEvidence, ...]
    origins: tuple[Origin, ...]


class Content(NamedTuple):
    """`questions`: about the object, the latest first."""

    text: str
    compact: str | None
    questions: tuple[str, ...]


class KnownObject(Struct, frozen=True):
    """A memory of an object. `forgotten`: its user had it forgotten."""

    memory_id: UUID
    is_active: bool
    content_hash: str | None
    tier: int
    scope: int
    confidence: float
    importance: float
    reinforcement_count: int
    expires_at: datetime | None
    valid_from: datetime
    stated_at: datetime
    status: str
    source_message_ids: list[UUID]
    forgotten: bool


class PersistenceReads:
    """Reads what there is to remember of a session's objects."""

    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def read(self, tenant: UUID, user: UUID, session: UUID) -> PersistenceState | None:
        """None: there is no such session, or it has no objects."""
        sql = self._sql
        async with self._pool.transaction(tenant) as connection:
            owner = await connection.fetchrow(sql["consolidation.user"], user)
            assert owner is not None, "a query without FROM has one row"
            row = await connection.fetchrow(sql["lasting.session"], tenant, user, session)
            if row is None:
                return None
            key = bytes.fromhex(await connection.fetchval(sql["memories.secret"]))
            readings = await connection.fetch(sql["lasting.readings"], tenant, user, session)
            line = await line_of(connection, sql, tenant, SessionRef(user, session)) if readings else None
            origins = await connection.fetch(sql["lasting.messages"], tenant, user, *line) if line else []
        return PersistenceState(
            owner["epoch"],
            key,
            row["external_id"] or str(session),
            row["remembered_at"],
            row["updated_at"],
            tuple(_reading(each) for each in readings),
            tuple(Origin(*each) for each in origins),
        )

    async def contents(self, tenant: UUID, user: UUID, objects: Sequence[UUID]) -> dict[UUID, Content]:
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["lasting.contents"], tenant, user, list(objects), QUESTIONS)
        return {
            row["object_id"]: Content(row["content_full"], row["summary_compact"], tuple(row["questions"]))
            for row in rows
        }


class PersistenceWrites:
    """What is written of it beside the memories themselves, within the transaction of a job's effect."""

    def __init__(
        self, connection: PoolConnectionProxy[Any], sql: Queries, tenant: UUID, user: UUID, hmac_key: bytes
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._tenant = tenant
        self._user = user
        self._key = hmac_key

    async def since(self, session: UUID) -> datetime | None:
        """Up to when the session's objects were looked through by now."""
        rows = await self._run("lasting.session", session)
        return rows[0]["remembered_at"] if rows else None

    async def known(self, keys: Sequence[str]) -> dict[str, list[KnownObject]]:
        """The memories by these keys, held until the end of the transaction."""
        named = {key_hmac(self._key, each): each for each in keys}
        rows = await self._run("lasting.known", list(named))
        found: dict[str, list[KnownObject]] = {}
        for row in rows:
            found.setdefault(named[row["key_hmac"]], []).append(_known(row))
        return found

    async def name(self, new: Sequence[tuple[UUID, Sequence[str]]]) -> None:
        """By which keys new memories are known."""
        pairs = [(key_hmac(self._key, key), memory) for memory, keys in new for key in keys]
        await self._run("consolidation.name_keys", [key for key, _ in pairs], [memory for _, memory in pairs])

    async def derive(self, pairs: Sequence[tuple[UUID, UUID]]) -> None:
        """(message, memory): what must not surface takes the memory along."""
        await self._run("consolidation.derive", [one for one, _ in pairs], [other for _, other in pairs])

    async def invalidate(self, memory: KnownObject, now: datetime, reason: str) -> None:
        """It was so, and is not so any more."""
        await self._run("memories.set_status", memory.memory_id, "invalidated", now, now)
        after = {"status": "invalidated", "reason": reason}
        await self._run(
            "memories.event", memory.memory_id, now, "invalidated", {"status": memory.status}, after, "system"
        )

    async def done(self, session: UUID, evidence: Mapping[UUID, int], until: datetime) -> None:
        """These objects were looked through, as of `until`."""
        await self._run("lasting.done", session, list(evidence), list(evidence.values()), until)

    async def _run(self, name: str, *arguments: object) -> Sequence[Any]:
        rows: Sequence[Any] = await self._connection.fetch(self._sql[name], self._tenant, self._user, *arguments)
        return rows


def _reading(row: Any) -> ObjectEvidence:
    return ObjectEvidence(
        row["object_id"],
        row["object_type"],
        row["kind"],
        row["source_tool"],
        row["source_key"],
        row["family"] or "",
        row["content_hash"],
        row["stub"],
        tuple(bytes.fromhex(mark) for mark, _, _ in row["parts"]),
        row["tokens_l0"],
        row["created_at"],
        row["fault_count"],
        row["asked_turns"],
        row["pinned"],
        row["again"],
        row["remembered"],
    )


def _known(row: Any) -> KnownObject:
    return KnownObject(
        row["memory_id"],
        row["is_active"],
        row["content_hash"],
        row["memory_tier"],
        row["memory_scope"],
        row["confidence"],
        row["importance"],
        row["reinforcement_count"],
        row["expires_at"],
        row["valid_from"],
        row["stated_at"],
        row["status"],
        row["source_message_ids"],
        row["forgotten"],
    )
