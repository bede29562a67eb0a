"""Rows as the database has them: what one call leaves behind, contradictions in the log, and what memories say of things.

Each class of the first part is a type of `sql/schema/009_turns.sql`, and so is each row of `batch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID

import numpy as np
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct, field
from numpy.typing import NDArray

from app.metrics import Metrics
from app.store.pools import Pool, halfvec
from app.store.queries import Queries

Vector = NDArray[np.float32]

ROLES = {"system": 0, "user": 1, "assistant": 2, "tool": 3, "function": 4, "developer": 5}
"""Role names as `enumerations` has them."""
ROLE_OTHER = 9
ROLE_NAMES = {number: name for name, number in ROLES.items()}


def tool_calls_of(stored: Any) -> list[dict[str, Any]]:
    """The tool calls of a stored message, as far as they are what OpenAI's are: what a client sends is not judged, and may be
    anything."""
    calls = stored if isinstance(stored, list) else []
    return [each for each in calls if isinstance(each, dict) and isinstance(each.get("function"), dict | None)]


class CallRecord(NamedTuple):
    """`agent_data.call_record`, field by field. Texts that hold JSON are named `…_headers` and `metadata`."""

    call_id: UUID
    tenant_id: UUID
    user_id: UUID
    session_id: UUID | None
    created_at: datetime
    method: str
    path: str
    upstream: str
    model: str
    answered_model: str | None
    streamed: bool
    status: int | None
    outcome: int
    memory_status: str
    reason: str | None
    request_headers: str
    response_headers: str
    request_body: bytes | None
    request_truncated: bool
    request_prefix: bytes | None
    request_suffix: bytes | None
    request_chain: bytes | None
    request_count: int | None
    request_sha256: bytes | None
    request_bytes: int
    sent_prefix: bytes | None
    sent_suffix: bytes | None
    sent_chain: bytes | None
    sent_count: int | None
    sent_sha256: bytes | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    usage_counted: bool
    cost_microcents: int
    latency_ms: int | None
    first_byte_us: int | None
    overhead_us: int | None
    idempotency_key: str | None
    repeat_key: bytes | None
    retry_count: int
    error: str | None
    metadata: str
    key_id: UUID | None = None
    priced: bool = True
    labels: Sequence[str] | None = None


class StreamRecord(NamedTuple):
    """`agent_data.stream_record`: offsets in bytes, times in microseconds since the request came in."""

    body: bytes
    truncated: bool
    chunk_offsets: Sequence[int]
    chunk_times: Sequence[int]
    event_offsets: Sequence[int]
    event_times: Sequence[int]


class SessionRecord(NamedTuple):
    """`agent_data.session_record`; None leaves what is stored."""

    session_id: UUID
    user_external_id: str
    external_id: str | None
    route_id: UUID | None
    parent_session_id: UUID | None
    branch_turn_index: int | None
    model_id: str | None
    context_window_size: int | None
    system_prompt: str | None
    system_prompt_hash: bytes | None
    system_prompt_tokens: int | None
    temperature: float | None
    top_p: float | None
    max_response_tokens: int | None
    session_type: str | None
    expires_at: datetime
    head_message_id: UUID | None
    head_chain: bytes | None
    tail1: bytes | None
    tail2: bytes | None
    block_epoch: int | None


class MessageRecord(NamedTuple):
    """`agent_data.message_record`. `turn_index`: None takes the next, 0 stands beside the message before, else a sibling.
    `hidden`: no search finds it."""

    message_id: UUID
    turn_index: int | None
    parent_message_id: UUID | None
    role: int
    content: str | None
    content_parts: str | None
    name: str | None
    tool_calls: str | None
    tool_call_id: str | None
    content_hash: bytes | None
    message_hash: bytes | None
    token_count: int
    model_id: str | None
    finish_reason: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    latency_ms: int | None
    created_at: datetime
    metadata: str | None
    hidden: bool = False
    reasoning: str | None = None


class HeadRecord(NamedTuple):
    """`agent_data.head_record`: where the next transcript is recognised, and what its request can build on. `visible_from`:
    the turn index of that transcript's first message."""

    chain_hash: bytes
    message_id: UUID
    asked: bool
    request_chain: bytes | None = None
    request_count: int | None = None
    sent_chain: bytes | None = None
    sent_count: int | None = None
    visible_from: int = 1


