"""Captured calls for tests, written as the recorder writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import orjson

from app.capture.facts import Position, Recipe, make
from app.store import ids
from app.store.records import CallRecord, ChainRecord, StreamRecord, TurnRecord
from app.store.turns import TurnStore


def body_of(messages: Sequence[bytes], before: bytes = b'{ "model":"m", "messages":[') -> tuple[bytes, Recipe]:
    """A request body with odd spacing, and its recipe."""
    return _recipe(messages, before, None)


def body_after(messages: Sequence[bytes], known: Position) -> tuple[bytes, Recipe]:
    """The same for a request whose first messages are stored already."""
    return _recipe(messages, b'{ "model":"m", "messages":[', known)


def _recipe(messages: Sequence[bytes], before: bytes, known: Position | None) -> tuple[bytes, Recipe]:
    body, spans = before, []
    for i, each in enumerate(messages):
        body += b" ,\n" if i else b" "
        spans.append((len(body), len(body) + len(each)))
        body += each
    body += b' ],"seed": 1.0}'
    return body, make(body, len(before), spans, known)


@dataclass
class CapturedCall:
    """What a captured call has; everything else has plain values."""

    at: datetime
    tenant: UUID = ids.LOCAL_TENANT
    user: str = "ana"
    session: UUID | None = None
    model: str = "m"
    status: int | None = 200
    received: Recipe | None = None
    sent: Recipe | None = None
    body: bytes | None = None
    answer: bytes | None = None
    events: Sequence[tuple[int, int]] = ()
    audit: dict[str, Any] | None = None
    outcome: int = 0
    error: str | None = None
    latency_ms: int | None = None
    tool_calls: int | None = None
    headers: list[list[str]] = field(default_factory=lambda: [["authorization", "***"]])

    def record(self) -> TurnRecord:
        """As `TurnStore.record` takes it."""
        fields: dict[str, Any] = dict.fromkeys(CallRecord._fields)
        received, sent = self.received, self.sent
        fields |= {
            "call_id": ids.uuid7(self.at), "tenant_id": self.tenant, "user_id": ids.user_id(self.tenant, self.user),
            "session_id": self.session, "created_at": self.at, "method": "POST", "path": "/v1/chat/completions",
            "upstream": "test", "model": self.model, "streamed": bool(self.events), "status": self.status,
            "outcome": self.outcome, "error": self.error, "latency_ms": self.latency_ms,
            "memory_status": "ok", "request_headers": orjson.dumps(self.headers).decode(), "response_headers": "[]",
            "request_body": self.body, "request_truncated": False, "request_bytes": 0, "prompt_tokens": 7,
            "completion_tokens": 3, "usage_counted": False, "cost_microcents": 11, "retry_count": 0,
            "metadata": orjson.dumps({"n": 1} | ({"tool_calls": self.tool_calls} if self.tool_calls else {})).decode(),
        }  # fmt: skip
        if self.body is not None:
            fields["request_sha256"] = sha256(self.body).digest()
        for name, recipe in (("request", received), ("sent", sent)):
            if recipe is not None:
                fields |= {
                    f"{name}_prefix": recipe.prefix, f"{name}_suffix": recipe.suffix, f"{name}_chain": recipe.chain,
                    f"{name}_count": recipe.count, f"{name}_sha256": recipe.sha256,
                }  # fmt: skip
        recipes = [each for each in (received, sent) if each is not None]
        blobs: dict[bytes, bytes] = {key: value for each in recipes for key, value in each.blobs.items()}
        offsets = [offset for offset, _ in self.events]
        times = [at for _, at in self.events]
        return TurnRecord(
            call=CallRecord(**fields),
            stream=StreamRecord(self.answer, False, [], [], offsets, times) if self.answer is not None else None,
            chains=[ChainRecord(n.chain, n.parent, b"".join(n.blobs)) for each in recipes for n in each.nodes],
            blobs=(list(blobs), list(blobs.values())),
            audit=orjson.dumps(self.audit).decode() if self.audit is not None else None,
        )


async def capture(turns: TurnStore, call: CapturedCall) -> str:
    """Store a call; its id."""
    record = call.record()
    assert await turns.record(record)
    return str(record.call.call_id)
