"""How long captures stay: by age and by size; and how much is stored.

A cut is a moment: whole months before it are dropped, of the month that it falls into the older calls are deleted in batches.
Messages and memories stay; what only the captures needed goes too: blobs and chains that nothing refers to, Idempotency-Keys
and system prompts. So does the paging of sessions that have expired, whose words are in their messages. Everything may run at
any time, any number of times, beside requests: no lock is held beyond a batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from msgspec import Struct, field

from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries

log = logging.getLogger(__name__)

Connection = asyncpg.Connection

GB, MB = 10**9, 10**6
"""Bytes of a gigabyte and a megabyte, as disks count them."""

BATCH = 500
"""Calls deleted in one transaction, with their streams: some megabytes of WAL."""

SESSIONS = 20
"""Sessions whose paging is forgotten in one transaction: each may have hundreds of objects."""

STATEMENT_S = 600.0
"""Longest statement, seconds; the longest adds up the sizes of all captures."""

LOCK_MS = 200
"""Milliseconds to wait for the lock under which a partition is dropped: recording waits behind it."""
LOCK_TRIES = 20
LOCK_PAUSE_S = 0.5
"""Tries, and seconds between them; then the month waits for the next run."""

_ON_ITS_WAY = timedelta(days=1)
"""Longest that a call may be on its way, or in a spool: what it knew at its beginning must still be there at its end."""

_KEY_LIFE = timedelta(days=7)
"""An Idempotency-Key without a captured call is kept this long: nobody's retries take longer."""

_MILLISECONDS = 80
"""Bits of a uuid of version 7 behind its time."""


class RetentionLimits(Struct, frozen=True):
    """How much of the captures stays. `days`: their age; `bytes`: all of them together; None: no limit."""

    days: int | None = None
    bytes: int | None = None

    @property
    def any(self) -> bool:
        """Whether anything is ever to go."""
        return self.days is not None or self.bytes is not None


class RetentionRun(Struct):
    """What a run did, or, if it was only asked, would do. `before`: calls older than that go; None: all stay. `months`: dropped
    whole; `calls`: deleted one by one; `collected`: rows of blobs, chains, keys and prompts that nothing referred to, and
    sessions whose paging was forgotten."""

    before: datetime | None = None
    months: list[str] = field(default_factory=list)
    bytes: int = 0
    calls: int = 0
    collected: int = 0

    @property
    def changed(self) -> int:
        """For the schedule's book."""
        return len(self.months) + self.calls + self.collected


class StoredTables(Struct, frozen=True):
    """A group of tables, or one month of it: bytes of files, and rows as estimated. `month`: 2026-11, None: no month's."""

    group: str
    month: str | None
    bytes: int
    rows: int


class TaskRun(Struct, frozen=True):
    """A task of the schedule, when it last ran."""

    name: str
    last_run: datetime
    took_ms: float
    changed: int


