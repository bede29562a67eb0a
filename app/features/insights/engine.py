"""Insights: the sentence that two periods' figures become, the table of definitions, the query that each one runs, and the job
that stores the sentence as a memory, in the place of what it said before."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from math import isfinite
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid4

import asyncpg
import orjson
from msgspec import Struct

from app.clock import Clock
from app.errors import AwayReason, BadRequest, Conflict, DomainAway
from app.features import Process, parsed
from app.jobs.schedule import STATEMENT_S, Connection, Tick
from app.memory.candidate import Provenance
from app.memory.drafts import SEMANTIC
from app.memory.text import content_hash
from app.sources import DomainSource
from app.store import ids
from app.store.consolidation import Derivation, NewConsolidated, key_hmac
from app.store.learning import MemoryRow
from app.store.pools import COMMAND_GRACE_S, CONNECT_TIMEOUT_S, Pool
from app.store.queries import Queries
from app.store.records import JobRecord
from app.store.tenancy import UserRef, ensure_user

log = logging.getLogger(__name__)

# --- two periods in words ------------------------------------------------------------------------------------------------

TREND = 0.10
"""Change against the period before from which it is a trend, and what is told of it a pattern: below a tenth, weeks of a small
business differ by chance (a choice, not measured)."""
TOP = 3
"""Largest rows that are named: those of seed 001 §6.4, the top post among them."""


class Measured(NamedTuple):
    """A row: `label` None where the query has none."""

    label: str | None
    value: float


class Figures(NamedTuple):
    """What a query said of two periods, each largest first."""

    now: tuple[Measured, ...]
    before: tuple[Measured, ...]


class Bounds(NamedTuple):
    """A period, from `begin` until before `end`; the one before it begins at `before`."""

    before: datetime
    begin: datetime
    end: datetime


class Insight(Struct, frozen=True):
    """What is asked again and again. `period_days`: whole days before today, UTC; `every_hours`: how often."""

    name: str
    domain: str
    title: str
    source: str
    unit: str = ""
    period_days: int = 7
    every_hours: int = 6


class _InsightText(Struct, frozen=True):
    """What it says. `change`: against the period before, as a share of that; None where there was nothing."""

    text: str
    total: float
    change: float | None

    @property
    def kind(self) -> Literal["fact", "pattern"]:
        """Of the memory (seed 001 §4.1: fact, pattern)."""
        return "pattern" if self.change is not None and abs(self.change) >= TREND else "fact"


def bounds_of(days: int, now: datetime) -> Bounds:
    """The last whole days before today, UTC."""
    end = datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    length = timedelta(days=days)
    return Bounds(end - 2 * length, end - length, end)


def said(insight: Insight, figures: Figures, bounds: Bounds) -> _InsightText | None:
    """None: there is nothing to say of this period, nor of the one before."""
    if not figures.now and not figures.before:
        return None
    total = sum(each.value for each in figures.now)
    former = sum(each.value for each in figures.before)
    change = (total - former) / abs(former) if former else None
    unit = f" {insight.unit}" if insight.unit else ""
    text = (
        f"{insight.title}, {bounds.begin:%Y-%m-%d} to {bounds.end - timedelta(days=1):%Y-%m-%d}: {_number(total)}{unit}"
    )
    text += f", {_compared(change, former, insight.period_days)}"
    labelled = [each for each in figures.now if each.label]
    if len(labelled) > 1 and total > 0 and labelled[-1].value >= 0:  # of what is less than nothing there is no share
        named = (f"{each.label} {_number(each.value)} ({each.value / total:.0%})" for each in labelled[:TOP])
        text += f"; most: {', '.join(named)}"
    elif labelled:
        text += "; " + ", ".join(f"{each.label} {_number(each.value)}" for each in labelled[:TOP])
    return _InsightText(text, total, change)


def _compared(change: float | None, former: float, days: int) -> str:
    before = "the day before" if days == 1 else f"the {days} days before"
    if change is None:
        return f"none in {before}" if not former else ""
    if round(change, 2) == 0:
        return f"as in {before} ({_number(former)})"
    return f"{'up' if change > 0 else 'down'} {abs(change):.0%} from {_number(former)} in {before}"


def _number(value: float) -> str:
    """Whole, or to two places."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


# --- the table of insights -----------------------------------------------------------------------------------------------

MAX_INSIGHTS = 50
"""Of one user: each is a query of the business's database every few hours."""


class StoredInsight(Insight, frozen=True, kw_only=True):
    """An insight, and what became of it."""

    user_id: UUID
    user_external_id: str
    due_at: datetime
    ran_at: datetime | None
    memory_id: UUID | None
    error: str | None


