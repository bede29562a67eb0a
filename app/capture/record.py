"""The recorder: from what happened to the rows that one transaction writes. `build` is pure; `Recorder.record` embeds what is
new, writes it, and returns when it is durable."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from operator import attrgetter
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from app.capture.commit import GroupCommit
from app.capture.facts import AnsweredChoice, CallFacts, CompileFacts, Exchange
from app.context.audit import asked_memories, used_memories, written
from app.context.reasoning import separate
from app.context.transcript import LONG_TEXT, text_of
from app.errors import BadRequest
from app.index.analyse import pack
from app.jobs.learn import Inline
from app.memory.text import content_hash
from app.providers.embeddings import Embedder
from app.providers.tokens import CountCache, TokenCounter
from app.store import ids
from app.store.pools import storable
from app.store.records import (
    ROLE_OTHER,
    ROLES,
    BlockRecord,
    CallRecord,
    ChainRecord,
    HeadRecord,
    JobRecord,
    MessageRecord,
    SessionRecord,
    TurnRecord,
    Vector,
)
from app.store.turns import TurnStore
from mneme_replay import paths
from mneme_replay.paths import MASK, Path
from mneme_replay.secrets import is_secret, masked_path

# --- what is captured ----------------------------------------------------------------------------------------------------

RANDOM_BITS = 62
"""Last bits of a uuid of version 7: random ones (RFC 9562), so that they draw the sample, and draw it again the same."""


CAPTURE_MAX_BYTES = 16 * 1024 * 1024
"""Bytes of the largest body of the other /v1 paths that is kept; beyond it the capture is marked truncated. Images and short
audio travel in less, and a call holds both bodies in memory."""


def is_sampled(call: UUID, share: float) -> bool:
    """Return whether this call is among the share (0 to 1) of calls that are captured; its turn is kept either way."""
    drawn: int = call.int & ((1 << RANDOM_BITS) - 1)
    return drawn < share * (1 << RANDOM_BITS)


def masked(headers: Sequence[tuple[bytes, bytes]]) -> list[list[str]]:
    """Headers as [[name, value], …], with the values of secret ones taken out."""
    shown = []
    for name, value in headers:
        text = name.decode("latin-1")
        shown.append([text, MASK if is_secret(text) else value.decode("latin-1").replace("\0", "\ufffd")])
    return shown


def keyless(query: bytes) -> bytes:
    """A query without its secret parameters."""
    parts = query.split(b"&")
    return b"&".join(part for part in parts if not is_secret(part.partition(b"=")[0].decode("latin-1")))


def without(headers: Sequence[tuple[bytes, bytes]], names: Collection[bytes]) -> Sequence[tuple[bytes, bytes]]:
    """Headers with the values of those called `names` (lower case) taken out."""
    if not names:
        return headers
    return [(name, MASK.encode() if name.lower() in names else value) for name, value in headers]


def parse_path(text: str) -> Path:
    """A JSON path, as `mneme_replay.paths.parse_path` takes it. Raises BadRequest for anything else."""
    try:
        return paths.parse_path(text)
    except ValueError as error:
        raise BadRequest(str(error)) from error


# --- what is written -----------------------------------------------------------------------------------------------------

FINISH_REASONS = {
    "stop": 0, "length": 1, "tool_calls": 2, "content_filter": 3, "function_call": 4, "abort": 5,
}  # fmt: skip
"""As `enumerations` has them."""
INTERRUPTED = 8
FINISH_OTHER = 9
REAL_MAX = 3.4028234663852886e38
"""Largest number of Postgres' `real` (IEEE 754 binary32)."""
INT_MAX = 2**31 - 1
"""Largest number of Postgres' `integer`."""
GIVEN = "_message"
"""Where a message's metadata holds what was given with it and has no column."""
_KEPT_FIELDS = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal"})
"""Fields of a message that have a column; of the rest, what says something goes into its metadata."""
_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


class _Rows(Struct):
    """What `_messages` makes of an exchange."""

    messages: list[MessageRecord] = field(default_factory=list)
    heads: list[HeadRecord] = field(default_factory=list)
    head: UUID | None = None
    terms: dict[UUID, bytes] = field(default_factory=dict)


