"""What is wrapped to be traced, and where spans go.

Where spans go, which are kept and how many wait is said by OpenTelemetry's own variables. The SDK's queue is bounded and its
exporter has a thread of its own: what it cannot send is lost, and no request waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import orjson
from msgspec import Struct
from msgspec.structs import replace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_RESOURCE_ATTRIBUTES
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from prometheus_client import CollectorRegistry

from app.capture.facts import CallFacts, Outcome
from app.errors import NotReady
from app.features import Around
from app.gateway.call import Incoming, Parsed, Recorded, Remembered, nobody
from app.gateway.dialects import dialect_of
from app.gateway.headers import Headers
from app.gateway.identify import Principal
from app.gateway.relay import Message, Receive, Send
from app.gateway.turn import OBSERVER, Application, Authenticator
from app.gateway.upstream import Transport, UpstreamRequest, UpstreamResponse
from app.metrics import Metrics

log = logging.getLogger("mneme.tracing")

# --- a request -----------------------------------------------------------------------------------------------------------

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"})
"""Those that the semantic conventions know; another is `_OTHER`."""

NAME_CHARS = 100
"""Of a model's name that is told: a client may send anything for one."""

STAGES = 256
"""Most stages of one request that are noted: an ordinary request has ten, one with many faults some hundred."""

NOT_SHOWN = frozenset({"overhead", "forward"})
"""A sum of stages, and what the requests to upstreams say by themselves."""

_CARRIED = (b"traceparent", b"tracestate")
_PROPAGATOR = TraceContextTextMapPropagator()
_ERRORS = {Outcome.BROKEN: "broken", Outcome.FAILED: "failed", Outcome.CANCELLED: "cancelled"}


class Stage(NamedTuple):
    """What took from `begin` to `end`, in nanoseconds of the monotonic clock."""

    begin: int
    end: int
    name: str


class Attempt(Struct):
    """One request to an upstream."""

    span: Span
    begin: int
    head: int | None = None
    """When the head of its answer was here; None: it never was."""
    end: int | None = None


