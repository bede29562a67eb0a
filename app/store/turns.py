"""The hot path's door to Postgres: recognise, retrieve, record. One round trip each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from app.store.pools import Pool, halfvec
from app.store.queries import Queries

Vector = NDArray[np.float32]

ROLES = {"system": 0, "user": 1, "assistant": 2, "tool": 3, "function": 4, "developer": 5}
"""Role names as `enumerations` has them."""
ROLE_OTHER = 9
ROLE_NAMES = {number: name for name, number in ROLES.items()}


class StoredBlock(NamedTuple):
    """A live memory block of a session, as an earlier prompt had it."""

    text: str
    chain_hash: bytes
    message_hash: bytes
    message_id: UUID
    item_ids: tuple[UUID, ...]
    token_count: int


@dataclass(frozen=True, slots=True)
class Recognised:
    """What `agent_data.recognise` found. `how`: foreign, named, asked, chain, tail or none."""

    how: str
    session_id: UUID | None
    known: bool
    external_id: str | None
    parent_session_id: UUID | None
    branch_turn_index: int | None
    tip_message_id: UUID | None
    tip_turn_index: int
    tip_chain: bytes | None
    tip_question_hash: bytes | None
    tip_question_id: UUID | None
    tail1: bytes | None
    head_message_id: UUID | None
    head_turn_index: int | None
    head_position: int | None
    asked_message_id: UUID | None
    asked_turn_index: int | None
    request_chain: bytes | None
    request_count: int | None
    sent_chain: bytes | None
    sent_count: int | None
    system_prompt: str | None
    system_prompt_tokens: int
    summary_text: str | None
    summary_token_count: int
    block_epoch: int
    blocks: tuple[StoredBlock, ...]
    gone_items: frozenset[UUID]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a session."""

    message_id: UUID
    parent_message_id: UUID | None
    turn_index: int
    sibling: int
    role: str
    content: str | None
    content_parts: Any
    name: str | None
    tool_calls: Any
    tool_call_id: str | None
    message_hash: bytes | None
    token_count: int
    created_at: datetime
    is_compressed: bool
    is_pruned: bool


class RetrievedRow(NamedTuple):
    """One candidate, as `agent_data.retrieve` returns it."""

    item_id: UUID
    item_kind: int
    similarity: float | None
    text_score: float | None
    frequent: bool
    kind: str
    content: str
    role: int | None
    name: str | None
    session_id: UUID | None
    external_id: str | None
    turn_index: int | None
    tier: int | None
    provenance_type: int
    confidence: float
    importance: float
    access_count: int
    last_accessed_at: datetime | None
    created_at: datetime
    token_count: int
    content_hash: bytes | None
    status: str
    tags: list[str]
    entity_ids: list[str]
    sources: list[dict[str, Any]] | None
    metadata: dict[str, Any]


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
    retry_count: int
    error: str | None
    metadata: str


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
    """`agent_data.message_record`. `turn_index`: None takes the next, 0 stands beside the message before, else a sibling."""

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


class HeadRecord(NamedTuple):
    """`agent_data.head_record`: where the next transcript is recognised, and what its request can build on."""

    chain_hash: bytes
    message_id: UUID
    asked: bool
    request_chain: bytes | None = None
    request_count: int | None = None
    sent_chain: bytes | None = None
    sent_count: int | None = None


class BlockRecord(NamedTuple):
    epoch: int
    message_id: UUID
    chain_hash: bytes
    message_hash: bytes
    text: str
    item_ids: Sequence[UUID]
    token_count: int


class JobRecord(NamedTuple):
    entrypoint: str
    payload: bytes
    dedupe_key: str | None
    delay_s: float


