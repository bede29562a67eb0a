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

from fastapi import APIRouter, FastAPI

from app import collector, logs
from app.api.appending import Scribe
from app.api.auth import Authenticator
from app.api.batch import batch_router
from app.api.calls import calls_router
from app.api.common import DoorMiddleware, install_errors
from app.api.context import context_router
from app.api.export import export_router
from app.api.facts import facts_router
from app.api.filtering import Filtering
from app.api.importer import Importer, importer_router
from app.api.keys import keys_router
from app.api.memories import memories_router
from app.api.ops import ops_router, queue_router, storage_router
from app.api.outcomes import outcomes_router
from app.api.preview import CompilePreviewer
from app.api.scope import Gate
from app.api.search import search_router
from app.api.sessions import history_router, sessions_router
from app.api.spend import spend_router
from app.api.tenant import tenant_router
from app.api.users import users_router
from app.api.validation import validation_router
from app.api.working import working_router
from app.capture.commit import GroupCommit
from app.capture.record import Recorder
from app.capture.spool import erasing
from app.clock import Clock, SystemClock
from app.context.compile import Compiler
from app.context.retrieve import Retriever
from app.context.transcript import chain, tail_hash
from app.errors import NotReady, StoreUnavailable
from app.gateway.account import Accountant
from app.gateway.drain import Drain
from app.gateway.keeping import Keeper, open_keeper
from app.gateway.limiter import Limiter
from app.gateway.prepare import Preparer
from app.gateway.redact import Redactor
from app.gateway.scout import Scout
from app.gateway.simulated import SimulatedTransport
from app.gateway.transport import AiohttpTransport
from app.gateway.turn import Gateway
from app.gateway.upstream import Router, Transport
from app.jobs.working import WorkingMemory
from app.metrics import Exposition, Metrics, process_registry
from app.providers.embeddings import Embedder, build_embedder
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, TokenCounter, Tokenizers
from app.settings import Settings
from app.store.captures import Captures
from app.store.consolidation import ConsolidationStore
from app.store.deleting import Deleter
from app.store.erasure import ERASER_ROLE, Eraser, own_connection
from app.store.export import Export
from app.store.facts import Facts
from app.store.history import History
from app.store.instructions import Instructions
from app.store.limits import LimitStore
from app.store.memories import Memories
from app.store.migrate import migrate
from app.store.outcomes import Outcomes
from app.store.pools import open_pool
from app.store.queries import Queries
from app.store.queue import Queue, install_queue
from app.store.reach import reach
from app.store.retention import Storage, by_group
from app.store.sessions import Sessions
from app.store.spend import SpendStore
from app.store.tenancy import Tenancy
from app.store.turns import TurnStore
from app.store.validation import Validation
from app.store.workloads import PoolLimits, Pools, open_pools
from app.tasks import Supervisor, until_orphaned

log = logging.getLogger("mneme")

APP_ROLE = "mneme_app"
"""What the server and the worker run as; row-level security holds it to one tenant."""

VERSION = version("mneme-proxy")

CLOSING_S = 5.0
"""Seconds for what still runs when a process closes: records of cancelled answers, mostly; each takes milliseconds."""

WORKER_CONNECTIONS = 3
"""Of a worker beside its pool: the queue's listener, its leases, the schedule."""

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

    connection = await reach(dsn, settings.start_wait_s)
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
    dsn: str
    clock: Clock
    queries: Queries
    pools: Pools
    embedder: Embedder
    tokenizers: Tokenizers
    counts: CountCache
    models: ModelRegistry
    tasks: Supervisor
    turns: TurnStore
    counter: TokenCounter
    session_ttl: timedelta


def pool_limits(settings: Settings, *, serving: bool) -> dict[str, PoolLimits]:
    """The pools of a server process, or of a worker, which has no request to keep waiting."""
    waits, longest = settings.pool_background_timeout_ms, settings.background_statement_timeout_ms
    limits = {"background": PoolLimits(settings.pool_background_size, waits, longest, open_at_once=1)}
    if serving:
        sizes = {
            "write": settings.pool_write_size,
            "history": settings.pool_history_size,
            "memory": settings.pool_memory_size,
        }
        for name, given in sizes.items():
            size = given or settings.pool_size
            limits[name] = PoolLimits(size, settings.pool_timeout_ms, settings.statement_timeout_ms, open_at_once=size)
    return limits


async def _check_room(settings: Settings, pools: Pools, *, serving: bool) -> None:
    """Say so where all pools together may ask for more connections than the server gives."""
    one = sum(limit.size for limit in pool_limits(settings, serving=serving).values())
    worker = settings.pool_background_size + WORKER_CONNECTIONS if serving and settings.worker == "on" else 0
    wanted, allowed = one * (settings.workers if serving else 1) + worker, await pools.connections_allowed()
    if wanted > allowed:
        log.warning(
            "Postgres gives fewer connections than the pools may ask for: lower MNEME_POOL_SIZE, or raise its"
            " max_connections",
            extra={"wanted": wanted, "allowed": allowed},
        )


