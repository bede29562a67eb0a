"""The schedule's tasks of the memories' life (sweeps over everybody's memories, a batch a transaction) and of privacy.

Each seed's cadence is the default. What a sweep does is SQL (sql/schema/004_lifecycle.sql), so that pg_cron can run it as
well; docs/explanation/memory.md tells what becomes of a memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from app.errors import Conflict
from app.jobs.schedule import BATCH, STATEMENT_S, Connection, Tick, Work
from app.knowledge.resolution import ALIAS_DECAY
from app.store.erasure import Eraser
from app.store.queries import Queries
from app.store.retention import Retention

# The schedule's tasks of privacy: captures whose time is over, and erasures that stopped half-way.

log = logging.getLogger(__name__)
RETENTION_EVERY = timedelta(hours=1)
"""Captures have limits in days: an hour more does not matter."""
RESUME_EVERY = timedelta(minutes=15)
"""An erasure is promised, and must not wait for somebody to ask again."""


def privacy_ticks(retention: Retention, eraser: Eraser, sql: Queries) -> Sequence[Tick]:
    """What the schedule runs beside its own."""

    async def retain(connection: Connection, now: datetime) -> int:
        outcome = await retention.run(connection, now)
        if outcome.changed:
            log.info(
                "captures were dropped",
                extra={
                    "before": str(outcome.before),
                    "months": outcome.months,
                    "calls": outcome.calls,
                    "collected": outcome.collected,
                },
            )
        return outcome.changed

    async def resume(connection: Connection, _: datetime) -> int:
        done = 0
        for row in await connection.fetch(sql["erasure.unfinished"]):
            tenant, user = UUID(bytes=row["tenant_id"].bytes), UUID(bytes=row["user_id"].bytes)
            try:
                receipt = await eraser.erase(tenant, user, tombstones=row["tombstones"])
            except Conflict as error:
                log.info("an erasure waits", extra={"reason": error.message})
                continue
            log.info("an erasure was finished", extra={"erasure": str(receipt.erasure_id), "rows": receipt.rows})
            done += 1
        return done

    return (Tick("retention", RETENTION_EVERY, retain), Tick("erasures", RESUME_EVERY, resume))


PROMOTION_EVERY = timedelta(minutes=15)
"""Seed 000 §9.1."""
DEMOTION_EVERY = timedelta(hours=1)
"""With the expiry sweep (seed 000 §5.3, §9.2)."""
CONSOLIDATION_EVERY = timedelta(hours=6)
"""Decay and prune: seed 001 §4.4. Aging has no sweep in seed 004, and is a matter of days."""
REMOVAL_EVERY = timedelta(days=1)
"""What goes has waited for months."""
INDEX_EVERY = timedelta(minutes=5)
"""A change stays in the log for ten minutes; each question goes through what is there."""
MARKS_EVERY = timedelta(minutes=1)
"""How long marks of writers stay: as many as one user makes in this time are compared with a standby's (`replicas.BUSY`), and a
standby that is later than this is not read from."""
ALIAS_IDLE = timedelta(days=90)
"""An alias that was used within this time stays: as long as what is remembered waits before it is in doubt (seed 004)."""
ALIAS_FLOOR = 0.3
"""Faded confidence below which an idle alias goes: one of 0.85 after 105 days, one of 0.98 after 119."""
START = UUID(int=0)


def life_ticks(sql: Queries) -> Sequence[Tick]:
    """What the schedule runs beside its own tasks; expiry is one of those."""

    def counted(name: str) -> Work:
        """A sweep that finds what is due by an index: again until a batch is not full."""

        async def work(connection: Connection, now: datetime) -> int:
            total = 0
            while True:
                changed: int = await connection.fetchval(sql[f"lifecycle.{name}"], now, BATCH, timeout=STATEMENT_S)
                total += changed
                if changed < BATCH:
                    return total

        return work

    def walked(name: str) -> Work:
        """A sweep that looks at every memory in force, in the order of the key."""

        async def work(connection: Connection, now: datetime) -> int:
            total = 0
            user: UUID | None = START
            memory: UUID | None = START
            while user is not None:
                row = await connection.fetchrow(sql[f"lifecycle.{name}"], now, BATCH, user, memory, timeout=STATEMENT_S)
                assert row is not None, "a function has one row"
                user, memory = row["p_user"], row["p_memory"]
                total += row["changed"]
            return total

        return work

    return (
        Tick("promotion", PROMOTION_EVERY, counted("promote")),
        Tick("demotion", DEMOTION_EVERY, walked("demote")),
        Tick("aging", CONSOLIDATION_EVERY, counted("age")),
        Tick("decay", CONSOLIDATION_EVERY, walked("decay")),
        Tick("prune", CONSOLIDATION_EVERY, walked("prune")),
        Tick("removal", REMOVAL_EVERY, counted("remove")),
    )


def alias_ticks(sql: Queries) -> Sequence[Tick]:
    """What things were called once, and are not any more (docs/explanation/entities.md)."""

    async def work(connection: Connection, now: datetime) -> int:
        total = 0
        while True:
            changed: int = await connection.fetchval(
                sql["entities.forget_aliases"], now, BATCH, ALIAS_IDLE, ALIAS_DECAY, ALIAS_FLOOR, timeout=STATEMENT_S
            )
            total += changed
            if changed < BATCH:
                return total

    return (Tick("aliases", REMOVAL_EVERY, work),)


def index_ticks(sql: Queries) -> Sequence[Tick]:
    """What changed of users' indexes is cut from their log where it is old."""

    async def work(connection: Connection, _: datetime) -> int:
        total = 0
        while cut := await connection.fetchval(sql["index.cut_some"], BATCH, timeout=STATEMENT_S):
            total += cut
        return total

    return (Tick("index", INDEX_EVERY, work),)


def mark_ticks(sql: Queries) -> Sequence[Tick]:
    """What standbys are held against is taken away again; where there are none, nothing is marked."""

    async def work(connection: Connection, _: datetime) -> int:
        taken: int = await connection.fetchval(sql["replicas.take_marks"], timeout=STATEMENT_S)
        return taken

    return (Tick("marks", MARKS_EVERY, work),)
