"""The server process, wired: `create_app` is what uvicorn runs, once in every server process.

Its parts are in `core` (shared with the worker), `proxy` (the path of a request) and `routes` (everything else, made when it is
first asked for). Until its database is there it is alive and not ready, and answers under /v1 alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Scope, Send

from app import logs
from app.api.auth import OriginMiddleware
from app.api.probes import PROBES, Check, Probes
from app.clock import Clock, SystemClock
from app.errors import MnemeError, StoreUnavailable
from app.features import Features, load
from app.index.indexes import Indexes
from app.metrics import Exposition, Metrics, forget_ended, process_registry
from app.patience import Patient
from app.server import collector
from app.server.base_url import BaseUrlHelp
from app.server.core import Core, check_room, database_dsn, lacking, open_core, process_of
from app.server.proxy import Proxy, UpstreamSide, open_outside, open_proxy, open_waiting
from app.server.rehearsal import rehearse_languages
from app.settings import Settings
from app.store.pools import AGAIN_S
from app.store.queue import Queue
from app.store.retention import Storage, by_group
from app.tasks import pause, until_orphaned

log = logging.getLogger("mneme")

VERSION = version("mneme-proxy")
_UNGUARDED = frozenset({"/healthz", "/readyz"})
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


class Mounts(Struct, frozen=True):
    """Who answers what. `mounts`: by path, that path with a slash behind it, and who answers there and below; `rest`: all that
    is neither below one of them nor a probe."""

    mounts: tuple[tuple[str, str, ASGIApp], ...]
    probes: ASGIApp | None
    rest: ASGIApp

    @classmethod
    def of(cls, apps: Mapping[str, ASGIApp], probes: ASGIApp, rest: ASGIApp) -> Mounts:
        return cls(tuple((at, f"{at}/", app) for at, app in apps.items()), probes, rest)

    def behind(self, method: str, path: str) -> ASGIApp:
        for at, below, app in self.mounts:
            if path == at or path.startswith(below):
                return app
        if self.probes is not None and (method, path) in PROBES:
            return self.probes
        return self.rest


class _Opening(Struct, frozen=True):
    """With what the doors are opened."""

    core: Core
    metrics: Metrics
    exposition: Exposition
    features: Features


class ServerApplication:
    """One ASGI application: `/v1` is the gateway, plain; what others there are is made when it is asked for: `/api/v1`, and the
    applications that features have under paths of their own."""

    def __init__(self, settings: Settings, clock: Clock, *, started: Callable[[], None] | None = None) -> None:
        """`started` is called when it is ready for requests."""
        self._settings = settings
        self._clock = clock
        self._started = started
        self._life = Router(lifespan=self._lifespan)
        self._mounted = Mounts((), None, self._life)
        self._guarded = guarded(self._answer, settings)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._life(scope, receive, send)
        elif scope["path"] in _UNGUARDED:
            await self._answer(scope, receive, send)
        else:
            await self._guarded(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._mounted.behind(scope["method"], scope["path"])(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        registry, dsn = process_registry(), database_dsn(self._settings)
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        if folder:
            forget_ended(Path(folder))
        exposition = Exposition(registry, Path(folder) if folder else None)
        features, stop = load(self._settings), asyncio.Event()
        async with features.within(lambda each: each.running()):
            metrics = features.around.metrics(registry)
            features.all(lambda each: each.own_metrics(registry))
            missing = await lacking(self._settings, dsn)
            async with open_core(self._settings, dsn, self._clock, there=missing is None) as core:
                core.tasks.spawn(_end_when_orphaned(stop), "orphan watch")
                opening = _Opening(core, metrics, exposition, features)
                begin = self._open(opening) if missing is None else self._wait(opening, missing, stop)
                async with begin:
                    if self._started is not None:
                        self._started()
                    core.tasks.spawn(rehearse_languages(self._clock.now()), "rehearsal of languages")
                    yield
                    stop.set()

    @asynccontextmanager
    async def _wait(self, opening: _Opening, missing: str, stop: asyncio.Event) -> AsyncIterator[None]:
        """The doors without a database; when it is there, those with it. Until `stop`."""
        core, away = opening.core, Away()
        away.missing = missing
        log.warning("answering without memory until the database is there", extra={"error": missing})
        async with (
            open_outside(core, opening.features) as outside,
            open_waiting(core, opening.metrics, opening.features, outside) as gateway,
        ):
            probes = Probes({"database": away.check, "embedder": _embedder_check(core)}, opening.exposition)
            with self._behind(Mounts.of({"/v1": gateway}, probes, BaseUrlHelp(away, PAGES))):
                arriving = core.tasks.spawn(self._arrive(opening, outside, away, stop), "arrival of the database")
                try:
                    yield
                finally:
                    stop.set()
                    await arriving

    async def _arrive(self, opening: _Opening, outside: UpstreamSide, away: Away, stop: asyncio.Event) -> None:
        core = opening.core
        while not stop.is_set():
            try:
                missing = await lacking(self._settings, core.dsn)
                if missing is None:
                    await check_room(self._settings, core.pools, serving=True)
                    async with self._open(opening, outside):
                        log.info("the database is there: answering with memory")
                        await stop.wait()
                    return
            except MnemeError as error:
                missing = error.message
            except Exception as error:  # boundary: a server that answers must not end for what it could not open
                log.error("what the database has cannot be opened", exc_info=error)
                missing = f"What the database has cannot be opened: {type(error).__name__}; the log says more."
            if missing != away.missing:
                log.warning("still without the database", extra={"error": missing})
            away.missing = missing
            await pause(stop, AGAIN_S)

    @asynccontextmanager
    async def _open(self, opening: _Opening, outside: UpstreamSide | None = None) -> AsyncIterator[None]:
        core, metrics, features = opening.core, opening.metrics, opening.features
        space = await core.turns.space_of(core.embedder.space)
        process = process_of(core, metrics, space=space)
        async with (
            features.within(lambda each: each.opened(process)),
            open_proxy(core, metrics, features, outside) as proxy,
        ):
            gauges = features.all(lambda each: each.gauges(process, metrics))
            probes = _open_probes(core, metrics, opening.exposition, proxy.indexes, gauges)
            inside = Later(lambda: _routes_inside(core, proxy, metrics, probes, space, features))
            async with features.within(lambda each: each.mounts(proxy.authenticator, inside, proxy.gateway)) as mounts:
                apps: dict[str, ASGIApp] = {"/v1": proxy.gateway}
                apps |= {at: Later(make) for own in mounts for at, make in own.items()}
                rest = BaseUrlHelp(inside, PAGES if PAGES in apps else None)
                with self._behind(Mounts.of(apps, probes, rest)):
                    yield

    @contextmanager
    def _behind(self, mounted: Mounts) -> Iterator[None]:
        """What answers, until the end of the block."""
        before, self._mounted = self._mounted, mounted
        try:
            yield
        finally:
            self._mounted = before


def _routes_inside(
    core: Core, proxy: Proxy, metrics: Metrics, probes: Probes, space: int | None, features: Features
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
    return Patient(ApiMiddleware(app, core.settings.max_body_bytes))


def guarded(app: ASGIApp, settings: Settings) -> ASGIApp:
    """What answers through the port: for pages of which origins, and in `open` mode by which names it may be asked."""
    if settings.auth_mode == "open":
        app = OriginMiddleware(app, [settings.host, *settings.hosts], settings.cors_origins)
    if not settings.cors_origins:
        return app
    from starlette.middleware.cors import CORSMiddleware

    every = ["*"]
    return CORSMiddleware(app, settings.cors_origins, every, every, expose_headers=every)


async def _end_when_orphaned(stop: asyncio.Event) -> None:
    """One of several server processes must not keep the port of a supervisor that was killed."""
    if await until_orphaned(stop):
        log.warning("the supervisor is gone")
        os.kill(os.getpid(), signal.SIGTERM)


def create_app() -> ServerApplication:
    """What uvicorn runs, once in every server process; the settings come from the environment."""
    settings = Settings()
    logs.set_up(settings.log_level, settings.log_format)
    return ServerApplication(settings, SystemClock(), started=collector.settle)


# --- until the database is there -----------------------------------------------------------------------------------------

PAGES = "/ui"
_RELOAD_S = 2
"""Seconds until a page asks again: as long as one may wait for its answer."""


class Away:
    """Plain ASGI: 503 at once, with what is missing; a page for /ui."""

    def __init__(self) -> None:
        self.missing = "The database has not been looked for yet."
        """For people, until there is nothing missing."""

    async def check(self) -> None:
        """The readiness check of the database. Raises StoreUnavailable."""
        raise StoreUnavailable(self.missing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = StoreUnavailable(f"{self.missing} Until it is there only requests under /v1 are answered.")
        wants = Headers(scope=scope).get("accept", "")
        answer: Response
        if scope["path"].startswith(PAGES) and "text/html" in wants:
            answer = HTMLResponse(_page(error.message), 503)
        else:
            answer = JSONResponse(error.body(), 503)
        answer.headers["retry-after"] = str(_RELOAD_S)
        await answer(scope, receive, send)


def _page(message: str) -> str:
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="{_RELOAD_S}">'
        f"<title>Mneme: no database yet</title><h1>No database yet</h1><p>{escape(message)}</p>"
    )


# --- what tells whether it is well: the checks of /readyz, the gauges of /metrics ----------------------------------------


def _open_probes(
    core: Core, metrics: Metrics, exposition: Exposition, indexes: Indexes | None = None, further: Sequence[Check] = ()
) -> Probes:
    """/healthz, /readyz and /metrics. `further`: brings the gauges of features up to date."""
    return Probes(_checks(core), exposition, [_gauges(core, metrics, indexes), *further])


def _checks(core: Core) -> dict[str, Check]:
    """What must be warm before the server is ready."""

    async def database() -> None:
        for each in core.pools.by_name.values():
            async with each.acquire() as connection:
                await connection.execute(core.queries["turns.ping"])

    return {"database": database, "embedder": _embedder_check(core)}


def _embedder_check(core: Core) -> Check:
    """Whether the embedder is warm, where it is here."""

    async def embedder() -> None:
        if core.embedder.local:
            await core.embedder.embed(["warm"])

    return embedder


def _gauges(core: Core, metrics: Metrics, indexes: Indexes | None) -> Check:
    """Brings the gauges up to date that nothing else does."""
    pool, sql = core.pools.background, core.queries
    queue, storage = Queue(pool, sql), Storage(pool, sql)

    async def gauges() -> None:
        for name, each in core.pools.by_name.items():
            metrics.pool(name, {"idle": each.idle, "used": each.size - each.idle})
        metrics.tasks(len(asyncio.all_tasks()))
        if indexes is not None:
            metrics.index_bytes(indexes.bytes)
        counts = await queue.counts()
        metrics.queue(queued=counts.queued, running=counts.running, dead=counts.dead)
        metrics.helper_day(asdict(await core.helper_usage.read_day()))
        metrics.storage(by_group(await storage.figures()))
        for ran in await storage.ticks():
            metrics.scheduled(ran.name, ran.last_run.timestamp(), ran.changed)

    return gauges
