"""A request on its way through the gateway, what is known of it at each stage, and two ports for features: who lets calls in
(`Admits`), and what keeps them while Postgres is away (`Keeper`).

    Incoming ─ read ─→ Parsed ─ remember ─→ Remembered ─ forward ─→ Forwarded ─ record ─→ Recorded

A stage has all of the one before, and is complete when it is made; nothing changes it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Literal, TypeVar
from urllib.parse import quote
from uuid import UUID

from msgspec import Struct

from app.capture.facts import CallFacts, Leg
from app.errors import Forbidden, SpoolUnavailable, StoreUnavailable
from app.gateway.addon import Addon, CallPart, Joint
from app.gateway.dialects.base import ChatRequest, Dialect, DialectName, renamed
from app.gateway.dialects.splice import splice, with_value
from app.gateway.headers import Headers, Redactor
from app.gateway.identify import EarlierAnswer, Identity, Principal, Switches
from app.gateway.prepare import NOTHING_TOLD, Obeyed, Prepared
from app.gateway.reconcile import Place
from app.gateway.relay import Ending, Inbound, Send, Tape
from app.gateway.upstream import Target, UpstreamResponse
from app.metrics import MemoryStatus


class LegOf(Struct, frozen=True):
    """That a call is a leg of another: of which, which from 1, and in which session."""

    call_id: UUID
    number: int
    session_id: UUID | None


class Admission(Struct):
    """A call that its key's limits let in, and what it came to: filled in while the call runs, the one value here that changes.
    `slot`: what settles it; None: the database was away, and nothing is to be settled. `headers`: what is told of what is left.
    """

    headers: Headers
    slot: int | None
    asked: bool = False
    """An upstream was."""
    facts: CallFacts | None = None
    """What it came to, when it has ended."""
    recorded: bool = False
    """Something of it is kept."""


def nobody(_: Incoming) -> None:
    """Observes nothing."""


class Incoming(Struct, frozen=True, kw_only=True):
    """Who asks, and where: its head was read, its body not yet."""

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
    inbound: Inbound
    send: Send
    dialect: Dialect | None
    """In which it asks for an answer; None: it passes through without memory."""
    observe: Callable[[Incoming], None] = nobody
    """Is told of the call at each stage."""

    def elapsed_us(self) -> int:
        return (time.perf_counter_ns() - self.started_ns) // 1000

    @property
    def kind(self) -> DialectName | Literal["passthrough"]:
        """As the metrics call it."""
        return self.dialect.name if self.dialect is not None else "passthrough"


class Parsed(Incoming, frozen=True, kw_only=True):
    """What it asks, and whom: its body was read, and the limits of its key let it in."""

    identity: Identity
    target: Target
    """The upstream that it goes to; once it is `Forwarded`, the one that answered."""
    model: str | None = None
    """As the client names it."""
    body: bytes | None = None
    """None: it is not kept."""
    body_size: int | None = None
    """None: it is still coming in (`size`)."""
    body_truncated: bool = False
    chat: ChatRequest | None = None
    admission: Admission | None = None
    """Of a key with limits."""
    leg_of: LegOf | None = None
    """It is a leg of another, and no turn."""

    @property
    def size(self) -> int:
        """Bytes of its body, as far as they have come."""
        return self.body_size if self.body_size is not None else self.inbound.size

    @property
    def is_turn(self) -> bool:
        """It is a turn of a conversation."""
        return self.chat is not None and self.switches.memory != "off" and self.leg_of is None

    @property
    def kept(self) -> bool:
        """Something that was said is to be kept."""
        return self.switches.capture or self.is_turn

    @property
    def bare(self) -> bool:
        """Nothing of it is to be kept, nor counted for the limits of its key: Mneme only passes it on."""
        return not self.kept and self.admission is None


class Remembered(Parsed, frozen=True, kw_only=True):
    """What memory had to say, and what goes out."""

    sent: bytes = b""
    """Where its body is all here."""
    status: MemoryStatus = "bypass"
    reason: str | None = None
    place: Place | None = None
    replay: EarlierAnswer | None = None
    prepared: Prepared | None = None
    part: CallPart | None = None
    """What an addon makes of it."""
    obeyed: Obeyed = NOTHING_TOLD
    """What became of what it tells memory to do."""
    attempts: int = 0
    """Requests sent to upstreams so far."""
    waited_ns: int = 0
    """For others so far: the same call before, and upstreams until the heads of their answers."""
    overhead_ns: int = 0
    """Of Mneme, until it was sent."""

    @property
    def needs_place(self) -> bool:
        """Where it stands in its conversation has to be found out still."""
        return self.is_turn and self.place is None

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


class Forwarded(Remembered, frozen=True, kw_only=True):
    """Who answered, and the head of the answer."""

    response: UpstreamResponse | None
    """None: nobody answered."""
    joint: Joint | None = None
    """Its answer may be made of several of the upstream's."""
    legs: Sequence[Leg] = ()
    """What those took, when all have ended; empty where its answer is the upstream's own."""
    answer_hashes: Sequence[bytes] = ()
    """By which its answers are recognised, where what was kept of them lacks something."""


