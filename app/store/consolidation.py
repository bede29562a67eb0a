"""What consolidation reads and writes of a session: its messages, its summary, its compactions; and when work is due.

Row-level security holds it to a job's tenant. Nothing is held while a summary is made: what was read has a version, and what
is written must still be about that version, else it is void (`Stale`), and the work is due again.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import orjson
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from app.store.learning import Effect
from app.store.memories import content_hmac
from app.store.pools import Pool, halfvec
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, JobRecord, Vector, tool_calls_of

SESSION_END = "session_end"
COMPACT = "compact"
CONSOLIDATE = "consolidate"
"""The entrypoints."""

MAX_MESSAGES = 10_000
"""Messages of a session that one summary looks at: five thousand turns; older ones stand in earlier summaries."""


class Stale(Exception):
    """What was read is not so any more: something was forgotten, or changed, meanwhile. Nothing was written."""


class Said(Struct, frozen=True):
    """A message of a session. `quotable`: a summary may use its words."""

    message_id: UUID
    turn_index: int
    role: str
    content: str
    tool_calls: list[dict[str, Any]]
    token_count: int
    created_at: datetime
    compressed: bool
    quotable: bool


class Statement(Struct, frozen=True):
    """A memory that says in few words what messages said."""

    memory_id: UUID
    text: str
    importance: float
    messages: tuple[UUID, ...]


class SessionState(Struct, frozen=True):
    """A session when its summary was begun. `epoch`: its user's erasure epoch, None: there is no such user. `shared_turn`: the
    last turn that a branch of it shares, 0 without one. `remembered`: the memories that are its summary now; `forgotten`: its
    user had one forgotten, so that there is to be none. `hmac_key`: of this database's keyed hashes."""

    epoch: int | None
    version: int
    name: str
    context_window: int
    active_tokens: int
    shared_turn: int
    summary: str | None
    messages: tuple[Said, ...]
    statements: tuple[Statement, ...]
    remembered: tuple[UUID, ...]
    forgotten: bool
    hmac_key: bytes


class Compaction(Struct, frozen=True):
    """One compaction, as it is reported. `ratio`: ρ."""

    summary_id: UUID
    at: datetime
    first_turn: int
    last_turn: int
    messages: int
    removed_tokens: int
    summary_tokens: int
    ratio: float
    method: str


class SummaryRow(NamedTuple):
    """The summary of a session as it stands; `active_tokens`: of its messages that are not compacted; `pending`: something was
    said, or taken back, since."""

    text: str | None
    tokens: int
    active_tokens: int
    pending: bool


