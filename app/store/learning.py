"""What the worker reads and writes when it learns from messages, everything of one job in one transaction; and what was learned
of a turn, for those who ask.

Row-level security holds it to the job's tenant. `LearningStore.effect` is the guard: a job whose effect is there already, or
whose user was erased meanwhile, gets none.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

from app.errors import Conflict
from app.store.erasure import hmac_pads
from app.store.item_columns import MEMORY_KIND
from app.store.memories import content_hmac
from app.store.pools import UserRows, halfvec
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, JobRecord, Vector, tool_calls_of

MAX_SOURCES = 32
"""Sources kept with a memory: what is said for the hundredth time needs no hundredth witness, and rows stay small."""

RECENT_TURNS = 4
"""Turns back to what "no, I meant …" may correct: the last two questions with their answers."""

MAX_SCANNED = 500
"""Newest memories of a user among which those that belong to a message are looked for by their words: read in 5 ms."""

NEAREST = 64
"""Near wordings looked at for a new statement: all of them, as long as nobody says one thing in more ways than this."""


class SourceMessage(Struct, frozen=True):
    """A message to learn from. `tool_calls`: as in an OpenAI message."""

    message_id: UUID
    turn_index: int
    role: str
    content: str
    tool_calls: list[dict[str, Any]]
    created_at: datetime
    metadata: dict[str, Any]
    name: str | None = None
    """The speaker's name as the client sent it."""


class MessageBeginning(NamedTuple):
    """The first characters of a message."""

    message_id: UUID
    text: str
    said_at: datetime


class Setting(NamedTuple):
    """What holds for a user now. `epoch`: the erasure epoch, None where there is no such user (any more). `trust`: as
    JSON, how far statements are believed. `instructions`: what
    the tenant wants noted, or not noted, besides. `done`: the job had its effect before. `in_role_play`: an earlier message of
    the session began a role play. `is_playing`: the user has a role in it still. `branches_in_play`: the messages
    begin a branch that leaves another session within its role play. `time_zone`: as the user told it."""

    epoch: int | None
    l1_ttl: timedelta
    l2_ttl: timedelta
    dedup_threshold: float
    trust: str
    hmac_key: bytes | None
    instructions: str = ""
    done: bool = False
    in_role_play: bool = False
    is_playing: bool = False
    branches_in_play: bool = False
    time_zone: str | None = None


class KnownMemory(Struct, frozen=True):
    """A memory in force that a new one may repeat, refine or contradict. `stated_at`: when it was last said; `valid_to`: up to
    when it is so; `dated`: it says itself since when."""

    memory_id: UUID
    content_text: str
    content_hash: bytes
    memory_tier: int
    memory_scope: int
    session_id: UUID | None
    kind: str
    confidence: float
    importance: float
    access_count: int
    reinforcement_count: int
    expires_at: datetime | None
    is_validated: bool
    validated_by: str | None
    provenance_type: int
    valid_from: datetime
    stated_at: datetime
    sources: list[dict[str, Any]]
    source_message_ids: list[UUID]
    subject_entity_id: str | None
    predicate: str | None
    object_value: str | None
    valid_to: datetime | None = None
    dated: bool = False
    tags: Sequence[str] = ()
    speaker: str | None = None


class RuleChange(Struct, frozen=True):
    """A memory that rules ended or put in doubt because of a message, and that was not changed since."""

    memory: KnownMemory
    message_id: UUID
    change: Literal["ended", "doubted"]


class Member(Struct, frozen=True):
    """A wording of a memory in force, whose id is `root`: the memory itself, or one that was merged into it."""

    memory_id: UUID
    root: UUID
    content_text: str
    content_hash: bytes
    kind: str
    subject_entity_id: str | None
    predicate: str | None
    object_value: str | None
    valid_to: datetime | None = None
    speaker: str | None = None