class BlockRecord(NamedTuple):
    epoch: int
    message_id: UUID
    chain_hash: bytes
    message_hash: bytes
    text: str
    item_ids: Sequence[UUID]
    token_count: int
    item_spaces: Sequence[UUID | None] | None = None


class PlaceRecord(NamedTuple):
    """`agent_data.place_record`: where the messages of a turn come to stand in their session. `fresh`: how many take its next
    places; `beside`: the highest place named by one that stands beside another, else 0. The session's head stands at
    `head_index`, or is the `head_ahead`th of the fresh ones."""

    fresh: int
    beside: int
    head_index: int | None
    head_ahead: int
    first_at: datetime | None
    last_at: datetime | None


class JobRecord(NamedTuple):
    entrypoint: str
    payload: bytes
    dedupe_key: str | None
    delay_s: float


class ChainRecord(NamedTuple):
    chain_hash: bytes
    parent_hash: bytes | None
    blobs: bytes
    lead: bytes | None = None


class PartRecord(Protocol):
    """What a feature's part in a call leaves behind."""

    @property
    def session_id(self) -> UUID:
        """Of what it changes: in the order of users and sessions, so that nobody waits for each other."""

    @property
    def size(self) -> int:
        """Bytes, roughly: of what may be large."""

    async def write(self, connection: PoolConnectionProxy[Any], sql: Queries, call: CallRecord) -> None:
        """In the transaction of the turn."""

    def count(self, metrics: Metrics, *, legs: int) -> None:
        """It is stored, or needs not be. `legs`: requests to upstreams behind the call's first."""


class TurnRecord(Struct, frozen=True):
    """Everything that one call leaves behind; written in one transaction."""

    call: CallRecord
    stream: StreamRecord | None = None
    chains: Sequence[ChainRecord] = ()
    blobs: tuple[Sequence[bytes], Sequence[bytes]] = ((), ())
    audit: str | None = None
    eta: float | None = None
    session: SessionRecord | None = None
    messages: Sequence[MessageRecord] = ()
    heads: Sequence[HeadRecord] = ()
    block: BlockRecord | None = None
    space: int | None = None
    vectors: Mapping[UUID, Vector] = field(default_factory=dict)
    terms: Mapping[UUID, bytes] = field(default_factory=dict)
    """Of its messages, by their ids; terms: `app.index.analyse.pack`."""
    jobs: Sequence[JobRecord] = ()
    uses: Sequence[tuple[UUID, float]] = ()
    """Memories that stood in the prompt, with their scores."""
    asked: Sequence[UUID] = ()
    """Memories that the prompt asked to have confirmed."""
    part: PartRecord | None = None

    @property
    def size(self) -> int:
        """Bytes, roughly: of what may be large."""
        stream = self.stream.body if self.stream else b""
        large = (stream, *self.blobs[1], self.call.request_body, self.audit)
        return (
            sum(len(each) for each in large if each)
            + sum(len(each.content or "") for each in self.messages)
            + (self.part.size if self.part is not None else 0)
        )


def batch(turns: Sequence[TurnRecord]) -> tuple[Any, ...]:
    """The arguments of `agent_data.record_turns`, in order. Rows that belong to a turn begin with its number, from 1. The turns
    are in the order of users and sessions; no two of them have a session or a repeat key in common. (asyncpg examines each
    element of an array: a row costs less than an array for each of its columns, and None costs nothing.)"""
    streams, blobs, chains, compilations, sessions, messages, heads, blocks, jobs = (list[Any]() for _ in range(9))
    for n, turn in enumerate(turns, 1):
        if turn.stream is not None:
            streams.append((n, *turn.stream))
        blobs += [(n, *each) for each in zip(*turn.blobs, strict=True)]
        chains += [(n, *each) for each in turn.chains]
        if turn.audit is not None:
            compilations.append((n, turn.audit, turn.eta))
        if turn.session is not None:
            sessions.append((n, turn.session, _place(n, turn, turn.session, messages, heads)))
        if turn.block is not None:
            blocks.append((n, *turn.block))
        jobs += [(n, *each) for each in turn.jobs]
    users = [each.call.user_id for each in turns]
    return (
        users[0] if len(set(users)) == 1 else None,
        [each.call for each in turns],
        [each.call.call_id for each in turns],
        [each.call.tenant_id for each in turns],
        users,
        [each.call.session_id for each in turns],
        _keyed(turns) or None,
        streams or None,
        blobs or None,
        chains or None,
        compilations or None,
        sessions or None,
        messages or None,
        heads or None,
        blocks or None,
        jobs or None,
        _uses(turns) or None,
        max(each.call.created_at for each in turns),
    )


