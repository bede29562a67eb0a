"""The worker's schedule: which tasks run how often, and the tasks themselves: partitions ahead of time, expiry, counts, purges,
sweeps over memories, erasures that stopped half-way.

Each task runs under a lock of its own, so that of several workers one runs it, at the cadence of the seed that asks for it.
Every task can run at any time, any number of times: it changes what is due and nothing else (`mneme sweep NAME`). What a sweep
does is SQL (sql/schema/004_lifecycle.sql), so that pg_cron can run it as well; docs/explanation/memory.md tells what becomes of
a memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
from msgspec import Struct

from app.clock import Clock
from app.errors import Conflict, NotFound, NotReady
from app.jobs.worker import STORE_FAILURES, Connect
from app.store.erasure import Eraser
from app.store.queries import Queries
from app.store.retention import Retention
from app.tasks import pause

log = logging.getLogger(__name__)

LOOK_S = 30.0
"""Seconds between two looks at what is due; the shortest cadence is a minute."""

LOCK_CLASS = 0x6D6E
"""First half of the advisory locks' key, so that they meet no other locks of the same database."""

STATEMENT_S = 600.0
"""Longest statement, seconds; the largest builds a part of the vector graph."""

GRAPH_FROM = 50_000
"""Vectors of one user above which they are in the graph, which finds what is too old for a server's index: half of what that
holds at most (`MOST_ITEMS`), so that it is ready in time."""

_MONTHS_AHEAD = 2
"""Months for which partitions stand ready: a worker may be away for that long before rows fall into the default one."""

BATCH = 2000
"""Rows changed in one transaction: locks stay short."""

IDLE = timedelta(minutes=5)
"""Silence after which a session counts as ended for now (seed 001 §5.3)."""

_KEEP_EFFECTS = timedelta(days=7)
"""A job that comes back after its lease ran out does so within minutes."""

_KEEP_LOG = timedelta(days=1)
"""The queue's log of jobs that are done; that of dead letters stays as long as they do."""

# How often; each seed's cadence is the default.
_RETENTION_EVERY = timedelta(hours=1)
"""Captures have limits in days: an hour more does not matter."""
_RESUME_EVERY = timedelta(minutes=15)
"""An erasure is promised, and must not wait for somebody to ask again."""
PROMOTION_EVERY = timedelta(minutes=15)
"""Seed 000 §9.1."""
_DEMOTION_EVERY = timedelta(hours=1)
"""With the expiry sweep (seed 000 §5.3, §9.2)."""
CONSOLIDATION_EVERY = timedelta(hours=6)
"""Decay and prune: seed 001 §4.4. Aging has no sweep in seed 004, and is a matter of days."""
REMOVAL_EVERY = timedelta(days=1)
"""What goes has waited for months."""
_INDEX_EVERY = timedelta(minutes=5)
"""A change stays in the log for ten minutes; each question goes through what is there."""
_MARKS_EVERY = timedelta(minutes=1)
"""How often marks of writers are deleted, and so how long they stay: as many as one user makes in this time are compared with a
standby's (`replicas`, a feature), and a standby that is later than this is not read from."""
_FIRST_KEY = UUID(int=0)
"""Before every key: where a walk over all memories begins."""

Connection = asyncpg.Connection

Work = Callable[[Connection, datetime], Awaitable[int]]
"""Done as the role that owns the tables: some of it makes tables, all of it concerns every tenant."""


class Tick(Struct, frozen=True):
    """A task: `work` returns how much it changed."""

    name: str
    every: timedelta
    work: Work