class InsightStore:
    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def put(self, tenant: UUID, user: UserRef, insight: Insight) -> bool:
        """Store an insight, queue its job in the same transaction, and return whether the insight is new.

        Raises Conflict where the user has too many.
        """
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            await ensure_user(connection, self._sql, tenant, user, now)
            there = await connection.fetchrow(self._sql["insights.count"], tenant, user.id, insight.name)
            assert there is not None, "a count has one row"
            if there["others"] >= MAX_INSIGHTS:
                raise Conflict(f"A user has at most {MAX_INSIGHTS} insights.")
            await connection.execute(
                self._sql["insights.put"],
                tenant, user.id, insight.name, insight.domain, insight.title, insight.unit, insight.source,
                insight.period_days, insight.every_hours, now,
            )  # fmt: skip
            # Without this job the insight would wait for the schedule, up to `LOOK_FOR_DUE`.
            await connection.execute(self._sql["queue.enqueue"], [_build_job(tenant, user.id, insight.name, now)])
        return not there["known"]

    async def page(
        self, tenant: UUID, user: UUID | None, *, after: tuple[UUID, str] | None, limit: int
    ) -> list[StoredInsight]:
        """Of a user or of all, by user and name."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["insights.list"], tenant, user, *(after or (None, None)), limit)
        return [StoredInsight(**dict(row)) for row in rows]

    async def one(self, tenant: UUID, user: UUID, name: str) -> StoredInsight | None:
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["insights.one"], tenant, user, name)
        return None if row is None else StoredInsight(**dict(row))

    async def drop(self, tenant: UUID, user: UUID, name: str) -> bool:
        """Take one away; what it said stays until it expires. False: there was none."""
        async with self._pool.transaction(tenant) as connection:
            return await connection.fetchval(self._sql["insights.drop"], tenant, user, name) is not None

    async def record_failure(self, tenant: UUID, insight: StoredInsight, due_at: datetime, error: str) -> None:
        """Record that an insight gave no result because of `error`, and when it is due again."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(
                self._sql["insights.ran"],
                tenant, insight.user_id, insight.name, self._clock.now(), due_at, None, error, insight.due_at,
            )  # fmt: skip


# --- the SELECT: by a connection of its own that reads and nothing else --------------------------------------------------
#
# The text stands as a subquery in a statement of ours, so it can only be a query; it is sent by the extended protocol, which
# takes one statement; the transaction is READ ONLY, has a time limit, and is always rolled back, with whatever settings were
# made in it. Beside that the role is looked at: one that could write into a table that the query reads is refused, unless the
# domain's `allow_writer` says otherwise.

MAX_ROWS = 1000
"""Rows that one query may have: a figure for each post or customer of a small business; more are grouped by the query."""
MAX_LABEL_CHARS = 100
REFUSALS = frozenset({"0A", "21", "22", "25", "42", "54"})
"""Classes of SQLSTATE that are the query's fault: what is not supported, cardinality, data, what a transaction that only reads
does not do, syntax and rights, too complex."""
NUMERIC = frozenset({"int2", "int4", "int8", "numeric", "float4", "float8"})
TEXTUAL = frozenset({"text", "varchar", "bpchar", "name", "citext"})