class ConsolidationStore:
    """Sessions' summaries and compactions."""

    def __init__(self, pool: Pool, sql: Queries, *, space: int | None = None) -> None:
        """`space`: of the vectors that summaries come with."""
        self._pool = pool
        self._sql = sql
        self._space = space

    async def read_session(self, tenant: UUID, user: UUID, session: UUID) -> SessionState | None:
        """A session with all that its summary may be made from; None: there is none (any more)."""
        async with self._pool.transaction(tenant) as connection:
            owner = await connection.fetchrow(self._sql["consolidation.user"], user)
            row = await connection.fetchrow(self._sql["consolidation.session"], user, session)
            if row is None or owner is None:
                return None
            key = bytes.fromhex(await connection.fetchval(self._sql["memories.secret"]))
            remembered = await connection.fetchval(self._sql["consolidation.session_summaries"], user, session)
            named = content_hmac(key, summary_key(session).encode())
            forgotten: bool = await connection.fetchval(self._sql["consolidation.forgot_summary"], user, named)
            said: list[Said] = []
            if row["first_message_at"] is not None:
                found = await connection.fetch(
                    self._sql["consolidation.messages"],
                    user, session, row["first_message_at"], row["last_message_at"], MAX_MESSAGES,
                )  # fmt: skip
                path = _path({each["message_id"]: each for each in found}, row["head_message_id"])
                said = [_said(each, path) for each in found]
            known = await connection.fetch(
                self._sql["consolidation.statements"], user, [each.message_id for each in said if each.quotable]
            )
        statements = tuple(
            Statement(each["memory_id"], each["content_text"], each["importance"], tuple(each["source_message_ids"]))
            for each in known
        )
        return SessionState(
            owner["epoch"],
            row["version"],
            row["external_id"] or str(session),
            row["context_window_size"],
            row["active_tokens"],
            row["shared_turn"],
            row["summary_text"],
            tuple(said),
            statements,
            tuple(remembered),
            forgotten,
            key,
        )

    @contextlib.asynccontextmanager
    async def effect(
        self, tenant: UUID, user: UUID, job_key: str, *, alone: UUID, epoch: int | None, now: datetime
    ) -> AsyncIterator[Work | None]:
        """The transaction of a job's effect; None where it had its effect before, or its user was erased (`epoch` None, or
        another by now). `alone`: see `LearningStore.effect`."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["learning.lock"], alone)
            here = epoch is not None and await connection.fetchval(self._sql["learning.epoch"], user) == epoch
            if here and await connection.fetchval(self._sql["learning.claim"], user, tenant, job_key, now):
                yield Work(connection, self._sql, tenant, user, now, space=self._space)
            else:
                yield None

    async def compactions(self, tenant: UUID, user: UUID, session: UUID) -> list[Compaction]:
        """The compactions of a session, oldest first."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["consolidation.compactions"], tenant, user, session)
        return [Compaction(**dict(row)) for row in rows]

    async def figures(self) -> dict[str, int]:
        """All compactions so far: count, removed_tokens, summary_tokens."""
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(self._sql["consolidation.compaction_figures"])
        return dict(row) if row is not None else {}

    async def summary(self, tenant: UUID, user: UUID, session: UUID) -> SummaryRow | None:
        """The summary of a session; None: there is no such session."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["consolidation.summary"], tenant, user, session)
        return None if row is None else SummaryRow(*row)

    async def enqueue(self, tenant: UUID, jobs: Sequence[JobRecord]) -> None:
        """Ask for work; what waits already under the same key stands for both."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["queue.enqueue"], list(jobs))