def _failed(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


@contextmanager
def _failing(span: Span) -> Iterator[None]:
    """A span says what the work within failed with, or was cancelled by."""
    try:
        yield
    except BaseException as error:
        _failed(span, type(error).__name__)
        raise


class Trace:
    """One request. Times are of `time.perf_counter_ns`, as the pipeline's own."""

    def __init__(self, tracer: Tracer, name: str, attributes: Mapping[str, AttributeValue], parent: Context) -> None:
        self.call: Incoming | None = None
        self.ended = False
        self.status = 0
        """What the client was answered; 0: nothing."""
        self._begin = time.perf_counter_ns()
        self._offset = time.time_ns() - self._begin
        self._tracer = tracer
        self._span = tracer.start_span(
            name, context=parent, kind=SpanKind.SERVER, attributes=attributes, start_time=self._wall(self._begin)
        )
        self._here = set_span_in_context(self._span, parent)
        self._authenticated = self._begin
        self._stages: list[Stage] = []
        self._attempts: list[Attempt] = []

    def stage(self, name: str, seconds: float, began_ns: int | None = None) -> None:
        """A stage that has ended: just now, where it is not told when it began. (One that others lie in tells: between its end
        and this call others may have had the processor, and it would seem to begin after what it began with.)"""
        if self.ended or name in NOT_SHOWN or len(self._stages) >= STAGES:
            return
        took_ns = round(seconds * 1e9)
        begin = time.perf_counter_ns() - took_ns if began_ns is None else began_ns
        self._stages.append(Stage(begin, begin + took_ns, name))

    def authenticated(self) -> None:
        """Whose key it is, is known, or that it is nobody's."""
        self._authenticated = time.perf_counter_ns()
        self._stages.append(Stage(self._begin, self._authenticated, "authenticate"))

    def observe(self, call: Incoming) -> None:
        """The call is at another stage; at the first, who asks is known."""
        if self.call is None:
            self._stages.append(Stage(self._authenticated, time.perf_counter_ns(), "identify"))
        self.call = call

    def attempt(self, request: UpstreamRequest, call: Remembered) -> tuple[Attempt, UpstreamRequest]:
        """A request that goes to an upstream now, and the same as one of this trace."""
        attributes = _address(request.url)
        attributes["http.request.method"] = name = _method(request.method)
        if self._attempts:
            attributes["http.request.resend_count"] = len(self._attempts)
        if call.dialect is not None:
            attributes |= _asked(call)
            name = f"chat {_short(call.model or '')}".rstrip()
        begin = time.perf_counter_ns()
        span = self._tracer.start_span(
            name, context=self._here, kind=SpanKind.CLIENT, attributes=attributes, start_time=self._wall(begin)
        )
        attempt = Attempt(span, begin)
        self._attempts.append(attempt)
        return attempt, replace(request, headers=carried(request.headers, set_span_in_context(span, self._here)))

    def finish(self) -> None:
        """End the spans of the request."""
        self.ended, end = True, time.perf_counter_ns()
        call = self.call
        facts = call.facts if isinstance(call, Recorded) else None
        if call is not None:
            self._span.set_attributes(_told(call))
        if self._attempts and (head := self._attempts[-1].head) is not None:
            stored = [each.begin for each in self._stages if each.name == "record" and each.begin >= head]
            self._stages.append(Stage(head, max(stored, default=end), "relay"))
            if isinstance(call, Recorded):
                self._attempts[-1].span.set_attributes(self._answered(call))
        if self._span.is_recording():
            self._tell()
        for each in self._attempts:
            each.span.end(self._wall(each.end or end))
        if self.status:
            self._span.set_attribute("http.response.status_code", self.status)
        if self.status >= 500:
            _failed(self._span, str(self.status))
        elif facts is not None and facts.outcome in _ERRORS:
            _failed(self._span, _ERRORS[facts.outcome])
        self._span.end(self._wall(end))

    def _tell(self) -> None:
        contexts: list[Context] = []
        for stage, parent in nested(self._stages):
            under = self._here if parent is None else contexts[parent]
            span = self._tracer.start_span(stage.name, context=under, start_time=self._wall(stage.begin))
            contexts.append(set_span_in_context(span, self._here))
            span.end(self._wall(stage.end))

    def _answered(self, call: Recorded) -> dict[str, AttributeValue]:
        """What is known of the last attempt when all is over; of an answer of several legs the sum stands at the root."""
        told: dict[str, AttributeValue] = {}
        facts = call.facts
        if call.dialect is None or call.legs:
            return told
        if facts.answered_model:
            told["gen_ai.response.model"] = _short(facts.answered_model)
        if facts.streamed and facts.first_byte_us is not None:
            waited_ns = call.started_ns + facts.first_byte_us * 1000 - self._attempts[-1].begin
            told["gen_ai.response.time_to_first_chunk"] = waited_ns / 1e9
        return told | _usage(facts)

    def _wall(self, monotonic_ns: int) -> int:
        return monotonic_ns + self._offset


def nested(stages: Iterable[Stage]) -> list[tuple[Stage, int | None]]:
    """Stages by their begin, each with the place in this list of the one that it lies in; None: it lies in no other.

    Of two that overlap, neither lies in the other.
    """
    found: list[tuple[Stage, int | None]] = []
    around: list[int] = []
    for stage in sorted(stages, key=lambda each: (each.begin, -each.end)):
        while around and found[around[-1]][0].end < stage.end:
            around.pop()
        found.append((stage, around[-1] if around else None))
        around.append(len(found) - 1)
    return found


def carried(headers: Headers, context: Context) -> Headers:
    """The headers with `traceparent` and `tracestate` of `context` in place of their own."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    kept = [each for each in headers if each[0].lower() not in _CARRIED]
    return [*kept, *((name.encode(), value.encode()) for name, value in carrier.items())]


# --- what is wrapped -----------------------------------------------------------------------------------------------------

_CURRENT: ContextVar[Trace | None] = ContextVar("mneme_trace", default=None)
"""The request that this task works for. Tasks that it starts inherit it; what they tell when it has ended is not heard."""


class TracingMetrics(Metrics):
    """The metrics of a process that traces: stages are spans, too."""

    def stage(self, name: str, seconds: float, began_ns: int | None = None) -> None:
        super().stage(name, seconds)
        if (trace := _CURRENT.get()) is not None:
            trace.stage(name, seconds, began_ns)


class TracedGateway:
    def __init__(self, gateway: Application, tracer: Tracer) -> None:
        self._gateway = gateway
        self._tracer = tracer

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        trace = self._begin(scope)
        observer = scope.get(OBSERVER, nobody)

        def observe(call: Incoming) -> None:
            trace.observe(call)
            observer(call)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
            await send(message)

        token = _CURRENT.set(trace)
        try:
            await self._gateway({**scope, OBSERVER: observe}, receive, sending)
        finally:
            _CURRENT.reset(token)
            trace.finish()

    def _begin(self, scope: Mapping[str, Any]) -> Trace:
        """Under the caller's own span, where the request names one."""
        given = [(name.lower(), value) for name, value in scope["headers"] if name.lower() in _CARRIED]
        parents = [value.decode("latin-1") for name, value in given if name == b"traceparent"]
        states = [value.decode("latin-1") for name, value in given if name == b"tracestate"]
        carrier = {"traceparent": parents[0], "tracestate": ",".join(states)} if len(parents) == 1 else {}
        method, path = _method(scope["method"]), scope["path"]
        attributes: dict[str, AttributeValue] = {
            "http.request.method": method,
            "url.path": path,
            "url.scheme": scope.get("scheme", "http"),
            "network.protocol.version": scope.get("http_version", "1.1"),
        }
        name = method
        if dialect_of(scope["method"], path) is not None:
            attributes["http.route"], name = path, f"{method} {path}"
        return Trace(self._tracer, name, attributes, _PROPAGATOR.extract(carrier, Context()))


class TracedAuthenticator:
    """Says whose key it is, and how long that took."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def check(self, headers: Mapping[str, str]) -> Principal:
        try:
            return await self._authenticator.check(headers)
        finally:
            if (trace := _CURRENT.get()) is not None:
                trace.authenticated()


class TracedTransport:
    """Sends requests to upstreams, each with a span whose id goes along."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        trace = _CURRENT.get()
        if trace is None or trace.ended or not isinstance(trace.call, Remembered):
            return await self._transport.send(request)
        attempt, request = trace.attempt(request, trace.call)
        try:
            with _failing(attempt.span):
                response = await self._transport.send(request)
        finally:
            attempt.end = time.perf_counter_ns()
        attempt.head, attempt.end = attempt.end, None
        attempt.span.set_attribute("http.response.status_code", response.status)
        if response.status >= 400:
            _failed(attempt.span, str(response.status))
        close = response.close

        async def closed() -> None:
            attempt.end = attempt.end or time.perf_counter_ns()
            await close()

        return replace(response, close=closed)

    async def aclose(self) -> None:
        await self._transport.aclose()


# --- what is told --------------------------------------------------------------------------------------------------------


def _told(call: Incoming) -> dict[str, AttributeValue]:
    """Return the attributes of the root span; the user's id is never among them."""
    told: dict[str, AttributeValue] = {
        "mneme.call_id": str(call.id),
        "mneme.tenant_id": str(call.principal.tenant_id),
        "mneme.memory": "bypass",
    }
    if isinstance(call, Parsed):
        told["mneme.upstream"] = call.target.name
    if not isinstance(call, Remembered):
        return told
    told |= {"mneme.memory": call.status, "mneme.overhead_ms": call.overhead_ns / 1e6, "mneme.attempts": call.attempts}
    if call.reason is not None:
        told["mneme.reason"] = call.reason
    if call.session_id is not None:
        told["mneme.session_id"] = str(call.session_id)
    if call.prepared is not None:
        compiled = call.prepared.compilation
        told |= {"mneme.context.memories": compiled.memories, "mneme.context.tokens": compiled.tokens}
        told["mneme.context.budget"] = compiled.budget
    if isinstance(call, Recorded):
        told["mneme.outcome"] = call.facts.outcome.name.lower()
        if call.legs:
            told |= {"mneme.legs": len(call.legs)} | _usage(call.facts)
    return told


def _asked(call: Remembered) -> dict[str, AttributeValue]:
    """Of what is asked of a model (semantic conventions for generative AI)."""
    asked: dict[str, AttributeValue] = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai"}
    if call.model:
        asked["gen_ai.request.model"] = _short(call.model)
    if call.session_id is not None:
        asked["gen_ai.conversation.id"] = str(call.session_id)
    if call.chat is not None and call.chat.stream:
        asked["gen_ai.request.stream"] = True
    return asked


def _usage(facts: CallFacts) -> dict[str, AttributeValue]:
    figures = {"input": facts.usage.prompt, "output": facts.usage.completion, "cache_read.input": facts.usage.cached}
    return {f"gen_ai.usage.{name}_tokens": count for name, count in figures.items() if count is not None}


def _address(url: str) -> dict[str, AttributeValue]:
    """Where a request goes; neither its path nor its query, which may carry a key."""
    parts = urlsplit(url)
    told: dict[str, AttributeValue] = {"server.address": parts.hostname or ""}
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return told | ({"server.port": port} if port else {})


def _method(method: str) -> str:
    return method if method in METHODS else "_OTHER"


def _short(name: str) -> str:
    return name[:NAME_CHARS]


# --- jobs, and the process -----------------------------------------------------------------------------------------------

FLUSH_S = 3.0
"""Seconds that a process which ends gives its last spans; a collector nearby takes them in some ten milliseconds."""

SERVICE = "mneme"
_JOB_IDS = {"tenant": "mneme.tenant_id", "session": "mneme.session_id"}
"""Of a job's payload that its span tells."""

Handler = Callable[[bytes], Awaitable[None]]


class Tracing(Around):
    """Spans of what it stands around."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def metrics(self, registry: CollectorRegistry) -> Metrics:
        return TracingMetrics(registry)

    def gateway(self, gateway: Application) -> Application:
        return TracedGateway(gateway, self._tracer)

    def authenticator(self, authenticator: Authenticator) -> Authenticator:
        return TracedAuthenticator(authenticator)

    def transports(self, transports: Mapping[bool, Transport]) -> dict[bool, Transport]:
        return {simulated: TracedTransport(each) for simulated, each in transports.items()}

    def handlers(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """Jobs, each try with a span of its own trace: its request was answered long before."""
        return {name: self._handler(name, handler) for name, handler in handlers.items()}

    def _handler(self, name: str, handler: Handler) -> Handler:
        async def traced(payload: bytes) -> None:
            attributes = {"messaging.system": "mneme", "messaging.destination.name": name} | job_ids(payload)
            attributes["messaging.operation.name"] = attributes["messaging.operation.type"] = "process"
            span = self._tracer.start_span(
                f"process {name}", context=Context(), kind=SpanKind.CONSUMER, attributes=attributes
            )
            try:
                with _failing(span):
                    await handler(payload)
            finally:
                span.end()

        return traced


def job_ids(payload: bytes) -> dict[str, str]:
    """The ids in a job's payload; it holds no text."""
    try:
        fields = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(fields, dict):
        return {}
    return {told: str(fields[name]) for name, told in _JOB_IDS.items() if fields.get(name) is not None}


@asynccontextmanager
async def open_tracing() -> AsyncIterator[Tracing]:
    """Trace until the context ends; then what waits is sent, within FLUSH_S.

    Raises NotReady where the SDK refuses its variables.
    """
    try:
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        raise NotReady(f"MNEME_OTEL=on: OpenTelemetry refuses its variables (OTEL_…): {error}") from error
    try:
        yield Tracing(provider.get_tracer("mneme", version("mneme-proxy")))
    finally:
        await _shut_down(provider)


def _resource() -> Resource:
    """Who tells; what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say comes first."""
    own = {"service.version": version("mneme-proxy"), "service.instance.id": str(uuid4())}
    if "OTEL_SERVICE_NAME" not in os.environ and "service.name=" not in os.environ.get(OTEL_RESOURCE_ATTRIBUTES, ""):
        own["service.name"] = SERVICE
    return Resource.create().merge(Resource(own))


async def _shut_down(provider: TracerProvider) -> None:
    """In a thread that nothing waits for at the end of the process: an exporter that hangs must not keep it."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        try:
            provider.shutdown()
        finally:
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=shut_down, name="tracing ends", daemon=True).start()
    try:
        async with asyncio.timeout(FLUSH_S):
            await done.wait()
    except TimeoutError:
        log.warning("the last spans could not be sent", extra={"waited_s": FLUSH_S})