class MemoryRow(Struct, frozen=True):
    """A new memory, as it is stored; `vector` None: none. `superseded_by`, `superseded_how`, `valid_to`: it is only another
    wording of that memory, or was replaced within the very same job."""

    memory_id: UUID
    session_id: UUID | None
    tier: int
    scope: int
    kind: str
    text: str
    content_hash: bytes
    provenance_type: int
    turn_id: UUID
    turn_index: int
    source_message_ids: list[UUID]
    sources: list[dict[str, Any]]
    confidence: float
    confidence_factors: dict[str, Any]
    importance: float
    access_count: int
    reinforcement_count: int
    created_at: datetime
    expires_at: datetime | None
    validated: bool
    token_count: int
    valid_from: datetime
    stated_at: datetime
    vector: Vector | None
    subject: str | None = None
    predicate: str | None = None
    predicate_type: str | None = None
    object: str | None = None
    entity_ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    details: dict[str, Any] | None = None
    superseded_by: UUID | None = None
    superseded_how: str | None = None
    valid_to: datetime | None = None
    speaker: str | None = None


class Reinforcement(Struct, frozen=True):
    """A memory said again, `times` times. Tier, scope, importance and confidence only ever rise; `expires_at` None: never."""

    memory_id: UUID
    times: int
    tier: int
    scope: int
    importance: float
    confidence: float
    confidence_factors: dict[str, Any]
    expires_at: datetime | None
    validated: bool
    valid_from: datetime
    stated_at: datetime
    sources: list[dict[str, Any]]
    source_message_ids: list[UUID]


class DeniedMemory(Struct, frozen=True):
    """A memory that is true no more since `denied_at`, or another wording of it: what was said until then does not bring it
    back. `sources`: as in `memory_store`."""

    denied_at: datetime
    content_text: str
    content_hash: bytes
    subject_entity_id: str | None
    predicate: str | None
    object_value: str | None
    sources: list[dict[str, Any]]


class Superseded(NamedTuple):
    """A memory that gives way to `heir`, and how: `merged`, `corrected` or `conflict`."""

    memory_id: UUID
    heir: UUID
    how: str
    valid_to: datetime


class Contradiction(NamedTuple):
    """Two memories that contradict each other (seed 004, table 9), of the thing `entity_id`. `outcome` None: both stand, and
    nobody has decided yet."""

    conflict_id: UUID
    detected_at_message: UUID
    conflict_type: str
    conflict_data: dict[str, Any]
    resolution_strategy: str
    resolution_outcome: dict[str, Any] | None
    memory_ids: list[UUID]
    session_id: UUID | None
    entity_id: str | None = None


class DoubtedMemory(NamedTuple):
    """A memory that a message puts in doubt: it stays in force, and the user is asked about it."""

    memory_id: UUID
    conflict_id: UUID
    message_id: UUID


class HistoryEvent(NamedTuple):
    """A line of a memory's history."""

    memory_id: UUID
    event: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Changes(Struct, frozen=True):
    """All that a job changes among the memories of one user."""

    new: Sequence[MemoryRow] = ()
    reinforced: Sequence[Reinforcement] = ()
    superseded: Sequence[Superseded] = ()
    events: Sequence[HistoryEvent] = ()
    conflicts: Sequence[Contradiction] = ()
    doubted: Sequence[DoubtedMemory] = ()
    ended: Sequence[UUID] = ()
    """Of what is superseded, memories of which nothing else is so instead."""


class Transactions(Protocol):
    """An interface that opens transactions in which a tenant's rows are visible: a pool, or one that is open already."""

    def transaction(self, tenant: UUID) -> AbstractAsyncContextManager[Any]: ...


class OpenTransaction(NamedTuple):
    """A transaction that is open already, and in which all statements run."""

    connection: Any

    @contextlib.asynccontextmanager
    async def transaction(self, tenant: UUID) -> AsyncIterator[Any]:
        """Yield the open transaction's connection; leave commit and rollback to its owner."""
        yield self.connection