@asynccontextmanager
async def open_core(settings: Settings, dsn: str, clock: Clock, *, serving: bool = True) -> AsyncIterator[Core]:
    """Open what is shared; closed again in the right order: work first, the pools last."""
    async with AsyncExitStack() as stack:
        queries = Queries.load()
        await (await reach(dsn, settings.start_wait_s)).close()
        pools = await open_pools(
            dsn,
            pool_limits(settings, serving=serving),
            statement_cache_size=settings.statement_cache_size,
            role=APP_ROLE,
        )
        stack.push_async_callback(pools.close)
        await _check_room(settings, pools, serving=serving)
        embedder = build_embedder(settings)
        stack.push_async_callback(embedder.close)
        tokenizers = Tokenizers(settings.tokenizer_json)
        await asyncio.to_thread(tokenizers.warm)
        tasks = Supervisor()
        stack.push_async_callback(tasks.close, CLOSING_S)
        yield Core(
            settings=settings,
            dsn=dsn,
            clock=clock,
            queries=queries,
            pools=pools,
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
            turns=TurnStore(pools.write, queries, history=pools.history, memory=pools.memory),
            counter=tokenizers.for_model(STORED_COUNTS),
            session_ttl=timedelta(days=settings.session_ttl_days),
        )


@dataclass(frozen=True, slots=True)
class Proxy:
    """The gateway and what the doors share with it."""

    gateway: Gateway
    compiler: Compiler
    """For the doors: what they look for must not keep a prompt waiting."""
    preparer: Preparer
    """As well."""
    router: Router
    authenticator: Authenticator
    tenancy: Tenancy


@asynccontextmanager
async def open_proxy(core: Core, metrics: Metrics) -> AsyncIterator[Proxy]:
    """Wire the path of a request."""
    settings = core.settings
    secret = await core.turns.secret()
    tenancy = Tenancy(core.pools.background, core.queries, core.clock)
    authenticator = Authenticator(Tenancy(core.pools.history, core.queries, core.clock), settings, core.clock)
    redactor = Redactor(settings.redact_paths, settings.redact_headers)

    def compiler(turns: TurnStore) -> Compiler:
        return Compiler(
            Retriever(turns, core.embedder, core.counter.count),
            core.models,
            core.tokenizers,
            core.counts,
            nonce_key=lambda: secret,
            memory_cap=settings.memory_budget_tokens,
        )

    aside = TurnStore(core.pools.background, core.queries)
    behind_doors = compiler(aside)
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
    keeper = await open_keeper(settings, redactor, metrics, core.tasks)
    commit = GroupCommit(
        core.turns,
        core.tasks,
        metrics,
        turns=settings.commit_turns,
        queue=settings.commit_queue,
        timeout_s=settings.commit_timeout_ms / 1000,
    )
    gateway = Gateway(
        authenticator=authenticator,
        router=router,
        transports=transports,
        preparer=Preparer(core.turns, compiler(core.turns)),
        recorder=Recorder(core.turns, core.embedder, core.counts, core.counter, commit),
        accountant=Accountant(core.models, core.tokenizers, core.counts, core.session_ttl, redactor),
        scout=Scout(transports, core.models, core.tasks),
        limiter=Limiter(
            LimitStore(core.pools.history, core.queries),
            core.models,
            metrics=metrics,
            settings=settings,
            clock=core.clock,
            tasks=core.tasks,
        ),
        metrics=metrics,
        settings=settings,
        clock=core.clock,
        tasks=core.tasks,
        keeper=keeper,
    )
    await _warm(core)
    drain = _drain(core, keeper, gateway, metrics) if keeper is not None else None
    if drain is not None:
        core.tasks.spawn(drain.run(), "drain")
    try:
        yield Proxy(gateway, behind_doors, Preparer(aside, behind_doors), router, authenticator, tenancy)
    finally:
        await gateway.drained(CLOSING_S)
        if drain is not None:
            drain.stop()
        await commit.close(CLOSING_S)
        await real.aclose()
        await simulated.aclose()
        if keeper is not None:
            keeper.close()


async def _warm(core: Core) -> None:
    """So that the first request is answered with memory, too."""
    space, vector = await core.turns.space_of(core.embedder.space), None
    if core.embedder.local and core.embedder.dimensions:
        (vector,) = await core.embedder.embed(["warm"])
    await core.turns.warm(vector, space, core.settings.pool_size)


