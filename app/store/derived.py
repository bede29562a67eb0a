"""What is derived from what was said: episodes, and what consolidation reads and writes of a user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from app.store import ids
from app.store.consolidation import Stale, Work
from app.store.learning import Changes, Event, MemoryRow, Superseded
from app.store.memories import content_hmac
from app.store.pools import Pool
from app.store.queries import Queries

# What the learner's job leaves behind of each exchange: an episode, and that its session has gone on.

MAX_TOOLS = 32
"""Tools kept of one episode: longer loops repeat themselves."""


class Episode(Struct, frozen=True):
    """One answered exchange (seed 004, layer 3). `event_type`: question, request, statement, correction or confirmation;
    `entities`: slugs; `topics`: words with a content, in their order; `tools`: names of those called, in their order;
    `measure`: {label, value, unit} where the user reported a figure; `things`: those that were resolved, with their mentions,
    as seed 004 has `entities` (the job's `Spoken` writes them)."""

    message_id: UUID
    session_id: UUID
    at: datetime
    event_type: str
    entities: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    measure: Mapping[str, Any] | None = None
    things: tuple[Mapping[str, Any], ...] = ()


async def note(
    connection: PoolConnectionProxy[Any],
    sql: Queries,
    tenant: UUID,
    user: UUID,
    session: UUID,
    *,
    episodes: Sequence[Episode],
    messages: Sequence[UUID],
    since: datetime,
    until: datetime,
    now: datetime,
    pooled: bool,
) -> None:
    """Within the learner's transaction: add episodes, count the messages' tokens, and say that there is work to do. `since` and
    `until` bound the messages' months. `pooled`: what all sessions of this user say may be drawn together."""
    await connection.execute(
        sql["consolidation.note"],
        tenant, user, session, [_row(each) for each in episodes], list(messages), since, until, now, pooled,
    )  # fmt: skip


async def more_tools(
    connection: PoolConnectionProxy[Any], sql: Queries, tenant: UUID, user: UUID, session: UUID, tools: Sequence[str]
) -> None:
    """Tools that were called to the same question as before."""
    await connection.execute(sql["consolidation.more_tools"], tenant, user, session, list(tools), MAX_TOOLS)


def episode_from(row: Any) -> Episode:
    """An episode as it is stored."""
    return Episode(
        row["message_id"],
        row["session_id"],
        row["at"],
        row["event_type"],
        tuple(row["entities"]),
        tuple(row["topics"]),
        tuple(row["tools"]),
        row["measure"],
        tuple(row["things"]),
    )


def _row(each: Episode) -> dict[str, Any]:
    names = ("message_id", "at", "event_type", "entities", "topics", "tools", "measure")
    return {name: getattr(each, name) for name in names}


MAX_EPISODES = 2_000
"""Newest episodes of a user that are looked at: half a year of ten exchanges a day."""
MAX_FACTS = 2_000
"""Most important memories of a user that are looked at."""


class KnownFact(Struct, frozen=True):
    """A memory in force. `about`: the entities that it is about; `sessions`: where it was said."""

    memory_id: UUID
    text: str
    kind: str
    confidence: float
    importance: float
    created_at: datetime
    about: frozenset[str]
    subject: str | None
    predicate: str | None
    value: str | None
    messages: tuple[UUID, ...]
    sources: tuple[dict[str, Any], ...]

    @property
    def sessions(self) -> frozenset[UUID]:
        return frozenset(UUID(each["session_id"]) for each in self.sources if each.get("session_id"))


class DrawnMemory(Struct, frozen=True):
    """A pattern, procedure or summary in force; `key` says which."""

    memory_id: UUID
    kind: str
    text: str
    key: str
    details: dict[str, Any]
    entities: tuple[str, ...]


class Text(Struct, frozen=True):
    """A message that may be quoted."""

    message_id: UUID
    session_id: UUID
    session_name: str
    turn_index: int
    content: str
    created_at: datetime


class UserState(Struct, frozen=True):
    """A user when consolidation began. `epoch`: erasure epoch, None: there is no such user. `forgotten`: keyed hashes of keys
    that are not to be drawn again; `hmac_key`: their key."""

    epoch: int | None
    version: int
    hmac_key: bytes
    episodes: tuple[Episode, ...]
    facts: tuple[KnownFact, ...]
    drawn: tuple[DrawnMemory, ...]
    forgotten: frozenset[bytes]

    def may_draw(self, key: str) -> bool:
        return key_hmac(self.hmac_key, key) not in self.forgotten


class NewDrawn(Struct, frozen=True):
    """A memory to be drawn. `facts`, `messages`: what from; `confirms`: those of the facts that it confirms; `previous`: what
    it takes the place of."""

    row: MemoryRow
    key: str
    facts: tuple[UUID, ...]
    messages: tuple[UUID, ...]
    confirms: tuple[UUID, ...] = ()
    previous: tuple[UUID, ...] = ()


class DrawingStore:
    """Reads what there is to draw together."""

    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def read(self, tenant: UUID, user: UUID, now: datetime) -> UserState:
        """A user as they stand; the version first, so that what changes meanwhile is seen."""
        sql = self._sql
        async with self._pool.transaction(tenant) as connection:
            owner = await connection.fetchrow(sql["consolidation.user"], user)
            assert owner is not None, "a query without FROM has one row"
            secret: str = await connection.fetchval(sql["memories.secret"])
            episodes = await connection.fetch(sql["consolidation.episodes"], user, MAX_EPISODES)
            facts = await connection.fetch(sql["consolidation.known_memories"], user, now, MAX_FACTS)
            drawn = await connection.fetch(sql["consolidation.drawn"], user)
            forgotten = await connection.fetch(sql["consolidation.forgotten_keys"], user)
        return UserState(
            owner["epoch"],
            owner["version"],
            bytes.fromhex(secret),
            tuple(episode_from(each) for each in reversed(episodes)),
            tuple(_fact(each) for each in facts),
            tuple(_drawn(each) for each in drawn),
            frozenset(each["key_hmac"] for each in forgotten),
        )

    async def texts(self, tenant: UUID, user: UUID, episodes: Sequence[Episode]) -> list[Text]:
        """What was asked in these episodes, oldest first, as far as it may be quoted."""
        if not episodes:
            return []
        times = [each.at for each in episodes]
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self._sql["consolidation.texts"], user, [each.message_id for each in episodes], min(times), max(times)
            )
        return [
            Text(
                row["message_id"],
                row["session_id"],
                row["external_id"] or str(row["session_id"]),
                row["turn_index"],
                row["content"] or "",
                row["created_at"],
            )
            for row in rows
        ]


