"""The worker: takes jobs from the queue, runs them, and sees to it that each has its effect once.

QueueDriver      pgqueuer's port to the queue, on a connection that mends itself
LeasedQueries    pgqueuer's statements, but that each which ends, retries or refreshes a job names its holder: by the job's
                 id alone, a worker that slept past its lease (a frozen process, a long stop-the-world) would end the run of
                 the worker that took over. A lease that ran out counts as a try
Worker           when a failed job is tried again and when it is held as a dead letter, how the worker stops, and that it
                 outlives any loss of Postgres; pgqueuer's QueueManager dispatches
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
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

import asyncpg
from pgqueuer.adapters.persistence import queries as pgqueuer_queries
from pgqueuer.core.qm import QueueManager
from pgqueuer.core.tm import TaskManager
from pgqueuer.domain import models, types
from pgqueuer.domain.errors import RetryRequested
from pgqueuer.ports.driver import Driver, NotifyCallback
from pgqueuer.ports.repository import EntrypointExecutionParameter

from app.errors import BadRequest, MnemeError, NotReady, StoreUnavailable
from app.store.queries import Queries
from app.store.queue import CHANNEL, query_builders
from app.tasks import pause

if TYPE_CHECKING:
    from app.jobs.schedule import Schedule

log = logging.getLogger(__name__)

Connect = Callable[[], Awaitable[asyncpg.Connection]]
"""Opens one direct connection of its own (no PgBouncer in transaction mode, no codecs: pgqueuer passes JSON as text)."""

STORE_FAILURES = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    # A statement that meets a connection at the moment when the server's farewell came in, and its end did not yet.
    asyncpg.InternalClientError,
    StoreUnavailable,
)
"""What a lost, frozen, read-only or restarting Postgres raises."""

_CONNECT_S = 5.0
"""Seconds to connect."""

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 2.0
"""Seconds between two attempts to connect; a pool heals within 2 s of Postgres' return."""

_PROBE = "probe"
"""A notification that only proves that notifications arrive."""

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

_FIRST_RETRY_S = 1.0
_RETRY_FACTOR = 4.0
_LONGEST_RETRY_S = 600.0
"""Waits before the 2nd, 3rd … try: 1, 4, 16, 64 s by default (5 tries). A helper that restarts is back within that."""

JOB_ATTEMPTS = 5
"""Tries before a job is kept as a dead letter: the last comes 85 s after the first, when whatever restarts is back."""

RESTART_S = 1.0
"""Seconds before the worker begins anew after Postgres refused it."""

ERROR_CHARS = 300
"""Of an error's message that is kept with a dead letter."""


def connector(dsn: str, *, role: str, name: str) -> Connect:
    """Connections of `role`, seen in pg_stat_activity as `name`."""

    async def connect() -> asyncpg.Connection:
        return await asyncpg.connect(
            dsn,
            timeout=_CONNECT_S,
            server_settings={"role": role, "application_name": name, "search_path": "agent_data"},
        )

    return connect


