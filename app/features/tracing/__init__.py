"""OpenTelemetry traces of requests and jobs, as an option (docs/how-to/tracing.md).

The SDK is an extra (`pip install 'mneme-proxy[otel]'`): `provider` alone imports it, and is imported itself only
where it is switched on. Where nothing traces, nothing is wrapped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from app.errors import NotReady
from app.features import Feature

if TYPE_CHECKING:
    from app.features.tracing.provider import Tracing


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

        async with open_tracing() as self._tracing:
            yield

    def around(self) -> Tracing:
        return self._tracing


FEATURE = TracingFeature