class Drawing(Struct, frozen=True):
    """What is written of it, within the transaction of `work`."""

    work: Work
    sql: Queries
    tenant: UUID
    user: UUID
    now: datetime

    async def hold(self, version: int, facts: Sequence[UUID], messages: Sequence[UUID]) -> None:
        """None of these is forgotten or superseded from here on. Raises `Stale` where one was since `version`."""
        connection = self.work.connection
        held = await connection.fetch(self.sql["consolidation.hold_memories"], self.user, list(facts))
        if len(held) != len(set(facts)):
            raise Stale
        await self._run("begin_user")
        if await connection.fetchval(self.sql["consolidation.hold_user"], self.user) != version:
            raise Stale
        if await connection.fetchval(self.sql["consolidation.suppressed"], self.user, [*facts, *messages]):
            raise Stale

    async def add(self, new: Sequence[NewDrawn], key: bytes, space: int | None, *, scope: UUID = ids.NIL) -> list[UUID]:
        """Write memories, but for those whose words are in force already, within `scope` (a session, for its summary: two
        sessions may come to the same words); which. `key`: of this database's keyed hashes."""
        effect = self.work.effect
        hashes = [each.row.content_hash for each in new]
        there = {
            each.content_hash for each in await effect.members(scope, hashes, (), ()) if each.root == each.memory_id
        }
        there |= await effect.forgotten(key, hashes)
        fresh = list({each.row.content_hash: each for each in new if each.row.content_hash not in there}.values())
        if not fresh:
            return []
        made = [each.row.memory_id for each in fresh]
        await effect.change(
            scope,
            space,
            Changes(
                new=[each.row for each in fresh],
                # What replaces a summary says the same of more: the old one is only another wording of it.
                superseded=[
                    Superseded(previous, each.row.memory_id, "merged", self.now)
                    for each in fresh
                    for previous in each.previous
                ],
                events=[Event(each.row.memory_id, "created", None, {"kind": each.row.kind}) for each in fresh]
                + [
                    Event(previous, "superseded", None, {"superseded_by": str(each.row.memory_id)})
                    for each in fresh
                    for previous in each.previous
                ],
            ),
        )
        pairs = [(source, each.row.memory_id) for each in fresh for source in (*each.facts, *each.messages)]
        await self._run("derive", [one for one, _ in pairs], [other for _, other in pairs])
        await self._run("name_keys", [key_hmac(key, each.key) for each in fresh], made)
        return made

    async def retire(self, session: UUID) -> None:
        """Of a session's summaries that are not in force any more only the last is kept, without its vectors: the others go in
        their time, as what has expired does. (A session that goes on for years is summarised anew every day.)"""
        sql, connection = self.sql, self.work.connection
        former = await connection.fetch(sql["consolidation.retire_summaries"], self.tenant, self.user, session)
        gone = [each["memory_id"] for each in former]
        await connection.execute(sql["memories.drop_vectors"], self.tenant, self.user, gone)

    async def confirm(self, facts: Sequence[UUID], by: float, up_to: float) -> None:
        """These memories are a little surer."""
        if facts:
            await self._run("confirm", list(facts), by, up_to, self.now)

    async def done(self, began: datetime, *, more: bool) -> None:
        """The user's consolidation is done, as of `began`; `more`: not all of it."""
        await self._run("end_user", self.now, began, more)

    async def _run(self, name: str, *arguments: object) -> None:
        await self.work.connection.execute(self.sql[f"consolidation.{name}"], self.tenant, self.user, *arguments)


def key_hmac(key: bytes, text: str) -> bytes:
    """What is kept of the key of something drawn, so that it can be told and not be read."""
    return content_hmac(key, text.encode())


def _fact(row: Any) -> KnownFact:
    subject = row["subject_entity_id"]
    return KnownFact(
        row["memory_id"],
        row["content_text"],
        row["kind"],
        row["confidence"],
        row["importance"],
        row["created_at"],
        frozenset([*row["entity_ids"], *([subject] if subject else [])]),
        subject,
        row["predicate"],
        row["object_value"],
        tuple(row["source_message_ids"]),
        tuple(row["sources"]),
    )


def _drawn(row: Any) -> DrawnMemory:
    return DrawnMemory(
        row["memory_id"],
        row["kind"],
        row["content_text"],
        row["details"]["key"],
        row["details"],
        tuple(row["entity_ids"]),
    )
