"""What tells whether a server is well, wired: the checks of /readyz, the gauges of /metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from app.api.probes import Check, Probes
from app.index.indexes import Indexes
from app.metrics import Exposition, Metrics
from app.server.core import Core
from app.store.queue import Queue
from app.store.retention import Storage, by_group


def open_probes(
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

    return {"database": database, "embedder": embedder_check(core)}


def embedder_check(core: Core) -> Check:
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
        metrics.storage(by_group(await storage.figures()))
        for ran in await storage.ticks():
            metrics.scheduled(ran.name, ran.last_run.timestamp(), ran.changed)

    return gauges