class LearningStore:
    """Reads what there is to learn from, and writes what was learned."""

    def __init__(self, pool: Transactions, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def read(
        self,
        tenant: UUID,
        user: UUID,
        messages: Sequence[UUID],
        since: datetime,
        until: datetime,
        *,
        job_key: str | None = None,
        session: UUID | None = None,
    ) -> tuple[Setting, list[SourceMessage]]:
        """What holds for the user, and the messages, oldest first; `since` and `until` bound the months to open. The
        epoch is read first: an erasure after it is seen by `effect`. No messages are read for a job that is done."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["learning.setting"], user, tenant, job_key, session)
            assert row is not None, "a query without FROM has one row"
            if row["done"]:
                return Setting(row["epoch"], timedelta(), timedelta(), 1.0, "{}", None, done=True), []
            asked = (user, list(messages), since, until)
            if row["buries"]:
                await connection.execute(self._sql["learning.bury"], *asked, *hmac_pads(bytes.fromhex(row["hmac_key"])))
            branches_in_play = row["is_branch"] and await connection.fetchval(
                self._sql["learning.branches_in_play"], user, session, since
            )
            found = await connection.fetch(self._sql["learning.messages"], *asked)
        setting = Setting(
            row["epoch"],
            timedelta(hours=row["l1_ttl_hours"]),
            timedelta(days=row["l2_ttl_days"]),
            row["dedup_threshold"],
            row["confidence"],
            bytes.fromhex(row["hmac_key"]) if row["hmac_key"] else None,
            row["instructions"],
            in_role_play=row["in_role_play"],
            is_playing=row["is_playing"],
            branches_in_play=bool(branches_in_play),
            time_zone=row["time_zone"],
        )
        return setting, [_message(each) for each in found]

    async def restated(
        self, tenant: UUID, user: UUID, messages: Sequence[UUID], since: datetime, until: datetime
    ) -> set[UUID]:
        """Those of these messages of the user's own that are only said again, as the history of a request."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["learning.restated"], user, list(messages), since, until)
        return {row["message_id"] for row in rows}

    async def read_speakers(self, tenant: UUID, user: UUID, session: UUID) -> tuple[dict[str | None, UUID], list[str]]:
        """Return the names on a session's user messages with the first message of each, in order, and the user's own names."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["learning.session_speakers"], user, session)
            own_names = await connection.fetchval(self._sql["learning.own_names"], user)
        return {row["name"]: row["first_message"] for row in rows}, list(own_names or ())

    async def read_user_beginnings(self, tenant: UUID, user: UUID, session: UUID, chars: int) -> list[MessageBeginning]:
        """Return the user messages of a session that have no name, in order, with so many first characters."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["learning.user_beginnings"], user, session, chars)
        return [MessageBeginning(row["message_id"], row["text"], row["said_at"]) for row in rows]

    async def read_misattributed(
        self, tenant: UUID, user: UUID, session: UUID, names: Sequence[str], excluded: Sequence[UUID]
    ) -> tuple[list[UUID], list[SourceMessage]]:
        """Return the memories that were learned as the user's from a session's messages with one of these names, and these
        messages. `excluded`: messages that are left out."""
        async with self._pool.transaction(tenant) as connection:
            parameters = (user, session, list(names), list(excluded))
            rows = await connection.fetch(self._sql["learning.misattributed"], *parameters)
            messages = await self._read_sources(connection, user, rows)
        return [row["memory_id"] for row in rows], messages

    async def read_learned_as_own(
        self, tenant: UUID, user: UUID, session: UUID, beginnings: Sequence[MessageBeginning]
    ) -> tuple[list[tuple[UUID, UUID]], list[SourceMessage]]:
        """Return the memories that were learned as the user's from these messages of a session, each with its message, the
        oldest first; and the messages."""
        async with self._pool.transaction(tenant) as connection:
            message_ids = [beginning.message_id for beginning in beginnings]
            rows = await connection.fetch(self._sql["learning.learned_as_own"], user, session, message_ids)
            messages = await self._read_sources(connection, user, [beginning._asdict() for beginning in beginnings])
        return [(row["memory_id"], row["message_id"]) for row in rows], messages

    async def _read_sources(self, connection: Any, user: UUID, rows: Sequence[Any]) -> list[SourceMessage]:
        if not rows:
            return []
        times = [row["said_at"] for row in rows]
        message_ids = list({row["message_id"] for row in rows})
        message_rows = await connection.fetch(
            self._sql["learning.messages_again"], user, message_ids, min(times), max(times)
        )
        return [_message(row) for row in message_rows]

    async def recent(
        self, tenant: UUID, user: UUID, scope: UUID, session: UUID, turn: int
    ) -> list[tuple[str, str, str, str]]:
        """(the user's words, subject, predicate, value) of what the `RECENT_TURNS` before a turn gave, the latest first."""
        async with self._pool.transaction(tenant) as connection:
            asked = (user, scope, session, turn - RECENT_TURNS, turn - 1)
            rows = await connection.fetch(self._sql["learning.recent"], *asked)
        return [(row["quote"] or "", row["subject"], row["predicate"], row["value"]) for row in rows]

    async def read_related(
        self, tenant: UUID, user: UUID, scope: UUID, space: int | None, vectors: Sequence[Vector], threshold: float
    ) -> tuple[list[KnownMemory], dict[UUID, float]]:
        """Return the user's memories in force that were stated, the latest `MAX_SCANNED` and those above a cosine of one of
        these vectors, and these cosines."""
        near: dict[UUID, float] = {}
        async with self._pool.transaction(tenant) as connection:
            if space is not None and vectors:
                packed = [halfvec(vector) for vector in vectors]
                asked = (tenant, user, scope, space, packed, threshold, NEAREST)
                for row in await connection.fetch(self._sql["learning.near"], *asked):
                    near[row["memory_id"]] = max(row["similarity"], near.get(row["memory_id"], 0.0))
            rows = await connection.fetch(self._sql["learning.related"], user, scope, list(near), MAX_SCANNED)
        return [KnownMemory(**dict(row)) for row in rows], near

    async def read_rule_changes(
        self, tenant: UUID, user: UUID, scope: UUID, messages: Sequence[UUID], since: datetime
    ) -> list[RuleChange]:
        """Return what rules ended or doubted because of these messages, the first of which was said at `since`."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["changes.by_messages"], user, scope, list(messages), since)
        return [_read_rule_change(row) for row in rows]

    async def enqueue(self, tenant: UUID, jobs: Sequence[JobRecord]) -> None:
        """Put jobs into the queue."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["queue.enqueue"], list(jobs))

    async def read_waiting(self, tenant: UUID, entrypoint: str, field: str, value: UUID, limit: int) -> list[bytes]:
        """Return the payloads of jobs that wait, oldest first, whose payload has this value."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["queue.waiting"], entrypoint, field, str(value), limit)
        return [row["payload"] for row in rows]

    async def hold_back(self, tenant: UUID, keys: Sequence[str], seconds: float) -> None:
        """Keep jobs of these keys, which wait, from being begun for a while: their work is being done with another's."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["queue.hold_back"], list(keys), timedelta(seconds=seconds))

    async def drop_waiting(self, tenant: UUID, keys: Sequence[str]) -> None:
        """Take jobs of these keys out of the queue, where they wait."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["queue.drop_waiting"], list(keys))

    @contextlib.asynccontextmanager
    async def effect(
        self,
        tenant: UUID,
        user: UUID,
        job_key: str,
        *,
        alone: UUID,
        epoch: int | None,
        read: Sequence[UUID],
        now: datetime,
    ) -> AsyncIterator[Effect | None]:
        """The transaction of a job's effect; None where it had its effect before, or its user was erased (`epoch` None, or
        another by now): then nothing is written.

        `alone`: jobs that share it (a user, or a session without one) come one after the other here, and after deletions.
        Raises Conflict where one of the messages that were `read` was deleted since: what was made of them is void.
        """
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["learning.lock"], alone)
            if await connection.fetchval(self._sql["learning.gone"], user, list(read)):
                raise Conflict("A message was deleted while it was learned from.")
            here = epoch is not None and await connection.fetchval(self._sql["learning.epoch"], user) == epoch
            if here and await connection.fetchval(self._sql["learning.claim"], user, tenant, job_key, now):
                yield Effect(connection, self._sql, tenant, user, now)
            else:
                yield None


class Effect(UserRows, frozen=True):
    """What a job may do to the user's memories, within its transaction; what else belongs to its effect is written there, too
    (see `app/jobs/learn.py`)."""

    now: datetime

    async def near(
        self, scope: UUID, space: int, vectors: Sequence[Vector], threshold: float
    ) -> list[tuple[int, UUID, float]]:
        """(place of a vector, memory, cosine) above a cosine: memories in force and their other wordings, at most `NEAREST`
        a vector."""
        if not vectors:
            return []
        packed = [halfvec(each) for each in vectors]
        rows = await self.rows("learning.near", scope, space, packed, threshold, NEAREST)
        return [(row["n"] - 1, row["memory_id"], row["similarity"]) for row in rows]

    async def members(
        self,
        scope: UUID,
        hashes: Sequence[bytes],
        claims: Collection[tuple[str, str]],
        near: Collection[UUID],
        subjects: Collection[str] = (),
    ) -> list[Member]:
        """Wordings of memories in force with one of these content hashes, (subject, predicate) pairs or ids, and memories in
        force about one of these subjects."""
        claimed, predicates = zip(*claims, strict=True) if claims else ((), ())
        asked = (self.user, scope, list(hashes), list(claimed), list(predicates), list(near), list(subjects))
        rows = await self.connection.fetch(self.sql["learning.members"], *asked)
        return [Member(**dict(row)) for row in rows]

    async def known(self, scope: UUID, memories: Collection[UUID]) -> list[KnownMemory]:
        """Those of these memories that are in force, held as they are until the end of this transaction."""
        if not memories:
            return []
        rows = await self.connection.fetch(self.sql["learning.known"], self.user, scope, list(memories))
        return [KnownMemory(**dict(row)) for row in rows]

    async def logged(self, memories: Collection[UUID]) -> list[frozenset[UUID]]:
        """The memories of each contradiction that one of these took part in."""
        rows = await self.connection.fetch(self.sql["learning.logged"], self.user, list(memories))
        return [frozenset(row["memory_ids"]) for row in rows]

    async def forgotten(self, key: bytes | None, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Those of the content hashes that belong to something the user had forgotten."""
        if key is None or not hashes:
            return frozenset()
        marks = {content_hmac(key, each): each for each in hashes}
        rows = await self.connection.fetch(self.sql["learning.forgotten"], self.user, list(marks))
        return frozenset(marks[row["content_hmac"]] for row in rows)

    async def find_refused(
        self,
        scope: UUID,
        forgotten_in: UUID,
        key: bytes | None,
        hashes: Sequence[bytes],
        stated_at: Sequence[datetime],
    ) -> tuple[frozenset[int], list[DeniedMemory]]:
        """Return the places of statements that were forgotten after they were said, and the memories denied since the
        earliest was said.

        Args:
            scope: The scope whose denied memories count.
            forgotten_in: The scope whose forgotten memories count: the session of nobody's, or the nil id.
            key: The key of the hashes of what was forgotten.
            hashes: The content hash of each statement.
            stated_at: The time at which each statement was made.
        """
        if not hashes:
            return frozenset(), []
        marks = [content_hmac(key, content_hash) for content_hash in hashes] if key is not None else []
        rows = await self.connection.fetch(
            self.sql["learning.refused"], self.user, scope, marks, list(stated_at), min(stated_at), forgotten_in
        )
        places = frozenset(row["place"] - 1 for row in rows if row["place"] is not None)
        names = DeniedMemory.__struct_fields__
        return places, [DeniedMemory(*(row[name] for name in names)) for row in rows if row["place"] is None]

    async def note_role_play(self, session: UUID, *, in_role_play: bool, is_playing: bool) -> None:
        """Keep with the session whether it is in a role play, and whether the user has a role in it."""
        await self.run("learning.note_role_play", session, in_role_play, is_playing)

    async def hide_play(self, messages: Sequence[UUID]) -> None:
        """Let messages of a role play be found in their own conversation alone."""
        await self.run("learning.hide_play", list(messages))

    async def claim(self, job_key: str) -> bool:
        """Note that a further job has its effect here; False: it had it before."""
        asked = (self.user, self.tenant, job_key, self.now)
        return bool(await self.connection.fetchval(self.sql["learning.claim"], *asked))

    async def withdraw(self, memories: Sequence[UUID], reason: str = "not_found_by_llm") -> None:
        """Take memories out of force that nobody states, and bring those back that they had replaced."""
        if memories:
            await self.run("learning.withdraw", list(memories), self.now, reason)
            await self.rows("commands.drop_facts", list(memories), self.now, "ended")
            await self.run("changes.bring_back_replaced", list(memories), self.now)

    async def undo_rule_changes(self, scope: UUID, changes: Sequence[RuleChange], since: datetime) -> int:
        """Bring memories back into force that rules ended or doubted, unless somebody has changed them; return how many."""
        if not changes:
            return 0
        messages = list({change.message_id for change in changes})
        rows = await self.connection.fetch(self.sql["changes.by_messages"], self.user, scope, messages, since)
        unchanged = {row["memory_id"] for row in rows} & {change.memory.memory_id for change in changes}
        await self.run("changes.bring_back", sorted(unchanged), self.now)
        return len(unchanged)

    async def replace_ended(self, heirs: Mapping[UUID, UUID]) -> None:
        """Note for memories that rules ended which memories replace them."""
        if heirs:
            await self.run("changes.replace_ended", list(heirs), list(heirs.values()), self.now)

    async def change(self, scope: UUID, space: int | None, changes: Changes) -> None:
        """Write new memories (with routes, vectors and words), what they replace and repeat, and what is told of it."""
        if changes.superseded:
            await self.run("learning.supersede", [each._asdict() for each in changes.superseded], self.now)
        if changes.new:
            rows = [_row(each) for each in changes.new]
            await self.run("learning.insert", rows, scope, self.now)
            await self.run("learning.route", [each.memory_id for each in changes.new])
            late = [each for each in changes.new if each.superseded_how in ("corrected", "conflict")]
            if late:
                claims = ("memory_id", "subject", "predicate", "valid_from")
                told = [{name: getattr(each, name) for name in claims} for each in late]
                await self.run("learning.close_earlier", told)
            found = [(new.memory_id, new.created_at, new.vector) for new in changes.new if new.vector is not None]
            if space is not None and found:
                await self.add_vectors(space, MEMORY_KIND, *zip(*found, strict=True))
        if changes.reinforced:
            await self.run("learning.reinforce", list(changes.reinforced), self.now, MAX_SOURCES)
        if changes.conflicts:
            await self.run("learning.log_conflicts", [each._asdict() for each in changes.conflicts], scope, self.now)
        if changes.ended:
            await self.rows("commands.drop_facts", list(changes.ended), self.now, "ended")
        if changes.doubted:
            await self.run("learning.doubt", [each._asdict() for each in changes.doubted], self.now)
        if changes.events:
            await self.run("learning.tell", [each._asdict() for each in changes.events], self.now)

    async def add_vectors(
        self, space: int, kind: int, items: Sequence[UUID], ats: Sequence[datetime], vectors: Sequence[Vector]
    ) -> None:
        """Vectors of messages or memories; those that are there already stay."""
        await self.run("learning.add_vectors", space, kind, list(items), list(ats), [halfvec(each) for each in vectors])

    async def enqueue(self, jobs: Sequence[JobRecord]) -> None:
        """Further jobs, which come into being with this one's effect."""
        await self.connection.execute(self.sql["queue.enqueue"], list(jobs))


def _message(row: Any) -> SourceMessage:
    role, calls = ROLE_NAMES.get(row["role"], "other"), tool_calls_of(row["tool_calls"])
    return SourceMessage(**dict(row) | {"role": role, "content": row["content"] or "", "tool_calls": calls})


def _read_rule_change(row: Any) -> RuleChange:
    fields = {name: row[name] for name in KnownMemory.__struct_fields__}
    return RuleChange(KnownMemory(**fields), row["message_id"], "doubted" if row["status"] == "aging" else "ended")


def _row(new: MemoryRow) -> dict[str, Any]:
    # asdict would copy the vector too, which is no JSON.
    names = set(MemoryRow.__struct_fields__) - {"vector"}
    return {name: getattr(new, name) for name in names} | {
        "content_hash": new.content_hash.hex(),
        "status": "superseded" if new.superseded_by is not None else "active",
        "details": new.details or {},
    }
