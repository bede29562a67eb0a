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

from msgspec import Struct, field
from msgspec.structs import astuple

from app.store import ids
from app.store.learning import Changes, Effect, HistoryEvent, MemoryRow, Superseded
from app.store.memories import content_hmac
from app.store.pools import Pool, UserRows
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, tool_calls_of

# --- with each exchange: an episode --------------------------------------------------------------------------------------

MAX_TOOLS = 32
"""Tools kept of one episode: longer loops repeat themselves."""


class Episode(Struct, frozen=True):
    """One answered exchange (seed 004, layer 3). `event_type`: question, request, statement, correction or confirmation;
    `entities`: slugs; `topics`: words with a content, in their order; `tools`: names of those called, in their order;
    `measure`: {label, value, unit} where the user reported a figure; `things`: those that were resolved, with their mentions,
    as seed 004 has `entities` (the job's `LinkedExchanges` writes them)."""

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
    rows: UserRows,
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
    names = ("message_id", "at", "event_type", "entities", "topics", "tools", "measure")
    made = [{name: getattr(each, name) for name in names} for each in episodes]
    await rows.run("consolidation.note", session, made, list(messages), since, until, now, pooled)


async def more_tools(rows: UserRows, session: UUID, tools: Sequence[str]) -> None:
    """Tools that were called to the same question as before."""
    await rows.run("consolidation.more_tools", session, list(tools), MAX_TOOLS)


# --- with each turn: working memory --------------------------------------------------------------------------------------

RESULT_CHARS = 500
"""Of a tool's result that is kept here; all of it stands in the history."""
_RECENT_MESSAGES = 80
"""Messages read for it: twenty turns with a tool call and its result in each."""
_PREFERENCES = 10
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


async def read_recent(rows: UserRows, session: UUID, now: datetime) -> tuple[list[RecentMessage], list[dict[str, Any]]]:
    """The session's newest messages, oldest first, and the preferences that hold in it."""
    messages = []
    for row in reversed(await rows.rows("consolidation.recent", session, _RECENT_MESSAGES, RESULT_CHARS)):
        role, calls = ROLE_NAMES.get(row["role"], "other"), tool_calls_of(row["tool_calls"])
        messages.append(RecentMessage(**dict(row) | {"role": role, "tool_calls": calls}))
    confined = rows.user == ids.nobody(rows.tenant)
    found = await rows.rows("consolidation.preferences", session, confined, now, _PREFERENCES)
    return messages, [dict(row) | {"memory_id": str(row["memory_id"])} for row in found]


async def read_working(rows: UserRows, session: UUID) -> tuple[Working, datetime] | None:
    """What is kept, and since when; None: it is lost, or was never made."""
    row = await rows.row("consolidation.working", session)
    if row is None:
        return None
    return Working(row["active_preferences"], row["pending_confirmations"], row["tool_results_buffer"]), row[
        "updated_at"
    ]


async def keep_working(rows: UserRows, session: UUID, working: Working, now: datetime) -> None:
    """Set it."""
    await rows.run("consolidation.keep_working", session, *astuple(working), now)


# --- what is derived -----------------------------------------------------------------------------------------------------


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


class ConsolidationWrite(Effect, frozen=True):
    """What a job writes for its user, within its transaction. `space`: of the vectors."""

    space: int | None

    async def add(
        self, new: Sequence[NewConsolidated], key: bytes, space: int | None, *, scope: UUID = ids.NIL
    ) -> list[UUID]:
        """Write memories, but for those whose words are in force already, within `scope` (a session, for its summary: two
        sessions may come to the same words); which. `key`: of this database's keyed hashes."""
        hashes = [each.row.content_hash for each in new]
        members = await self.members(scope, hashes, (), ())
        there = {each.content_hash for each in members if each.root == each.memory_id}
        there |= await self.forgotten(key, hashes)
        fresh = list({each.row.content_hash: each for each in new if each.row.content_hash not in there}.values())
        if not fresh:
            return []
        made = [each.row.memory_id for each in fresh]
        replaced = [(previous, each.row.memory_id) for each in fresh for previous in each.previous]
        events = [HistoryEvent(each.row.memory_id, "created", None, {"kind": each.row.kind}) for each in fresh]
        events += [HistoryEvent(old, "superseded", None, {"superseded_by": str(heir)}) for old, heir in replaced]
        # What replaces a summary says the same of more: the old one is only another wording of it.
        superseded = [Superseded(old, heir, "merged", self.now) for old, heir in replaced]
        await self.change(scope, space, Changes(new=[each.row for each in fresh], superseded=superseded, events=events))
        pairs = [(source, each.row.memory_id) for each in fresh for source in (*each.facts, *each.messages)]
        await self.run("consolidation.derive", [one for one, _ in pairs], [other for _, other in pairs])
        await self.run("consolidation.name_keys", [key_hmac(key, each.key) for each in fresh], made)
        return made


def key_hmac(key: bytes, text: str) -> bytes:
    """What is kept of the key of something drawn, so that it can be told and not be read."""
    return content_hmac(key, text.encode())
