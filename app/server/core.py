"""What every process needs, opened in order and closed in reverse: pools, embedder, tokenizers, tasks; the database
brought up to date for it; and what learns from turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import Struct

from app.clock import Clock
from app.errors import NotReady
from app.features import CallPath, Process
from app.gateway.upstream import find_helper_endpoint
from app.jobs.changes import MemoryReviser
from app.jobs.learn import Hearing, Learner, Notes, Noting, ValidationAnswers
from app.jobs.learn_llm import LlmLearner, plan_reading
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.extract import extract
from app.memory.secrets import refuser
from app.metrics import Metrics
from app.optional import imported, needed
from app.providers.embeddings import Embedder, build_embedder
from app.providers.helper import Helper, HelperEndpoint, build_helper
from app.providers.models import ModelRegistry
from app.providers.tokens import STORED_COUNTS, CountCache, TokenCounter, Tokenizers
from app.settings import Settings
from app.store import migrate
from app.store.erasure import Erasures, own_connection
from app.store.helper_usage import HelperUsage
from app.store.learning import LearningStore
from app.store.pools import (
    APP_ROLE,
    BACKGROUND_POOL_WAIT_MS,
    BACKGROUND_STATEMENT_TIMEOUT_MS,
    OWNER_ROLE,
    POOL_WAIT_MS,
    START_WAIT_S,
    STATEMENT_TIMEOUT_MS,
    OtherServers,
    PoolLimits,
    Pools,
    open_pools,
    reach,
)
from app.store.queries import Queries
from app.store.queue import prepare_queue
from app.store.turns import TurnStore
from app.store.validation import Validation
from app.tasks import CLOSING_S, Supervisor

if TYPE_CHECKING:
    from app.jobs.worker import Connect


log = logging.getLogger("mneme")

WORKER_CONNECTIONS = 3
"""Of a worker beside its pool: the queue's listener, its leases, the schedule."""

WARM_CONNECTIONS = 4
"""Connections of each pool that requests wait for, which a start opens and warms: all of MNEME_POOL_SIZE's default. A request
that opens a connection itself plans its statements for some 45 ms; with no warm-up the p99 of the first requests doubled."""

REPLICA_WAIT_MS = 20
"""Milliseconds that a standby is waited for before the primary is asked: a read of one user takes some 2."""
REPLICA_WAIT_SHARE = 0.04
"""Share of MNEME_RETRIEVAL_DEADLINE_MS that a standby is waited for where that is longer: 20 ms of the default 500."""


def replica_wait_s(settings: Settings) -> float:
    """Return the seconds that a standby is waited for before the primary is asked."""
    return max(REPLICA_WAIT_MS, REPLICA_WAIT_SHARE * settings.retrieval_deadline_ms) / 1000


def database_dsn(settings: Settings) -> str:
    """The database to use. Raises NotReady where none is configured: `mneme serve` starts the embedded one."""
    if settings.database_url is None:
        raise NotReady("No database: set MNEME_DATABASE_URL, or start with `mneme serve`.")
    return settings.database_url.get_secret_value()


async def prepare_database(
    settings: Settings, dsn: str, progress: Callable[[str], None] | None = None, *, wait_s: float = START_WAIT_S
) -> None:
    """Bring the schema, the queue and the embedder's space up to date. Needs a login that may create roles, or one to which
    they were granted. `wait_s`: seconds that the database is waited for."""
    embedder, sql = build_embedder(settings), Queries.load()

    async def queue(connection: Any) -> None:
        await prepare_queue(connection, sql)

    async def space(connection: Any) -> None:
        if embedder.dimensions:
            await connection.execute(sql["turns.ensure_space"], embedder.space, embedder.dimensions)

    async def marks(connection: Any) -> None:
        if (replicas := imported("replicas")) is not None:
            await replicas.begin_marking(connection, sql, wanted=bool(settings.standby_urls))

    connection = await reach(settings.direct(dsn), wait_s)
    try:
        await migrate.migrate(
            connection,
            hash_partitions=settings.hash_partitions,
            history_partitions=settings.history_partitions,
            after=[queue, space, marks],
            progress=progress,
        )
    finally:
        await connection.close()
        await embedder.close()


async def lacking(settings: Settings, dsn: str) -> str | None:
    """What the database lacks to be used, as `migrate.lacking`."""
    return await migrate.lacking(dsn, await _space_name(settings))


async def until_prepared(settings: Settings, dsn: str, stop: asyncio.Event) -> bool:
    """Wait for the database, as `migrate.until_prepared`."""
    return await migrate.until_prepared(settings.direct(dsn), await _space_name(settings), stop)


async def _space_name(settings: Settings) -> str | None:
    embedder = build_embedder(settings)
    try:
        return embedder.space if embedder.dimensions else None
    finally:
        await embedder.close()


class Core(Struct, frozen=True):
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
    helper: Helper | None
    helper_endpoint: HelperEndpoint | None
    helper_usage: HelperUsage


def process_of(
    core: Core, metrics: Metrics | None = None, *, space: int | None, path: CallPath | None = None
) -> Process:
    """What a feature may use of it. `metrics`: a server's. `space`: of the embedder. `path`: for routes."""

    def owner(name: str) -> Connect:
        from app.jobs.worker import connector

        return connector(core.settings.direct(core.dsn), role=OWNER_ROLE, name=name)

    return Process(
        core.clock,
        core.queries,
        core.pools.background,
        owner,
        core.embedder,
        core.counter.count,
        core.tasks,
        core.models,
        core.tokenizers,
        core.counts,
        core.helper,
        metrics,
        space,
        path,
    )


