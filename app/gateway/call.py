"""One request on its way through the gateway: what is known of it so far."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, Protocol
from urllib.parse import quote
from uuid import UUID

from msgspec import Struct

from app.capture.facts import CallFacts, Leg
from app.capture.spool import Entry
from app.context.resolution import Inquiry
from app.dialects.base import ChatRequest, Dialect
from app.gateway.client import Inbound, Send
from app.gateway.commands import NOTHING_TOLD, Obeyed
from app.gateway.headers import Headers
from app.gateway.idempotency import Replay
from app.gateway.identify import Identity, Principal, Switches
from app.gateway.limits import Admission
from app.gateway.prepare import Prepared
from app.gateway.reconcile import Place
from app.gateway.relay import Ending
from app.gateway.upstream import Target
from app.metrics import MemoryStatus
from app.paging.state import Paging


class LegOf(Struct, frozen=True):
    """That a call is a leg of another: of which, which from 1, and in which session."""

    call_id: UUID
    number: int
    session_id: UUID | None


class Joint(Protocol):
    """What an answer is made of, where that is more than one of the upstream's (`tool_loop.py`)."""

    whole: bool
    """The client gets it in one piece: all faults are known before its head."""

    async def end(self, ending: Ending) -> bool:
        """Record what is not recorded yet; `call.legs` is complete then. False: not all of it could be stored."""
        ...


class Call(Struct):
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
    """The upstream that it goes to, and then the one that answered."""
    inbound: Inbound
    send: Send
    dialect: Dialect | None = None
    """In which it asks for an answer; None: it passes through without memory."""
    chat: ChatRequest | None = None
    admission: Admission | None = None
    """Of a key with limits."""
    facts: CallFacts | None = None
    """What it came to, when it has ended."""
    recorded: bool = False
    """Something of it is kept."""
    model: str | None = None
    """As the client names it."""
    body: bytes | None = None
    body_size: int = 0
    body_truncated: bool = False
    place: Place | None = None
    inquiry: Inquiry | None = None
    """What is being found out of the things that it names."""
    paging: Paging | None = None
    """What of its prompt is shown shorter; None: it is not paged."""
    unpaged: str | None = None
    """Why it is not paged though that is asked for."""
    obeyed: Obeyed = NOTHING_TOLD
    """What became of what it tells memory to do."""
    prepared: Prepared | None = None
    replay: Replay | None = None
    status: MemoryStatus = "bypass"
    reason: str | None = None
    sent: bytes = b""
    attempts: int = 0
    """Requests sent to upstreams."""
    waited_ns: int = 0
    """For the upstream, until the heads of its answers."""
    overhead_ns: int = 0
    answer_hashes: Sequence[bytes] = ()
    """By which its answers are recognised, where what was kept of them lacks something."""
    entry: Entry | None = None
    """In the journal of running calls."""
    joint: Joint | None = None
    """Its model has tools of ours: its answer may be made of several of the upstream's."""
    legs: Sequence[Leg] = ()
    """What those took that have ended; empty where its answer is the upstream's own."""
    leg_of: LegOf | None = None
    """It is one of those itself, and no turn."""

    def elapsed_us(self) -> int:
        return (time.perf_counter_ns() - self.started_ns) // 1000

    @property
    def forwarded(self) -> bool:
        """Whether an upstream was asked."""
        return self.overhead_ns > 0

    @property
    def kind(self) -> Literal["chat", "responses", "passthrough"]:
        """As the metrics call it."""
        return self.dialect.name if self.dialect is not None else "passthrough"

    @property
    def kept(self) -> bool:
        """Something that was said is to be kept."""
        is_turn = self.switches.memory != "off" and self.chat is not None and self.leg_of is None
        return self.switches.capture or is_turn

    @property
    def bare(self) -> bool:
        """Nothing of it is to be kept, nor counted for the limits of its key: Mneme only passes it on."""
        return not self.kept and self.admission is None

    @property
    def needs_place(self) -> bool:
        """It is a turn of a conversation, and where it stands there has to be found out."""
        is_turn = self.chat is not None and self.switches.memory != "off" and self.leg_of is None
        return is_turn and self.place is None

    @property
    def answered_before(self) -> bool:
        """Its Idempotency-Key has an answer already: another one adds nothing to the conversation."""
        return self.replay is not None and self.replay.answered

    @property
    def session_id(self) -> UUID | None:
        """The session that it belongs to, as far as known."""
        if self.leg_of is not None:
            return self.leg_of.session_id
        if self.replay is not None and self.replay.answered and self.replay.session_id is not None:
            return self.replay.session_id
        return self.place.session_id if self.place is not None else None


def own_headers(call: Call, *, best_effort: bool) -> Headers:
    """What Mneme says of an answer in its head. `best_effort`: answers go out even if they could not be stored."""
    own = {"x-mneme-call-id": str(call.id), "x-mneme-status": call.status}
    if call.reason is not None:
        own["x-mneme-reason"] = call.reason
    if call.session_id is not None:
        own["x-mneme-session-id"] = str(call.session_id)
    compiled = call.prepared.compilation if call.prepared else None
    if compiled is not None:
        own["x-mneme-context"] = (
            f"memories={compiled.memories};history={compiled.audit['history']['messages']};"
            f"tokens={compiled.tokens};budget={compiled.budget}"
        )
    if call.paging is not None:
        own["x-mneme-paging"] = _paged(call.paging, call.joint)
    if call.target.simulated:
        own["x-mneme-upstream"] = "simulated"
    elif call.target.stands_in:
        own["x-mneme-upstream"] = quote(call.target.name)
    if call.attempts > 1:
        own["x-mneme-attempts"] = str(call.attempts)
    if best_effort:
        own["x-mneme-durability"] = "best-effort"
    own["x-mneme-overhead-ms"] = f"{call.overhead_ns / 1e6:.2f}"
    limits = call.admission.headers if call.admission is not None else []
    return [*((name.encode(), value.encode()) for name, value in own.items()), *limits]


def _paged(paging: Paging, joint: Joint | None) -> str:
    """What is known when the head goes out: of a stream, how often its model asked back before its first event ("2+")."""
    record = paging.record
    told = f"zone={record.zone};tokens={record.shown_tokens};budget={paging.budget};saved={paging.saved}"
    if paging.names is None:
        return f"{told};tools={paging.declined or 'none'}"
    more = "+" if joint is not None and not joint.whole else ""
    return f"{told};faults={len(paging.faults)}{more}"