class Recorded(Forwarded, frozen=True, kw_only=True):
    """What it came to."""

    facts: CallFacts


Stage = TypeVar("Stage", bound=Incoming)


def grown(stage: type[Stage], call: Incoming, **more: Any) -> Stage:
    """The call at another stage: what is known of it, and more."""
    known = {name: getattr(call, name) for name in stage.__struct_fields__ if hasattr(call, name)}
    return stage(**{**known, **more})


def aliased(call: Parsed) -> bytes:
    """The client's body; with the upstream's own name for the model, where the settings give it another."""
    assert call.body is not None
    if call.target.model_alias is None:
        return call.body
    if call.chat is None:
        return with_value(call.body, "model", call.target.model_alias)
    return splice(call.body, renamed(call.chat, call.target.model_alias))


def own_headers(call: Remembered, *, best_effort: bool) -> Headers:
    """What Mneme says of an answer in its head. `best_effort`: answers go out even if they could not be stored."""
    own = {"x-mneme-call-id": str(call.id), "x-mneme-status": call.status}
    if call.reason is not None:
        own["x-mneme-reason"] = call.reason
    if call.session_id is not None:
        own["x-mneme-session-id"] = str(call.session_id)
    if call.identity.space is not None and call.place is not None:
        own["x-mneme-space"] = call.identity.space
    compiled = call.prepared.compilation if call.prepared else None
    if compiled is not None:
        own["x-mneme-context"] = (
            f"memories={compiled.memories};history={compiled.audit['history']['messages']};"
            f"tokens={compiled.tokens};budget={compiled.budget}"
        )
    if call.part is not None:
        own |= call.part.headers(call.joint if isinstance(call, Forwarded) else None)
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


# --- what features stand in for ------------------------------------------------------------------------------------------


class Admits:
    """Lets calls in, each by the limits of its key (`features/limits`). This one could hold no key to them: one that has some
    stays out."""

    @asynccontextmanager
    async def admitted(self, call: Parsed, document: Mapping[str, Any] | None) -> AsyncIterator[Parsed]:
        """The call, let in; settled when it is over, however it ended. `document`: the body, where it is a JSON object. Raises
        what keeps it out."""
        limits = call.principal.limits
        if limits is not None and limits.held:
            raise Forbidden(
                "This key has limits, and this installation has no app.features.limits to hold it to them.",
                code="limits_not_held",
            )
        yield call


Settle = Callable[[Forwarded, Ending, Tape, datetime, UUID | None], Awaitable[CallFacts]]
"""Stores a call that has ended, wherever it comes from (`Finalizer.settle`)."""


class Keeper:
    """Keeps calls that end while Postgres is away (`features/spool`). This class keeps none."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        """`redactor`: takes out what is not to be stored."""
        self.redactor = redactor or Redactor()

    def goes_behind(self, call: Forwarded) -> bool:
        """Whether a call that has ended has to wait without Postgres being asked."""
        return False

    def behind(self, user: UUID) -> bool:
        """Whether calls of this user wait."""
        return False

    def lost(self, error: StoreUnavailable) -> None:
        """Postgres did not take a call. Raises `error` where nothing else takes it."""
        raise error

    async def keep(
        self, call: Forwarded, ending: Ending, tape: Tape, ended_at: datetime, hashes: Sequence[bytes] = ()
    ) -> None:
        """Keep a call that has ended; returns when it is durable. `hashes`: of its answer's messages, where something is
        redacted. Raises SpoolUnavailable."""
        raise SpoolUnavailable

    async def caught_up(self, user: UUID) -> None:
        """Wait until none of a user's calls waits any more. Raises StoreUnavailable when Postgres is away still."""

    def unreachable(self) -> None:
        """Postgres has not been there since the process began: nobody drains yet."""

    def drain(
        self, settle: Settle, writable: Callable[[], Awaitable[bool]], capture_max_bytes: int, addon: Addon | None
    ) -> Callable[[], None]:
        """Begin to store what waits, by `settle`; what ends that. `writable`: whether Postgres answers and takes writes."""
        return lambda: None