class Schedule:
    """Runs the tasks that are due."""

    def __init__(
        self,
        connect: Connect,
        sql: Queries,
        clock: Clock,
        *,
        further: Sequence[Tick] = (),
        graph_from: int = GRAPH_FROM,
    ) -> None:
        """`connect` opens a connection as mneme_owner. `further`: tasks beside the schedule's own. `graph_from`: see
        `GRAPH_FROM`."""
        self._connect = connect
        self._sql = sql
        self._clock = clock
        self._graph_from = graph_from
        self.ticks: Sequence[Tick] = (
            Tick("partitions", timedelta(hours=6), self._partitions),
            Tick("expiry", timedelta(hours=1), self._expiry),  # seed 000 §9.2
            Tick("vectors", timedelta(minutes=15), self._vectors),  # as the promotion sweep of seed 000 §9.1
            Tick("purge", timedelta(hours=6), self._purge),
            Tick("spend", timedelta(minutes=1), self._spend),
            Tick("budgets", timedelta(hours=1), self._budgets),
            *further,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Look at once, and then again and again, until `stop` is set."""
        while not stop.is_set():
            await self.look()
            await pause(stop, LOOK_S)

    async def look(self) -> dict[str, int]:
        """Run what is due; what each task changed. Failures are logged, and tried again at the next look."""
        done: dict[str, int] = {}
        try:
            connection = await self._connect()
        except STORE_FAILURES as error:
            log.warning("the schedule cannot connect as mneme_owner", extra={"error": type(error).__name__})
            return done
        try:
            for tick in self.ticks:
                changed = await self._try(connection, tick)
                if changed is not None:
                    done[tick.name] = changed
        except STORE_FAILURES as error:
            log.warning("the schedule lost its connection", extra={"error": type(error).__name__})
        finally:
            connection.terminate()
        return done

    async def sweep(self, name: str) -> int:
        """Run one task now, due or not; what it changed. Raises `NotFound` for a name that is none."""
        tick = next((each for each in self.ticks if each.name == name), None)
        if tick is None:
            raise NotFound(f"There is no sweep {name!r}; there are {', '.join(each.name for each in self.ticks)}.")
        connection = await self._connect()
        try:
            return await self._run(connection, tick, self._clock.now())
        finally:
            await connection.close()

    async def _try(self, connection: Connection, tick: Tick) -> int | None:
        """None: it is not due, or another worker is at it, or it failed."""
        if not await self._due(connection, tick):
            return None
        if not await connection.fetchval(self._sql["schedule.lock"], LOCK_CLASS, tick.name):
            return None
        try:
            # Another worker may have run it between the look and the lock.
            return await self._run(connection, tick, self._clock.now()) if await self._due(connection, tick) else None
        except Exception as error:  # boundary: one tick must not stop the others
            if isinstance(error, STORE_FAILURES) and connection.is_closed():
                raise
            log.error("a scheduled task failed", extra={"tick": tick.name, "error": type(error).__name__})
            return None
        finally:
            if not connection.is_closed():
                await connection.execute(self._sql["schedule.unlock"], LOCK_CLASS, tick.name)

    async def _due(self, connection: Connection, tick: Tick) -> bool:
        last = {row["name"]: row["last_run"] for row in await connection.fetch(self._sql["schedule.last_runs"])}
        return tick.name not in last or self._clock.now() - last[tick.name] >= tick.every

    async def _run(self, connection: Connection, tick: Tick, now: datetime) -> int:
        begun = time.perf_counter()
        changed = await tick.work(connection, now)
        took = round((time.perf_counter() - begun) * 1000, 1)
        await connection.execute(self._sql["schedule.ran"], tick.name, now, took, changed)
        level = logging.INFO if changed else logging.DEBUG  # most ticks of most minutes have nothing to do
        log.log(level, "a scheduled task ran", extra={"tick": tick.name, "changed": changed, "took_ms": took})
        return changed

    async def _partitions(self, connection: Connection, now: datetime) -> int:
        """Monthly partitions of history and captures, ahead of time, never by the writer."""
        months = now.year * 12 + now.month - 1 + _MONTHS_AHEAD
        last = now.date().replace(year=months // 12, month=months % 12 + 1, day=1)
        return await self._count(connection, "partitions", now.date(), last)

    async def _expiry(self, connection: Connection, now: datetime) -> int:
        """Memories and sessions whose time is over (seed 000 §9.2)."""
        memories = await self._in_batches(connection, "expire_memories", now)
        return memories + await self._in_batches(connection, "expire_sessions", now)

    async def _vectors(self, connection: Connection, _: datetime) -> int:
        """Users with more vectors than `graph_from` go into the graph.

        First all their vectors enter it, then new ones do at once; those that a turn adds in between follow, here or at
        the next run.
        """
        changed = 0
        for row in await connection.fetch(self._sql["schedule.crowded"], self._graph_from, timeout=STATEMENT_S):
            changed += await self._in_batches(connection, "enter_graph", row["user_id"])
            await connection.execute(self._sql["schedule.use_graph"], *row)
        for row in await connection.fetch(self._sql["schedule.graph_users"], timeout=STATEMENT_S):
            changed += await self._in_batches(connection, "enter_graph", row["user_id"])
        return changed

    async def _purge(self, connection: Connection, now: datetime) -> int:
        """What only mattered for a while."""
        effects = await self._count(connection, "purge_effects", now - _KEEP_EFFECTS)
        return effects + await self._count(connection, "purge_log", now - _KEEP_LOG)

    async def _spend(self, connection: Connection, now: datetime) -> int:
        """What calls cost, added to what was spent."""
        return await self._in_batches(connection, "fold_spend", now)

    async def _budgets(self, connection: Connection, now: datetime) -> int:
        """What keys have spent of their budgets: calls that were not settled are in it now."""
        keys = await connection.fetch(self._sql["schedule.budgeted_keys"], timeout=STATEMENT_S)
        for row in keys:
            await connection.execute(self._sql["schedule.refresh_budget"], row["key_id"], now, timeout=STATEMENT_S)
        return len(keys)

    async def _in_batches(self, connection: Connection, name: str, subject: object) -> int:
        return await in_batches(connection, self._sql[f"schedule.{name}"], subject)

    async def _count(self, connection: Connection, name: str, *arguments: object) -> int:
        counted: int = await connection.fetchval(self._sql[f"schedule.{name}"], *arguments, timeout=STATEMENT_S)
        return counted


async def in_batches(connection: Connection, statement: str, subject: object, *further: object) -> int:
    """Run a statement that takes (subject, `BATCH`, …), again until a batch is not full; what it changed in all."""
    total = 0
    while True:
        changed: int = await connection.fetchval(statement, subject, BATCH, *further, timeout=STATEMENT_S)
        total += changed
        if changed < BATCH:
            return total


# --- tasks that the schedule runs beside its own -------------------------------------------------------------------------


def privacy_ticks(retention: Retention, eraser: Eraser, sql: Queries) -> Sequence[Tick]:
    """Captures whose time is over, and erasures that stopped half-way."""

    async def retain(connection: Connection, now: datetime) -> int:
        outcome = await retention.run(connection, now)
        if outcome.changed:
            told = {"months": outcome.months, "calls": outcome.calls, "collected": outcome.collected}
            log.info("captures were dropped", extra={"before": str(outcome.before), **told})
        return outcome.changed

    async def resume(connection: Connection, _: datetime) -> int:
        done = 0
        for row in await connection.fetch(sql["erasure.unfinished"]):
            tenant, user = UUID(bytes=row["tenant_id"].bytes), UUID(bytes=row["user_id"].bytes)
            try:
                receipt = await eraser.erase(tenant, user, tombstones=row["tombstones"])
            except (Conflict, NotReady) as error:  # an archive is away: no reason to keep the others waiting
                log.warning("an erasure waits", extra={"user": str(user), "reason": error.message})
                continue
            log.info("an erasure was finished", extra={"erasure": str(receipt.erasure_id), "rows": receipt.rows})
            done += 1
        return done

    return (Tick("retention", _RETENTION_EVERY, retain), Tick("erasures", _RESUME_EVERY, resume))


def life_ticks(sql: Queries) -> Sequence[Tick]:
    """Sweeps over everybody's memories; expiry is one of the schedule's own."""

    def counted(name: str) -> Work:
        """A sweep that finds what is due by an index."""
        return lambda connection, now: in_batches(connection, sql[f"lifecycle.{name}"], now)

    def walked(name: str) -> Work:
        """A sweep that looks at every memory in force, in the order of the key."""

        async def work(connection: Connection, now: datetime) -> int:
            total = 0
            user: UUID | None = _FIRST_KEY
            memory: UUID | None = _FIRST_KEY
            while user is not None:
                row = await connection.fetchrow(sql[f"lifecycle.{name}"], now, BATCH, user, memory, timeout=STATEMENT_S)
                assert row is not None, "a function has one row"
                user, memory = row["p_user"], row["p_memory"]
                total += row["changed"]
            return total

        return work

    return (
        Tick("promotion", PROMOTION_EVERY, counted("promote")),
        Tick("demotion", _DEMOTION_EVERY, walked("demote")),
        Tick("aging", CONSOLIDATION_EVERY, counted("age")),
        Tick("decay", CONSOLIDATION_EVERY, walked("decay")),
        Tick("prune", CONSOLIDATION_EVERY, walked("prune")),
        Tick("removal", REMOVAL_EVERY, counted("remove")),
    )


def index_ticks(sql: Queries) -> Sequence[Tick]:
    """What changed of users' indexes is cut from their log where it is old."""

    async def work(connection: Connection, _: datetime) -> int:
        total = 0
        while cut := await connection.fetchval(sql["index.cut_some"], BATCH, timeout=STATEMENT_S):
            total += cut
        return total

    return (Tick("index", _INDEX_EVERY, work),)


def mark_ticks(sql: Queries) -> Sequence[Tick]:
    """Deletes old marks of writers, which a standby's are compared with, also where no standby is read."""

    async def work(connection: Connection, _: datetime) -> int:
        taken: int = await connection.fetchval(sql["replicas.take_marks"], timeout=STATEMENT_S)
        return taken

    return (Tick("marks", _MARKS_EVERY, work),)
