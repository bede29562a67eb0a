"""What is kept beside what was said: episodes, working memory, and memories that are derived from others (seed 004).

Row-level security holds it to a job's tenant. Nothing is held while a summary is made: what was read has a version, and what
is written must still be about that version, else it is void (`Stale`), and the work is due again.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct, field

from app.store import ids
from app.store.learning import Changes, Effect, HistoryEvent, MemoryRow, Superseded
from app.store.memories import content_hmac
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, tool_calls_of

# --- with each exchange: an episode ------------------------------------------------------------------------------------

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


async def note_episodes(
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


def _row(each: Episode) -> dict[str, Any]:
    names = ("message_id", "at", "event_type", "entities", "topics", "tools", "measure")
    return {name: getattr(each, name) for name in names}


# --- with each turn: working memory ------------------------------------------------------------------------------------

RESULT_CHARS = 500
"""Of a tool's result that is kept here; all of it stands in the history."""
RECENT_MESSAGES = 80
"""Messages read for it: twenty turns with a tool call and its result in each."""
PREFERENCES = 10
"""Preferences and instructions, the most important."""


class RecentMessage(Struct, frozen=True):
    """A message of a session, its content cut to `RESULT_CHARS`."""

    message_id: UUID
    turn_index: int
    role: str
    content: str
    name: str | None
    tool_calls: Sequence[Mapping[str, Any]]
    tool_call_id: str | None
    created_at: datetime


class Working(Struct, frozen=True):
    """`pending_confirmations`: what the assistant asked leave for, and nobody has answered; `tool_results_buffer`: newest
    last."""

    active_preferences: list[dict[str, Any]] = field(default_factory=list)
    pending_confirmations: list[dict[str, Any]] = field(default_factory=list)
    tool_results_buffer: list[dict[str, Any]] = field(default_factory=list)


async def read_recent(
    connection: PoolConnectionProxy[Any], sql: Queries, tenant: UUID, user: UUID, session: UUID, now: datetime
) -> tuple[list[RecentMessage], list[dict[str, Any]]]:
    """The session's newest messages, oldest first, and the preferences that hold in it."""
    rows = await connection.fetch(sql["consolidation.recent"], tenant, user, session, RECENT_MESSAGES, RESULT_CHARS)
    messages = [
        RecentMessage(
            row["message_id"],
            row["turn_index"],
            ROLE_NAMES.get(row["role"], "other"),
            row["content"],
            row["name"],
            tool_calls_of(row["tool_calls"]),
            row["tool_call_id"],
            row["created_at"],
        )
        for row in reversed(rows)
    ]
    confined = user == ids.nobody(tenant)
    found = await connection.fetch(sql["consolidation.preferences"], tenant, user, session, confined, now, PREFERENCES)
    preferences = [{"memory_id": str(row["memory_id"]), "kind": row["kind"], "text": row["text"]} for row in found]
    return messages, preferences


async def read_working(
    connection: PoolConnectionProxy[Any], sql: Queries, tenant: UUID, user: UUID, session: UUID
) -> tuple[Working, datetime] | None:
    """What is kept, and since when; None: it is lost, or was never made."""
    row = await connection.fetchrow(sql["consolidation.working"], tenant, user, session)
    if row is None:
        return None
    kept = Working(row["active_preferences"], row["pending_confirmations"], row["tool_results_buffer"])
    return kept, row["updated_at"]


async def keep_working(
    connection: PoolConnectionProxy[Any],
    sql: Queries,
    tenant: UUID,
    user: UUID,
    session: UUID,
    working: Working,
    now: datetime,
) -> None:
    """Set it."""
    await connection.execute(
        sql["consolidation.keep_working"],
        tenant, user, session, working.active_preferences, working.pending_confirmations, working.tool_results_buffer, now,
    )  # fmt: skip


# --- what is derived ----------------------------------------------------------------------------------------------------


class NewConsolidated(Struct, frozen=True):
    """A memory to be drawn. `facts`, `messages`: what from; `confirms`: those of the facts that it confirms; `previous`: what
    it takes the place of."""

    row: MemoryRow
    key: str
    facts: tuple[UUID, ...]
    messages: tuple[UUID, ...]
    confirms: tuple[UUID, ...] = ()
    previous: tuple[UUID, ...] = ()


class Derivation:
    """Where jobs write what they derive."""

    def __init__(self, pool: Pool, sql: Queries, *, space: int | None = None) -> None:
        """`space`: of the vectors that come with it."""
        self._pool = pool
        self._sql = sql
        self._space = space

    @contextlib.asynccontextmanager
    async def effect(
        self, tenant: UUID, user: UUID, job_key: str, *, alone: UUID, epoch: int | None, now: datetime
    ) -> AsyncIterator[ConsolidationWrite | None]:
        """The transaction of a job's effect; None where it had its effect before, or its user was erased (`epoch` None, or
        another by now). `alone`: see `LearningStore.effect`."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["learning.lock"], alone)
            here = epoch is not None and await connection.fetchval(self._sql["learning.epoch"], user) == epoch
            if here and await connection.fetchval(self._sql["learning.claim"], user, tenant, job_key, now):
                yield ConsolidationWrite(connection, self._sql, tenant, user, now, self._space)
            else:
                yield None


class ConsolidationWrite(Struct, frozen=True):
    """What a job writes for its user, within its transaction. `space`: of the vectors."""

    connection: PoolConnectionProxy[Any]
    sql: Queries
    tenant: UUID
    user: UUID
    now: datetime
    space: int | None

    @property
    def effect(self) -> Effect:
        """What may be done to the user's memories."""
        return Effect(self.connection, self.sql, self.tenant, self.user, self.now)

    async def add(
        self, new: Sequence[NewConsolidated], key: bytes, space: int | None, *, scope: UUID = ids.NIL
    ) -> list[UUID]:
        """Write memories, but for those whose words are in force already, within `scope` (a session, for its summary: two
        sessions may come to the same words); which. `key`: of this database's keyed hashes."""
        effect = self.effect
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
                events=[HistoryEvent(each.row.memory_id, "created", None, {"kind": each.row.kind}) for each in fresh]
                + [
                    HistoryEvent(previous, "superseded", None, {"superseded_by": str(each.row.memory_id)})
                    for each in fresh
                    for previous in each.previous
                ],
            ),
        )
        pairs = [(source, each.row.memory_id) for each in fresh for source in (*each.facts, *each.messages)]
        await self._run("derive", [one for one, _ in pairs], [other for _, other in pairs])
        await self._run("name_keys", [key_hmac(key, each.key) for each in fresh], made)
        return made

    async def _run(self, name: str, *arguments: object) -> None:
        await self.connection.execute(self.sql[f"consolidation.{name}"], self.tenant, self.user, *arguments)


def key_hmac(key: bytes, text: str) -> bytes:
    """What is kept of the key of something drawn, so that it can be told and not be read."""
    return content_hmac(key, text.encode())
