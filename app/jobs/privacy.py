"""The schedule's tasks of privacy: captures whose time is over, and erasures that stopped half-way."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from app.errors import Conflict
from app.jobs.schedule import Connection, Tick
from app.store.erasure import Eraser
from app.store.queries import Queries
from app.store.retention import Retention

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
