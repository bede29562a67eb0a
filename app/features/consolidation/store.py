"""What consolidation reads, and writes of sessions (seed 004): their summaries and compactions, and what all sessions of a user
come to. What is drawn is written as all that is derived (`app/store/consolidation.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import orjson
from msgspec import Struct, field, json
from pydantic import BaseModel

from app.store.consolidation import ConsolidationWrite, Derivation, Episode, key_hmac
from app.store.pools import halfvec
from app.store.records import ROLE_NAMES, JobRecord, Vector, tool_calls_of

SESSION_END = "session_end"
COMPACT = "compact"
CONSOLIDATE = "consolidate"
"""The entrypoints."""

# --- a session: its summary and its compactions --------------------------------------------------------------------------

MAX_MESSAGES = 10_000
"""Messages of a session that one summary looks at: five thousand turns; older ones stand in earlier summaries."""


class Stale(Exception):
    """What was read is not so any more: something was forgotten, or changed, meanwhile. Nothing was written."""


class SessionMessage(Struct, frozen=True):
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


class MemoryLine(Struct, frozen=True):
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
    messages: tuple[SessionMessage, ...]
    statements: tuple[MemoryLine, ...]
    remembered: tuple[UUID, ...]
    forgotten: bool
    hmac_key: bytes


class CompactionOut(BaseModel):
    """One compaction. `ratio`: ρ, tokens removed for each of the summary."""

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


class ConsolidationStore(Derivation):
    """Sessions' summaries and compactions, and what there is to draw together of a user."""

    async def read_session(self, tenant: UUID, user: UUID, session: UUID) -> SessionState | None:
        """A session with all that its summary may be made from; None: there is none (any more)."""
        async with self._pool.transaction(tenant) as connection:
            owner = await connection.fetchrow(self._sql["consolidation.user"], user)
            row = await connection.fetchrow(self._sql["consolidation.session"], user, session)
            if row is None or owner is None:
                return None
            key = bytes.fromhex(await connection.fetchval(self._sql["memories.secret"]))
            remembered = await connection.fetchval(self._sql["consolidation.session_summaries"], user, session)
            named = key_hmac(key, summary_key(session))
            forgotten: bool = await connection.fetchval(self._sql["consolidation.forgot_summary"], user, named)
            said: list[SessionMessage] = []
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
            MemoryLine(each["memory_id"], each["content_text"], each["importance"], tuple(each["source_message_ids"]))
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

    async def compactions(self, tenant: UUID, user: UUID, session: UUID) -> list[CompactionOut]:
        """The compactions of a session, oldest first."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["consolidation.compactions"], tenant, user, session)
        return [CompactionOut(**dict(row)) for row in rows]

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
        """What waits already under the same key stands for both."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["queue.enqueue"], list(jobs))

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
            rated = await connection.fetch(sql["consolidation.rated"], user, MAX_EPISODES)
        return UserState(
            owner["epoch"],
            owner["version"],
            bytes.fromhex(secret),
            tuple(_episode(each) for each in reversed(episodes)),
            tuple(_fact(each) for each in facts),
            tuple(_drawn(each) for each in drawn),
            frozenset(each["key_hmac"] for each in forgotten),
            {each["message_id"]: each["score"] for each in rated},
            json.decode(owner["triggers"], type=Triggers),
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
            )
            for row in rows
        ]


