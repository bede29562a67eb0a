"""One request, from the socket to the disk:

    authenticate → identify → reconcile → compile → forward → relay (tee) → record → acknowledge

Plain ASGI, because this is the path that everything goes through. Whatever memory does, the request goes on: a failure
before the upstream is called turns into `x-mneme-status: degraded`, recorded with its reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote
from uuid import UUID

from app.capture.record import Recorder, wanted
from app.clock import Clock
from app.dialects.base import NAMING, ChatRequest, Dialect
from app.dialects.registry import dialect_of
from app.dialects.splice import with_value
from app.dialects.sse import EndGuard
from app.errors import BadRequest, Forbidden, MnemeError, Stopping, StoreUnavailable
from app.gateway.account import Accountant
from app.gateway.augment import Recaller
from app.gateway.call import Call, own_headers
from app.gateway.client import ClientGone, Inbound, Outbound, Receive, Send
from app.gateway.commands import Commander
from app.gateway.finalize import Finalizer
from app.gateway.forward import Forwarder, outgoing_headers
from app.gateway.headers import Headers
from app.gateway.idempotency import RequestCoalescer
from app.gateway.identify import Principal, check_agreement, identify, switches
from app.gateway.limiter import Limiter
from app.gateway.pager import Pager
from app.gateway.prepare import Preparer, parse_object
from app.gateway.relay import Ending, Tape, relay
from app.gateway.second_try import SecondTry, aliased
from app.gateway.sender import Sender
from app.gateway.spooling import Keeper
from app.gateway.tool_loop import Legs
from app.gateway.upstream import Router, Target, Transport, UpstreamResponse
from app.metrics import Metrics
from app.paging.state import Answering
from app.settings import Settings
from app.store.ids import uuid7
from app.tasks import Supervisor

log = logging.getLogger("mneme.turn")

OBSERVER = "mneme.observer"
"""In an ASGI scope of Mneme's own (app/api/chat.py): is told of the call that is made of it."""


class Authenticator(Protocol):
    """Says whose key it is."""

    async def check(self, headers: Mapping[str, str]) -> Principal:
        """Raises Unauthenticated, StoreUnavailable."""
        ...


class Application(Protocol):
    """An ASGI application: the gateway, or what is wrapped around it."""

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None: ...


class ModelDiscovery(Protocol):
    """Learns context windows from upstreams."""

    def notice(self, target: Target, headers: Callable[[], Headers]) -> None: ...


