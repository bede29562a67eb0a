"""What tests of the worker share: jobs put into the queue, a worker that runs for a while, and waiting without sleeping."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from app.jobs.schedule import Schedule
from app.jobs.worker import Connect, Handler, Worker, connector
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.queue import Queue
from app.store.records import JobRecord

TENANT = UUID("00000000-0000-0000-0000-00000000000a")
DEADLINE_S = 20.0
LOOK_S = 0.01

SQL = Queries.load()


async def until(holds: Callable[[], Awaitable[bool] | bool], why: str = "") -> None:
    """Wait until `holds` does; fails after the deadline."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                held = holds()
                if held if isinstance(held, bool) else await held:
                    return
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise AssertionError(f"in {DEADLINE_S:g} s it did not come to hold {why}") from None


def payload(name: str = "a", tenant: UUID = TENANT) -> bytes:
    return orjson.dumps({"tenant": tenant, "name": name})


async def put(pool: Pool, *jobs: JobRecord) -> None:
    """Enqueue jobs as a turn does: by the function, in a transaction of the application's role."""
    queue = Queue(pool, SQL)
    async with pool.transaction(TENANT) as connection:
        await queue.enqueue(connection, jobs)


def job(name: str = "a", entrypoint: str = "test", key: str | None = None, delay_s: float = 0.0) -> JobRecord:
    return JobRecord(entrypoint, payload(name), key, delay_s)


@contextlib.asynccontextmanager
async def working(
    dsn: str,
    handlers: Mapping[str, Handler],
    *,
    connect: Connect | None = None,
    schedule: Schedule | None = None,
    lease_s: float = 60.0,
    attempts: int = 5,
    grace_s: float = 5.0,
    poll_s: float = 0.05,
    probe_s: float = 10.0,
    first_retry_s: float = 0.01,
    concurrency: int = 8,
) -> AsyncIterator[asyncio.Task[None]]:
    """A worker that runs until the block ends; yields its task."""
    worker = Worker(
        connect=connect or connector(dsn, role="mneme_app", name="mneme worker"),
        sql=SQL,
        handlers=handlers,
        schedule=schedule,
        lease_s=lease_s,
        attempts=attempts,
        grace_s=grace_s,
        poll_s=poll_s,
        probe_s=probe_s,
        first_retry_s=first_retry_s,
        concurrency=concurrency,
    )
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(worker.run(stop))
        try:
            yield task
        finally:
            stop.set()


async def rows(admin: asyncpg.Connection[Any], query: str, *arguments: object) -> list[dict[str, Any]]:
    return [dict(row) for row in await admin.fetch(query, *arguments)]
