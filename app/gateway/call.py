"""One request on its way through the gateway: what is known of it so far."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.gateway.headers import Headers
from app.gateway.identify import Identity, Principal, Switches
from app.gateway.inbound import Inbound, Send
from app.gateway.prepare import ChatRequest, Prepared
from app.gateway.reconcile import Place
from app.gateway.replayed import Replay
from app.gateway.upstream import Target
from app.metrics import MemoryStatus


@dataclass(slots=True)
class Call:
    """One request on its way."""

    id: UUID
    at: datetime
    started_ns: int
    method: str
    path: str
    raw_path: bytes
    query: bytes
    raw_headers: Headers
    headers: dict[str, str]
    principal: Principal
    switches: Switches
    identity: Identity
    target: Target
    inbound: Inbound
    send: Send
    chat: ChatRequest | None = None
    body: bytes | None = None
    body_size: int = 0
    body_truncated: bool = False
    place: Place | None = None
    prepared: Prepared | None = None
    replay: Replay | None = None
    status: MemoryStatus = "bypass"
    reason: str | None = None
    sent: bytes = b""
    overhead_ns: int = 0

    def elapsed_us(self) -> int:
        return (time.perf_counter_ns() - self.started_ns) // 1000