class Recorder:
    """Writes calls and turns."""

    def __init__(
        self,
        store: TurnStore,
        embedder: Embedder,
        counts: CountCache,
        counter: TokenCounter,
        commit: GroupCommit | None = None,
        at_once: Inline | None = None,
    ) -> None:
        """`counter` makes the stored counts: o200k, whatever model is asked. `commit`: None writes each turn by itself.
        `at_once`: None leaves all learning to the worker."""
        self._store = store
        self._commit = commit
        self._at_once = at_once
        self._embedder = embedder
        self._counts = counts
        self._counter = counter
        self._space: int | None = None

    async def record(self, call: CallFacts, exchange: Exchange | None, compiled: CompileFacts | None) -> bool:
        """Write one call and what it adds; returns when it is durable. False: it was stored before.

        Raises StoreUnavailable; then nothing of it is stored.
        """
        if exchange is None:
            return await self._write(build(call, None, _Rows(), compiled))
        new = [*(each.message for each in exchange.said), *(each.message for each in exchange.answers)]
        if sum(len(text_of(each)) for each in new) > LONG_TEXT:
            rows = await asyncio.to_thread(self._messages, call, exchange)
        else:
            rows = self._messages(call, exchange)
        vectors = await self._vectors(rows.messages)
        system_tokens = self._count(exchange.system_prompt or "") if exchange.system_prompt is not None else None
        turn = build(call, exchange, rows, compiled, system_tokens, self._space, vectors)
        # Learned at once, where the rules find something in what the user says.
        own = (text_of(each.message) for each in exchange.said if each.message.get("role") == "user")
        now = self._at_once if self._at_once and turn.jobs and any(map(self._at_once.finds, own)) else None
        if now is not None:
            turn = replace(turn, jobs=[each._replace(delay_s=now.later_s) for each in turn.jobs])
        stored = await self._write(turn)
        if stored and now is not None:
            for each in turn.jobs:
                await now.learn(each.payload)
        return stored

    async def _write(self, turn: TurnRecord) -> bool:
        return await (self._commit or self._store).record(turn)

    def _count(self, text: str) -> int:
        return self._counts.text(text, self._counter) if text else 0

    def _messages(self, call: CallFacts, exchange: Exchange) -> _Rows:
        rows = _Rows()
        parent = exchange.parent_message_id
        # Where the next request can build on: a request that went on as it came has one for both, as received and as sent.
        received = call.request.resume if call.request else None
        sent = call.sent.resume if call.sent else received
        positions = (
            received.chain if received else None,
            received.count if received else None,
            sent.chain if sent else None,
            sent.count if sent else None,
        )
        for n, each in enumerate(exchange.said):
            # A microsecond apart, so that time alone keeps their order too.
            at = call.created_at + timedelta(microseconds=n)
            hidden = not exchange.learn or n >= len(exchange.said) - exchange.private
            record = self._message(each.message, each.hash, at, parent, hidden=hidden)
            rows.messages.append(record)
            parent = record.message_id
        if exchange.said and parent is not None:
            rows.heads.append(HeadRecord(exchange.question_chain, parent, True, *positions, exchange.visible_from))
        for n, answer in enumerate(exchange.answers):
            hidden = not exchange.learn or exchange.private_answers
            cut = not answer.whole or answer.finish_reason != "stop"
            record = self._message(answer.message, answer.hash, exchange.ended_at, parent, hidden=hidden, cut=cut)
            record = record._replace(
                turn_index=exchange.asked_index if exchange.asked_index is not None else (0 if n else None),
                model_id=storable(call.answered_model or call.model),
                finish_reason=_finish(answer),
                prompt_tokens=call.usage.prompt if n == 0 else None,
                completion_tokens=call.usage.completion if n == 0 else None,
                latency_ms=call.latency_ms,
                metadata=None if answer.whole else '{"interrupted":true}',
            )
            rows.messages.append(record)
            chain = exchange.answer_chains[n]
            rows.heads.append(HeadRecord(chain, record.message_id, False, *positions, exchange.visible_from))
            if (mark := exchange.answer_mark) is not None and n == 0:
                rows.heads.append(HeadRecord(mark, record.message_id, False, *positions, exchange.visible_from))
            rows.head = rows.head or record.message_id
        rows.terms = {each.message_id: pack(each.content) for each in rows.messages if each.content and not each.hidden}
        return rows

    def _message(
        self,
        message: Mapping[str, Any],
        hashed: bytes | None,
        at: datetime,
        parent: UUID | None,
        *,
        hidden: bool,
        cut: bool = True,
    ) -> MessageRecord:
        """Return a message's row. `cut`: whether an answer may have broken off inside its reasoning."""
        message, reasoning = separate(message, cut=cut)
        text = storable(text_of(message))
        content = message.get("content")
        calls = message.get("tool_calls")
        if not calls and isinstance(legacy := message.get("function_call"), Mapping):
            calls = [{"type": "function", "function": legacy}]
        role = message.get("role")
        count = self._count(text) + (self._count(_json(calls)) if calls else 0)
        name, call_id = message.get("name"), message.get("tool_call_id")
        return MessageRecord(
            message_id=ids.uuid7(at),
            turn_index=None,
            parent_message_id=parent,
            role=ROLES.get(role, ROLE_OTHER) if isinstance(role, str) else ROLE_OTHER,
            content=text if text or content is not None else None,
            content_parts=_json(content) if content is not None and not isinstance(content, str) else None,
            name=storable(name) if isinstance(name, str) else None,
            tool_calls=_json(calls) if calls else None,
            tool_call_id=storable(call_id) if isinstance(call_id, str) else None,
            content_hash=content_hash(text) if text else None,
            message_hash=hashed,
            token_count=count,
            model_id=None,
            finish_reason=None,
            prompt_tokens=None,
            completion_tokens=None,
            latency_ms=None,
            created_at=at,
            metadata=_metadata(message),
            hidden=hidden,
            reasoning=_json(reasoning) if reasoning else None,
        )

    async def _vectors(self, messages: Sequence[MessageRecord]) -> dict[UUID, Vector]:
        """Vectors of the new messages, where the embedder is local; a remote one embeds by job."""
        wanted = [each for each in messages if each.content and not each.hidden]
        if not self._embedder.local or not self._embedder.dimensions or not wanted:
            return {}
        if self._space is None:
            self._space = await self._store.space_of(self._embedder.space)
        if self._space is None:
            return {}  # nobody could search them
        vectors = await self._embedder.embed([each.content or "" for each in wanted])
        return {each.message_id: vector for each, vector in zip(wanted, vectors, strict=True) if vector.any()}