def _drain(core: Core, keeper: Keeper, gateway: Gateway, metrics: Metrics) -> Drain:
    async def writable() -> bool:
        try:
            async with core.pools.write.acquire() as connection:
                return bool(await connection.fetchval(core.queries["spool.writable"]))
        except StoreUnavailable:
            return False

    return Drain(
        keeper, gateway.settle, writable=writable, metrics=metrics, capture_max_bytes=core.settings.capture_max_bytes
    )


def open_doors(
    core: Core, proxy: Proxy, metrics: Metrics, exposition: Exposition, space: int | None
) -> list[APIRouter]:
    """Wire the routes under /api/v1 and those of operation."""
    pool, sql, clock = core.pools.background, core.queries, core.clock
    gate = Gate(proxy.authenticator)
    sessions = Sessions(pool, sql, clock, ttl=core.session_ttl)
    history = History(pool, sql, sessions, clock, chain=chain, tail=tail_hash, ttl=core.session_ttl, space=space)
    scribe = Scribe(core.embedder, core.counter, clock)
    memories = Memories(pool, sql, clock, space=space)
    captures = Captures(pool, sql)
    queue, storage = Queue(pool, sql), Storage(pool, sql)
    consolidation = ConsolidationStore(pool, sql)
    eraser = Eraser(own_connection(core.dsn, ERASER_ROLE), sql, clock, elsewhere=[erasing(core.settings.spool_folder)])
    deleter = Deleter(own_connection(core.dsn, ERASER_ROLE), sql, clock)
    default_model = core.settings.default_model or STORED_COUNTS

    async def database() -> None:
        for each in core.pools.by_name.values():
            async with each.acquire() as connection:
                await connection.execute(sql["turns.ping"])

    async def embedder() -> None:
        if core.embedder.local:
            await core.embedder.embed(["warm"])

    async def gauges() -> None:
        for name, each in core.pools.by_name.items():
            metrics.pool(name, {"idle": each.idle, "used": each.size - each.idle})
        metrics.tasks(len(asyncio.all_tasks()))
        counts = await queue.counts()
        metrics.queue(queued=counts.queued, running=counts.running, dead=counts.dead)
        metrics.storage(by_group(await storage.figures()))
        metrics.compactions(**await consolidation.figures())
        for ran in await storage.ticks():
            metrics.scheduled(ran.name, ran.last_run.timestamp(), ran.changed)

    checks = {"database": database, "embedder": embedder}
    return [
        ops_router(checks, exposition, [gauges]),
        search_router(gate, sessions, proxy.compiler, clock, Filtering(memories, core.settings.memory_budget_tokens)),
        validation_router(gate, memories, Validation(pool, sql, clock, space=space), scribe),
        batch_router(gate, memories, sessions, scribe),
        memories_router(gate, memories, sessions, scribe),
        context_router(gate, CompilePreviewer(proxy.preparer, proxy.router, clock, default_model)),
        users_router(gate, proxy.tenancy, clock, eraser, core.tasks),
        sessions_router(gate, sessions, history, scribe, deleter),
        history_router(gate, sessions, history, scribe, deleter),
        working_router(gate, sessions, consolidation, WorkingMemory(pool, sql, clock)),
        calls_router(gate, captures, sessions),
        importer_router(gate, Importer(sessions, history, scribe)),
        queue_router(gate, queue),
        keys_router(gate, proxy.tenancy, clock),
        spend_router(gate, SpendStore(pool, sql), clock),
        storage_router(gate, storage.figures),
        facts_router(gate, Facts(pool, sql, clock)),
        outcomes_router(gate, Outcomes(pool, sql, clock), captures),
        tenant_router(gate, Instructions(pool, sql, clock)),
        export_router(gate, Export(pool, sql), proxy.tenancy, clock),
    ]


class Application:
    """One ASGI application: `/v1` is the gateway, plain; everything else is FastAPI's."""

    def __init__(self, settings: Settings, clock: Clock, *, started: Callable[[], None] | None = None) -> None:
        """`started` is called when it is ready for requests."""
        self._settings = settings
        self._clock = clock
        self._started = started
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
            if self._started is not None:
                self._started()
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
    return Application(settings, SystemClock(), started=collector.settle)


@asynccontextmanager
async def open_tenancy(settings: Settings, dsn: str) -> AsyncIterator[tuple[Tenancy, SpendStore]]:
    """Keys and tenants, and what they spent, for the commands."""
    pool = await open_pool(
        dsn,
        size=1,
        timeout_ms=settings.pool_timeout_ms,
        statement_timeout_ms=settings.statement_timeout_ms,
        statement_cache_size=settings.statement_cache_size,
        role=APP_ROLE,
    )
    try:
        yield Tenancy(pool, (queries := Queries.load()), SystemClock()), SpendStore(pool, queries)
    finally:
        await pool.close()
