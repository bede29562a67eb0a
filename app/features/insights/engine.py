"""The job of an insight: ask the domain, and write what it says as a memory in the place of what it said before."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import orjson

from app.errors import BadBody, BadRequest, DomainAway
from app.features import Process
from app.features.insights.domain_query import DomainAsker
from app.features.insights.render import Bounds, InsightText, bounds_of, said
from app.features.insights.store import InsightStore, StoredInsight
from app.jobs.schedule import STATEMENT_S, Connection, Tick
from app.memory.candidate import Provenance
from app.memory.drafts import SEMANTIC
from app.memory.text import content_hash
from app.store import ids
from app.store.consolidation import Derivation, NewConsolidated, key_hmac
from app.store.learning import MemoryRow
from app.store.queries import Queries

log = logging.getLogger(__name__)

ENTRYPOINT = "insight"
LOOK_FOR_DUE = timedelta(minutes=15)
"""How often it is looked for what is due: the shortest cadence of an insight is an hour."""
EACH_RUN = 200
"""Jobs that one look puts into the queue."""
CONFIDENCE = 0.9
"""What the business's own tables say of a time that is over: surer than what a user says in passing, below what a client states
outright (0.95)."""
IMPORTANCE = 0.6
_GLOBAL = 1


class InsightJob(NamedTuple):
    """The payload."""

    tenant: UUID
    user: UUID
    name: str
    id: str

    @classmethod
    def parse(cls, payload: bytes) -> InsightJob:
        """Raises `BadBody`: what cannot be read now cannot be read later."""
        try:
            fields = orjson.loads(payload)
            return cls(UUID(fields["tenant"]), UUID(fields["user"]), str(fields["name"]), str(fields["id"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadBody("This job's payload cannot be read.") from error


class Engine:
    """Does `insight` jobs."""

    def __init__(self, store: InsightStore, caller: DomainAsker, process: Process) -> None:
        self._store = store
        self._caller = caller
        self._process = process

    async def handle(self, payload: bytes) -> None:
        """Raises `BadBody`, `StoreUnavailable`; what the domain refuses is noted, and asked again in its time."""
        job, now = InsightJob.parse(payload), self._process.clock.now()
        stored = await self._store.one(job.tenant, job.user, job.name)
        if stored is None:
            return
        due_at = now + timedelta(hours=stored.every_hours)
        bounds = bounds_of(stored.period_days, now)
        try:
            figures = await self._caller.ask(job.tenant, stored.domain, stored.source, bounds)
        except (BadRequest, DomainAway) as error:
            await self._store.failed(job.tenant, job.user, job.name, due_at, error.message)
            log.warning("an insight says nothing", extra={"insight": job.name, "domain": stored.domain})
            return
        await self._write(job, stored, said(stored.insight, figures, bounds), bounds, now, due_at)

    async def _write(
        self,
        job: InsightJob,
        stored: StoredInsight,
        told: InsightText | None,
        bounds: Bounds,
        now: datetime,
        due_at: datetime,
    ) -> None:
        sql = self._process.queries
        async with self._process.pool.transaction(job.tenant) as connection:
            owner = await connection.fetchrow(sql["consolidation.user"], job.user)
            secret: str = await connection.fetchval(sql["memories.secret"])
        assert owner is not None, "a query without FROM has one row"
        new = None if told is None else await self._drawn(stored, told, bounds, now)
        key = bytes.fromhex(secret)
        store = Derivation(self._process.pool, sql)
        async with store.effect(
            job.tenant, job.user, f"{ENTRYPOINT}:{job.id}", alone=job.user, epoch=owner["epoch"], now=now
        ) as drawing:
            if drawing is None:
                return
            made: list[UUID] = []
            forgotten = new is not None and await drawing.connection.fetchval(
                sql["consolidation.forgot_summary"], job.user, key_hmac(key, new.key)
            )
            if new is not None and not forgotten:
                before = await drawing.connection.fetchval(
                    sql["insights.said_before"], job.tenant, job.user, stored.memory_id
                )
                if before is not None:
                    new = NewConsolidated(new.row, new.key, (), (), previous=(before,))
                made = await drawing.add([new], key, self._process.space)
            await drawing.connection.execute(
                sql["insights.ran"], job.tenant, job.user, job.name, now, due_at, made[0] if made else None, None
            )
        log.info("an insight was asked", extra={"insight": job.name, "domain": stored.domain, "new": len(made)})

    async def _drawn(self, stored: StoredInsight, told: InsightText, bounds: Bounds, now: datetime) -> NewConsolidated:
        embedder, memory = self._process.embedder, ids.uuid7(now)
        vector = (await embedder.embed([told.text]))[0] if embedder.dimensions else None
        row = MemoryRow(
            memory_id=memory,
            session_id=None,
            tier=SEMANTIC,
            scope=_GLOBAL,
            kind=told.kind,
            text=told.text,
            content_hash=content_hash(told.text),
            provenance_type=Provenance.TOOL_OUTPUT,
            turn_id=memory,
            turn_index=0,
            source_message_ids=[],
            sources=[],
            confidence=CONFIDENCE,
            confidence_factors={},
            importance=IMPORTANCE,
            access_count=0,
            reinforcement_count=0,
            created_at=now,
            # As long again as it speaks of: then another has taken its place, or nobody asks any more.
            expires_at=bounds.end + (bounds.end - bounds.begin) + timedelta(hours=stored.every_hours),
            validated=True,
            token_count=self._process.count(told.text),
            valid_from=bounds.begin,
            stated_at=now,
            vector=vector if vector is not None and vector.any() else None,
            tags=("insight",),
            details={
                "key": key_of(stored.name),
                "insight": {
                    "name": stored.name,
                    "domain": stored.domain,
                    "begin": bounds.begin.isoformat(),
                    "end": bounds.end.isoformat(),
                    "total": told.total,
                    "change": told.change,
                    "queried_at": now.isoformat(),
                },
            },
        )
        return NewConsolidated(row, key_of(stored.name), (), ())


def key_of(name: str) -> str:
    """By which what an insight says is known among all that is drawn: once forgotten, it is not said again."""
    return f"insight:{name}"


def insight_ticks(sql: Queries) -> Sequence[Tick]:
    """What the schedule does: it only puts into the queue what is due."""

    async def due(connection: Connection, now: datetime) -> int:
        done: int = await connection.fetchval(sql["insights.enqueue"], now, EACH_RUN, timeout=STATEMENT_S)
        return done

    return (Tick("insights", LOOK_FOR_DUE, due),)
