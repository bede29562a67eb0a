"""What one call leaves behind, as the database takes it: each class is a type of `sql/schema/007_record.sql`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from app.store.pools import halfvec

Vector = NDArray[np.float32]

ROLES = {"system": 0, "user": 1, "assistant": 2, "tool": 3, "function": 4, "developer": 5}
"""Role names as `enumerations` has them."""
ROLE_OTHER = 9
ROLE_NAMES = {number: name for name, number in ROLES.items()}


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
