"""One request, from the socket to the disk:

    authenticate → identify → parse → remember (reconcile, compile) → forward → relay (tee) → record → acknowledge

Plain ASGI, because this is the path that everything goes through. Whatever memory does, the request goes on: a failure
before the upstream is called turns into `x-mneme-status: degraded`, recorded with its reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from datetime import datetime
from functools import partial
from typing import Any, Protocol
from urllib.parse import quote
from uuid import UUID

from msgspec.structs import replace

from app.capture.record import CAPTURE_MAX_BYTES, Recorder, is_sampled
from app.clock import Clock
from app.errors import BadRequest, Forbidden, MnemeError, NotFound, Stopping, StoreUnavailable, UpgradeRefused
from app.gateway.addon import Addon
from app.gateway.augment import Augmenter
from app.gateway.call import (
    Admits,
    Forwarded,
    Incoming,
    Keeper,
    Parsed,
    Remembered,
    aliased,
    grown,
    nobody,
    own_headers,
)
from app.gateway.dialects import api_of, dialect_of
from app.gateway.dialects.base import NAMING, ChatRequest, Dialect
from app.gateway.dialects.splice import parse_object, with_value
from app.gateway.dialects.sse import EndGuard
from app.gateway.encodings import find_codings, is_decodable
from app.gateway.finalize import UNREADABLE_ANSWER, Accountant, Finalizer
from app.gateway.forward import Forwarder, SecondTry, Sender, outgoing_headers
from app.gateway.headers import offers_websocket
from app.gateway.identify import (
    PRINCIPAL,
    NamelessUserLog,
    Principal,
    RequestCoalescer,
    check_agreement,
    find_rejected_names,
    identify,
    index_headers,
    switches,
)
from app.gateway.model_discovery import ModelDiscovery
from app.gateway.prepare import Obeys, Preparer
from app.gateway.relay import ClientGone, Ending, Inbound, Outbound, Receive, Send, Tape, relay
from app.gateway.sharing import Sharer
from app.gateway.upstream import Router
from app.metrics import Metrics
from app.settings import Settings
from app.store.ids import uuid7
from app.tasks import Supervisor

log = logging.getLogger("mneme.turn")

_MAX_PATH_CHARS = 200
"""Most characters of a path that an error message quotes."""

OBSERVER = "mneme.observer"
"""In an ASGI scope: what is told of the call that is made of it, at each of its stages."""


class Authenticator(Protocol):
    """Says whose key it is."""

    async def check(self, headers: Mapping[str, str]) -> Principal:
        """Raises Unauthenticated, StoreUnavailable."""


Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
"""An ASGI application: the gateway, or what is wrapped around it."""

REPEAT_WAIT_S = 10.0
"""Seconds that a repeated Idempotency-Key waits for the call in flight; most answers take less."""


class Gateway:
    """The ASGI application under `/v1`."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        router: Router,
        sender: Sender,
        preparer: Preparer,
        recorder: Recorder,
        accountant: Accountant,
        discovery: ModelDiscovery,
        limiter: Admits,
        metrics: Metrics,
        settings: Settings,
        clock: Clock,
        tasks: Supervisor,
        keeper: Keeper | None = None,
        addon: Addon | None = None,
        commander: Obeys | None = None,
        sharer: Sharer | None = None,
        capture_max_bytes: int = CAPTURE_MAX_BYTES,
    ) -> None:
        """`sender`: sends to the upstreams. `capture_max_bytes`: see `CAPTURE_MAX_BYTES`. None without their features: `addon`,
        `commander` (does what users tell memory to do), `sharer` (keeps what is said to shared spaces)."""
        self._authenticator = authenticator
        self._keeper = keeper or Keeper()
        self._router = router
        self._discovery = discovery
        self._limiter = limiter
        self._ready = accountant.ready
        self._metrics = metrics
        self._settings = settings
        self._capture_max_bytes = capture_max_bytes
        self._clock = clock
        self._tasks = tasks
        self._finalizer = Finalizer(
            preparer=preparer,
            accountant=accountant,
            recorder=recorder,
            metrics=metrics,
            settings=settings,
            clock=clock,
            keeper=self._keeper,
            sharer=sharer,
        )
        self._augmenter = Augmenter(preparer, self._keeper, metrics, settings, addon, commander)
        self.settle = self._finalizer.settle
        """For the drain, which stores what was kept before."""
        self.sender = sender
        """For replays as well: it knows which upstreams are worth asking."""
        self._forwarder = Forwarder(self.sender, self._finalizer, metrics, tasks)
        self._second_try = SecondTry(self._forwarder, self._augmenter, metrics)
        self._addon = addon
        self._coalescer = RequestCoalescer()
        self._nameless_users = NamelessUserLog()
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def drained(self, timeout_s: float) -> None:
        """Wait until no request runs any more: cancelled ones still record what they had."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        self._running += 1
        self._idle.clear()
        try:
            await self._handle(scope, receive, send)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _handle(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        started_ns, at = time.perf_counter_ns(), self._clock.now()
        inbound = Inbound(receive)
        call_id = uuid7(at)
        outbound = Outbound(send, api_of(scope["path"]).refusal)
        try:
            call = await self._admit(scope, call_id, at, started_ns, inbound, outbound)
            call.observe(call)
            self._tasks.spawn(inbound.watch(), f"watch {call_id}")
            await (self._chat(call, call.dialect) if call.dialect is not None else self._pass(call))
        except ClientGone:
            log.info("client gone before the answer", extra={"call_id": str(call_id)})
        except MnemeError as error:
            await outbound.refuse(call_id, error)
        except asyncio.CancelledError:
            # Nobody but the server cancels a request, when it stops and the grace is over. What there was is recorded; whoever
            # has seen nothing yet is told, whoever has sees a break.
            log.info("cut off by the end of the server", extra={"call_id": str(call_id)})
            await outbound.refuse(call_id, Stopping(code="server_stopping"))
        except Exception:  # boundary: the turn pipeline turns any failure into an answer and a log line
            log.exception("request failed", extra={"call_id": str(call_id)})
            self._metrics.degraded("failure")
            await outbound.refuse(call_id, MnemeError("Mneme failed to handle this request; its log says why."))
        finally:
            inbound.gone.set()

    async def _admit(
        self,
        scope: MutableMapping[str, Any],
        call_id: UUID,
        at: datetime,
        started_ns: int,
        inbound: Inbound,
        send: Send,
    ) -> Incoming:
        """Who asks, and where. Raises what is Mneme's own to refuse: the key, its own headers, the path."""
        raw = list(scope["headers"])
        if scope["method"] == "GET" and offers_websocket(raw):
            raise UpgradeRefused(code="websocket_not_supported")
        check_agreement(raw)
        headers = index_headers(raw)
        principal = scope.get(PRINCIPAL) or await self._authenticator.check(headers)
        if not principal.allows("proxy"):
            raise Forbidden("This key has no scope to call models.", code="missing_scope")
        captured = principal.limits is None or principal.limits.capture
        captured = captured and is_sampled(call_id, self._settings.capture_sample)
        path, query = scope["path"], scope.get("query_string", b"")
        raw_path = scope.get("raw_path") or quote(path).encode()
        if path.startswith("/v1/v1/"):
            raise NotFound(
                f'There is no {scope["method"]} {path[:_MAX_PATH_CHARS]} here: the path has "/v1" twice. '
                'Leave "/v1" out of the base URL, or out of the path that is added to it.',
                code="repeated_v1",
            )
        if ".." in path.split("/"):
            raise BadRequest("A path under /v1 must not lead out of it.")
        if not (raw_path.isascii() and query.isascii()):
            raise BadRequest("A URL holds ASCII only: percent-encode the rest.")
        return Incoming(
            id=call_id,
            at=at,
            started_ns=started_ns,
            method=scope["method"],
            path=path,
            raw_path=raw_path,
            query=query,
            raw_headers=raw,
            headers=headers,
            principal=principal,
            switches=switches(headers, captured=captured),
            inbound=inbound,
            send=send,
            dialect=dialect_of(scope["method"], path),
            observe=scope.get(OBSERVER, nobody),
        )

    def _parsed(self, call: Incoming, document: Mapping[str, Any] | None, **body: Any) -> Parsed:
        """What a body says of who asks, and whom. `document`: the body, where it is a JSON object."""
        dialect, model = call.dialect, document.get("model") if document is not None else None
        model = model if isinstance(model, str) else None
        named, session = None, None
        if document is not None and not (dialect.naming if dialect is not None else NAMING).isdisjoint(document):
            named, session = document, dialect.session(document) if dialect is not None else None
        identity = identify(call.headers, named, call.principal, session)
        if identity.confined:
            rejected = find_rejected_names(call.headers, named, call.principal)
            self._nameless_users.report(rejected, identity.tenant_id, call.id)
        return grown(Parsed, call, identity=identity, target=self._router.route(model), model=model, **body)

    # --- chats -----------------------------------------------------------------------------------------------------------

    async def _chat(self, incoming: Incoming, dialect: Dialect) -> None:
        """parse → remember → forward → relay and record."""
        body = await incoming.inbound.read(self._settings.max_body_bytes)
        document = parse_object(body)
        call = self._parsed(incoming, document, body=body, body_size=len(body))
        async with self._limiter.admitted(call, document) as call:
            off = call.switches.memory == "off"
            unfit = dialect.unfit(document) if document is not None else None
            if document is not None and unfit is None and not (off and call.bare):  # else nobody asks what stands in it
                call = replace(call, chat=dialect.read(body, document))
                self._discovery.notice(call.target, partial(outgoing_headers, call))
            if call.chat is not None:
                await self._ready(call.target.model_alias or call.chat.model)
            if off or call.chat is None:
                reason = "memory-off" if off else unfit or "not-understood"
                await self._answer(grown(Remembered, call, sent=aliased(call), reason=reason))
            else:
                await self._with_memory(call, call.chat)

    async def _with_memory(self, call: Parsed, chat: ChatRequest) -> None:
        """Remember and answer; a repeat of a call that is still on its way waits for that one's end."""
        passage = self._coalescer.passage(call.identity, chat.body)
        began = time.perf_counter_ns()
        with call.inbound.gone.interrupts():
            await passage.enter(REPEAT_WAIT_S)
        waited_ns = time.perf_counter_ns() - began
        try:
            remembered = await self._augmenter.remember(call, chat)
            if remembered.answered_before:
                passage.leave()
            await self._answer(replace(remembered, waited_ns=waited_ns))
        finally:
            passage.leave()

    async def _answer(self, call: Remembered) -> None:
        """Forward, relay, record."""
        call.observe(call)
        forwarded = await self._forwarder.send(call, call.sent)
        forwarded = await self._second_try.unless_refused(forwarded)
        if self._addon is not None and forwarded.part is not None:
            forwarded = await self._addon.answered(forwarded, self._forwarder, self._finalizer)
        await self._relay(forwarded)

    async def _relay(self, call: Forwarded) -> None:
        call.observe(call)
        response = call.response
        assert response is not None, "what nobody answered is recorded, and refused"
        if call.chat is not None and call.status != "bypass" and not is_decodable(find_codings(response.headers)):
            call = replace(call, status="degraded", reason=UNREADABLE_ANSWER)
        limit = None if call.chat is not None else self._capture_max_bytes
        tape = Tape(call.started_ns, limit=limit)

        async def seal(ending: Ending) -> bool:
            return (await self._finalizer.seal(call, ending, tape)).stored

        ending = await relay(
            response,
            call.send,
            head=own_headers(call, best_effort=self._settings.durability == "best_effort"),
            gone=call.inbound.gone,
            tape=None if call.bare else tape,
            seal=None if call.bare else seal,
            end=call.dialect.guard if call.dialect is not None else EndGuard,
        )
        self._metrics.request(call.kind, ending.kind, call.status)
        self._metrics.stage("overhead", call.overhead_ns / 1e9)
        if ending.stored is False and not ending.started:
            raise StoreUnavailable("The answer could not be stored, so it is withheld; try again.")

    # --- everything else under /v1 ---------------------------------------------------------------------------------------

    async def _pass(self, incoming: Incoming) -> None:
        """Both ways, unread; recorded up to a limit."""
        length = incoming.headers.get("content-length", "")
        kind = incoming.headers.get("content-type", "").partition(";")[0].strip().lower()
        limit = self._capture_max_bytes
        is_short = "transfer-encoding" not in incoming.headers and (
            not length or (length.isdigit() and int(length) <= limit)
        )
        document: dict[str, Any] | None = None
        sent: bytes | AsyncIterator[bytes]
        if is_short or kind == "application/json":
            sent = await incoming.inbound.read(self._settings.max_body_bytes)
            document = parse_object(sent) if kind == "application/json" else None
            kept = incoming.switches.capture and not kind.startswith("multipart/") and len(sent) <= limit
            body, truncated = (sent, False) if kept else (None, bool(sent))
            call = self._parsed(incoming, document, body=body, body_size=len(sent), body_truncated=truncated)
            if call.target.model_alias is not None:
                sent = with_value(sent, "model", call.target.model_alias)
        else:
            call, sent = self._parsed(incoming, None, body_truncated=True), incoming.inbound.chunks()
        async with self._limiter.admitted(call, document) as call:
            remembered = grown(Remembered, call, reason="not-chat")
            remembered.observe(remembered)
            await self._relay(await self._forwarder.send(remembered, sent))
