"""What was said: read back in order, and added to without a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import orjson
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from app.clock import Clock
from app.store import ids
from app.store.erasure import hmac_pads
from app.store.item_columns import MESSAGE_KIND
from app.store.pools import Pool, UserRows, halfvec
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, ROLE_OTHER, ROLES, JobRecord, MessageRecord, SessionRecord, Vector
from app.store.sessions import NewSession, SessionRef, Sessions, line_of
from app.store.tenancy import UserRef

LEARN_BATCH = 200
"""Most messages of one `learn` job: it must end well within its lease."""
_RECENT = 64
"""Messages looked at for the hash of the last two answered turns; a longer turn is not recognised by its tail."""
FINISH_REASONS = {
    0: "stop", 1: "length", 2: "tool_calls", 3: "content_filter", 4: "function_call", 5: "abort", 8: "interrupted", 9: "other",
}  # fmt: skip
"""`finish_reason` of `enumerations`."""

_EVER = (datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))

Chain = Callable[[Sequence[bytes], bytes], list[bytes]]
Within = Callable[["PoolConnectionProxy[Any]"], Awaitable[None]]
Tail = Callable[[Sequence[bytes | None], Sequence[int], int], bytes | None]
Attach: TypeAlias = "Callable[[PoolConnectionProxy[Any], SessionRef], Awaitable[None]]"
"""Stores what belongs to new messages of a session, within their transaction."""


class HistoryMessage(Struct, frozen=True):
    """A message as stored. Messages with one `turn_index` are siblings: answers to the same question."""

    message_id: UUID
    session_id: UUID
    turn_index: int
    sibling: int
    parent_message_id: UUID | None
    role: str
    content: str | None
    content_parts: Any
    name: str | None
    tool_calls: Any
    tool_call_id: str | None
    token_count: int
    model_id: str | None
    finish_reason: str | None
    call_id: UUID | None
    created_at: datetime
    metadata: dict[str, Any]
    reasoning: dict[str, Any] | None = None


class NewMessage(Struct, frozen=True):
    """A message to add. `content` is its plain text, `content_parts` its multimodal content, whole.

    `content_hash`: SHA-256 of the normalised text; `message_hash`: 16 bytes of its canonical form, None for one that
    transcripts are not compared by; `vector`: None where there is nothing to embed, or a job does it. `terms`: its words for
    the index (`app.index.analyse.pack`), None if there is no text, or if they are made when the index is loaded.
    """

    message_id: UUID
    role: str
    content: str | None
    created_at: datetime
    token_count: int
    content_hash: bytes | None
    message_hash: bytes | None
    content_parts: Any = None
    name: str | None = None
    tool_calls: Any = None
    tool_call_id: str | None = None
    metadata: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    vector: Vector | None = None
    terms: bytes | None = None


class Appended(Struct, frozen=True):
    """Where the new messages came to stand, in their order; `duplicates`: how many were stored before."""

    session: SessionRef
    placed: tuple[tuple[UUID, int], ...]
    duplicates: int
    created: bool


class History(Struct, frozen=True):
    """The messages of sessions. `chain` and `tail`: how transcripts are hashed (`app.context.transcript`). `ttl`: see
    `Sessions`. `space`: the embedding space of the vectors that come with messages."""

    pool: Pool
    queries: Queries
    sessions: Sessions
    clock: Clock
    chain: Chain
    tail: Tail
    ttl: timedelta
    space: int | None

    async def read(
        self, tenant: UUID, ref: SessionRef, *, after: tuple[int, int, UUID] | None, limit: int
    ) -> list[HistoryMessage]:
        """Messages oldest first, after (turn_index, sibling, message_id). A branch begins with what it shares with its
        parent."""
        async with self.pool.transaction(tenant) as connection:
            line = await line_of(connection, self.queries, tenant, ref)
            if line is None:
                return []
            rows = await connection.fetch(
                self.queries["history.messages"],
                tenant, ref.user_id, line.sessions, line.lows, line.highs, line.first, line.last,
                *(after or (None, None, None)), limit,
            )  # fmt: skip
        return [_message(row) for row in rows]

    async def last(self, tenant: UUID, ref: SessionRef, n: int, *, before: int | None = None) -> list[HistoryMessage]:
        """The last `n` messages, oldest first (seed 003, get_session_history); `before`: of those before this turn_index."""
        async with self.pool.transaction(tenant) as connection:
            line = await line_of(connection, self.queries, tenant, ref)
            if line is None:
                return []
            line = line.upto(before - 1 if before is not None else None)
            rows = await connection.fetch(self.queries["history.last"], tenant, ref.user_id, *line, n)
        return [_message(row) for row in reversed(rows)]

    async def times_of(
        self, tenant: UUID, ref: SessionRef, content_hashes: Sequence[bytes]
    ) -> dict[bytes, list[tuple[UUID, datetime]]]:
        """By content hash, the messages of a session with these words: (id, created_at), in their order."""
        found: dict[bytes, list[tuple[UUID, datetime]]] = {}
        async with self.pool.transaction(tenant) as connection:
            key = bytes.fromhex(await connection.fetchval(self.queries["memories.secret"]))
            rows = await connection.fetch(
                self.queries["history.stored_times"],
                tenant, ref.user_id, ref.session_id, list(content_hashes), *hmac_pads(key),
            )  # fmt: skip
        for row in rows:
            found.setdefault(row["content_hash"], []).append((row["message_id"], row["created_at"]))
        return found

    async def append(
        self,
        tenant: UUID,
        user: UserRef,
        session: NewSession | SessionRef,
        messages: Sequence[NewMessage],
        *,
        learn: bool = True,
        attach: Attach | None = None,
        within: Within | None = None,
    ) -> Appended:
        """Add messages at the end of a session, in one transaction with their vectors, jobs and what `attach` stores; those
        stored before are left out. A `NewSession` is made where it is missing. Without `learn` they are kept, but neither
        searched nor learned from. `within`: is done first, in that transaction; what it raises leaves nothing stored."""
        async with self.pool.transaction(tenant) as connection:
            if within is not None:
                await within(connection)
            created = False
            if isinstance(session, NewSession):
                session, created = await self.sessions.ensure(connection, tenant, user, session)
            rows = UserRows(connection, self.queries, tenant, user.id)
            end = await rows.row("history.lock", session.session_id)
            assert end is not None, "a session that was made or found does not go away"
            fresh = await self._fresh(rows, messages)
            duplicates = len(messages) - len(fresh)
            if not fresh:
                return Appended(session, (), duplicates, created)
            placed = await self._write(rows, user.external, session.session_id, end, fresh, hidden=not learn)
            if attach is not None:
                await attach(connection, session)
            if learn:
                await self._add_vectors(rows, fresh)
                await self._add_terms(rows, fresh)
                one = await connection.fetchrow(
                    self.queries["sessions.one"], tenant, session.user_id, session.session_id
                )
                name = one["external_id"] if one is not None else None
                jobs = _learn_jobs(tenant, user.id, session.session_id, name, fresh)
                await connection.execute(self.queries["history.enqueue"], jobs)
        return Appended(session, placed, duplicates, created)

    async def _fresh(self, rows: UserRows, messages: Sequence[NewMessage]) -> list[NewMessage]:
        """Those that are not stored, each once."""
        if not messages:
            return []
        times = [each.created_at for each in messages]
        found = await rows.rows("history.stored", [each.message_id for each in messages], min(times), max(times))
        stored = {row["message_id"] for row in found}
        fresh: dict[UUID, NewMessage] = {}
        for each in messages:
            if each.message_id not in stored:
                fresh.setdefault(each.message_id, each)
        return list(fresh.values())

    async def _write(
        self, rows: UserRows, external: str, session: UUID, end: Any, fresh: Sequence[NewMessage], *, hidden: bool
    ) -> tuple[tuple[UUID, int], ...]:
        """The messages, the session's end, and what transcripts are recognised by. `end`: how it stands, as the messages go on
        from it."""
        chains = _chains(self.chain, fresh, end["head_chain"] or b"")
        tail1, tail2 = await self._tails(rows, session, end, fresh)
        told: dict[str, Any] = dict.fromkeys(SessionRecord._fields) | {  # None leaves what is stored
            "session_id": session,
            "user_external_id": external,
            "expires_at": self.clock.now() + self.ttl,
            "head_message_id": fresh[-1].message_id,
            "head_chain": chains[-1] or None,
            "tail1": tail1,
            "tail2": tail2,
        }
        parents = [end["head_message_id"], *(each.message_id for each in fresh)]
        records = [_message_record(each, parent, hidden=hidden) for each, parent in zip(fresh, parents, strict=False)]
        found = await rows.rows("history.append", SessionRecord(**told), records)
        places = {row["placed_id"]: row["placed_index"] for row in found}
        heads = [(fresh[i].message_id, chains[i], asked) for i, asked in _heads(fresh, chains)]
        await rows.run(
            "history.heads",
            session,
            [chain for _, chain, _ in heads],
            [message for message, _, _ in heads],
            [places[message] for message, _, _ in heads],
            [asked for _, _, asked in heads],
        )
        return tuple((each.message_id, places[each.message_id]) for each in fresh)

    async def _tails(
        self, rows: UserRows, session: UUID, end: Any, fresh: Sequence[NewMessage]
    ) -> tuple[bytes | None, bytes | None]:
        """Hashes of the last one and two answered turns, where what is at hand reaches back far enough for them."""
        if not any(each.role == "assistant" for each in fresh):
            return None, None
        before: list[tuple[int, bytes | None]] = []
        if end["head_message_id"] is not None and len(fresh) < _RECENT:
            bounds = (end["first_message_at"] or _EVER[0], end["last_message_at"] or _EVER[1])
            found = await rows.rows("history.recent", session, *bounds, _RECENT)
            before = _path({row["message_id"]: row for row in found}, end["head_message_id"])
        path = before + [(ROLES.get(each.role, ROLE_OTHER), each.message_hash) for each in fresh]
        hashes = [hashed for _, hashed in path]
        answered = [i for i, (role, _) in enumerate(path) if role == ROLES["assistant"]]
        whole = len(path) == end["turn_count"] + len(fresh)
        tails = [self.tail(hashes, answered, turns) if whole or len(answered) > turns else None for turns in (1, 2)]
        return tails[0], tails[1]

    async def _add_vectors(self, rows: UserRows, fresh: Sequence[NewMessage]) -> None:
        found = [(each.message_id, each.created_at, halfvec(each.vector)) for each in fresh if each.vector is not None]
        if self.space is not None and found:
            await rows.run("history.add_vectors", self.space, MESSAGE_KIND, *map(list, zip(*found, strict=True)))

    async def _add_terms(self, rows: UserRows, fresh: Sequence[NewMessage]) -> None:
        """Keep the terms that came with messages, so that the first question after an import does not wait for them."""
        with_terms = [message for message in fresh if message.terms is not None]
        if with_terms:
            ids = [message.message_id for message in with_terms]
            await rows.run("index.terms", ids, [None] * len(ids), [message.terms for message in with_terms])


def _learn_jobs(
    tenant: UUID, user: UUID, session: UUID, session_name: str | None, messages: Sequence[NewMessage]
) -> list[JobRecord]:
    """Jobs that index messages and draw memories from them: `LEARN_BATCH` messages each."""
    jobs = []
    for at in range(0, len(messages), LEARN_BATCH):
        batch = messages[at : at + LEARN_BATCH]
        times = [each.created_at for each in batch]
        payload = {
            "call": None,
            "tenant": tenant,
            "user": user,
            "session": session,
            "session_name": session_name,
            "messages": [each.message_id for each in batch],
            "confined": user == ids.nobody(tenant),
            "from": min(times),
            "to": max(times),
        }
        jobs.append(JobRecord("learn", orjson.dumps(payload, default=str), f"learn:{batch[0].message_id}", 0.0))
    return jobs


def _chains(chain: Chain, fresh: Sequence[NewMessage], start: bytes) -> list[bytes]:
    """The chain hash after each message; one without a hash leaves it as it was."""
    chains = []
    for each in fresh:
        if each.message_hash is not None:
            start = chain([each.message_hash], start)[0]
        chains.append(start)
    return chains


def _heads(fresh: Sequence[NewMessage], chains: Sequence[bytes]) -> list[tuple[int, bool]]:
    """Which messages are heads: each answer, and (True) the question before it."""
    heads = []
    for i, each in enumerate(fresh):
        if each.role != "assistant" or not chains[i]:
            continue
        heads.append((i, False))
        if i and fresh[i - 1].role != "assistant" and fresh[i - 1].message_hash is not None:
            heads.append((i - 1, True))
    return heads


def _path(rows: dict[UUID, Any], head: UUID) -> list[tuple[int, bytes | None]]:
    """Role and hash of the messages that lead to `head`, oldest first, as far as `rows` reach."""
    path: list[tuple[int, bytes | None]] = []
    at: UUID | None = head
    while at is not None and (row := rows.pop(at, None)) is not None:
        path.append((row["role"], row["message_hash"]))
        at = row["parent_message_id"]
    return path[::-1]


def _message_record(message: NewMessage, parent: UUID | None, *, hidden: bool) -> MessageRecord:
    told: dict[str, Any] = dict.fromkeys(MessageRecord._fields) | {
        "message_id": message.message_id,
        "parent_message_id": parent,
        "role": ROLES.get(message.role, ROLE_OTHER),
        "content": message.content,
        "content_parts": _json(message.content_parts),
        "name": message.name,
        "tool_calls": _json(message.tool_calls),
        "tool_call_id": message.tool_call_id,
        "content_hash": message.content_hash,
        "message_hash": message.message_hash,
        "token_count": message.token_count,
        "created_at": message.created_at,
        "metadata": _json(message.metadata or {}),
        "hidden": hidden,
        "reasoning": _json(message.reasoning),
    }
    return MessageRecord(**told)


def _json(value: Any) -> str | None:
    return None if value is None else orjson.dumps(value, default=str).decode()


def _message(row: Any) -> HistoryMessage:
    fields = dict(row)
    fields["role"] = ROLE_NAMES.get(fields["role"], "other")
    fields["finish_reason"] = FINISH_REASONS.get(fields["finish_reason"])
    return HistoryMessage(**fields)
