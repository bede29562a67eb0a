"""The composition root of the server: `create_app` is what uvicorn runs, once in every server process.

What it wires is in `core` (shared with the worker), `proxy` (the path of a request) and `routes` (everything else).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.auth import Authenticator
from app.api.probes import PROBES, Probes
from app.clock import Clock, SystemClock
from app.metrics import Exposition, Metrics, process_registry
from app.server import collector, logs
from app.server.core import Core, database_dsn, open_core
from app.server.health import open_probes
from app.server.knowledge import Knowledge, open_knowledge
from app.server.proxy import Proxy, open_proxy
from app.settings import Settings
from app.store.reach import came
from app.tasks import Supervisor, until_orphaned
from app.tracing import traced

if TYPE_CHECKING:
    from app.tracing.provider import Tracing

log = logging.getLogger("mneme")

VERSION = version("mneme-proxy")
SIGNAL_LOOK_S = 0.1
"""Seconds between two looks for a signal while a starting process waits for the database."""
DOMAINS_WAIT_S = 2.0
"""Seconds that a start waits for the businesses' own databases, whose catalogs take some 0.1: none keeps it from starting."""


class Later:
    """An ASGI application that is made when the first request asks for it, in a thread: what it imports takes a second of CPU
    and 40 MB, which a server that only answers under /v1 never needs."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._made: ASGIApp | None = None
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._lock:
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
        await self._made(scope, receive, send)


class Application:
    """One ASGI application: `/v1` is the gateway, plain; what others there are is made when it is asked for."""

    def __init__(self, settings: Settings, clock: Clock, *, started: Callable[[], None] | None = None) -> None:
        """`started` is called when it is ready for requests."""
        self._settings = settings
        self._clock = clock
        self._started = started
        self._gateway: ASGIApp | None = None
        self._mcp: ASGIApp | None = None
        self._ui: ASGIApp | None = None
        self._probes: ASGIApp | None = None
        self._life = Router(lifespan=self._lifespan)
        self._api: ASGIApp = self._life

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and (path.startswith("/v1/") or path == "/v1") and self._gateway is not None:
            await self._gateway(scope, receive, send)
        elif scope["type"] == "http" and path == "/mcp" and self._mcp is not None:
            await self._mcp(scope, receive, send)
        elif scope["type"] == "http" and (path.startswith("/ui/") or path == "/ui") and self._ui is not None:
            await self._ui(scope, receive, send)
        elif scope["type"] == "http" and (scope["method"], path) in PROBES and self._probes is not None:
            await self._probes(scope, receive, send)
        else:
            await (self._api if scope["type"] == "http" else self._life)(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        if not await _database_came(self._settings):
            yield  # uvicorn ends now, as it was told to
            return
        registry = process_registry()
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        exposition = Exposition(registry, Path(folder) if folder else None)
        async with traced(self._settings) as tracing:
            metrics = Metrics(registry) if tracing is None else tracing.metrics(registry)
            async with self._open(metrics, exposition, tracing):
                yield

    @asynccontextmanager
    async def _open(self, metrics: Metrics, exposition: Exposition, tracing: Tracing | None) -> AsyncIterator[None]:
        async with (
            open_core(self._settings, database_dsn(self._settings), self._clock) as core,
            open_knowledge(core, core.pools.background, metrics) as knowledge,
            open_proxy(core, knowledge, metrics, tracing) as proxy,
        ):
            space = await core.turns.space_of(core.embedder.space)
            probes = open_probes(core, metrics, exposition, proxy.indexes)
            inside = Later(lambda: routes_inside(core, knowledge, proxy, metrics, probes, space))
            stop = asyncio.Event()
            core.tasks.spawn(_end_when_orphaned(stop), "orphan watch")
            warming = core.tasks.spawn(knowledge.domains.warm(), "domains")
            await asyncio.wait({warming}, timeout=DOMAINS_WAIT_S)
            async with self._mcp_app(proxy.authenticator, inside) as self._mcp:
                self._gateway, self._probes = proxy.gateway, probes
                self._api = Later(lambda: routes_outside(self._settings, inside))
                if self._settings.ui == "on":
                    self._ui = Later(lambda: site(self._settings, proxy.authenticator, inside))
                if self._started is not None:
                    self._started()
                yield
            self._gateway = self._mcp = self._ui = self._probes = None
            self._api = self._life
            warming.cancel()
            stop.set()

    @asynccontextmanager
    async def _mcp_app(self, authenticator: Authenticator, inside: ASGIApp) -> AsyncIterator[ASGIApp | None]:
        """What answers at /mcp, if the settings want it; only then its SDK is imported."""
        if self._settings.mcp == "off":
            yield None
            return
        from app.mcp.http import McpApp

        mcp = McpApp(authenticator, inside, [self._settings.host, *self._settings.hosts])
        async with mcp.open():
            yield mcp


def routes_inside(
    core: Core, knowledge: Knowledge, proxy: Proxy, metrics: Metrics, probes: Probes, space: int | None
) -> ASGIApp:
    """All routes but /v1, /mcp and /ui, as the page and the tools ask them."""
    from fastapi import FastAPI

    from app.api.common import ApiMiddleware, add_routes, install_errors
    from app.api.ops import reference_router
    from app.server.routes import open_routes

    app = FastAPI(title="Mneme", version=VERSION, docs_url=None, redoc_url=None)
    install_errors(app)
    for router in (*open_routes(core, knowledge, proxy, metrics, probes, space), reference_router()):
        add_routes(app, router)
    return ApiMiddleware(app, core.settings.max_body_bytes)


def routes_outside(settings: Settings, inside: ASGIApp) -> ASGIApp:
    """The same as they are asked through the port."""
    if settings.auth_mode != "open":
        return inside
    from app.api.common import NameCheck

    return NameCheck(inside, [settings.host, *settings.hosts], "/api/")


def site(settings: Settings, authenticator: Authenticator, inside: ASGIApp) -> ASGIApp:
    """The page, at /ui."""
    from app.ui.site import open_site

    return open_site(settings, authenticator, inside)


async def _database_came(settings: Settings) -> bool:
    """False when this process is to end before the database was there: uvicorn acts on a signal only once it has started."""
    stop = asyncio.Event()
    watch = Supervisor()
    watch.spawn(_told_to_end(stop), "signal watch")
    try:
        there = await came(database_dsn(settings), settings.start_wait_s, stop)
    finally:
        await watch.close(0)
    if not there and not stop.is_set():
        os.kill(os.getpid(), signal.SIGTERM)  # orphaned
    return there


async def _told_to_end(stop: asyncio.Event) -> None:
    """Set `stop` when uvicorn has noted a signal; one may have come while it imported us."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)  # its handler is a method of it
    if isinstance(server, uvicorn.Server):
        while not server.should_exit:  # noqa: ASYNC110 - a flag, which nothing can wait for
            await asyncio.sleep(SIGNAL_LOOK_S)
        stop.set()


async def _end_when_orphaned(stop: asyncio.Event) -> None:
    """One of several server processes must not keep the port of a supervisor that was killed."""
    if await until_orphaned(stop):
        log.warning("the supervisor is gone")
        os.kill(os.getpid(), signal.SIGTERM)


def create_app() -> Application:
    """What uvicorn runs, once in every server process; the settings come from the environment."""
    settings = Settings()
    logs.set_up(settings.log_level, settings.log_format)
    return Application(settings, SystemClock(), started=collector.settle)