def _place(n: int, turn: TurnRecord, session: SessionRecord, messages: list[Any], heads: list[Any]) -> PlaceRecord:
    """Where the messages of the `n`th turn come to stand. Adds them to `messages`, each with the count of fresh ones so far and
    its number among those at the same place; and to `heads` the heads, with the place of their message, or that number."""
    fresh = beside = 0
    there: dict[tuple[bool, int], int] = {}
    stands: dict[UUID, tuple[int | None, int]] = {}
    for message in turn.messages:
        index = message.turn_index or None
        if message.turn_index is None:
            fresh += 1
        beside = max(beside, index or 0)
        key = (index is None, index or fresh)
        sibling = there.get(key, 0)
        there[key] = sibling + 1
        stands[message.message_id] = (index, fresh)
        vector = turn.vectors.get(message.message_id)
        packed = (None, None) if vector is None else (turn.space, halfvec(vector))
        messages.append((n, fresh, sibling, *message, turn.terms.get(message.message_id), *packed))
    heads += [(n, *stands[each.message_id], *each) for each in turn.heads if each.message_id in stands]
    head = stands.get(session.head_message_id) if session.head_message_id else None
    times = [each.created_at for each in turn.messages]
    return PlaceRecord(fresh, beside, *(head or (None, 0)), min(times, default=None), max(times, default=None))


def _keyed(turns: Sequence[TurnRecord]) -> list[int]:
    """Which turns have a repeat key, from 1, in the order of users and keys: as everybody locks them."""
    keys = [(each.call.user_id, each.call.repeat_key, n) for n, each in enumerate(turns, 1) if each.call.repeat_key]
    return [n for *_, n in sorted(keys)]


def _uses(turns: Sequence[TurnRecord]) -> list[tuple[UUID, list[UUID], list[int], list[float]]]:
    """The users whose memories were of use, in order; with each the memories, how often, and the sums of their scores."""
    counts: dict[UUID, dict[UUID, tuple[int, float]]] = {}
    for turn in turns:
        own = counts.setdefault(turn.call.user_id, {}) if turn.uses else {}
        for memory, score in turn.uses:
            times, total = own.get(memory, (0, 0.0))
            own[memory] = (times + 1, total + max(score, 0.0))
    return [
        (user, list(own), [times for times, _ in own.values()], [total for _, total in own.values()])
        for user, own in sorted(counts.items())
    ]


# --- a contradiction in the log (seed 004, table 9) ----------------------------------------------------------------------


class LoggedConflict(Struct, frozen=True):
    """A contradiction as it is stored. `resolved_at` None: it is open."""

    conflict_id: UUID
    user_id: UUID
    user_external_id: str | None
    session_id: UUID | None
    detected_at_message: UUID | None
    conflict_type: Literal["memory_vs_memory", "memory_vs_db", "temporal"]
    conflict_data: dict[str, Any]
    memory_ids: list[UUID]
    resolution_strategy: str | None
    resolution_outcome: dict[str, Any] | None
    resolved_at: datetime | None
    created_at: datetime
    entity_id: str | None


# --- what is known of the things that a request names --------------------------------------------------------------------

NOBODY = UUID(int=0)
"""Whose things those of the whole tenant are."""


class Claim(NamedTuple):
    """What a memory says of a thing, as a triple. `stated_at`: when it was learned, or confirmed."""

    memory_id: UUID
    entity_id: str
    predicate: str
    value: str
    stated_at: datetime
    confidence: float


class ResolutionStore:
    """Hot reads, one look-up each."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def has_things(self, tenant: UUID, user: UUID | None) -> bool:
        """Whether the tenant has things, or the user of his own. Raises StoreUnavailable."""
        async with self._pool.acquire() as connection:
            return bool(await connection.fetchval(self._sql["knowing.has_things"], tenant, user or NOBODY))

    async def claims(self, tenant: UUID, user: UUID, memories: Sequence[UUID]) -> list[Claim]:
        """What these memories of a user say of things, as far as they may be shown. Raises StoreUnavailable."""
        if not memories:
            return []
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(self._sql["knowing.claims"], tenant, user, list(memories))
        return list(map(Claim._make, rows))