def build(
    call: CallFacts,
    exchange: Exchange | None,
    rows: _Rows,
    compiled: CompileFacts | None,
    system_tokens: int | None = None,
    space: int | None = None,
    vectors: Mapping[UUID, Vector] | None = None,
) -> TurnRecord:
    """The rows of one call. Pure."""
    nodes = {node.chain: node for recipe in (call.request, call.sent) if recipe for node in recipe.nodes}
    blobs = {key: body for recipe in (call.request, call.sent) if recipe for key, body in recipe.blobs.items()}
    return TurnRecord(
        call=_call(call, exchange),
        stream=call.stream,
        chains=[
            ChainRecord(node.chain, node.parent, b"".join(node.blobs), b"".join(node.lead) or None)
            for node in nodes.values()
        ],
        blobs=(list(blobs), list(blobs.values())),
        audit=_json(written(compiled.audit)) if compiled else None,
        eta=compiled.eta if compiled else None,
        session=_session(exchange, rows, system_tokens, call.tenant_id) if exchange else None,
        messages=rows.messages,
        heads=rows.heads,
        block=_block(exchange, rows) if exchange else None,
        space=space,
        vectors=vectors or {},
        terms=rows.terms,
        jobs=_jobs(call, exchange, rows) if exchange else (),
        # Of what was said while Mneme was to learn nothing it does not learn what was of use either.
        uses=used_memories(compiled.audit) if compiled and exchange and exchange.learn else (),
        asked=asked_memories(compiled.audit) if compiled and exchange and exchange.learn else (),
        part=call.part,
    )


_SHARED = tuple(each for each in CallRecord._fields if each in CallFacts.__struct_fields__)
_shared = attrgetter(*_SHARED)


def _call(call: CallFacts, exchange: Exchange | None) -> CallRecord:
    """Its row: what has the same name goes over as it is, but for the names given here."""
    request, sent = call.request, call.sent
    changed: dict[str, Any] = {
        "session_id": exchange.session_id if exchange else call.session_id,
        "path": storable(masked_path(call.path)),
        "model": storable(call.model),
        "answered_model": storable(call.answered_model) if call.answered_model else None,
        "outcome": int(call.outcome),
        "request_headers": _json(masked(call.request_headers)),
        "response_headers": _json(masked(call.response_headers)),
        "request_body": call.body,
        "request_truncated": call.body_truncated,
        "request_prefix": request.prefix if request else None,
        "request_suffix": request.suffix if request else None,
        "request_chain": request.chain if request else None,
        "request_count": request.count if request else None,
        "request_sha256": request.sha256 if request else sha256(call.body).digest() if call.body else None,
        "request_bytes": request.size if request else call.body_size,
        "sent_prefix": sent.prefix if sent else None,
        "sent_suffix": sent.suffix if sent else None,
        "sent_chain": sent.chain if sent else None,
        "sent_count": sent.count if sent else None,
        "sent_sha256": sent.sha256 if sent else None,
        "prompt_tokens": call.usage.prompt,
        "completion_tokens": call.usage.completion,
        "cached_tokens": call.usage.cached,
        "usage_counted": call.usage.counted,
        "idempotency_key": storable(call.idempotency_key) if call.idempotency_key else None,
        "error": storable(call.error) if call.error else None,
        "metadata": _json(call.metadata),
        "labels": call.labels or None,
    }
    return CallRecord(**dict(zip(_SHARED, _shared(call), strict=True)) | changed)