class Retention:
    """Drops captures whose time is over, and collects what only they needed."""

    def __init__(self, sql: Queries, limits: RetentionLimits) -> None:
        self._sql = sql
        self._limits = limits

    async def run(self, connection: Connection[Any], now: datetime, *, dry: bool = False) -> RetentionRun:
        """Once. `connection`: as mneme_owner. `dry`: only say what would go (of the calls, not of what they leave behind)."""
        outcome = RetentionRun()
        cut = await self._cut(connection, now)
        if cut is not None:
            outcome.before = _time_of(cut)
            await self._drop(connection, cut, outcome, dry=dry)
        if not dry:
            outcome.collected = await self._collect(connection, now)
        return outcome

    async def _cut(self, connection: Connection[Any], now: datetime) -> UUID | None:
        """The first id that stays; None: all do."""
        cuts = []
        if self._limits.days is not None:
            cuts.append(ids.uuid7_floor(now - timedelta(days=self._limits.days)))
        limit = self._limits.bytes
        # The files are never smaller than what is in them: to look at every row is seldom needed.
        if limit is not None and await self._ask(connection, "capture_files") > limit:
            last = await self._ask(connection, "cut", limit)
            if last is not None:
                cuts.append(UUID(int=last.int + 1))
        return max(cuts, default=None)

    async def _drop(self, connection: Connection[Any], cut: UUID, outcome: RetentionRun, *, dry: bool) -> None:
        before = _time_of(cut)
        for row in await connection.fetch(self._sql["retention.months"], timeout=STATEMENT_S):
            if _end_of(row["month"]) > before:
                break
            if dry or await self._drop_month(connection, row["month"], before):
                outcome.months.append(row["month"])
                outcome.bytes += row["bytes"]
        if dry:
            first = ids.uuid7_floor(_end_of(outcome.months[-1])) if outcome.months else ids.NIL
            outcome.calls = await self._ask(connection, "count_before", cut) - await self._ask(
                connection, "count_before", first
            )
            return
        while gone := await self._ask(connection, "trim", cut, before, BATCH):
            outcome.calls += gone

    async def _drop_month(self, connection: Connection[Any], month: str, before: datetime) -> bool:
        """False: the lock was not to be had; the calls of the month are deleted in batches then."""
        await self._ask(connection, "note_month", month, before)
        for _ in range(LOCK_TRIES):
            try:
                async with connection.transaction():
                    await self._ask(connection, "hurry", f"{LOCK_MS}ms")
                    await self._ask(connection, "drop_month", month)
                return True
            except asyncpg.LockNotAvailableError:
                await asyncio.sleep(LOCK_PAUSE_S)
        log.warning("a month of captures is in use and could not be dropped", extra={"month": month})
        return False

    async def _collect(self, connection: Connection[Any], now: datetime) -> int:
        settled = now - _ON_ITS_WAY
        while await self._ask(connection, "release", now) is not None:
            pass
        total, after = 0, ids.NIL
        while rows := await connection.fetch(self._sql["retention.released"], settled, BATCH, after):
            for row in rows:
                after = row["user_id"]
                while gone := await self._ask(connection, "collect", after, ids.uuid7_floor(settled), BATCH):
                    total += gone
                if gone is not None:
                    await connection.execute(self._sql["retention.collected"], after, row["released_at"])
        for name, before in (("purge_keys", now - _KEY_LIFE), ("purge_prompts", settled)):
            while gone := await self._ask(connection, name, before, BATCH):
                total += gone
        while gone := await self._ask(connection, "purge_paging", settled, SESSIONS):
            total += gone
        return total

    async def _ask(self, connection: Connection[Any], name: str, *arguments: object) -> Any:
        return await connection.fetchval(self._sql[f"retention.{name}"], *arguments, timeout=STATEMENT_S)


class Storage:
    """How much is stored, and what the schedule did."""

    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def figures(self) -> list[StoredTables]:
        """Every group of tables by month. Of the whole database: files do not know tenants."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(self._sql["retention.storage"])
        return [_stored(row) for row in rows]

    async def ticks(self) -> list[TaskRun]:
        """When each task of the schedule last ran."""
        async with self._pool.acquire() as connection:
            return [TaskRun(**dict(row)) for row in await connection.fetch(self._sql["retention.ticks"])]


async def storage_of(connection: Connection[Any], sql: Queries) -> list[StoredTables]:
    """The same on a plain connection."""
    return [_stored(row) for row in await connection.fetch(sql["retention.storage"])]


def by_group(figures: Sequence[StoredTables]) -> dict[str, int]:
    """Bytes of each group."""
    groups: dict[str, int] = {}
    for each in figures:
        groups[each.group] = groups.get(each.group, 0) + each.bytes
    return groups


def _stored(row: Any) -> StoredTables:
    month = row["month"]
    return StoredTables(row["group"], f"{month[:4]}-{month[4:]}" if month else None, row["bytes"], row["rows"])


def _end_of(month: str) -> datetime:
    """The first moment behind a month (YYYYMM), of UTC."""
    year, number = int(month[:4]), int(month[4:])
    return datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC)


def _time_of(cut: UUID) -> datetime:
    return datetime.fromtimestamp((cut.int >> _MILLISECONDS) / 1000, UTC)