class Work:
    """What a job may write of its user's sessions, within its transaction."""

    def __init__(
        self,
        connection: PoolConnectionProxy[Any],
        sql: Queries,
        tenant: UUID,
        user: UUID,
        now: datetime,
        *,
        space: int | None = None,
    ) -> None:
        self.connection = connection
        self._space = space
        self._sql = sql
        self._tenant = tenant
        self._user = user
        self._now = now

    @property
    def sql(self) -> Queries:
        """For what else belongs to the same effect (see `app/store/derived.py`)."""
        return self._sql

    @property
    def space(self) -> int | None:
        """Of the vectors that summaries come with."""
        return self._space

    @property
    def effect(self) -> Effect:
        """What may be done to the user's memories."""
        return Effect(self.connection, self._sql, self._tenant, self._user, self._now)

    async def hold_session(self, session: UUID, version: int) -> None:
        """Nothing of the session is forgotten from here on. Raises `Stale` where something was since `version`."""
        held = await self.connection.fetchval(self._sql["consolidation.hold_session"], self._user, session)
        if held is None:
            await self._run("begin_session", session, self._now)
            held = await self.connection.fetchval(self._sql["consolidation.hold_session"], self._user, session)
        if held != version:
            raise Stale

    async def hold_summaries(self, session: UUID, remembered: Sequence[UUID]) -> None:
        """These are the session's summary still (after `hold_session`). Raises `Stale` where another job has made one since:
        two would be in force for good."""
        now = await self.connection.fetchval(self._sql["consolidation.session_summaries"], self._user, session)
        if tuple(now) != tuple(remembered):
            raise Stale

    async def summarise(self, session: UUID, text: str | None, tokens: int, vector: Vector | None) -> None:
        """Set the summary of a session."""
        packed = None if vector is None else halfvec(vector)
        await self._run(
            "summarise", session, text, tokens, packed, self._now, self._space if packed is not None else None
        )

    async def clear_working(self, session: UUID) -> None:
        """A session that has ended needs no working memory."""
        await self._run("clear_working", session)

    async def end_session(self, session: UUID, began: datetime, active_tokens: int) -> None:
        """Its session-end work is done, as of `began`, when its active messages had so many tokens."""
        await self._run("end_session", session, began, active_tokens)

    async def compact(
        self,
        session: UUID,
        messages: Sequence[Said],
        done: Compaction,
        summary: str,
        content: str,
        vector: Vector | None,
    ) -> None:
        """Let a summary stand for messages (seed 000 §7.3, steps 4 to 6). `content`: of the synthetic message. Raises
        `Stale` where another one stands for some of them already."""
        await self._run("add_summary_message", session, done.summary_id, content, done.summary_tokens, self._now)
        times = [each.created_at for each in messages]
        marked: int = await self.connection.fetchval(
            self._sql["consolidation.compact"],
            self._tenant, self._user, session, [each.message_id for each in messages], min(times), max(times),
            done.summary_id,
        )  # fmt: skip
        if marked != len(messages):
            raise Stale
        await self._run(
            "add_compaction", session, done.summary_id, done.at, done.first_turn, done.last_turn, done.messages,
            done.removed_tokens, done.summary_tokens, done.ratio, done.method,
        )  # fmt: skip
        await self.summarise(session, summary, done.summary_tokens, vector)
        await self._run("take_tokens", session, done.removed_tokens)
        await self._run("new_epoch", session)
        # Last: it is one row for everybody.
        await self.connection.execute(
            self._sql["consolidation.count_compaction"], done.at, done.removed_tokens, done.summary_tokens
        )

    async def enqueue(self, jobs: Sequence[JobRecord]) -> None:
        """Further jobs, which come into being with this one's effect."""
        await self.connection.execute(self._sql["queue.enqueue"], list(jobs))

    async def _run(self, name: str, *arguments: object) -> None:
        await self.connection.execute(self._sql[f"consolidation.{name}"], self._tenant, self._user, *arguments)


def summary_key(session: UUID) -> str:
    """By which the summary of a session is known among all that is drawn."""
    return f"session:{session}"


def session_job(
    entrypoint: str, tenant: UUID, user: UUID, session: UUID, *, asked: bool = False, **more: object
) -> JobRecord:
    """Work for a session. Of each kind at most one waits, but for those that somebody `asked` for, with wishes of their own."""
    return _job(entrypoint, session, {"tenant": tenant, "user": user, "session": session, **more}, asked)


def user_job(tenant: UUID, user: UUID, *, asked: bool = False, **more: object) -> JobRecord:
    """`consolidate` for a user; as `session_job`."""
    return _job(CONSOLIDATE, user, {"tenant": tenant, "user": user, **more}, asked)


def _job(entrypoint: str, subject: UUID, payload: Mapping[str, object], asked: bool) -> JobRecord:
    own = uuid4()
    key = f"{entrypoint}:{own if asked else subject}"
    return JobRecord(entrypoint, orjson.dumps({**payload, "id": own}, default=str), key, 0.0)


def _path(rows: Mapping[UUID, Any], head: UUID | None) -> frozenset[UUID] | None:
    """The messages that led to the head: what was said instead of them was taken back. None where they cannot be told."""
    path: set[UUID] = set()
    at = head
    while at is not None and at in rows and at not in path:
        path.add(at)
        at = rows[at]["parent_message_id"]
    return frozenset(path) if path and at is None else None


def _said(row: Any, path: frozenset[UUID] | None) -> Said:
    return Said(
        row["message_id"],
        row["turn_index"],
        ROLE_NAMES.get(row["role"], "other"),
        row["content"],
        tool_calls_of(row["tool_calls"]),
        row["token_count"],
        row["created_at"],
        row["is_compressed"],
        row["quotable"] and (path is None or row["message_id"] in path),
    )
