"""What one call leaves behind, as the database takes it: each class is a type of `sql/schema/007_record.sql`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from app.store.paging_values import PagingRecord
from app.store.pools import halfvec

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
    uses: Sequence[tuple[UUID, float]] = ()
    """Memories that stood in the prompt, with their scores."""
    asked: Sequence[UUID] = ()
    """Memories that the prompt asked to have confirmed."""
    paging: PagingRecord | None = None
    """What it changes of its session's objects."""

    @property
    def size(self) -> int:
        """Bytes, roughly: of what may be large."""
        stream = self.stream.body if self.stream else b""
        large = (stream, *self.blobs[1], self.call.request_body, self.audit, self.inputs)
        objects = self.paging.objects if self.paging is not None else ()
        return (
            sum(len(each) for each in large if each)
            + sum(len(each.content or "") for each in self.messages)
            + sum(len(each.content) for each in objects)
        )


def batch(turns: Sequence[TurnRecord]) -> tuple[Any, ...]:
    """The arguments of `agent_data.record_turns`, in order. The turns are in the order of users and sessions; no two of them
    have a session or a repeat key in common."""
    places = [_Placed.of(each) for each in turns]
    users = {each.call.user_id for each in turns}
    return (
        users.pop() if len(users) == 1 else None,
        [each.call for each in turns],
        [each.call.call_id for each in turns],
        [each.call.tenant_id for each in turns],
        [each.call.user_id for each in turns],
        [each.call.session_id for each in turns],
        _keyed(turns),
        [each.stream for each in turns],
        *_flat([list(zip(*each.blobs, strict=True)) for each in turns], 2),
        *_numbered([each.chains for each in turns]),
        [each.inputs for each in turns],
        [each.audit for each in turns],
        [each.eta for each in turns],
        [each.session for each in turns],
        [each.place for each in places],
        [each.block for each in turns],
        *_flat([each.messages for each in places], 3),
        *_flat([each.heads for each in places], 3),
        [each.space if each.vectors[0] else None for each in turns],
        *_flat([[(i, at, halfvec(v)) for i, at, v in zip(*each.vectors, strict=True)] for each in turns], 3),
        *_numbered([each.jobs for each in turns]),
        *_uses(turns),
    )


@dataclass(frozen=True, slots=True)
class _Placed:
    """A turn's messages as (the how many-th of the fresh ones it is or stands beside, its number among those of the turn at the
    same place, message); its heads as (place, if it is known; else the how many-th of the fresh ones; head)."""

    place: PlaceRecord | None
    messages: list[tuple[int, int, MessageRecord]]
    heads: list[tuple[int | None, int, HeadRecord]]

    @classmethod
    def of(cls, turn: TurnRecord) -> _Placed:
        if turn.session is None:
            return cls(None, [], [])
        fresh = beside = 0
        there: dict[tuple[bool, int], int] = {}
        messages: list[tuple[int, int, MessageRecord]] = []
        stands: dict[UUID, tuple[int | None, int]] = {}
        for message in turn.messages:
            index = message.turn_index or None
            if message.turn_index is None:
                fresh += 1
            beside = max(beside, index or 0)
            key = (index is None, index or fresh)
            messages.append((fresh, there.get(key, 0), message))
            there[key] = there.get(key, 0) + 1
            stands[message.message_id] = (index, fresh)
        head = stands.get(turn.session.head_message_id) if turn.session.head_message_id else None
        times = [each.created_at for each in turn.messages]
        place = PlaceRecord(fresh, beside, *(head or (None, 0)), min(times, default=None), max(times, default=None))
        heads = [(*stands[each.message_id], each) for each in turn.heads if each.message_id in stands]
        return cls(place, messages, heads)


def _numbered(rows: Sequence[Sequence[Any]]) -> tuple[list[int], list[Any]]:
    """The rows of all turns, and before them which turn each belongs to, from 1."""
    turns = [n for n, own in enumerate(rows, 1) for _ in own]
    return turns, [row for own in rows for row in own]


def _flat(rows: Sequence[Sequence[tuple[Any, ...]]], width: int) -> list[list[Any]]:
    """As `_numbered`, each column a list of its own."""
    turns, all_rows = _numbered(rows)
    return [turns, *([row[column] for row in all_rows] for column in range(width))]


def _keyed(turns: Sequence[TurnRecord]) -> list[int]:
    """Which turns have a repeat key, from 1, in the order of users and keys: as everybody locks them."""
    keys = [(each.call.user_id, each.call.repeat_key, n) for n, each in enumerate(turns, 1) if each.call.repeat_key]
    return [n for *_, n in sorted(keys)]


def _uses(turns: Sequence[TurnRecord]) -> tuple[Any, ...]:
    """The users whose memories were of use, with the first and the last of theirs among the memories; of each memory, in order:
    its id, how often, the sum of its scores; and when."""
    counts: dict[tuple[UUID, UUID], tuple[int, float]] = {}
    for turn in turns:
        for memory, score in turn.uses:
            key = (turn.call.user_id, memory)
            times, total = counts.get(key, (0, 0.0))
            counts[key] = (times + 1, total + max(score, 0.0))
    keys = sorted(counts)
    users = [user for user, _ in keys]
    starts = [n for n, user in enumerate(users, 1) if n == 1 or users[n - 2] != user]
    return (
        [users[n - 1] for n in starts],
        starts,
        [*(n - 1 for n in starts[1:]), len(keys)] if keys else [],
        [memory for _, memory in keys],
        [counts[key][0] for key in keys],
        [counts[key][1] for key in keys],
        max(each.call.created_at for each in turns),
    )