class ChainRecord(NamedTuple):
    chain_hash: bytes
    parent_hash: bytes | None
    blobs: bytes


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """Everything that one call leaves behind; written in one transaction."""

    call: CallRecord
    stream: StreamRecord | None = None
    chains: Sequence[ChainRecord] = ()
    blobs: tuple[Sequence[bytes], Sequence[bytes]] = ((), ())
    inputs: str | None = None
    audit: str | None = None
    eta: float | None = None
    session: SessionRecord | None = None
    messages: Sequence[MessageRecord] = ()
    heads: Sequence[HeadRecord] = ()
    block: BlockRecord | None = None
    space: int | None = None
    vectors: tuple[Sequence[UUID], Sequence[datetime], Sequence[Vector]] = ((), (), ())
    jobs: Sequence[JobRecord] = ()

    def arguments(self) -> tuple[Any, ...]:
        """In the order of `agent_data.record_turn`."""
        return (
            self.call,
            self.stream,
            list(self.chains),
            list(self.blobs[0]),
            list(self.blobs[1]),
            self.inputs,
            self.audit,
            self.eta,
            self.session,
            list(self.messages),
            list(self.heads),
            self.block,
            self.space,
            list(self.vectors[0]),
            list(self.vectors[1]),
            [halfvec(each) for each in self.vectors[2]],
            list(self.jobs),
        )


class TurnStore:
    """Recognise, retrieve, record."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def recognise(
        self,
        tenant: UUID,
        user: UUID,
        *,
        issued: UUID | None = None,
        named: UUID | None = None,
        chains: Sequence[bytes] = (),
        whole: bytes | None = None,
        tail1: bytes | None = None,
        tail2: bytes | None = None,
        retry: bool = False,
    ) -> Recognised:
        """The session of a request; see `agent_data.recognise` for what each argument means."""
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(
                self._sql["turns.recognise"], tenant, user, issued, named, list(chains), whole, tail1, tail2, retry
            )
        assert row is not None, "a function with OUT arguments returns one row"
        return _recognised(row)

    async def session_messages(
        self, tenant: UUID, user: UUID, session: UUID, *, before: int, limit: int
    ) -> list[StoredMessage]:
        """Messages with `turn_index` < `before`, newest first, siblings included."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(self._sql["turns.session_messages"], tenant, user, session, before, limit)
        return [StoredMessage(**{**dict(row), "role": ROLE_NAMES.get(row["role"], "user")}) for row in rows]

    async def retrieve(
        self,
        tenant: UUID,
        user: UUID,
        *,
        query: str,
        vector: Vector | None,
        space: int | None,
        confine: UUID | None,
        session: UUID | None,
        visible: int,
        ancestors: Sequence[UUID],
        history: bool,
        limits: tuple[int, int, int],
    ) -> list[RetrievedRow]:
        """Candidates by three legs; `limits` is how many each of vectors, full text and most used may bring."""
        vectors, texts, frequent = limits
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(
                self._sql["turns.retrieve"],
                tenant, user, query, vector, space, confine, session, visible, list(ancestors), history,
                vectors, texts, frequent,
            )  # fmt: skip
        return [RetrievedRow(*row) for row in rows]

    async def record(self, turn: TurnRecord) -> bool:
        """Write a turn; returns when it is durable. False: it was stored before."""
        async with self._pool.acquire() as connection:
            return bool(await connection.fetchval(self._sql["turns.record_turn"], *turn.arguments()))

    async def space_of(self, name: str) -> int | None:
        """The number of an embedding space."""
        async with self._pool.acquire() as connection:
            number: int | None = await connection.fetchval(self._sql["turns.space_of"], name)
            return number

    async def secret(self) -> bytes:
        """What keys the delimiters of memory blocks: 64 bytes, the same for the life of the database."""
        async with self._pool.acquire() as connection:
            text: str = await connection.fetchval(self._sql["turns.secret"])
        return text.encode()[:64]


def _recognised(row: Any) -> Recognised:
    fields = dict(row)
    texts = fields.pop("block_texts") or []
    chains, hashes = fields.pop("block_chains") or [], fields.pop("block_hashes") or []
    messages, items = fields.pop("block_messages") or [], fields.pop("block_items") or []
    counts, tokens = fields.pop("block_item_counts") or [], fields.pop("block_tokens") or []
    blocks, at = [], 0
    for i, text in enumerate(texts):
        own = tuple(items[at : at + counts[i]])
        at += counts[i]
        blocks.append(StoredBlock(text, chains[i], hashes[i], messages[i], own, tokens[i]))
    for name in ("tip_turn_index", "system_prompt_tokens", "summary_token_count", "block_epoch"):
        fields[name] = fields[name] or 0
    return Recognised(**fields | {"blocks": tuple(blocks), "gone_items": frozenset(fields["gone_items"] or ())})