class QueueDriver(Driver):
    """pgqueuer's driver over one connection for statements and one for LISTEN. Either is opened anew when it is lost.

    Statements raise `StoreUnavailable` while Postgres is away, at once between two attempts to connect.
    """

    def __init__(self, connect: Connect, sql: Queries, *, timeout_s: float, probe_s: float) -> None:
        """`timeout_s`: longest statement. `probe_s`: how often the listening connection is asked whether it lives."""
        self._connect = connect
        self._sql = sql
        self._timeout = timeout_s
        self._probe = probe_s
        self._lock = asyncio.Lock()
        self._connection: asyncpg.Connection | None = None
        self._pause = FIRST_PAUSE_S
        self._not_before = 0.0
        self._listen_pause = FIRST_PAUSE_S
        self._heard = asyncio.Event()
        self._callbacks: list[NotifyCallback] = []
        self._shutdown = asyncio.Event()

    async def fetch(self, query: str, *args: object) -> list[dict[str, Any]]:
        async with self._lock:
            connection = await self._ready()
            try:
                return [dict(row) for row in await connection.fetch(query, *args, timeout=self._timeout)]
            except STORE_FAILURES as error:
                self._lost(error)

    async def execute(self, query: str, *args: object) -> str:
        async with self._lock:
            connection = await self._ready()
            try:
                done: str = await connection.execute(query, *args, timeout=self._timeout)
            except STORE_FAILURES as error:
                self._lost(error)
            return done

    async def notify(self, channel: str, payload: str) -> None:
        """Not used: this worker asks its listening connection itself whether it lives."""

    async def _ready(self) -> asyncpg.Connection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        now = asyncio.get_running_loop().time()
        if now < self._not_before:
            raise StoreUnavailable
        try:
            self._connection = await self._connect()
        except STORE_FAILURES as error:
            self._not_before = now + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE_S)
            raise StoreUnavailable from error
        self._pause = FIRST_PAUSE_S
        return self._connection

    def _lost(self, error: BaseException) -> NoReturn:
        # Whatever went wrong, a fresh connection is the safe one: after a failover the old one stays read-only, after a
        # timeout it still waits for its answer.
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
        raise StoreUnavailable from error

    async def add_listener(self, channel: str, callback: NotifyCallback) -> None:
        """Have `callback` called with every notification of the queue's channel, for as long as `listen` runs."""
        assert channel == CHANNEL
        self._callbacks.append(callback)

    async def listen(self) -> None:
        """Listen until cancelled, on a connection of its own; what is missed in between, the worker's polling finds."""
        while True:
            try:
                await self._listen_once()
            except STORE_FAILURES as error:
                log.warning("the queue's listener is lost", extra={"error": type(error).__name__})
            await asyncio.sleep(self._listen_pause)
            self._listen_pause = min(self._listen_pause * 2, LONGEST_PAUSE_S)

    async def _listen_once(self) -> None:
        """Returns, or raises one of STORE_FAILURES, when the connection is lost or has gone deaf."""
        connection = await self._connect()
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        try:
            await connection.add_listener(CHANNEL, self._hear)
            self._listen_pause = FIRST_PAUSE_S
            while not lost.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._probe):
                        await lost.wait()
                        return
                # A connection may be open and yet bring nothing: a dropped route, a LISTEN undone by a pooler.
                self._heard.clear()
                await connection.execute(self._sql["queue.probe"], CHANNEL, _PROBE, timeout=self._timeout)
                async with asyncio.timeout(self._timeout):
                    await self._heard.wait()
        finally:
            connection.terminate()

    def _hear(self, _connection: object, _pid: object, _channel: object, payload: object) -> None:
        self._heard.set()
        if payload != _PROBE:
            for callback in self._callbacks:
                callback(str(payload))

    @property
    def shutdown(self) -> asyncio.Event:
        return self._shutdown

    @property
    def tm(self) -> TaskManager:
        return TaskManager()

    async def __aenter__(self) -> QueueDriver:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._callbacks.clear()

    async def close(self) -> None:
        """Give the statements' connection back."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


class LeasedQueries(pgqueuer_queries.Queries):
    """pgqueuer's queries, except that only the holder of a job can end, retry or refresh it."""

    def __init__(self, driver: QueueDriver, sql: Queries, attempts: int) -> None:
        """`attempts`: tries before a job whose workers ended is held as a dead letter."""
        super().__init__(driver, *query_builders())
        self._sql = sql
        self._attempts = attempts
        self.holder: UUID | None = None
        """The id under which this worker takes jobs."""

    async def dequeue(
        self,
        batch_size: int,
        entrypoints: dict[types.QueueEntrypoint, EntrypointExecutionParameter],
        queue_manager_id: types.QueueManagerId,
        global_concurrency_limit: int | None,
        heartbeat_timeout: timedelta,
    ) -> list[models.Job]:
        """Return jobs to do, or none while Postgres is away: an error would end pgqueuer's manager, and the results of the jobs
        that run would be dropped. Jobs of workers that ended are first put back, which pgqueuer would not count as a try."""
        self.holder = queue_manager_id
        try:
            await self.driver.execute(self._sql["queue.requeue_lost"], heartbeat_timeout, self._attempts)
            return await super().dequeue(
                batch_size, entrypoints, queue_manager_id, global_concurrency_limit, heartbeat_timeout
            )
        except StoreUnavailable as error:
            # A job that was claimed and then lost with the connection comes back when its lease runs out.
            log.warning("the queue cannot be read", extra={"error": type(error.__cause__ or error).__name__})
            return []

    async def eligible_queued_work(self, entrypoints: list[types.QueueEntrypoint]) -> int:
        """Return 0: the worker polls too often to ask when to look again, and this question would fail with Postgres."""
        return 0

    async def queued_work(self, entrypoints: list[types.QueueEntrypoint]) -> int:
        """Return 0, see `eligible_queued_work`."""
        return 0

    async def next_deferred_eta(self, entrypoints: list[types.QueueEntrypoint]) -> timedelta | None:
        """Return None, see `eligible_queued_work`."""
        return None

    async def log_jobs(
        self, job_status: list[tuple[models.Job, types.JOB_STATUS, models.TracebackRecord | None]]
    ) -> None:
        """End jobs that this worker holds. Raises `StoreUnavailable`: pgqueuer keeps them and tries again."""
        await self.driver.execute(
            self._sql["queue.finish"],
            [job.id for job, _, _ in job_status],
            self.holder,
            [status for _, status, _ in job_status],
            [record.model_dump_json() if record else None for _, _, record in job_status],
        )

    async def retry_job(
        self, job: models.Job, delay: timedelta, traceback_record: models.TracebackRecord | None
    ) -> None:
        """Give a job back. While Postgres is away its lease is left to run out; pgqueuer would hold it as a dead letter."""
        record = traceback_record.model_dump_json() if traceback_record else None
        try:
            await self.driver.execute(self._sql["queue.retry_later"], job.id, self.holder, delay, record)
        except StoreUnavailable:
            log.warning("a job could not be given back; its lease runs out", extra={"job_id": job.id})

    async def update_heartbeat(self, job_ids: list[types.JobId]) -> None:
        """Refresh the leases of jobs that this worker still holds."""
        await self.driver.execute(self._sql["queue.beat"], list(set(job_ids)), self.holder)


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
        attempts: int = JOB_ATTEMPTS,
        grace_s: float,
        concurrency: int = CONCURRENCY,
        poll_s: float = POLL_S,
        probe_s: float = PROBE_S,
        first_retry_s: float = _FIRST_RETRY_S,
        limits: Mapping[str, int] = {},
    ) -> None:
        """`connect` opens the worker's own connections, as mneme_app. `handlers`: by entrypoint. `lease_s`: seconds
        without a heartbeat until a job is given to another. `attempts`: tries before a job is held as a dead letter.
        `grace_s`: seconds for running jobs to end once told to stop; what has not ended then goes back to the queue.
        `limits`: by entrypoint, how many of its jobs run at once in all workers."""
        self._sql = sql
        self._handlers = handlers
        self._schedule = schedule
        self._lease = timedelta(seconds=lease_s)
        self._attempts = attempts
        self._grace = grace_s
        self._concurrency = concurrency
        self._poll = timedelta(seconds=poll_s)
        self._first_retry = first_retry_s
        self._limits = limits
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
        manager = QueueManager(LeasedQueries(self._driver, self._sql, self._attempts), channel=types.Channel(CHANNEL))
        for name, handler in self._handlers.items():
            manager.entrypoint(name, concurrency_limit=self._limits.get(name, 0), on_failure="hold")(
                self._boundary(handler)
            )
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
            await pause(stop, RESTART_S)

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

    def _boundary(self, handler: Handler) -> Callable[[models.Job], Awaitable[None]]:
        async def run(job: models.Job) -> None:
            begun = time.monotonic()
            told = {"job_id": job.id, "entrypoint": str(job.entrypoint), "attempt": job.attempts + 1}
            log.debug("a job begins", extra=told)
            try:
                await handler(job.payload or b"")
            except Exception as error:  # noqa: BLE001 - the boundary of a job: any failure is recorded and tried again
                self._failed(job, error, told)
            log.info("a job is done", extra=told | {"took_ms": round((time.monotonic() - begun) * 1000, 1)})

        return run

    def _failed(self, job: models.Job, error: Exception, told: Mapping[str, object]) -> NoReturn:
        reason = describe(error)
        told = {**told, "error": type(error).__name__, "where": _where(error)}
        final = isinstance(error, BadRequest) or job.attempts + 1 >= self._attempts
        if final:
            log.error("a job failed for good and is held as a dead letter", extra=told)
            raise JobFailed(reason) from None
        wait = min(_LONGEST_RETRY_S, self._first_retry * _RETRY_FACTOR**job.attempts) * random.uniform(0.8, 1.2)
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
