"""The worker: takes jobs from the queue, runs them, and sees to it that each has its effect once.

pgqueuer's QueueManager dispatches; `lease.py` holds the leases. What is decided here: when a failed job is tried again
and when it is held as a dead letter, how the worker stops, and that it outlives any loss of Postgres.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import NoReturn

import asyncpg
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.errors import RetryRequested
from pgqueuer.domain.models import Job

from app.errors import BadRequest, MnemeError, NotReady
from app.jobs.lease import STORE_FAILURES, Connect, LeasedQueries, QueueDriver
from app.jobs.schedule import Schedule
from app.store.queries import Queries
from app.store.queue import CHANNEL

log = logging.getLogger(__name__)

Handler = Callable[[bytes], Awaitable[None]]
"""Does a job, given its payload. May run twice: what it does must have one effect. Raises `BadRequest` for a payload that
no further try can help."""

POLL_S = 1.0
"""Seconds between two looks at the queue when nothing is heard: one look-up in an index a second costs nothing, and a job
whose notification was lost still starts before anybody waits for it."""

CONCURRENCY = 8
"""Jobs at once, at least 2: as many as the pool has connections by default; most of a job is waiting."""

PROBE_S = 10.0
"""Seconds between two proofs that notifications arrive. Polling bridges what lies between."""

FIRST_RETRY_S = 1.0
RETRY_FACTOR = 4.0
LONGEST_RETRY_S = 600.0
"""Waits before the 2nd, 3rd … try: 1, 4, 16, 64 s by default (5 tries). A helper that restarts is back within that."""

RESTART_S = 1.0
"""Seconds before the worker begins anew after Postgres refused it."""

ERROR_CHARS = 300
"""Of an error's message that is kept with a dead letter."""


class JobFailed(MnemeError):
    """A job failed. Says what with, but quotes nothing: messages of libraries may hold what users wrote."""


class Worker:
    """Runs jobs until told to stop."""

    def __init__(
        self,
        *,
        connect: Connect,
        sql: Queries,
        handlers: Mapping[str, Handler],
        schedule: Schedule | None = None,
        lease_s: float,
        attempts: int,
        grace_s: float,
        concurrency: int = CONCURRENCY,
        poll_s: float = POLL_S,
        probe_s: float = PROBE_S,
        first_retry_s: float = FIRST_RETRY_S,
    ) -> None:
        """`connect` opens the worker's own connections, as mneme_app. `handlers`: by entrypoint. `lease_s`: seconds
        without a heartbeat until a job is given to another. `attempts`: tries before a job is held as a dead letter.
        `grace_s`: seconds for running jobs to end once told to stop; what has not ended then goes back to the queue."""
        self._sql = sql
        self._handlers = handlers
        self._schedule = schedule
        self._lease = timedelta(seconds=lease_s)
        self._attempts = attempts
        self._grace = grace_s
        self._concurrency = concurrency
        self._poll = timedelta(seconds=poll_s)
        self._first_retry = first_retry_s
        # A statement that hangs must leave time to beat again before the lease is lost.
        self._driver = QueueDriver(connect, sql, timeout_s=lease_s / 4, probe_s=probe_s)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set. No loss of Postgres ends it: it waits and goes on."""
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [group.create_task(self._driver.listen())]
                if self._schedule is not None:
                    helpers.append(group.create_task(self._schedule.run(stop)))
                log.info("the worker has begun", extra={"concurrency": self._concurrency})
                while not stop.is_set():
                    await self._work(stop)
                for helper in helpers:
                    helper.cancel()
        finally:
            await self._driver.close()
        log.info("the worker has stopped")

    async def _work(self, stop: asyncio.Event) -> None:
        """One life of pgqueuer's manager: until `stop`, or until Postgres refuses to begin."""
        manager = QueueManager(LeasedQueries(self._driver, self._sql), channel=CHANNEL)
        for name, handler in self._handlers.items():
            manager.entrypoint(name, on_failure="hold")(self._boundary(handler))
        try:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(self._manage(manager))
                stopping = group.create_task(stop.wait())
                await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
                manager.shutdown.set()
                stopping.cancel()
                _, late = await asyncio.wait({running}, timeout=self._grace)
                if late:
                    log.warning("jobs outlast the grace and go back to the queue")
                    running.cancel()
        except* (*STORE_FAILURES, NotReady) as group_error:
            error = group_error.exceptions[0]
            log.warning("the worker cannot begin", extra={"error": type(error).__name__, "reason": str(error)})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RESTART_S):
                    await stop.wait()

    async def _manage(self, manager: QueueManager) -> None:
        try:
            await manager.verify_structure()
        except RuntimeError as error:  # what pgqueuer says when its tables are missing
            raise NotReady("The queue is not installed: run `mneme migrate`.") from error
        await manager.run(
            dequeue_timeout=self._poll,
            batch_size=max(1, self._concurrency // 2),  # pgqueuer wants twice the batch as the limit
            max_concurrent_tasks=max(2, self._concurrency),
            heartbeat_timeout=self._lease,
            log_aggregation_interval=timedelta(0),  # nobody reads its statistics
        )

    def _boundary(self, handler: Handler) -> Callable[[Job], Awaitable[None]]:
        async def run(job: Job) -> None:
            begun = time.monotonic()
            told = {"job_id": job.id, "entrypoint": str(job.entrypoint), "attempt": job.attempts + 1}
            log.debug("a job begins", extra=told)
            try:
                if job.attempts >= self._attempts:
                    # Begun as often as it may be, and never ended: it takes its worker down.
                    raise BadRequest("Every try of this job ended together with its worker.")
                await handler(job.payload or b"")
            except Exception as error:  # noqa: BLE001 - the boundary of a job: any failure is recorded and tried again
                self._failed(job, error, told)
            log.info("a job is done", extra=told | {"took_ms": round((time.monotonic() - begun) * 1000, 1)})

        return run

    def _failed(self, job: Job, error: Exception, told: Mapping[str, object]) -> NoReturn:
        reason = describe(error)
        told = {**told, "error": type(error).__name__, "where": _where(error)}
        final = isinstance(error, BadRequest) or job.attempts + 1 >= self._attempts
        if final:
            log.error("a job failed for good and is held as a dead letter", extra=told)
            raise JobFailed(reason) from None
        wait = min(LONGEST_RETRY_S, self._first_retry * RETRY_FACTOR**job.attempts) * random.uniform(0.8, 1.2)
        log.warning("a job failed and will be tried again", extra={**told, "in_s": round(wait, 1)})
        raise RetryRequested(timedelta(seconds=wait), reason) from None


def describe(error: Exception) -> str:
    """What is kept of an error: Mneme's own message up to its colon, behind which it may quote what a helper answered; of
    all others only the kind."""
    if isinstance(error, MnemeError):
        return f"{type(error).__name__}: {error.message.partition(': ')[0]}"[:ERROR_CHARS]
    if isinstance(error, asyncpg.PostgresError):
        return f"{type(error).__name__} ({error.sqlstate})"
    return type(error).__name__


def _where(error: Exception) -> str:
    """The innermost frame of Mneme's own, as `file:line`."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/app/" in frame.filename]
    return f"{frames[-1].filename.rpartition('/app/')[2]}:{frames[-1].lineno}" if frames else ""
