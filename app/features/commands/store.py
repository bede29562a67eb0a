"""What users tell memory to do in a chat, as the database does it: hidden, not erased, so that it can be undone.

    done     memories are invalidated, and they and the messages that said them are suppressed ('forgotten_by_chat') with keyed
             hashes: no prompt, search or summary has them, and a transcript that is sent again teaches nothing of them
    confirm  it would be done to more than a setting allows, or to everything: the user is asked first
    ask      it is not clear what is meant: nothing is done

A row of `memory_commands` tells it, without a word of what was forgotten. Undone, the memories are as they were before; where
something else is so by now, only the one that was said last is in force, as if nothing had been forgotten.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from asyncpg.exceptions import UniqueViolationError
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct, convert, field, to_builtins

from app.clock import Clock
from app.errors import Conflict, NotFound
from app.features.commands.grammar import STEM, WITHDRAWS, StoredMemory, commands, contrary, taken_back
from app.jobs.changes import select_own_messages
from app.jobs.learn import LearnJob, Told
from app.memory.drafts import Draft
from app.memory.extract_clauses import MAX_OWN_WORD
from app.store import ids
from app.store.learning import RECENT_TURNS, Effect
from app.store.memories import IN_FORCE, content_hmac
from app.store.pools import Pool, halfvec
from app.store.queries import Queries
from app.store.records import Vector

CommandOutcome = Literal["done", "ask", "confirm"]

LOOKED_AT = 5000
"""Memories, or messages, that a command is compared with: the latest."""

BRIEF = 7
"""Characters up to which a message stands for anything ("yes", "thanks"): no hash of it is kept."""

SAID_SINCE = 500
"""Messages after a wish that are looked at for one that takes it back, where they were learned from before it: the order of an
import's sessions is nobody's. Some 20 ms; of a wish that has just been said there are none."""

NEAREST = 5
"""Memories that a user is asked about, where it is unclear which is meant."""


class HiddenMemory(Struct, frozen=True, omit_defaults=True):
    """Something that a command hid, or would hide. `status`: a memory's before; `reason`: why it was hidden before."""

    id: UUID
    kind: Literal["memory", "message"]
    status: str | None = None
    reason: str | None = None


class Message(Struct, frozen=True):
    """A message that may say what is to be forgotten. `length`: of its text, in characters."""

    message_id: UUID
    content_hash: bytes | None
    length: int
    text: str = ""


class Done(Struct, frozen=True):
    """What became of a command. `items`: what was hidden, or would be."""

    command_id: UUID
    kind: str
    scope: str
    outcome: CommandOutcome
    items: tuple[HiddenMemory, ...] = ()
    undone: bool = False


class CommandRow(Struct, frozen=True):
    """A command as its user sees it. `texts`: of the memories among its items, by id; `message_id`: that said it."""

    command_id: UUID
    user_id: UUID
    user_external_id: str | None
    session_id: UUID
    message_id: UUID | None
    kind: str
    scope: str
    outcome: CommandOutcome
    items: tuple[HiddenMemory, ...]
    heir: UUID | None
    at: datetime
    undone_at: datetime | None
    texts: dict[UUID, str] = field(default_factory=dict)