def _session(exchange: Exchange, rows: _Rows, system_tokens: int | None, tenant: UUID) -> SessionRecord:
    prompt = storable(exchange.system_prompt) if exchange.system_prompt is not None else None
    answered, limit = rows.head is not None, exchange.max_response_tokens
    return SessionRecord(
        session_id=exchange.session_id,
        user_external_id=exchange.user,
        external_id=exchange.session_name,
        route_id=ids.route_id(tenant, exchange.session_name) if exchange.session_name is not None else None,
        parent_session_id=exchange.parent_session_id,
        branch_turn_index=exchange.branch_turn_index,
        model_id=storable(exchange.model),
        context_window_size=exchange.window,
        system_prompt=prompt,
        system_prompt_hash=sha256(prompt.encode()).digest() if prompt is not None else None,
        system_prompt_tokens=system_tokens,
        temperature=_real(exchange.temperature),
        top_p=_real(exchange.top_p),
        max_response_tokens=min(limit, INT_MAX) if limit is not None else None,
        session_type=None,
        expires_at=exchange.expires_at,
        head_message_id=rows.head,
        head_chain=exchange.answer_chains[0] if answered else None,
        tail1=exchange.tails[0] if answered else None,
        tail2=exchange.tails[1] if answered else None,
        block_epoch=exchange.epoch,
    )


def _block(exchange: Exchange, rows: _Rows) -> BlockRecord | None:
    """The block stands in the last user message: of this exchange, or in the stored question that it answers again."""
    block = exchange.block
    if block is None or not block.anchor:
        return None
    asked = [each.message_id for each in rows.messages if each.role == ROLES["user"]]
    if not asked and exchange.asked_index is not None and exchange.parent_message_id is not None:
        asked = [exchange.parent_message_id]
    if not asked:
        return None
    return BlockRecord(
        epoch=exchange.epoch or 0,
        message_id=asked[-1],
        chain_hash=block.anchor,
        message_hash=block.message_hash,
        text=storable(block.text),
        item_ids=block.item_ids,
        token_count=block.token_count,
        item_spaces=block.item_spaces or None,
    )


def _jobs(call: CallFacts, exchange: Exchange, rows: _Rows) -> list[JobRecord]:
    shown = [each for each in rows.messages if not each.hidden]
    if not shown:
        return []
    payload = {
        "call": str(call.call_id),
        "tenant": str(call.tenant_id),
        "user": str(call.user_id),
        "session": str(exchange.session_id),
        "session_name": exchange.session_name,
        "messages": [str(each.message_id) for each in shown],
        "from": shown[0].created_at.isoformat(),
        "to": max(each.created_at for each in shown).isoformat(),
        "confined": exchange.confined,
    }
    return [JobRecord("learn", orjson.dumps(payload), f"learn:{call.call_id}", 0.0)]


def _finish(answer: AnsweredChoice) -> int | None:
    if not answer.whole:
        return INTERRUPTED
    if answer.finish_reason is None:
        return None
    return FINISH_REASONS.get(answer.finish_reason, FINISH_OTHER)


def _real(value: float | None) -> float | None:
    """A parameter as a `real` column takes it: what is out of range is the upstream's to judge, and the bytes have it."""
    return None if value is None else max(-REAL_MAX, min(value, REAL_MAX))


def _metadata(message: Mapping[str, Any]) -> str | None:
    """What of a message has no column: a role that nobody knows, and fields of the client's own."""
    role = message.get("role")
    kept: dict[str, Any] = {} if isinstance(role, str) and role in ROLES else {"role": role}
    fields = {key: value for key, value in message.items() if key not in _KEPT_FIELDS and value not in (None, [], {})}
    if fields:
        kept["fields"] = fields
    return _json({GIVEN: kept}) if kept else None


def _json(value: Any) -> str:
    """JSON as jsonb takes it: an escaped U+0000 would be refused."""
    try:
        text = orjson.dumps(value, default=str).decode()
    except TypeError:  # deeper than orjson writes, though not than it reads
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except RecursionError:
            text = "null"  # the bytes have it
    return _ESCAPED_NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text