class DomainAsker(Struct):
    """Asks the domains that the settings name, each for its own tenants alone. `tenant_of`: the tenant of a name."""

    sources: Mapping[str, DomainSource]
    tenant_of: Callable[[str], Awaitable[UUID | None]]
    sql: Queries

    async def ask(self, tenant: UUID, domain: str, source: str, bounds: Bounds) -> Figures:
        """What a query says of a period and of the one before. Raises BadRequest for what is no query of this tenant's, and
        DomainAway."""
        found = self.sources.get(domain)
        if found is None or tenant not in [await self.tenant_of(each) for each in found.tenants]:
            raise BadRequest(f"There is no domain {domain} of this tenant's.", param="domain")
        patience_s = 2 * found.statement_timeout_ms / 1000 + CONNECT_TIMEOUT_S + COMMAND_GRACE_S
        try:
            async with asyncio.timeout(patience_s):
                connection = await self._connect(domain, found)
                try:
                    return await self._within(connection, domain, found, source, bounds)
                finally:
                    connection.terminate()
        except asyncpg.QueryCanceledError as error:
            told = f"The query takes longer than {found.statement_timeout_ms} ms (the domain's statement_timeout_ms)."
            raise BadRequest(told, param="sql", code="bad_insight") from error
        except (TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            if str(getattr(error, "sqlstate", ""))[:2] in REFUSALS:
                # Postgres' own words, for who wrote the query; of rows they quote at most a value that cannot be cast.
                told = f"The domain refuses the query: {error}."
                raise BadRequest(told, param="sql", code="bad_insight") from error
            reason: AwayReason = "timeout" if isinstance(error, TimeoutError) else "unreachable"
            raise DomainAway(domain, reason, type(error).__name__) from None

    async def _connect(self, domain: str, source: DomainSource) -> Any:
        try:
            return await asyncpg.connect(
                source.dsn.get_secret_value(),
                timeout=CONNECT_TIMEOUT_S,
                statement_cache_size=0,
                server_settings={"application_name": f"mneme insights {domain}"},
            )
        except asyncpg.PostgresError as error:
            raise DomainAway(domain, "unreachable", type(error).__name__) from None

    async def _within(self, connection: Any, domain: str, source: DomainSource, query: str, bounds: Bounds) -> Figures:
        transaction = connection.transaction(readonly=True, isolation="repeatable_read")
        await transaction.start()
        try:
            await _limit(connection, source)
            await connection.execute("SET LOCAL TimeZone = 'UTC'")
            await connection.prepare(alone(query))
            statement = measuring(query, labelled=_labelled(await connection.prepare(columns_of(query))))
            # Behind a role that may write nobody would know what a function does: first who, then what.
            if not source.allow_writer:
                await self._check_role(connection, domain, statement, bounds)
            now = await self._measure(connection, source, statement, bounds.begin, bounds.end)
            before = await self._measure(connection, source, statement, bounds.before, bounds.begin)
        finally:
            with contextlib.suppress(asyncpg.PostgresError, asyncpg.InterfaceError):
                await transaction.rollback()
        return Figures(now, before)

    async def _check_role(self, connection: Any, domain: str, statement: str, bounds: Bounds) -> None:
        """Raises DomainAway where the role could write into what the query reads."""
        (who,) = await connection.fetch(self.sql["domain.writer"])
        if who["is_superuser"]:
            raise DomainAway(domain, "writer", "its role is a superuser")
        explained = await connection.fetchval(f"EXPLAIN (VERBOSE, FORMAT JSON) {statement}", bounds.begin, bounds.end)
        tables = sorted(set(tables_of(orjson.loads(explained))))
        if tables:
            schemas, names = map(list, zip(*tables, strict=True))
            for row in await connection.fetch(self.sql["domain.tables"], schemas, names):
                if row["may_write"]:
                    raise DomainAway(domain, "writer", f"its role could write to {'.'.join(tables[row['n'] - 1])}")

    async def _measure(
        self, connection: Any, source: DomainSource, statement: str, begin: datetime, end: datetime
    ) -> tuple[Measured, ...]:
        await _limit(connection, source)  # the query itself may have set another
        rows = await connection.fetch(statement, begin, end)
        if not all(isfinite(row["value"]) for row in rows):
            raise BadRequest("A value of the query is no finite number.", param="sql", code="bad_insight")
        if len(rows) > MAX_ROWS:
            raise BadRequest(f"The query has more than {MAX_ROWS} rows: group them.", param="sql", code="bad_insight")
        return tuple(Measured(row["label"], row["value"]) for row in rows)


_PERIOD = "WITH period AS (SELECT $1::timestamptz AS begins, $2::timestamptz AS ends)"
"""Says of which type the bounds are, before the query names them."""


async def _limit(connection: Any, source: DomainSource) -> None:
    await connection.execute(f"SET LOCAL statement_timeout = {int(source.statement_timeout_ms)}")


def alone(query: str) -> str:
    """A statement that only a whole query is a part of, to be prepared and not run: what closes the parenthesis and goes on
    with UNION has other columns."""
    return f"{_PERIOD} SELECT 1, 2, 3 FROM (\n{query}\n) AS q"  # noqa: S608 - as below


def columns_of(query: str) -> str:
    """A statement with the columns of a query, to be prepared and not run."""
    return f"{_PERIOD} SELECT q.* FROM (\n{query}\n) AS q LIMIT 0"  # noqa: S608 - a subquery, in a transaction that only reads


def measuring(query: str, *, labelled: bool) -> str:
    """A statement that runs a query and has (label, value), the largest first; one row more than may be."""
    label = f"left(q.label::text, {MAX_LABEL_CHARS})" if labelled else "NULL::text"
    head = f"{_PERIOD} SELECT {label} AS label, q.value::float8 AS value"
    tail = f"WHERE q.value IS NOT NULL ORDER BY 2 DESC, 1 LIMIT {MAX_ROWS + 1}"
    return f"{head} FROM (\n{query}\n) AS q {tail}"


def _labelled(prepared: Any) -> bool:
    """Whether the columns are (label, value), rather than (value). Raises BadRequest where they are others."""
    types = {each.name: each.type.name for each in prepared.get_attributes()}
    if types.get("value") not in NUMERIC:
        raise BadRequest("The query needs a column `value` that is a number.", param="sql", code="bad_insight")
    if further := sorted(types.keys() - {"value", "label"}):
        raise BadRequest(
            f"The query has a column {further[0]}: it may have `value` and `label` alone.",
            param="sql",
            code="bad_insight",
        )
    if types.get("label", "text") not in TEXTUAL:
        raise BadRequest("The column `label` is no text: cast it.", param="sql", code="bad_insight")
    return "label" in types


def tables_of(plan: Any) -> Iterator[tuple[str, str]]:
    """Schema and name of every table that a plan reads."""
    if isinstance(plan, list):
        for each in plan:
            yield from tables_of(each)
    elif isinstance(plan, dict):
        if "Relation Name" in plan and "Schema" in plan:
            yield plan["Schema"], plan["Relation Name"]
        for each in plan.values():
            yield from tables_of(each)


# --- the job -------------------------------------------------------------------------------------------------------------

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


class InsightJob(Struct, frozen=True):
    tenant: UUID
    user: UUID
    name: str
    id: str
    due_at: datetime


def _build_job(tenant: UUID, user: UUID, name: str, due_at: datetime) -> JobRecord:
    """Return the job of an insight, with the key that `agent_data.enqueue_insights` gives it, too.

    The key has the time, because a job that is done stays in the queue for a moment, and would keep out the job of a change.
    """
    payload = {"tenant": tenant, "user": user, "name": name, "id": uuid4(), "due_at": due_at}
    key = f"{ENTRYPOINT}:{user}:{name}:{due_at.astimezone(UTC):%Y%m%d%H%M%S%f}"
    return JobRecord(ENTRYPOINT, orjson.dumps(payload), key, 0.0)


class Engine:
    def __init__(self, store: InsightStore, caller: DomainAsker, process: Process) -> None:
        self._store = store
        self._caller = caller
        self._process = process

    async def handle(self, payload: bytes) -> None:
        """Ask an insight's domain and store the result, unless the insight was changed or asked since the job was queued.

        A refusal of the domain is recorded, and the insight is asked again when it is next due. Raises `BadBody` and
        `StoreUnavailable`.
        """
        job = parsed(payload, InsightJob)
        stored = await self._store.one(job.tenant, job.user, job.name)
        if stored is not None and stored.due_at == job.due_at:
            await self._ask(job, stored)

    async def _ask(self, job: InsightJob, stored: StoredInsight) -> None:
        now = self._process.clock.now()
        due_at = now + timedelta(hours=stored.every_hours)
        bounds = bounds_of(stored.period_days, now)
        try:
            figures = await self._caller.ask(job.tenant, stored.domain, stored.source, bounds)
        except (BadRequest, DomainAway) as error:
            await self._store.record_failure(job.tenant, stored, due_at, error.message)
            log.warning("an insight says nothing", extra={"insight": job.name, "domain": stored.domain})
            return
        await self._write(job, stored, said(stored, figures, bounds), bounds, now, due_at)

    async def _write(
        self,
        job: InsightJob,
        stored: StoredInsight,
        told: _InsightText | None,
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
            job.tenant,
            job.user,
            f"{ENTRYPOINT}:{job.id}",
            alone=job.user,
            epoch=owner["epoch"],
            now=now,
        ) as drawing:
            if drawing is None:
                return
            unchanged = await drawing.connection.fetchval(
                sql["insights.lock_due"], job.tenant, job.user, job.name, stored.due_at
            )
            if unchanged is None:
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
                sql["insights.ran"],
                job.tenant, job.user, job.name, now, due_at, made[0] if made else None, None, stored.due_at,
            )  # fmt: skip
        log.info("an insight was asked", extra={"insight": job.name, "domain": stored.domain, "new": len(made)})

    async def _drawn(self, stored: StoredInsight, told: _InsightText, bounds: Bounds, now: datetime) -> NewConsolidated:
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

    async def due(connection: Connection, now: datetime) -> int:
        done: int = await connection.fetchval(sql["insights.enqueue"], now, EACH_RUN, timeout=STATEMENT_S)
        return done

    return (Tick("insights", LOOK_FOR_DUE, due),)
