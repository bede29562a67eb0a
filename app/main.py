"""The composition root of the server: `create_app` is what uvicorn runs, once in every server process.

What it wires is in `core` (shared with the worker, `work.py`), `proxy` (the path of a request) and `doors` (everything else).
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
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from app import collector, logs
from app.api.auth import Authenticator
from app.api.common import DoorMiddleware, add_routes, install_errors
from app.api.origin import NameCheck
from app.api.reference import reference_router
from app.clock import Clock, SystemClock
from app.core import database_dsn, open_core
from app.doors import open_doors
from app.gateway.turn import Gateway
from app.knowing import open_knowledge
from app.metrics import Exposition, Metrics, process_registry
from app.proxy import open_proxy
from app.settings import Settings
from app.store.reach import came
from app.tasks import Supervisor, until_orphaned
from app.ui.pages import open_site

log = logging.getLogger("mneme")

VERSION = version("mneme-proxy")
SIGNAL_LOOK_S = 0.1
"""Seconds between two looks for a signal while a starting process waits for the database."""
DOMAINS_WAIT_S = 2.0
"""Seconds that a start waits for the businesses' own databases, whose catalogs take some 0.1: none keeps it from starting."""


class Application:
    """One ASGI application: `/v1` is the gateway, plain; everything else is FastAPI's."""

    def __init__(self, settings: Settings, clock: Clock, *, started: Callable[[], None] | None = None) -> None:
        """`started` is called when it is ready for requests."""
        self._settings = settings
        self._clock = clock
        self._started = started
        self._gateway: Gateway | None = None
        self._mcp: ASGIApp | None = None
        self._ui: ASGIApp | None = None
        self._doors = FastAPI(title="Mneme", version=VERSION, lifespan=self._lifespan, docs_url=None, redoc_url=None)
        install_errors(self._doors)
        self._app: ASGIApp = DoorMiddleware(self._doors, settings.max_body_bytes)
        self._from_outside: ASGIApp = self._app
        if settings.auth_mode == "open":
            self._from_outside = NameCheck(self._app, [settings.host, *settings.hosts], "/api/")

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and (path.startswith("/v1/") or path == "/v1") and self._gateway is not None:
            await self._gateway(scope, receive, send)
        elif scope["type"] == "http" and path == "/mcp" and self._mcp is not None:
            await self._mcp(scope, receive, send)
        elif scope["type"] == "http" and (path.startswith("/ui/") or path == "/ui") and self._ui is not None:
            await self._ui(scope, receive, send)
        else:
            await self._from_outside(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, doors: FastAPI) -> AsyncIterator[None]:
        if not await _database_came(self._settings):
            yield  # uvicorn ends now, as it was told to
            return
        registry = process_registry()
        metrics = Metrics(registry)
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        exposition = Exposition(registry, Path(folder) if folder else None)
        async with (
            open_core(self._settings, database_dsn(self._settings), self._clock) as core,
            open_knowledge(core, core.pools.background, metrics) as knowledge,
            open_proxy(core, knowledge, metrics) as proxy,
            self._mcp_door(proxy.authenticator) as mcp,
        ):
            space = await core.turns.space_of(core.embedder.space)
            for router in (*open_doors(core, knowledge, proxy, metrics, exposition, space), reference_router()):
                add_routes(doors, router)
            stop = asyncio.Event()
            core.tasks.spawn(_end_when_orphaned(stop), "orphan watch")
            warming = core.tasks.spawn(knowledge.domains.warm(), "domains")
            await asyncio.wait({warming}, timeout=DOMAINS_WAIT_S)
            self._gateway, self._mcp = proxy.gateway, mcp
            if self._settings.ui == "on":
                self._ui = open_site(self._settings, proxy.authenticator, self._app)
            if self._started is not None:
                self._started()
            yield
            self._gateway = self._mcp = self._ui = None
            warming.cancel()
            stop.set()

    @asynccontextmanager
    async def _mcp_door(self, authenticator: Authenticator) -> AsyncIterator[ASGIApp | None]:
        """What answers at /mcp, if the settings want it; only then its SDK is imported."""
        if self._settings.mcp == "off":
            yield None
            return
        from app.mcp.http import McpDoor

        door = McpDoor(authenticator, self._app, [self._settings.host, *self._settings.hosts])
        async with door.open():
            yield door


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
