"""The composition root of the server: `create_app` is what uvicorn runs, once in every server process.

What it wires is in `core` (shared with the worker), `proxy` (the path of a request) and `routes` (everything else).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvicorn
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.origin import Door
from app.api.probes import PROBES, Probes
from app.clock import Clock, SystemClock
from app.features.registry import Features, load
from app.metrics import Exposition, Metrics, process_registry
from app.server import collector, logs
from app.server.core import Core, database_dsn, open_core, process_of
from app.server.health import open_probes
from app.server.proxy import Proxy, open_proxy
from app.settings import Settings
from app.store.pools import came
from app.tasks import Supervisor, until_orphaned

log = logging.getLogger("mneme")

VERSION = version("mneme-proxy")
SIGNAL_LOOK_S = 0.1
"""Seconds between two looks for a signal while a starting process waits for the database."""
UNGUARDED = frozenset({"/healthz", "/readyz"})
"""Paths that any host may ask: a load balancer does by a name of its own, and they say nothing of anybody."""


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
    """One ASGI application: `/v1` is the gateway, plain; what others there are is made when it is asked for: `/api/v1`, and the
    applications that features have under paths of their own."""

    def __init__(self, settings: Settings, clock: Clock, *, started: Callable[[], None] | None = None) -> None:
        """`started` is called when it is ready for requests."""
        self._settings = settings
        self._clock = clock
        self._started = started
        self._mounts: list[tuple[str, str, ASGIApp]] = []
        """By path, that path with a slash behind it, and who answers there and below."""
        self._probes: ASGIApp | None = None
        self._life = Router(lifespan=self._lifespan)
        self._api: ASGIApp = self._life
        self._guarded = guarded(self._answer, settings)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._life(scope, receive, send)
        elif scope["path"] in UNGUARDED:
            await self._answer(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answering(scope["method"], scope["path"])(scope, receive, send)

    def _answering(self, method: str, path: str) -> ASGIApp:
        for at, below, app in self._mounts:
            if path == at or path.startswith(below):
                return app
        if self._probes is not None and (method, path) in PROBES:
            return self._probes
        return self._api

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        if not await _database_came(self._settings):
            yield  # uvicorn ends now, as it was told to
            return
        registry = process_registry()
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        exposition = Exposition(registry, Path(folder) if folder else None)
        features = load(self._settings)
        async with features.running():
            metrics = features.metrics(registry) or Metrics(registry)
            features.own_metrics(registry)
            async with self._open(metrics, exposition, features):
                yield

    @asynccontextmanager
    async def _open(self, metrics: Metrics, exposition: Exposition, features: Features) -> AsyncIterator[None]:
        async with (
            open_core(self._settings, database_dsn(self._settings), self._clock) as core,
            features.opened(process_of(core, metrics)),
            open_proxy(core, metrics, features) as proxy,
        ):
            space = await core.turns.space_of(core.embedder.space)
            gauges = features.gauges(process_of(core), metrics)
            probes = open_probes(core, metrics, exposition, proxy.indexes, gauges)
            inside = Later(lambda: routes_inside(core, proxy, metrics, probes, space, features))
            stop = asyncio.Event()
            core.tasks.spawn(_end_when_orphaned(stop), "orphan watch")
            async with features.mounts(proxy.authenticator, inside) as mounts:
                apps: Mapping[str, ASGIApp] = {"/v1": proxy.gateway} | {at: Later(make) for at, make in mounts.items()}
                self._mounts = [(at, f"{at}/", app) for at, app in apps.items()]
                self._probes = probes
                self._api = inside
                if self._started is not None:
                    self._started()
                yield
            self._mounts, self._probes, self._api = [], None, self._life
            stop.set()


def routes_inside(
    core: Core,
    proxy: Proxy,
    metrics: Metrics,
    probes: Probes,
    space: int | None,
    features: Features,
) -> ASGIApp:
    """All routes but those below /v1 and below the paths of features, as these ask them."""
    from fastapi import FastAPI

    from app.api.common import ApiMiddleware, add_routes, install_errors
    from app.api.ops import reference_router
    from app.server.routes import open_routes

    app = FastAPI(title="Mneme", version=VERSION, docs_url=None, redoc_url=None)
    install_errors(app)
    for router in (*open_routes(core, proxy, metrics, probes, space, features), reference_router()):
        add_routes(app, router)
    return ApiMiddleware(app, core.settings.max_body_bytes)


def guarded(app: ASGIApp, settings: Settings) -> ASGIApp:
    """What answers through the port: for pages of which origins, and in `open` mode by which names it may be asked."""
    if settings.auth_mode == "open":
        app = Door(app, [settings.host, *settings.hosts], settings.cors_origins)
    if not settings.cors_origins:
        return app
    from starlette.middleware.cors import CORSMiddleware

    every = ["*"]
    return CORSMiddleware(app, settings.cors_origins, every, every, expose_headers=every)


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