class CommandStore:
    def __init__(self, pool: Pool, sql: Queries, clock: Clock, *, space: int | None = None) -> None:
        """`space`: of the vectors that near memories are looked for with; None: none are."""
        self._pool = pool
        self._sql = sql
        self._clock = clock
        self._space = space

    @asynccontextmanager
    async def doing(
        self, tenant: UUID, user: UUID, session: UUID, *, confined: bool, alone: bool = True
    ) -> AsyncIterator[Doing]:
        """One transaction, in which nobody else learns about the user (not `alone`: to look only). `confined`: there is none,
        and all stays within the session. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            if alone:
                await connection.execute(self._sql["learning.lock"], session if confined else user)
            scope = session if confined else ids.NIL
            yield Doing(connection, self._sql, tenant, user, scope, self._clock.now(), self._space)

    async def page(
        self, tenant: UUID, user: UUID | None, *, after: tuple[datetime, UUID] | None, limit: int
    ) -> list[CommandRow]:
        """Commands, newest first, after a place in that order. `user`: None is all of the tenant's."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["commands.list"], tenant, user, *(after or (None, None)), limit)
            found = [CommandRow(**dict(each) | {"items": _items(each)}) for each in rows]
            for each in found:
                memories = [item.id for item in each.items if item.kind == "memory"]
                if memories:
                    said = await connection.fetch(self._sql["commands.texts"], tenant, each.user_id, memories)
                    each.texts.update({row["memory_id"]: row["content_text"] for row in said})
        return found

    async def undo(self, tenant: UUID, command: UUID, user: UUID | None = None) -> str:
        """Make it as it was before the command; its kind. `user`: only this one's. Raises NotFound, and Conflict where it was
        undone, or nothing was done."""
        async with self._pool.transaction(tenant) as connection:
            owner = await connection.fetchval(self._sql["commands.owner"], tenant, command, user)
            if owner is None:
                raise NotFound("There is no such command.")
            await connection.execute(self._sql["learning.lock"], owner)
            held = await connection.fetchrow(self._sql["commands.hold"], tenant, owner, command)
            if held is None:
                raise NotFound("There is no such command.")
            if held["undone_at"] is not None:
                raise Conflict("This was undone already.")
            if held["outcome"] != "done":
                raise Conflict("Nothing was done, so there is nothing to undo.")
            doing = Doing(connection, self._sql, tenant, owner, ids.NIL, self._clock.now(), None)
            await doing.undo(command, _items(held), held["heir"])
            if held["kind"] in WITHDRAWS:  # "Stop using emojis" asks for the contrary, too
                await doing.end(await doing.asked_by(held["session_id"], held["message_hash"]))
            await doing.begin_anew(held["session_id"])
        return str(held["kind"])