class Gateway:
    """The ASGI application under `/v1`."""

    def __init__(
        self,
        *,
        authenticator: Authenticator,
        router: Router,
        transports: Mapping[bool, Transport],
        preparer: Preparer,
        recorder: Recorder,
        accountant: Accountant,
        discovery: ModelDiscovery,
        limiter: Limiter,
        metrics: Metrics,
        settings: Settings,
        clock: Clock,
        tasks: Supervisor,
        keeper: Keeper | None = None,
        pager: Pager | None = None,
        answers: Answering | None = None,
        commander: Commander | None = None,
    ) -> None:
        """`transports`: the real one under False, the simulated one under True. `keeper`: None where there is no spool;
        `pager`: None where nothing is paged, `answers` where there is none either. `commander`: None where
        nothing is done that users tell memory to do."""
        self._authenticator = authenticator
        self._router = router
        self._discovery = discovery
        self._limiter = limiter
        self._accountant = accountant
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._tasks = tasks
        self._finalizer = Finalizer(
            preparer=preparer,
            accountant=accountant,
            recorder=recorder,
            metrics=metrics,
            settings=settings,
            clock=clock,
            keeper=keeper,
        )
        self._recaller = Recaller(preparer, keeper, metrics, settings, pager, commander)
        self.settle = self._finalizer.settle
        """For the drain, which stores what was kept before."""
        self.sender = Sender(transports, router, metrics, settings, clock)
        """For replays as well: it knows which upstreams are worth asking."""
        self._forwarder = Forwarder(self.sender, self._finalizer, metrics, tasks)
        self._second_try = SecondTry(self._forwarder, self._finalizer, self._recaller, metrics)
        self._legs = (
            Legs(self._forwarder, self._finalizer, answers, metrics=metrics, clock=clock, tasks=tasks)
            if answers
            else None
        )
        self._coalescer = RequestCoalescer()
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
        state = Outbound(send)
        call: Call | None = None
        try:
            call = await self._admit(scope, call_id, at, started_ns, inbound, state)
            if (observer := scope.get(OBSERVER)) is not None:
                observer(call)
            self._tasks.spawn(inbound.watch(), f"watch {call_id}")
            await (self._chat(call, call.dialect) if call.dialect is not None else self._pass_through(call))
        except ClientGone:
            log.info("client gone before the answer", extra={"call_id": str(call_id)})
        except MnemeError as error:
            await state.refuse(call_id, error)
        except asyncio.CancelledError:
            # Nobody but the server cancels a request, when it stops and the grace is over. What there was is recorded; whoever
            # has seen nothing yet is told, whoever has sees a break.
            log.info("cut off by the end of the server", extra={"call_id": str(call_id)})
            await state.refuse(call_id, Stopping(code="server_stopping"))
        except Exception:  # boundary: the turn pipeline turns any failure into an answer and a log line
            log.exception("request failed", extra={"call_id": str(call_id)})
            self._metrics.degraded("failure")
            await state.refuse(call_id, MnemeError("Mneme failed to handle this request; its log says why."))
        finally:
            inbound.gone.set()
            if call is not None:
                self._finalizer.release(call)
            self._limiter.finish(call)

    async def _admit(
        self,
        scope: MutableMapping[str, Any],
        call_id: UUID,
        at: datetime,
        started_ns: int,
        inbound: Inbound,
        send: Send,
    ) -> Call:
        """Who asks, and for what. Raises what is Mneme's own to refuse: the key, its own headers, the path."""
        raw = list(scope["headers"])
        check_agreement(raw)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw}
        principal = await self._authenticator.check(headers)
        if not principal.allows("proxy"):
            raise Forbidden("This key has no scope to call models.", code="missing_scope")
        captured = wanted(self._settings, call_id, principal.tenant_id)
        if principal.limits is not None and not principal.limits.capture:
            captured = False
        path, query = scope["path"], scope.get("query_string", b"")
        raw_path = scope.get("raw_path") or quote(path).encode()
        if ".." in path.split("/"):
            raise BadRequest("A path under /v1 must not lead out of it.")
        if not (raw_path.isascii() and query.isascii()):
            raise BadRequest("A URL holds ASCII only: percent-encode the rest.")
        return Call(
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
            identity=identify(headers, None, principal),
            target=self._router.route(None),
            inbound=inbound,
            send=send,
            dialect=dialect_of(scope["method"], path),
        )

    # --- the main job ------------------------------------------------------------------------------------------------

    async def _chat(self, call: Call, dialect: Dialect) -> None:
        body = await call.inbound.read(self._settings.max_body_bytes)
        call.body, call.body_size = body, len(body)
        document = parse_object(body)
        if document is not None:
            self._read(call, document)
        await self._limiter.admit(call, document)
        off = call.switches.memory == "off"
        unfit = dialect.unfit(document) if document is not None else None
        if document is not None and unfit is None and not (off and call.bare):  # else nobody asks what stands in it
            call.chat = chat = dialect.read(body, document)
            self._discovery.notice(call.target, lambda: outgoing_headers(call))
            if chat is not None:
                await self._accountant.ready(call.target.model_alias or chat.model)
        call.sent = aliased(call)
        if off:
            call.reason = "memory-off"
        elif call.chat is None:
            call.reason = unfit or "not-understood"
        else:
            await self._with_memory(call, call.chat)
            return
        await self._answer(call)

    def _read(self, call: Call, document: Mapping[str, Any]) -> None:
        """What a body says of who asks, and whom."""
        dialect = call.dialect
        if not (dialect.naming if dialect is not None else NAMING).isdisjoint(document):
            session = dialect.session(document) if dialect is not None else None
            call.identity = identify(call.headers, document, call.principal, session)
        model = document.get("model")
        call.model = model if isinstance(model, str) else None
        call.target = self._router.route(call.model)

    async def _with_memory(self, call: Call, chat: ChatRequest) -> None:
        """Remember and answer; a repeat of a call that is still on its way waits for that one's end."""
        passage = self._coalescer.passage(call.identity, chat.body)
        began = time.perf_counter_ns()
        with call.inbound.gone.interrupts():
            await passage.enter(self._settings.repeat_wait_s)
        call.waited_ns += time.perf_counter_ns() - began
        try:
            await self._recaller.remember(call, chat)
            if call.answered_before:
                passage.leave()
            await self._answer(call)
        finally:
            passage.leave()

    async def _answer(self, call: Call) -> None:
        """Forward, relay, record."""
        self._finalizer.begin(call)
        response = await self._forwarder.send(call, call.sent)
        response = await self._second_try.unless_refused(call, response)
        if self._legs is not None and call.paging is not None and call.paging.names is not None:
            response = await self._legs.joined(call, call.paging, call.paging.names, response)
        await self._relay(call, response)

    async def _relay(self, call: Call, response: UpstreamResponse) -> None:
        limit = None if call.chat is not None else self._settings.capture_max_bytes
        tape = Tape(call.started_ns, limit=limit, copy=self._finalizer.copy(call))
        self._finalizer.answered(call, response)

        async def seal(ending: Ending) -> bool:
            return await self._finalizer.seal(call, response, ending, tape)

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

    # --- everything else under /v1 -------------------------------------------------------------------------------------

    async def _pass_through(self, call: Call) -> None:
        """Both ways, unread; recorded up to a limit."""
        call.reason = "not-chat"
        length = call.headers.get("content-length", "")
        kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
        limit = self._settings.capture_max_bytes
        is_short = "transfer-encoding" not in call.headers and (
            not length or (length.isdigit() and int(length) <= limit)
        )
        if is_short or kind == "application/json":
            body = await call.inbound.read(self._settings.max_body_bytes)
            call.body_size = len(body)
            kept = call.switches.capture and not kind.startswith("multipart/") and len(body) <= limit
            call.body, call.body_truncated = (body, False) if kept else (None, bool(body))
            document = parse_object(body) if kind == "application/json" else None
            if document is not None:
                self._read(call, document)
            await self._limiter.admit(call, document)
            if call.target.model_alias is not None:
                body = with_value(body, "model", call.target.model_alias)
            self._finalizer.begin(call)
            response = await self._forwarder.send(call, body)
        else:
            call.body_truncated = True
            await self._limiter.admit(call, None)
            self._finalizer.begin(call)
            response = await self._forwarder.send(call, self._counted(call))
        await self._relay(call, response)

    async def _counted(self, call: Call) -> Any:
        async for chunk in call.inbound.chunks():
            call.body_size += len(chunk)
            yield chunk
