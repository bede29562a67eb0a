"""The job queue: filled in a turn's own transaction, and its dead letters.

    queued ──picked by a worker──> running ──done──> gone
      ^                              │ │
      │<──failed, tries left, later──┘ └──failed for good──> dead (held) ──retry──> queued
      │<──lease lost, or the worker stopped─┘

Its tables are pgqueuer's, in Mneme's schema; the worker's side (leases, heartbeats, retries) is `app/jobs/worker.py`. pgqueuer
takes 0.1 s and 20 MB to import: only what installs its tables does, and the worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
from asyncpg import UniqueViolationError
from msgspec import Struct

from app.errors import Conflict
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import JobRecord

if TYPE_CHECKING:
    from asyncpg import Connection
    from asyncpg.pool import PoolConnectionProxy
    from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
    from pgqueuer.domain.settings import DBSettings

CHANNEL = "mneme_jobs"
"""What the queue's trigger notifies. Channels belong to one database, so two Mnemes in one server do not meet."""

SCHEMA = "agent_data"


def queue_settings() -> DBSettings:
    """pgqueuer's names. All of them are given: what is left out pgqueuer reads from the environment, where even a plain
    `CHANNEL` or `DURABILITY` counts. All tables are logged: an acknowledged turn's job survives a crash."""
    from pgqueuer.domain.settings import DBSettings, Durability
    from pgqueuer.domain.types import Channel

    return DBSettings(
        prefix="",
        db_schema=SCHEMA,
        channel=Channel(CHANNEL),
        function="fn_pgqueuer_changed",
        statistics_table="pgqueuer_statistics",
        queue_status_type="pgqueuer_status",
        queue_table="pgqueuer",
        queue_table_log="pgqueuer_log",
        trigger="tg_pgqueuer_changed",
        schedules_table="pgqueuer_schedules",
        durability=Durability.durable,
        widen_id=True,
    )


def query_builders() -> tuple[QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder]:
    """pgqueuer's three builders, bound to Mneme's names: what its `Queries` takes behind a driver."""
    from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder

    names = queue_settings()
    return QueryBuilderEnvironment(names), QueryQueueBuilder(names), QuerySchedulerBuilder(names)


async def prepare_queue(connection: Connection[Any], sql: Queries) -> None:
    """Install the queue's tables, or bring them up to date, where the pgqueuer that is here has not done so already."""
    if await connection.fetchval(sql["queue.made_by"]) == f"pgqueuer {version('pgqueuer')}":
        await connection.execute(sql["queue.adopt"])  # which may be newer than the tables
        return
    await install_queue(connection, sql)


async def install_queue(connection: Connection[Any], sql: Queries | None = None) -> bool:
    """Install pgqueuer's tables, or bring them up to this pgqueuer's version; True when anything was changed.

    `connection`: as who owns the schema. Running it again changes nothing. Not inside a transaction that must not see
    `ALTER TYPE … ADD VALUE`: an upgrade runs statement by statement.
    """
    from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
    from pgqueuer.adapters.persistence import queries as pgqueuer_queries

    driver = AsyncpgDriver(connection)
    queries = pgqueuer_queries.Queries(driver, *query_builders())
    if await queries.schema_is_installed():
        changed = bool((await queries.apply_upgrade()).statements)
    else:
        await queries.install(create_schema=False)
        changed = True
    sql = sql or Queries.load()
    await connection.execute(sql["queue.adopt"])
    await connection.execute(sql["queue.mark"].replace("__version__", version("pgqueuer")))
    return changed


class Counts(Struct, frozen=True):
    """`queued`: due now, or waiting for another try after a failure; what is scheduled for later is not counted.
    `running`: picked by a worker. `dead`: failed for good and held."""

    queued: int
    running: int
    dead: int


class DeadLetter(Struct, frozen=True):
    """A job that failed for good. `payload` holds ids, never texts, and nothing where it cannot be read; `error` says what its
    last try ended with."""

    id: int
    entrypoint: str
    payload: dict[str, Any]
    attempts: int
    created_at: datetime
    failed_at: datetime
    error: str | None


class Queue:
    """What the API may do with the queue. `tenant`: only that tenant's jobs; None: all."""

    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def enqueue(self, connection: PoolConnectionProxy[Any], jobs: Sequence[JobRecord]) -> None:
        """Add jobs in the transaction of `connection`; one that waits under the same dedupe key stands for both."""
        await connection.execute(self._sql["queue.enqueue"], list(jobs))

    async def counts(self, tenant: UUID | None = None) -> Counts:
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(self._sql["queue.counts"], tenant)
        assert row is not None, "an aggregate always returns one row"
        return Counts(row["queued"], row["running"], row["dead"])

    async def dead_letters(
        self, limit: int = 100, cursor: int | None = None, tenant: UUID | None = None
    ) -> tuple[list[DeadLetter], int | None]:
        """Newest first, and the cursor of the next page (None: this was the last)."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(self._sql["queue.dead_letters"], tenant, cursor, limit + 1)
        letters = [
            DeadLetter(
                row["id"],
                row["entrypoint"],
                _payload(row["payload"]),
                row["attempts"],
                row["created"],
                row["updated"],
                row["message"],
            )
            for row in rows[:limit]
        ]
        return letters, letters[-1].id if len(rows) > limit else None

    async def retry(self, job: int, tenant: UUID | None = None) -> bool:
        """Try a dead letter again, with all its tries; False when there is no such dead letter.

        Raises `Conflict` when a job for the same work was queued since.
        """
        try:
            async with self._pool.acquire() as connection:
                return await connection.fetchval(self._sql["queue.retry"], job, tenant) is not None
        except UniqueViolationError:
            raise Conflict("The same work is queued already: it runs first.") from None


def _payload(raw: bytes | None) -> dict[str, Any]:
    try:
        payload = orjson.loads(raw or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return payload if isinstance(payload, dict) else {}