class Consolidated(Struct, frozen=True):
    """What a job writes of a user and its sessions, within the transaction of `drawing`."""

    drawing: ConsolidationWrite

    async def hold_session(self, session: UUID, version: int) -> None:
        """Nothing of the session is forgotten from here on. Raises `Stale` where something was since `version`."""
        held = await self._value("hold_session", session)
        if held is None:
            await self._run("begin_session", session, self.drawing.now)
            held = await self._value("hold_session", session)
        if held != version:
            raise Stale

    async def hold_summaries(self, session: UUID, remembered: Sequence[UUID]) -> None:
        """These are the session's summary still (after `hold_session`). Raises `Stale` where another job has made one since:
        two would be in force for good."""
        if tuple(await self._value("session_summaries", session)) != tuple(remembered):
            raise Stale

    async def summarise(self, session: UUID, text: str | None, tokens: int, vector: Vector | None) -> None:
        packed, space = (halfvec(vector), self.drawing.space) if vector is not None else (None, None)
        await self._run("summarise", session, text, tokens, packed, self.drawing.now, space)

    async def clear_working(self, session: UUID) -> None:
        """A session that has ended needs no working memory."""
        await self._run("clear_working", session)

    async def end_session(self, session: UUID, began: datetime, active_tokens: int) -> None:
        """Its session-end work is done, as of `began`, when its active messages had so many tokens."""
        await self._run("end_session", session, began, active_tokens)

    async def compact(
        self,
        session: UUID,
        messages: Sequence[SessionMessage],
        done: CompactionOut,
        summary: str,
        content: str,
        vector: Vector | None,
    ) -> None:
        """Let a summary stand for messages (seed 000 §7.3, steps 4 to 6). `content`: of the synthetic message. Raises
        `Stale` where another one stands for some of them already."""
        on = self.drawing
        await self._run("add_summary_message", session, done.summary_id, content, done.summary_tokens, on.now)
        times, taken = [each.created_at for each in messages], [each.message_id for each in messages]
        stretch = (taken, min(times), max(times), done.summary_id)
        marked: int = await on.connection.fetchval(
            on.sql["consolidation.compact"], on.tenant, on.user, session, *stretch
        )
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
        counted = (done.at, done.removed_tokens, done.summary_tokens)
        await on.connection.execute(on.sql["consolidation.count_compaction"], *counted)

    async def hold(self, version: int, facts: Sequence[UUID], messages: Sequence[UUID]) -> None:
        """None of these is forgotten or superseded from here on. Raises `Stale` where one was since `version`."""
        on = self.drawing
        held = await on.connection.fetch(on.sql["consolidation.hold_memories"], on.user, list(facts))
        if len(held) != len(set(facts)):
            raise Stale
        await self._run("begin_user")
        if await self._value("hold_user") != version:
            raise Stale
        if await self._value("suppressed", [*facts, *messages]):
            raise Stale

    async def retire(self, session: UUID) -> None:
        """Of a session's summaries that are not in force any more only the last is kept, without its vectors: the others go in
        their time, as what has expired does. (A session that goes on for years is summarised anew every day.)"""
        on = self.drawing
        former = await on.connection.fetch(on.sql["consolidation.retire_summaries"], on.tenant, on.user, session)
        gone = [each["memory_id"] for each in former]
        await on.connection.execute(on.sql["memories.drop_vectors"], on.tenant, on.user, gone)

    async def confirm(self, facts: Sequence[UUID], by: float, up_to: float) -> None:
        """These memories are a little surer."""
        if facts:
            await self._run("confirm", list(facts), by, up_to, self.drawing.now)

    async def done(self, began: datetime, *, more: bool) -> None:
        """The user's consolidation is done, as of `began`; `more`: not all of it."""
        await self._run("end_user", self.drawing.now, began, more)

    async def enqueue(self, jobs: Sequence[JobRecord]) -> None:
        """They come into being with this job's effect."""
        await self.drawing.connection.execute(self.drawing.sql["queue.enqueue"], list(jobs))

    async def _value(self, name: str, *arguments: object) -> Any:
        on = self.drawing
        return await on.connection.fetchval(on.sql[f"consolidation.{name}"], on.user, *arguments)

    async def _run(self, name: str, *arguments: object) -> None:
        on = self.drawing
        await on.connection.execute(on.sql[f"consolidation.{name}"], on.tenant, on.user, *arguments)


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


def _said(row: Any, path: frozenset[UUID] | None) -> SessionMessage:
    return SessionMessage(
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


# --- a user: what all their sessions come to -----------------------------------------------------------------------------

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
    reinforcements: int = 0

    @property
    def sessions(self) -> frozenset[UUID]:
        return frozenset(UUID(each["session_id"]) for each in self.sources if each.get("session_id"))


class ConsolidatedMemory(Struct, frozen=True):
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


class Triggers(Struct, frozen=True, forbid_unknown_fields=True):
    """When there is something to summarise: `system_config.consolidation`, and what is shipped there.

    `sessions`, `episodes`: about an entity, from which it gets a summary (seed 004, transformation 3); so many more, or
    `facts` that the summary does not know, and it is made anew: each costs a call of the helper LLM. `gain`, `most`: what a
    summary adds to the confidence of its facts, and up to where (seed 004: LEAST(0.95, confidence + 0.05)).
    """

    sessions: int = 3
    episodes: int = 20
    facts: int = 3
    gain: float = 0.05
    most: float = 0.95


SHIPPED_TRIGGERS = Triggers()


class UserState(Struct, frozen=True):
    """A user when consolidation began. `epoch`: erasure epoch, None: there is no such user. `forgotten`: keyed hashes of keys
    that are not to be drawn again; `hmac_key`: their key. `worth`: what rated answers were worth, by the message of their
    episode."""

    epoch: int | None
    version: int
    hmac_key: bytes
    episodes: tuple[Episode, ...]
    facts: tuple[KnownFact, ...]
    drawn: tuple[ConsolidatedMemory, ...]
    forgotten: frozenset[bytes]
    worth: Mapping[UUID, float] = field(default_factory=dict)
    triggers: Triggers = SHIPPED_TRIGGERS

    def may_draw(self, key: str) -> bool:
        return key_hmac(self.hmac_key, key) not in self.forgotten


def _episode(row: Any) -> Episode:
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
        row["reinforcement_count"],
    )


def _drawn(row: Any) -> ConsolidatedMemory:
    return ConsolidatedMemory(
        row["memory_id"],
        row["kind"],
        row["content_text"],
        row["details"]["key"],
        row["details"],
        tuple(row["entity_ids"]),
    )
