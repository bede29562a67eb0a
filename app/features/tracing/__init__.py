"""OpenTelemetry traces of requests and jobs, as an option (docs/how-to/tracing.md).

The SDK is an extra (`pip install 'mneme-proxy[otel]'`): `provider` alone imports it, and is imported itself only
where it is switched on. Where nothing traces, nothing is wrapped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from app.errors import NotReady
from app.features import Feature

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from app.features.tracing.provider import Tracing
    from app.gateway.turn import Application, Authenticator
    from app.gateway.upstream import Transport
    from app.jobs.worker import Handler
    from app.metrics import Metrics


def check_sdk() -> None:
    """Raises NotReady where the SDK or its exporter is not installed."""
    try:
        there = find_spec("opentelemetry.sdk") and find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:  # not even what it is a part of
        there = None
    if there is None:
        raise NotReady("MNEME_OTEL=on needs OpenTelemetry: pip install 'mneme-proxy[otel]'.")


class TracingFeature(Feature):
    """Wraps what stands at the edges of the pipeline, which itself has no line about it."""

    _tracing: Tracing

    def check(self) -> None:
        check_sdk()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        check_sdk()
        from app.features.tracing.provider import open_tracing

        async with open_tracing(users=self.settings.otel_users == "on") as self._tracing:
            yield

    def metrics(self, registry: CollectorRegistry) -> Metrics:
        return self._tracing.metrics(registry)

    def gateway(self, gateway: Application) -> Application:
        return self._tracing.gateway(gateway)

    def authenticator(self, authenticator: Authenticator) -> Authenticator:
        return self._tracing.authenticator(authenticator)

    def transports(self, transports: Mapping[bool, Transport]) -> Mapping[bool, Transport]:
        return self._tracing.transports(transports)

    def handlers(self, handlers: Mapping[str, Handler]) -> Mapping[str, Handler]:
        return self._tracing.handlers(handlers)


FEATURE = TracingFeature
