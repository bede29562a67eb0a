"""Deleting a message: its words, and what came from it, in one transaction.

    settle     jobs and calls of the user that write this moment come to their end; later ones find the message gone
    memories   what was learned from it and from nothing else is forgotten; what has other sources loses this one
    quotes     stored memory blocks that quote it or them go, and their sessions' prompts begin a new epoch; summaries go
    objects    what paging made of it goes, and what a model asked and was told in its session
    words      the message's text, vectors, indexes and cards; its place in the conversation stays, so that a transcript that is
               sent again is recognised, and a keyed hash, so that the words are neither found nor learned when they come again

It runs as mneme_eraser, the only role that may change what was said. Captured calls keep what they hold, until their time is
over or the user is erased.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct

from app.clock import Clock
from app.errors import StoreUnavailable
from app.store import ids
from app.store.erasure import Connect, connected
from app.store.memories import Held, content_hmac, forget, hold
from app.store.paging_values import mark_of
from app.store.pools import set_codecs
from app.store.queries import Queries
from app.store.sessions import SessionRef, line_of

AT_ONCE = 2
"""Deletions of one process at a time: each has a connection of its own."""

LONGEST_S = 60.0
"""Seconds for a deletion; the longest look through the hundred thousands of memories of one user."""

TOLD_TOGETHER = frozenset({"summary", "episode"})
"""Kinds whose text tells of all their sources at once: without one of them it is not the same text."""

_WORD = re.compile(r"\w+")


class Learned(Struct, frozen=True):
    """A memory that has a message among its sources. `stated`: a client said it outright, before anything was learned."""

    memory_id: UUID
    kind: str
    text: str
    sources: Sequence[Mapping[str, Any]]
    source_message_ids: Sequence[UUID]
    stated: bool


class Deletion(Struct, frozen=True):
    """What went with a message: memories that were `forgotten`, and those that only lost it as a source (`kept`)."""

    forgotten: tuple[UUID, ...]
    kept: tuple[UUID, ...]


class Deleter:
    """Deletes messages."""

    def __init__(self, connect: Connect, sql: Queries, clock: Clock) -> None:
        """`connect`: as mneme_eraser."""
        self._connect = connect
        self._sql = sql
        self._clock = clock
        self._room = asyncio.Semaphore(AT_ONCE)

    async def delete(self, tenant: UUID, ref: SessionRef, message: UUID) -> Deletion | None:
        """Delete a message that the history of a session shows: its own, or one that a branch shares with its parent. None:
        there is none (any more). Raises StoreUnavailable: then nothing was changed."""
        user = ref.user_id
        try:
            async with self._room, asyncio.timeout(LONGEST_S), connected(self._connect) as connection:
                await set_codecs(connection, None)
                await connection.execute(self._sql["erasure.set_tenant"], str(tenant))
                line = await line_of(connection, self._sql, tenant, ref)
                place = (
                    await connection.fetchrow(self._sql["history.find"], tenant, user, message, *line) if line else None
                )
                if place is None:
                    return None
                alone = place["session_id"] if user == ids.nobody(tenant) else user
                async with connection.transaction():
                    # First all that may be waited for: what comes after sees what others have written.
                    await connection.execute(self._sql["learning.lock"], alone)
                    await connection.execute(self._sql["erasure.settle"], user)
                    run = _Run(connection, self._sql, tenant, user, message, place["created_at"], self._clock.now())
                    return await run.delete()
        except (TimeoutError, asyncpg.TransactionRollbackError, asyncpg.UniqueViolationError) as error:
            raise StoreUnavailable("Nothing was deleted: others write for this user; try again.") from error


class _Run:
    """One deletion, within its transaction."""

    def __init__(
        self,
        connection: asyncpg.Connection[Any],
        sql: Queries,
        tenant: UUID,
        user: UUID,
        message: UUID,
        created_at: datetime,
        now: datetime,
    ) -> None:
        self._connection = connection
        self._sql = sql
        self._tenant = tenant
        self._user = user
        self._message = message
        self._at = created_at
        self._now = now

    async def delete(self) -> Deletion | None:
        rows = await self._rows("deleting.hold", self._message, self._at)
        if not rows:
            return None
        row = rows[0]
        key = bytes.fromhex(await self._connection.fetchval(self._sql["erasure.hmac_key"]))
        summary: UUID | None = row["compressed_summary_id"]
        found = await self._rows("deleting.learned", self._message, summary)
        learned = [_learned(each) for each in found]
        kept = tuple(
            each.memory_id
            for each in learned
            if each.memory_id != summary and outlives(each, self._message, row["said"])
        )
        held = await hold(
            self._connection,
            self._sql,
            self._tenant,
            self._user,
            [each.memory_id for each in learned if each.memory_id not in kept],
        )
        forgotten = tuple(each.memory_id for each in held)
        await self._memories(key, held, kept)
        if summary is not None:
            await self._run("deleting.uncompress", summary)
        await self._quotes(row["session_id"], [self._message, *forgotten])
        await self._paged(row["session_id"], row["message_hash"])
        await self._words(key, row)
        return Deletion(forgotten, kept)

    async def _memories(self, key: bytes, held: Sequence[Held], kept: Collection[UUID]) -> None:
        """Forget, and take from the sources of others; what gave way to a memory that is forgotten comes back."""
        forgotten = [each.memory_id for each in held]
        again = await self._part(forgotten) if forgotten else []
        if held:
            await self._run("deleting.only_source", forgotten, self._message)
            await forget(self._connection, self._sql, key, self._tenant, self._user, held, self._now)
        if kept:
            await self._run("deleting.lose_source", list(kept), self._message, self._now)
            for memory in kept:
                await self._tell(memory, "edited", {"message_id": self._message}, None)
        if again:
            await self._run("deleting.restore", again, self._now)
            for memory in again:
                await self._tell(memory, "restored", {"status": "superseded"}, {"status": "active"})

    async def _part(self, forgotten: Sequence[UUID]) -> list[UUID]:
        """Of what was merged into these memories: which are to come back, the one that says most for each. They and the other
        wordings are no longer theirs: what is forgotten takes all its wordings along."""
        older = await self._rows("deleting.older", forgotten, self._now)
        best: dict[UUID, Any] = {}
        for each in older:
            held = best.get(each["heir"])
            if held is None or _says(each["content_text"]) > _says(held["content_text"]):
                best[each["heir"]] = each
        heirs = [best[each["heir"]]["memory_id"] for each in older]
        await self._run("deleting.part", [each["memory_id"] for each in older], heirs)
        return sorted(set(heirs))

    async def _quotes(self, session: UUID, gone: Sequence[UUID]) -> None:
        rows = await self._rows("deleting.summaries", session)
        await self._run("deleting.blocks", list(gone), [each["session_id"] for each in rows])
        await self._run("deleting.working", session)

    async def _paged(self, session: UUID, hashed: bytes | None) -> None:
        if hashed is None:
            return
        (row,) = await self._rows("deleting.same", session, hashed)
        await self._run("deleting.paged", session, [mark_of(hashed, times).hex() for times in range(row["many"])])

    async def _words(self, key: bytes, row: Any) -> None:
        await self._run("memories.drop_vectors", [self._message])
        await self._run("deleting.cards", self._message)
        said: bytes | None = row["content_hash"]
        mark = content_hmac(key, said) if said is not None else None
        await self._run("memories.suppress", [self._message], "deleted", [mark], self._now)
        await self._run("deleting.blank", self._message, self._at)

    async def _tell(
        self, memory: UUID, event: str, before: dict[str, Any] | None, after: dict[str, Any] | None
    ) -> None:
        await self._run("memories.event", memory, self._now, event, before, after, "api")

    async def _rows(self, name: str, *arguments: object) -> list[Any]:
        return await self._connection.fetch(self._sql[name], self._tenant, self._user, *arguments)

    async def _run(self, name: str, *arguments: object) -> None:
        await self._connection.execute(self._sql[name], self._tenant, self._user, *arguments)


def outlives(memory: Learned, message: UUID, said: str) -> bool:
    """Whether a memory stays when one of its sources goes: it has others, and they say every word of it that this one
    `said` (its text and tool calls: a source quotes no tool call, and may quote less than was learned from it). (A statement
    that said more took the place of those before it, with their sources: what only it said goes with it.)
    """
    others = [each for each in memory.source_message_ids if each != message]
    if memory.kind in TOLD_TOGETHER:
        return False
    if not others:
        return memory.stated
    gone, left = _words(said), set[str]()
    for source in memory.sources:
        words = gone if str(source.get("message_id")) == str(message) else left
        words |= _words(str(source.get("quote") or ""))
    return memory.stated or _words(memory.text) & gone <= left


def _says(text: str) -> tuple[int, int]:
    """How much a wording says: its words; of two that have as many, the shorter one."""
    return len(_words(text)), -len(text)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _learned(row: Any) -> Learned:
    return Learned(
        row["memory_id"],
        row["kind"],
        row["content_text"],
        row["sources"],
        row["source_message_ids"],
        row["stated"],
    )
