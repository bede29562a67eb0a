"""The composition root: the only place that builds and wires.

`create_app` is what uvicorn runs, once in every server process; `run_worker` is the worker process. Both read the same
settings and share nothing but the database.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import asyncpg
from fastapi import APIRouter, FastAPI

from app import logs
from app.api.appending import Scribe
from app.api.auth import Authenticator
from app.api.calls import calls_router
from app.api.common import DoorMiddleware, install_errors
from app.api.context import context_router
from app.api.importer import Importer, importer_router
from app.api.memories import memories_router
from app.api.ops import ops_router, queue_router
from app.api.preview import CompilePreviewer
from app.api.scope import Gate
from app.api.search import search_router
from app.api.sessions import history_router, sessions_router
from app.api.users import users_router
from app.capture.record import Recorder
from app.clock import Clock, SystemClock
from app.context.compile import Compiler
from app.context.retrieve import Retriever
from app.context.transcript import chain, tail_hash
from app.errors import NotReady
from app.gateway.account import Accountant
from app.gateway.prepare import Preparer
from app.gateway.scout import Scout
from app.gateway.simulated import SimulatedTransport
from app.gateway.transport import AiohttpTransport
from app.gateway.turn import Gateway
from app.gateway.upstream import Router, Transport
from app.metrics import Exposition, Metrics, process_registry
from app.providers.embeddings import Embedder, build_embedder
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, TokenCounter, Tokenizers
from app.settings import Settings
from app.store.captures import Captures
from app.store.history import History
from app.store.memories import Memories
from app.store.migrate import migrate
from app.store.pools import Pool, open_pool
from app.store.queries import Queries
from app.store.queue import Queue, install_queue
from app.store.sessions import Sessions
from app.store.tenancy import Tenancy
from app.store.turns import TurnStore
from app.tasks import Supervisor, until_orphaned

log = logging.getLogger("mneme")

APP_ROLE = "mneme_app"
"""What the server and the worker run as; row-level security holds it to one tenant."""

VERSION = version("mneme-proxy")

CLOSING_S = 5.0
"""Seconds for what still runs when a process closes: records of cancelled answers, mostly; each takes milliseconds."""

STORED_COUNTS = "gpt-4o"
"""A model counted by o200k_base: the encoding of every stored token count."""


def database_dsn(settings: Settings) -> str:
    """The database to use. Raises NotReady where none is configured: `mneme serve` starts the embedded one."""
    if settings.database_url is None:
        raise NotReady("No database: set MNEME_DATABASE_URL, or start with `mneme serve`.")
    return settings.database_url.get_secret_value()


async def prepare_database(settings: Settings, dsn: str, progress: Callable[[str], None] | None = None) -> None:
    """Bring the schema, the queue and the embedder's space up to date. Needs a login that may create roles."""
    embedder = build_embedder(settings)

    async def space(connection: Any) -> None:
        if embedder.dimensions:
            sql = Queries.load()["turns.ensure_space"]
            await connection.execute(sql, embedder.space, embedder.dimensions)

    try:
        connection = await asyncpg.connect(dsn)
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        reason = str(error) or "no answer"
        raise NotReady(f"The database cannot be reached: {reason}. Look at MNEME_DATABASE_URL.") from error
    try:
        await migrate(
            connection,
            hash_partitions=settings.hash_partitions,
            history_partitions=settings.history_partitions,
            after=[install_queue, space],
            progress=progress,
        )
    finally:
        await connection.close()
        await embedder.close()


@dataclass(frozen=True, slots=True)
class Core:
    """What every process needs."""

    settings: Settings
    clock: Clock
    queries: Queries
    pool: Pool
    embedder: Embedder
    tokenizers: Tokenizers
    counts: CountCache
    models: ModelRegistry
    tasks: Supervisor
    turns: TurnStore
    counter: TokenCounter
    session_ttl: timedelta


@asynccontextmanager
async def open_core(settings: Settings, dsn: str, clock: Clock) -> AsyncIterator[Core]:
    """Open what is shared; closed again in the right order: work first, the pool last."""
    async with AsyncExitStack() as stack:
        queries = Queries.load()
        pool = await open_pool(
            dsn,
            size=settings.pool_size,
            timeout_ms=settings.pool_timeout_ms,
            statement_timeout_ms=settings.statement_timeout_ms,
            statement_cache_size=settings.statement_cache_size,
            role=APP_ROLE,
        )
        stack.push_async_callback(pool.close)
        embedder = build_embedder(settings)
        stack.push_async_callback(embedder.close)
        tokenizers = Tokenizers(settings.tokenizer_json)
        await asyncio.to_thread(tokenizers.warm)
        tasks = Supervisor()
        stack.push_async_callback(tasks.close, CLOSING_S)
        yield Core(
            settings=settings,
            clock=clock,
            queries=queries,
            pool=pool,
            embedder=embedder,
            tokenizers=tokenizers,
            counts=CountCache(),
            models=ModelRegistry(
                windows=settings.model_windows,
                prices=settings.model_prices,
                default_window=settings.default_context_window,
                default_response=settings.default_response_tokens,
            ),
            tasks=tasks,
            turns=TurnStore(pool, queries),
            counter=tokenizers.for_model(STORED_COUNTS),
            session_ttl=timedelta(days=settings.session_ttl_days),
        )


@dataclass(frozen=True, slots=True)
class Proxy:
    """The gateway and what the doors share with it."""

    gateway: Gateway
    compiler: Compiler
    preparer: Preparer
    router: Router
    authenticator: Authenticator
    tenancy: Tenancy


