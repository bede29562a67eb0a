"""OpenTelemetry of one process: its provider, opened and closed, and the spans of jobs.

Where spans go, which are kept and how many wait is said by OpenTelemetry's own variables (docs/how-to/tracing.md). The SDK's
queue is bounded and its exporter has a thread of its own: what it cannot send is lost, and no request waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from uuid import uuid4

import orjson
from msgspec import Struct
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_RESOURCE_ATTRIBUTES
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from prometheus_client import CollectorRegistry

from app.errors import NotReady
from app.features.tracing.spans import TracedAuthenticator, TracedGateway, TracedTransport, TracingMetrics
from app.gateway.turn import Application, Authenticator
from app.gateway.upstream import Transport
from app.metrics import Metrics

log = logging.getLogger("mneme.tracing")

FLUSH_S = 3.0
"""Seconds that a process which ends gives its last spans; a collector nearby takes them in some ten milliseconds."""

SERVICE = "mneme"
_JOB_IDS = {"tenant": "mneme.tenant_id", "session": "mneme.session_id"}
"""Of a job's payload that its span tells."""

Handler = Callable[[bytes], Awaitable[None]]


class Tracing(Struct, frozen=True):
    """What the composition roots wrap with."""

    tracer: Tracer
    users: bool

    def metrics(self, registry: CollectorRegistry) -> Metrics:
        return TracingMetrics(registry)

    def gateway(self, gateway: Application) -> Application:
        return TracedGateway(gateway, self.tracer, users=self.users)

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
            span = self.tracer.start_span(
                f"process {name}", context=Context(), kind=SpanKind.CONSUMER, attributes=attributes
            )
            try:
                await handler(payload)
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))
                raise
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
async def open_tracing(*, users: bool) -> AsyncIterator[Tracing]:
    """Trace until the context ends; then what waits is sent, within FLUSH_S.

    Raises NotReady where the SDK refuses its variables.
    """
    try:
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ValueError as error:
        raise NotReady(f"MNEME_OTEL=on: OpenTelemetry refuses its variables (OTEL_…): {error}") from error
    try:
        yield Tracing(provider.get_tracer("mneme", version("mneme-proxy")), users)
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
