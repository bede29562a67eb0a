"""The worker process (`mneme worker`), wired: the jobs, and the schedule; and what erases users."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import UUID

from app.clock import Clock, SystemClock
from app.errors import NotReady
from app.features import Features, load
from app.jobs.learn_llm import CALLS_AT_ONCE
from app.jobs.learn_llm import ENTRYPOINT as LLM_ENTRYPOINT
from app.jobs.schedule import Schedule, index_ticks, life_ticks, mark_ticks, privacy_ticks
from app.jobs.worker import Worker, connector
from app.memory.extract import read_rules
from app.providers.helper import HelperEndpoint
from app.server import collector
from app.server.core import (
    build_llm_learner,
    database_dsn,
    hear_of_erasures,
    learner,
    open_core,
    process_of,
    until_prepared,
)
from app.settings import Settings
from app.store.erasure import ERASER_ROLE, Connect, Elsewhere, Eraser, connected, own_connection
from app.store.pools import APP_ROLE, OWNER_ROLE
from app.store.queries import Queries
from app.store.retention import GB, Retention, RetentionLimits
from app.store.tuning import check_parameters
from app.tasks import CLOSING_S, Supervisor, until_orphaned
from app.text_cache import forget

log = logging.getLogger("mneme.work")

NICE = 10
"""Of a worker that has begun (nice(2)): where servers want all of the processor, it has a tenth. Learning is shed first."""


async def run_worker(settings: Settings) -> None:
    """Run jobs and the schedule until SIGINT or SIGTERM, or until the process that started this one is gone."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    dsn, clock = database_dsn(settings), SystemClock()
    if not await _prepared(settings, dsn, stop):
        return
    features = load(settings)
    async with (
        features.within(lambda each: each.running()),
        open_core(settings, dsn, clock, serving=False) as core,
        AsyncExitStack() as stack,
    ):
        process = process_of(core, space=await core.turns.space_of(core.embedder.space))
        await stack.enter_async_context(features.within(lambda each: each.opened(process)))
        core.tasks.spawn(_stop_when_orphaned(stop), "orphan watch")
        await check_parameters(core.pools.background, core.queries)
        await asyncio.to_thread(read_rules)
        try:
            hearing = features.only(lambda each: each.hearing(process))
            learning = await learner(core, hearing, features.only(lambda each: each.noting(process)))
            reader = build_llm_learner(core, learning)
            handlers = (
                learning.handlers()
                | (reader.handlers() if reader is not None else {})
                | dict(features.all(lambda each: each.jobs(process).items()))
            )
            worker = Worker(
                connect=connector(settings.direct(dsn), role=APP_ROLE, name="mneme worker"),
                sql=core.queries,
                handlers=features.around.handlers(handlers),
                limits={LLM_ENTRYPOINT: CALLS_AT_ONCE} if reader is not None else {},
                schedule=schedule(settings, features, dsn, core.queries, clock),
                lease_s=settings.job_lease_s,
                grace_s=CLOSING_S,
            )
            hear_of_erasures(core, stack, lambda _user: forget(), forget)
            for name, feature in features:
                core.tasks.spawn(feature.work(process, stop), name)
            collector.settle()
            core.tasks.spawn(collector.keep_tidy(stop), "tidying up")
            extraction = "rules" if core.helper is None else f"rules, {settings.helper_model}"
            log.info("the worker runs", extra={"extraction": extraction})
            warn_without_key(core.helper_endpoint)
            os.nice(NICE)
            await worker.run(stop)
        finally:
            stop.set()


def warn_without_key(endpoint: HelperEndpoint | None) -> None:
    """Log that a helper LLM is asked without a key, which only servers of one's own allow."""
    if endpoint is not None and endpoint.api_key is None and endpoint.upstream is not None:
        log.warning(
            "the helper LLM is asked without a key, for clients bring the upstream's and Mneme has none: if it asks for one,"
            " set MNEME_HELPER_API_KEY",
            extra={"upstream": endpoint.upstream},
        )


def schedule(settings: Settings, features: Features, dsn: str, sql: Queries, clock: Clock) -> Schedule:
    """All that is done again and again."""
    direct = settings.direct(dsn)
    eraser = eraser_of(settings, features, direct, sql, clock)
    privacy = privacy_ticks(Retention(sql, capture_limits(settings)), eraser, sql)
    connect = connector(direct, role=OWNER_ROLE, name="mneme schedule")
    own = [*privacy, *life_ticks(sql), *index_ticks(sql), *mark_ticks(sql), *features.all(lambda each: each.ticks(sql))]
    return Schedule(connect, sql, clock, further=own)


def capture_limits(settings: Settings) -> RetentionLimits:
    """How long captures stay."""
    size = settings.capture_max_gb
    return RetentionLimits(settings.capture_days, None if size is None else int(size * GB))


async def _prepared(settings: Settings, dsn: str, stop: asyncio.Event) -> bool:
    """Wait for the database, however long; False when told to stop, or orphaned, before it was there."""
    watch = Supervisor()
    watch.spawn(_stop_when_orphaned(stop), "orphan watch")
    try:
        return await until_prepared(settings, dsn, stop)
    finally:
        await watch.close(0)


async def _stop_when_orphaned(stop: asyncio.Event) -> None:
    """The jobs are left to the worker of the next server."""
    if await until_orphaned(stop):
        stop.set()


# --- what erases users: from the database, and wherever features keep something of them ----------------------------------


def eraser_of(settings: Settings, features: Features, dsn: str, sql: Queries, clock: Clock) -> Eraser:
    """Erases users from the database of `dsn` (a direct way), and from what features keep. What one has kept that is not there
    any more is out of reach: then no erasure ends."""
    connect = own_connection(dsn, ERASER_ROLE)
    elsewhere = features.all(lambda each: each.elsewhere(dsn, sql, clock))
    if "archive" in features.absent:
        elsewhere.append(_archives_out_of_reach(connect, sql))
    if "spool" in features.absent:
        elsewhere.append(_spool_out_of_reach(settings.spool_folder))
    return Eraser(connect, sql, clock, elsewhere=elsewhere, leave_to_spaces=settings.leave_to_spaces)


def _archives_out_of_reach(connect: Connect, sql: Queries) -> Elsewhere:
    """Refuses where months of history are in files that nothing here can erase from."""

    async def refuse(_tenant: UUID, _user: UUID) -> Mapping[str, int]:
        async with connected(connect) as connection:
            if await connection.fetchval(sql["erasure.archived"]):
                raise NotReady(
                    "Months of history are archived, and this installation has no app.features.archive: nobody can be erased "
                    "from them here."
                )
        return {}

    return refuse


def _spool_out_of_reach(folder: Path) -> Elsewhere:
    """Refuses where a spool holds calls that nothing here can erase."""

    def holds_calls() -> bool:
        return any(each.is_file() for each in folder.glob("*/**/*"))  # beside them, the folder itself has a lock alone

    async def refuse(_tenant: UUID, _user: UUID) -> Mapping[str, int]:
        if await asyncio.to_thread(holds_calls):
            raise NotReady(
                f"Calls lie in {folder}, and this installation has no app.features.spool: nobody can be erased from them here."
            )
        return {}

    return refuse