@asynccontextmanager
async def open_proxy(core: Core, metrics: Metrics) -> AsyncIterator[Proxy]:
    """Wire the path of a request."""
    settings = core.settings
    secret = await core.turns.secret()
    tenancy = Tenancy(core.pool, core.queries, core.clock)
    authenticator = Authenticator(tenancy, settings, core.clock)
    compiler = Compiler(
        Retriever(core.turns, core.embedder),
        core.models,
        core.tokenizers,
        core.counts,
        nonce_key=lambda: secret,
        memory_cap=settings.memory_budget_tokens,
    )
    preparer = Preparer(core.turns, compiler)
    real = AiohttpTransport(
        connect_timeout_s=settings.connect_timeout_s,
        head_timeout_s=settings.head_timeout_s,
        idle_timeout_s=settings.idle_timeout_s,
    )
    simulated = SimulatedTransport(core.counter.count, core.clock)
    transports: dict[bool, Transport] = {False: real, True: simulated}
    router = Router.from_settings(settings)
    for target in router.targets:
        log.info("upstream", extra={"upstream": target.name, "url": target.base_url})
    gateway = Gateway(
        authenticator=authenticator,
        router=router,
        transports=transports,
        preparer=preparer,
        recorder=Recorder(core.turns, core.embedder, core.counts, core.counter),
        accountant=Accountant(core.models, core.tokenizers, core.counts, core.session_ttl),
        scout=Scout(transports, core.models, core.tasks),
        metrics=metrics,
        settings=settings,
        clock=core.clock,
        tasks=core.tasks,
    )
    try:
        yield Proxy(gateway, compiler, preparer, router, authenticator, tenancy)
    finally:
        await gateway.drained(CLOSING_S)
        await real.aclose()
        await simulated.aclose()


def open_doors(
    core: Core, proxy: Proxy, metrics: Metrics, exposition: Exposition, space: int | None
) -> list[APIRouter]:
    """Wire the routes under /api/v1 and those of operation."""
    pool, sql, clock = core.pool, core.queries, core.clock
    gate = Gate(proxy.authenticator)
    sessions = Sessions(pool, sql, clock, ttl=core.session_ttl)
    history = History(pool, sql, sessions, clock, chain=chain, tail=tail_hash, ttl=core.session_ttl, space=space)
    scribe = Scribe(core.embedder, core.counter, clock)
    memories = Memories(pool, sql, clock, space=space)
    captures = Captures(pool, sql)
    queue = Queue(pool, sql)
    default_model = core.settings.default_model or STORED_COUNTS

    async def database() -> None:
        async with pool.acquire() as connection:
            await connection.execute(sql["turns.ping"])

    async def embedder() -> None:
        if core.embedder.local:
            await core.embedder.embed(["warm"])

    async def gauges() -> None:
        metrics.pool("main", {"idle": pool.idle, "used": pool.size - pool.idle})
        metrics.tasks(len(asyncio.all_tasks()))
        counts = await queue.counts()
        metrics.queue(queued=counts.queued, running=counts.running, dead=counts.dead)

    checks = {"database": database, "embedder": embedder}
    return [
        ops_router(checks, exposition, [gauges]),
        search_router(gate, sessions, proxy.compiler, clock),
        memories_router(gate, memories, sessions, scribe),
        context_router(gate, CompilePreviewer(proxy.preparer, proxy.router, clock, default_model)),
        users_router(gate, proxy.tenancy, clock),
        sessions_router(gate, sessions, history, scribe),
        history_router(gate, sessions, history, scribe),
        calls_router(gate, captures, sessions),
        importer_router(gate, Importer(sessions, history, scribe)),
        queue_router(gate, queue),
    ]


class Application:
    """One ASGI application: `/v1` is the gateway, plain; everything else is FastAPI's."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._gateway: Gateway | None = None
        self._doors = FastAPI(title="Mneme", version=VERSION, lifespan=self._lifespan)
        install_errors(self._doors)
        self._app = DoorMiddleware(self._doors, settings.max_body_bytes)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        if scope["type"] == "http" and (path.startswith("/v1/") or path == "/v1") and self._gateway is not None:
            await self._gateway(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, doors: FastAPI) -> AsyncIterator[None]:
        registry = process_registry()
        metrics = Metrics(registry)
        folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        exposition = Exposition(registry, Path(folder) if folder else None)
        async with (
            open_core(self._settings, database_dsn(self._settings), self._clock) as core,
            open_proxy(core, metrics) as proxy,
        ):
            space = await core.turns.space_of(core.embedder.space)
            for router in open_doors(core, proxy, metrics, exposition, space):
                doors.include_router(router)
            stop = asyncio.Event()
            core.tasks.spawn(_end_when_orphaned(stop), "orphan watch")
            self._gateway = proxy.gateway
            yield
            self._gateway = None
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
    return Application(settings, SystemClock())


@asynccontextmanager
async def open_tenancy(settings: Settings, dsn: str) -> AsyncIterator[Tenancy]:
    """Keys and tenants, for the commands."""
    pool = await open_pool(
        dsn,
        size=1,
        timeout_ms=settings.pool_timeout_ms,
        statement_timeout_ms=settings.statement_timeout_ms,
        statement_cache_size=settings.statement_cache_size,
        role=APP_ROLE,
    )
    try:
        yield Tenancy(pool, Queries.load(), SystemClock())
    finally:
        await pool.close()
