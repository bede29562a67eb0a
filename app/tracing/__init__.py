"""OpenTelemetry traces of requests and jobs, as an option (docs/how-to/tracing.md).

The SDK is an extra (`pip install 'mneme-proxy[otel]'`): `spans` and `provider` import it, and are imported themselves only
where it is switched on. Where nothing traces, nothing is wrapped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from app.errors import NotReady
from app.settings import Settings

if TYPE_CHECKING:
    from app.tracing.provider import Tracing


def check_sdk() -> None:
    """Raises NotReady where the SDK or its exporter is not installed."""
    try:
        there = find_spec("opentelemetry.sdk") and find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:  # not even what it is a part of
        there = None
    if there is None:
        raise NotReady("MNEME_OTEL=on needs OpenTelemetry: pip install 'mneme-proxy[otel]'.")


@asynccontextmanager
async def traced(settings: Settings) -> AsyncIterator[Tracing | None]:
    """What traces this process, if the settings want it."""
    if settings.otel == "off":
        yield None
        return
    check_sdk()
    from app.tracing.provider import open_tracing

    async with open_tracing(users=settings.otel_users == "on") as tracing:
        yield tracing