def hear_of_erasures(
    core: Core, stack: AsyncExitStack, erased: Callable[[UUID], None], all_erased: Callable[[], None]
) -> None:
    """Have what is kept of users dropped when anybody erases them; until `stack` is left."""
    own = own_connection(core.settings.direct(core.dsn), APP_ROLE)
    listening = Erasures(own, core.pools.background, core.queries, erased, all_erased).listen()
    stack.callback(core.tasks.spawn(listening, "erasures").cancel)


def pool_limits(settings: Settings, *, serving: bool) -> dict[str, PoolLimits]:
    """The pools of a server process, or of a worker, which has no request to keep waiting."""
    limits = {
        "background": PoolLimits(
            settings.pool_background_size, BACKGROUND_POOL_WAIT_MS, BACKGROUND_STATEMENT_TIMEOUT_MS
        )
    }
    if serving:
        for name in ("write", "history", "memory"):
            limits[name] = PoolLimits(settings.pool_size, POOL_WAIT_MS, STATEMENT_TIMEOUT_MS)
    return limits


async def check_room(settings: Settings, pools: Pools, *, serving: bool) -> None:
    """Say so where all pools together may ask for more connections than the server gives."""
    one = sum(limit.size for limit in pool_limits(settings, serving=serving).values())
    worker = settings.pool_background_size + WORKER_CONNECTIONS if serving and settings.worker == "on" else 0
    listener = 1 if serving else 0
    wanted = (one + listener) * (settings.workers if serving else 1) + worker
    allowed = await pools.connections_allowed()
    if wanted > allowed:
        log.warning(
            "Postgres gives fewer connections than the pools may ask for: lower MNEME_POOL_SIZE, or raise its"
            " max_connections",
            extra={"wanted": wanted, "allowed": allowed},
        )


@asynccontextmanager
async def open_core(
    settings: Settings, dsn: str, clock: Clock, *, serving: bool = True, there: bool = True
) -> AsyncIterator[Core]:
    """Open what is shared; closed again in the right order: work first, the pools last. Not `there`: the database has not been
    reached yet, and nothing is asked of it; the pools connect when they are used, and `check_room` is left to the caller."""
    async with AsyncExitStack() as stack:
        queries = Queries.load()
        if there:
            await (await reach(dsn, START_WAIT_S)).close()
        pools = await open_pools(
            dsn,
            pool_limits(settings, serving=serving),
            statement_cache_size=settings.statement_cache_size,
            role=APP_ROLE,
            elsewhere=OtherServers(settings.pool_urls, replica_wait_s(settings)),
            open_at_once=1 if there else 0,
        )
        stack.push_async_callback(pools.close)
        if there:
            await check_room(settings, pools, serving=serving)
        embedder = build_embedder(settings)
        stack.push_async_callback(embedder.close)
        usage = HelperUsage(pools.background, queries, clock, tokens_per_day=settings.helper_tokens_per_day)
        endpoint = find_helper_endpoint(settings)
        helper = build_helper(endpoint, settings, usage)
        if helper is not None:
            stack.push_async_callback(helper.close)
        tokenizers = Tokenizers(settings.tokenizer_json)
        counter = tokenizers.for_model(STORED_COUNTS)
        if serving:  # no client waits for a worker
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
            models=ModelRegistry(windows=settings.model_windows, prices=settings.model_prices),
            tasks=tasks,
            turns=TurnStore(pools.write, queries, history=pools.reads("history"), memory=pools.reads("memory")),
            counter=counter,
            helper=helper,
            helper_endpoint=endpoint,
            helper_usage=usage,
        )


# --- what learns from turns: for the worker, and for a server, with a turn in which the rules find something -------------


async def learner(core: Core, hearing: Hearing | None, noting: Noting | None = None) -> Learner:
    """Learns by the rules, and leaves what they have read to a helper LLM where there is one. `hearing`, `noting`: see
    `Feature`."""

    async def by_rules(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
        return extract(exchange)

    commands = imported("commands.store")
    refuses = refuser(core.settings.refuse_pii, core.settings.refuse_patterns)
    pool, space = core.pools.background, await core.turns.space_of(core.embedder.space)
    return Learner(
        LearningStore(pool, core.queries),
        embedder=core.embedder,
        space=space,
        extract=by_rules,
        further_jobs=plan_reading if core.helper is not None else None,
        count=core.counter.count,
        clock=core.clock,
        store_secrets=core.settings.store_secrets,
        refuses=refuses,
        note=Notes(core.clock, noting),
        hearing=hearing,
        reviser=MemoryReviser(by_rules),
        taking_back=partial(commands.withdraw, core.queries, core.clock) if commands is not None else None,
        answers=ValidationAnswers(
            Validation(pool, core.queries, core.clock, space=space, actor="user"),
            embedder=core.embedder,
            count=core.counter.count,
            store_secrets=core.settings.store_secrets,
            refuses=refuses,
        ),
    )


def build_llm_learner(core: Core, learner: Learner) -> LlmLearner | None:
    """Return what learns by the helper LLM, beside `learner`; None: there is none."""
    if core.helper is None:
        return None
    read = partial(needed("helper", "MNEME_HELPER_MODEL").read_exchanges, core.helper)
    return LlmLearner(learner, read, core.helper_usage, learner.hearing)