class Doing(Struct, frozen=True):
    """What may be done about commands, within one transaction. `scope`: a session that all stays in; NIL: there is none."""

    connection: PoolConnectionProxy[Any]
    sql: Queries
    tenant: UUID
    user: UUID
    scope: UUID
    now: datetime
    space: int | None

    @property
    def _session(self) -> UUID | None:
        return self.scope if self.scope != ids.NIL else None

    async def earlier(self, mark: bytes, session: UUID, since: datetime | None) -> Done | None:
        """What was done about this very message before: in its session, or, since then, in one that was never stored."""
        found = await self._fetch("earlier", mark, session, since)
        return _done(found[0]) if found else None

    async def pending(self, message_hash: bytes, since: datetime) -> Done | None:
        """What the message with this hash asked to forget, and was asked to confirm, or what became of it."""
        found = await self._fetch("pending", message_hash, since)
        return _done(found[0]) if found else None

    async def stored(self, terms: Sequence[str]) -> list[StoredMemory]:
        """Memories that may have one of these words, in whatever form; in force or not."""
        rows = await self._fetch("memories", self.scope, [_within(each) for each in terms], LOOKED_AT) if terms else []
        return [StoredMemory(*row.values()) for row in rows]

    async def near(self, vector: Vector, threshold: float) -> list[tuple[UUID, str]]:
        """The memories in force nearest to a vector, above a cosine: id and text, at most `NEAREST`."""
        if self.space is None:
            return []
        asked = (self.scope, self.space, [halfvec(vector)], threshold, NEAREST)
        rows = await self.connection.fetch(self.sql["learning.near"], self.tenant, self.user, *asked)
        said = await self._fetch("texts", [row["memory_id"] for row in rows])
        texts = {row["memory_id"]: row["content_text"] for row in said}
        return [(row["memory_id"], texts[row["memory_id"]]) for row in rows if row["memory_id"] in texts]

    async def messages(self, keys: Collection[str]) -> list[Message]:
        """Messages that may have all of these words, in whatever form."""
        words = [_within(each) for each in sorted(keys)]
        rows = await self._fetch("messages", self._session, words, LOOKED_AT) if keys else []
        said = [(row["message_id"], row["content_hash"], row["content"] or "") for row in rows]
        return [Message(each, content_hash, len(text), text) for each, content_hash, text in said]

    async def said_by(self, memories: Sequence[UUID]) -> list[Message]:
        """The messages that these memories were learned from, and answers that repeat them."""
        rows = await self._fetch("said_by", list(memories)) if memories else []
        return [Message(*row.values()) for row in rows]

    async def turn(self, session: UUID, message_hash: bytes) -> tuple[list[UUID], list[Message]]:
        """A message of the session's with its answers, and the memories that came from these alone."""
        said = [Message(*row.values()) for row in await self._fetch("turn", session, message_hash)]
        return [memory for memory, _ in await self.learned_from([each.message_id for each in said])], said

    async def learned_from(self, messages: Sequence[UUID]) -> list[tuple[UUID, str]]:
        """Memories that came from these messages alone, and the words of theirs that say them."""
        rows = await self._fetch("learned_from", list(messages)) if messages else []
        return [(row["memory_id"], row["quotes"]) for row in rows]

    async def messages_of(self, messages: Sequence[UUID]) -> list[Message]:
        return [Message(*row.values()) for row in await self._fetch("messages_of", list(messages))]

    async def said_lately(self, session: UUID, items: Collection[UUID]) -> list[StoredMemory]:
        """Memories in force that stood in a prompt (`items`), or were said in the last turns of a session."""
        rows = await self._fetch("said_lately", session, list(items), RECENT_TURNS)
        return [StoredMemory(*row.values()) for row in rows]

    async def wishes(self, before: datetime) -> list[StoredMemory]:
        """The standing wishes in force that were said before."""
        return [StoredMemory(*row.values()) for row in await self._fetch("wishes", self.scope, before)]

    async def begin_anew(self, session: UUID) -> None:
        """Let the blocks of a session go: one of them says that something was done which is undone."""
        await self._execute("begin_anew", session)

    async def asked_by(self, session: UUID, message_hash: bytes | None) -> list[UUID]:
        """The wishes in force that a message alone asked for."""
        return [row["memory_id"] for row in await self._fetch("asked_by", session, message_hash)]

    async def read_messages_since(self, at: datetime, length: int) -> list[Any]:
        """Return the next user messages that are no longer than this (characters): also those of other named speakers."""
        return await self._fetch("said_since", self._session, at, length, SAID_SINCE)

    async def read_speakers(self, session: UUID) -> tuple[list[str | None], list[str]]:
        """Return the names on a session's user messages, and the names by which the user is known."""
        rows = await self.connection.fetch(self.sql["learning.session_speakers"], self.user, session)
        own_names = await self.connection.fetchval(self.sql["learning.own_names"], self.user)
        return [row["name"] for row in rows], list(own_names or ())

    async def heeded(self, message: UUID) -> tuple[UUID, bytes | None, Done | None] | None:
        """The session of a message, the hash of its form, and what was done about it, or undone since. None: it is gone."""
        found = await self._fetch("heeded", message)
        if not found:
            return None
        done = _done(found[0]) if found[0]["command_id"] is not None else None
        return found[0]["session_id"], found[0]["message_hash"], done

    async def everything(self) -> tuple[list[UUID], list[Message]]:
        memories = [row["memory_id"] for row in await self._fetch("all_memories", self.scope)]
        return memories, [Message(*row.values()) for row in await self._fetch("all_messages", self._session)]

    async def hide(self, memories: Collection[UUID], messages: Collection[Message]) -> tuple[HiddenMemory, ...]:
        """Hide memories, with their other wordings, and messages; what was hidden, and how it was before."""
        key = bytes.fromhex(await self.connection.fetchval(self.sql["memories.secret"]))
        held = await self._fetch("memories_of", sorted(memories)) if memories else []
        wanted = {each.message_id: each for each in messages}
        items = [each["memory_id"] for each in held] + list(wanted)
        before = {row["item_id"]: row["reason"] for row in await self._fetch("hidden", items)}
        marks = {each["memory_id"]: content_hmac(key, each["content_hash"]) for each in held}
        marks |= {
            each.message_id: content_hmac(key, each.content_hash)
            for each in wanted.values()
            if each.content_hash is not None and each.length > BRIEF
        }
        fresh = [each for each in items if before.get(each) in (None, "superseded", "resent")]
        if fresh:
            # First: what ends a memory would else hide its messages for another reason.
            await self._execute("hide", fresh, [marks.get(each) for each in fresh], self.now)
        for each in held:
            if each["status"] in IN_FORCE:
                await self._status(each["memory_id"], each["status"], "invalidated", self.now)
        if held:
            await self._fetch("drop_facts", [each["memory_id"] for each in held], self.now, "forgotten")
        statuses = {each["memory_id"]: each["status"] for each in held}
        return tuple(
            HiddenMemory(each, "memory" if each in statuses else "message", statuses.get(each), before.get(each))
            for each in fresh
        )

    async def end(self, memories: Collection[UUID], since: datetime | None = None) -> tuple[HiddenMemory, ...]:
        """Take memories out of force, and return them with their status before.

        What is said after `since` (by default now) is learned again.
        """
        rows = await self._fetch("memories_of", sorted(memories)) if memories else []
        held = [each for each in rows if each["status"] in IN_FORCE]
        for each in held:
            await self._status(each["memory_id"], each["status"], "invalidated", since or self.now)
        return tuple(HiddenMemory(each["memory_id"], "memory", each["status"]) for each in held)

    async def hide_words(self, item: UUID, content_hash: bytes) -> None:
        """Let a message that is not stored yet be known by a keyed hash when it is sent again."""
        key = bytes.fromhex(await self.connection.fetchval(self.sql["memories.secret"]))
        await self._execute("hide", [item], [content_hmac(key, content_hash)], self.now)

    async def note(
        self, session: UUID, mark: bytes, message_hash: bytes | None, done: Done, heir: UUID | None = None
    ) -> None:
        """Write a command down. `mark`: by which it is found when the same is asked again; of what learning does, the id of
        the message."""
        told = (done.kind, done.scope, done.outcome, to_builtins(done.items))
        await self._execute("note", done.command_id, session, mark, message_hash, *told, heir, self.now)

    async def confirmed(self, command: UUID, items: Sequence[HiddenMemory]) -> None:
        """A command that was asked about is done."""
        await self._execute("confirmed", command, to_builtins(tuple(items)))

    async def undo(self, command: UUID, items: Sequence[HiddenMemory], heir: UUID | None) -> None:
        """Show the items again, and bring memories back into force; what says the same by now stays instead, and what took
        their place since stays in it."""
        await self._fetch("unforget", [*(each.id for each in items), command])
        hidden = [each for each in items if each.reason is not None]
        if hidden:
            await self._execute("hide_again", [each.id for each in hidden], [each.reason for each in hidden], self.now)
        if heir is not None:
            await self._status(heir, "active", "invalidated", self.now)
        for each in items:
            if each.kind == "memory" and each.status in IN_FORCE:
                try:
                    async with self.connection.transaction():
                        await self._status(each.id, "invalidated", "active")
                except UniqueViolationError:
                    continue
        await self._give_way([each.id for each in items if each.kind == "memory"])
        await self._execute("undone", command, self.now)

    async def _give_way(self, restored: Collection[UUID]) -> None:
        """Of these memories and those that they contradict by now, close all but the one that was said last, as replaced."""
        rows = await self._fetch("in_force_beside", list(restored)) if restored else []
        found = [(StoredMemory(*list(row.values())[:7]), row["valid_from"]) for row in rows]
        gone: set[UUID] = set()
        for n, (later, since) in enumerate(found):
            for earlier, _ in found[n + 1 :]:
                if gone & {later.memory_id, earlier.memory_id} or not contrary(earlier, later):
                    continue
                gone.add(earlier.memory_id)
                await self._execute("give_way", earlier.memory_id, later.memory_id, since, self.now)
                after = {"status": "superseded", "superseded_by": later.memory_id, "reason": "chat"}
                await self._event(earlier.memory_id, "superseded", {"status": "active"}, after)
        if gone:
            await self._fetch("drop_facts", list(gone), self.now, "ended")

    async def _status(self, memory: UUID, before: str, after: str, ended: datetime | None = None) -> None:
        asked = (self.tenant, self.user, memory, after, ended, self.now)
        await self.connection.execute(self.sql["memories.set_status"], *asked)
        event = "restored" if after == "active" else "invalidated"
        await self._event(memory, event, {"status": before}, {"status": after, "reason": "chat"})

    async def _event(self, memory: UUID, event: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        told = (self.tenant, self.user, memory, self.now, event, before, after, "user")
        await self.connection.execute(self.sql["memories.event"], *told)

    async def _fetch(self, name: str, *arguments: object) -> list[Any]:
        return await self.connection.fetch(self.sql[f"commands.{name}"], self.tenant, self.user, *arguments)

    async def _execute(self, name: str, *arguments: object) -> None:
        await self.connection.execute(self.sql[f"commands.{name}"], self.tenant, self.user, *arguments)


def _done(row: Any) -> Done:
    undone = row["undone_at"] is not None
    return Done(row["command_id"], row["kind"], row["scope"], row["outcome"], _items(row), undone)


def _items(row: Any) -> tuple[HiddenMemory, ...]:
    return convert(row["items"], tuple[HiddenMemory, ...])


def _within(word: str) -> str:
    """A pattern of texts that have a form of the word. (Apostrophes are written in several ways: what stands before one.)"""
    begin = word.replace("\0", "").replace("’", "'").split("'")[0][:STEM]
    return "%" + re.sub(r"([\\%_])", r"\\\1", begin) + "%"


# --- wishes taken back, ended by the job that learns from the message ----------------------------------------------------


async def withdraw(
    sql: Queries, clock: Clock, job: LearnJob, effect: Effect, exchanges: Sequence[Told], statements: Sequence[Draft]
) -> None:
    """End standing wishes that the user took back where no request did it: in what is imported, or was said while memory was
    late. Each is a command that can be undone; one that says something else besides stays, for there is nobody to ask.

    Within a job's effect, after what its messages state is taken in. What was said later, and learned earlier, takes back the
    wishes that are new, too."""
    doing = Doing(effect.connection, sql, job.tenant, job.user, job.scope, clock.now(), None)
    own_messages = {own[0].message_id: (exchange.user_text, own[0].created_at) for exchange, own in exchanges}
    asked = [each.message.created_at for each in statements if each.candidate.kind == "instruction"]
    if asked:
        rows = await select_own_messages(effect, await doing.read_messages_since(min(asked), MAX_OWN_WORD))
        own_messages |= {row["message_id"]: (row["content"], row["created_at"]) for row in rows}
    for message, (text, at) in own_messages.items():
        orders = [each for each in commands(text) if each.kind in WITHDRAWS]
        place = await doing.heeded(message) if orders else None
        if place is None:
            continue
        session, message_hash, done = place
        if done is not None and (done.undone or done.outcome != "done"):
            continue  # what was done about it does to older wishes, too, that were learned since; undone, it does no more
        for order in orders:
            found = taken_back(order.about, await doing.wishes(at), order.language, allows=order.kind == "allow")
            if not found.wishes or not found.clear:
                continue
            items = await doing.end([wish.memory_id for wish in found.wishes], at)
            if done is not None:
                await doing.confirmed(done.command_id, (*done.items, *items))
            else:
                new = Done(ids.uuid7(doing.now), order.kind, order.scope, "done", items)
                await doing.note(session, message.bytes, message_hash, new)
