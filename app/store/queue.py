"""The job queue: filled in a turn's own transaction, and its dead letters.

    queued ──picked by a worker──> running ──done──> gone
      ^                              │ │
      │<──failed, tries left, later──┘ └──failed for good──> dead (held) ──retry──> queued
      │<──lease lost, or the worker stopped─┘                            └─discard─> gone

Its tables are pgqueuer's (`queue_tables.py`); the worker's side (leases, heartbeats, retries) is `app/jobs/lease.py`.
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


async def prepare_queue(connection: Connection[Any], sql: Queries) -> None:
    """Install the queue's tables, or bring them up to date, where the pgqueuer that is here has not done so already."""
    if await connection.fetchval(sql["queue.made_by"]) == f"pgqueuer {version('pgqueuer')}":
        await connection.execute(sql["queue.adopt"])  # which may be newer than the tables
        return
    from app.store.queue_tables import install_queue  # imports pgqueuer

    await install_queue(connection, sql)


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
            raise Conflict("The same work is queued already; discard this dead letter.") from None

    async def discard(self, job: int, tenant: UUID | None = None) -> bool:
        """Throw a dead letter away; False when there is no such dead letter."""
        async with self._pool.acquire() as connection:
            return await connection.fetchval(self._sql["queue.discard"], job, tenant) is not None


def _payload(raw: bytes | None) -> dict[str, Any]:
    try:
        payload = orjson.loads(raw or b"{}")
    except orjson.JSONDecodeError:
        return {}
    return payload if isinstance(payload, dict) else {}
