"""The businesses' own databases: connections that only read, what a catalog says, when one is left alone; things found by key
or name, rows to compare memories with, plans that are run.

Every statement runs in a transaction of its own that is READ ONLY and has a statement timeout, both said in the transaction
itself: so it holds behind PgBouncer too, which hands sessions around. No statement is prepared under a name, for the same
reason. Whatever goes wrong is a `DomainAway`, with nothing of the DSN in it. A tenant's ontology is only ever used with the
domains that the settings give to that tenant. What does not answer in time is left out and said so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import Counter

from app.clock import Clock
from app.context.resolution import DomainFact, DomainQuery, Entity, RowValue
from app.errors import AwayReason, DomainAway, StoreUnavailable
from app.features.knowledge.domain_sql import (
    MAX_KEY_CHARS,
    DomainColumn,
    Family,
    SelectStatement,
    Table,
    TraversalQuery,
    by_key,
    by_name,
    no_longer_than,
    related,
    sendable,
    split_table,
    wanted_columns,
)
from app.features.knowledge.ontologies import Ontologies
from app.features.knowledge.ontology import EntityType, Ontology
from app.features.knowledge.render_facts import (
    FactRow,
    QueryOutcome,
    days,
    entity_id,
    facts,
    findings,
    name_of,
    row_values,
    shown,
)
from app.features.knowledge.resolution import FoundEntities, FoundRow, RowQuery
from app.patience import Breaker
from app.sources import DomainSource
from app.store.pools import COMMAND_GRACE_S, CONNECT_TIMEOUT_S, Pool
from app.store.queries import Queries

# --- one domain ----------------------------------------------------------------------------------------------------------

log = logging.getLogger("mneme.domain")

FAILURES = 3
"""Failures in a row until a domain is left alone; those of queries that ran at the same time are one."""
OPEN_S = 10.0
"""Seconds that it is left alone, and costs nothing."""
WARM_S = 5.0
"""Seconds that connecting at the start may take; nobody waits for it."""
AT_ONCE = 3
"""Connections that are opened then: as many queries as seed 004's example asks."""
CATALOG_S = 60.0
"""Seconds that what the catalog said is believed. What fails because it is not so any more is looked up at once."""

_CHANGED = (asyncpg.SyntaxOrAccessError, asyncpg.DataError)
"""42: a table, column or operator that is not there; 22: values that are not as they were."""

Row = Mapping[str, Any]


class DomainPool:
    """Reads one domain. Made without connecting; closed by `close`."""

    def __init__(
        self,
        name: str,
        source: DomainSource,
        queries: Queries,
        asked: Counter | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now`: seconds on a clock that only goes forward."""
        self.name = name
        self.source = source
        self._sql = queries
        self._asked = asked
        self._now = now
        self._breaker = Breaker(FAILURES, OPEN_S)
        self._bursts = 0
        self._opening = asyncio.Lock()
        self._pool: Pool | None = None
        self._tables: dict[str, tuple[float, Table | None]] = {}

    @property
    def patience_s(self) -> float:
        """Seconds to wait where nobody says how long."""
        return self.source.statement_timeout_ms / 1000

    async def read(self, statement: SelectStatement, timeout_s: float) -> list[Row]:
        """The rows of a SELECT, within `timeout_s` seconds. Raises DomainAway."""
        return await self._ask(lambda connection: connection.fetch(statement.sql, *statement.args), timeout_s)

    async def query(self, name: str, *args: object, timeout_s: float) -> list[Row]:
        """The rows of a query of the catalog (`sql/queries/domain.sql`). Raises DomainAway."""
        return await self._ask(lambda connection: connection.fetch(self._sql[f"domain.{name}"], *args), timeout_s)

    async def tables(self, names: Collection[str], timeout_s: float) -> dict[str, Table]:
        """As `catalog`. Raises DomainAway, also where our role could write into one of them and may not (`allow_writer`)."""
        tables = await self.catalog(names, timeout_s)
        if not self.source.allow_writer and (open_to_us := [each for each in tables if tables[each].may_write]):
            self._count("writer")
            raise DomainAway(self.name, "writer", f"its role could write to {open_to_us[0]}")
        return tables

    async def catalog(self, names: Collection[str], timeout_s: float) -> dict[str, Table]:
        """What the catalog says of these tables; one that is not there, or that we may not read, is left out. Raises
        DomainAway."""
        now = self._now()
        stale = [
            each for each in dict.fromkeys(names) if (at := self._tables.get(each)) is None or now - at[0] > CATALOG_S
        ]
        if stale:
            found = await self._look_up(stale, timeout_s)
            self._tables |= {each: (now, found.get(each)) for each in stale}
        return {each: table for each in names if (table := self._tables[each][1]) is not None}

    async def warm(self, names: Collection[str]) -> None:
        """Connect, and read what the catalog says of these tables, before somebody waits for it. Raises DomainAway."""
        await self.query("writer", timeout_s=WARM_S)
        await self.catalog(names, WARM_S)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def _look_up(self, names: Sequence[str], timeout_s: float) -> dict[str, Table]:
        schemas, plain = zip(*map(split_table, names), strict=True)
        rows = await self.query("tables", list(schemas), list(plain), timeout_s=timeout_s)
        readable = {row["oid"]: row for row in rows if row["may_read"] and row["may_enter"]}
        columns: dict[int, list[Row]] = {}
        for row in await self.query("columns", list(readable), timeout_s=timeout_s):
            columns.setdefault(row["oid"], []).append(row)
        return {
            names[row["n"] - 1]: Table(
                {
                    each["name"]: DomainColumn(each["name"], each["type"], each["is_array"])
                    for each in columns.get(oid, ())
                },
                row["may_write"],
                frozenset(each["name"] for each in columns.get(oid, ()) if each["indexed"]),
            )
            for oid, row in readable.items()
        }

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _ask(self, work: Callable[[Any], Any], timeout_s: float) -> list[Row]:
        if self._breaker.admit(self._now()):
            self._count("suspended")
            raise DomainAway(self.name, "suspended")
        burst = self._bursts
        try:
            async with asyncio.timeout(timeout_s):
                rows: list[Row] = await self._within(work)
        except (TimeoutError, StoreUnavailable, asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise self._failed(error, burst) from None
        self._breaker.succeeded()
        self._count("answered")
        return rows

    async def _within(self, work: Callable[[Any], Any]) -> list[Row]:
        pool = await self._open()
        async with pool.acquire() as connection:
            transaction = connection.transaction(readonly=True)
            # Entered by hand: what is called off leaves at once, the pool rolls back, and asyncpg logs no error for it.
            await transaction.__aenter__()
            await connection.execute(no_longer_than(self.source.statement_timeout_ms))
            rows: list[Row] = await work(connection)
            await transaction.__aexit__(None, None, None)
            return rows

    async def _open(self) -> Pool:
        async with self._opening:
            if self._pool is None:
                pool = await asyncpg.create_pool(
                    self.source.dsn.get_secret_value(),
                    min_size=0,
                    init_size=0,
                    max_size=self.source.connections,
                    max_inactive_connection_lifetime=0,  # to connect takes longer than a prompt waits
                    timeout=CONNECT_TIMEOUT_S,
                    command_timeout=self.patience_s + COMMAND_GRACE_S,
                    statement_cache_size=0,
                    server_settings={"application_name": f"mneme {self.name}"},
                    reset=_nothing_to_reset,
                )
                self._pool = Pool(pool, self._sql, CONNECT_TIMEOUT_S)
            return self._pool

    def _failed(self, error: BaseException, burst: int) -> DomainAway:
        """What an error means; of its text nothing is kept, for it may hold parts of rows or of the DSN. Queries that fail
        together (`burst`: how many had failed when it began) count as one: a question asks several at once."""
        cause = error.__cause__ if isinstance(error, StoreUnavailable) and error.__cause__ else error
        reason: AwayReason = "unreachable"
        if isinstance(cause, (TimeoutError, asyncpg.QueryCanceledError, asyncpg.LockNotAvailableError)):
            reason = "timeout"
        elif isinstance(cause, (asyncpg.InsufficientPrivilegeError, asyncpg.InvalidAuthorizationSpecificationError)):
            reason = "refused"
        elif isinstance(cause, _CHANGED):
            reason = "changed"
        if isinstance(cause, _CHANGED):
            self._breaker.succeeded()  # it is there
            self._tables.clear()  # looked up again
        elif burst == self._bursts:
            self._bursts += 1
            self._breaker.failed(self._now())
        self._count(reason)
        log.warning(
            "a domain gives no answer",
            extra={
                "domain": self.name,
                "reason": reason,
                "error": type(cause).__name__,
                "left_alone": self._breaker.state,
            },
        )
        return DomainAway(self.name, reason, type(cause).__name__)

    def _count(self, result: str) -> None:
        """Of a query: that it was answered, or why it was not (`DomainAway.reason`)."""
        if self._asked is not None:
            self._asked.labels(self.name, result).inc()


async def _nothing_to_reset(_: asyncpg.Connection[asyncpg.Record]) -> None:
    """Nothing here changes a session."""


# --- a plan: what is asked of one level at the same time, what is below with its keys ------------------------------------


class StatementRows(NamedTuple):
    """Rows of one statement. `total`: that there are; `gone`: columns of the ontology that the table has not."""

    rows: tuple[FactRow, ...]
    families: Mapping[str, Family]
    total: int
    gone: tuple[str, ...]


async def read(
    pool: DomainPool,
    kind: EntityType,
    ontology: Ontology,
    make: Callable[[Mapping[str, Table]], SelectStatement],
    timeout_s: float,
    needed: Sequence[tuple[str, str]] = (),
) -> StatementRows:
    """The rows of a type. `needed`: tables and their columns without which there is no statement, beside its own key. Raises
    DomainAway, also where the role could write into any table of the ontology; columns that are only told may be gone."""
    until = time.monotonic() + timeout_s
    required = [(kind.table, kind.key), *needed]
    all_of_them = (each.table for each in ontology.types.values() if each.domain == kind.domain)
    tables = await pool.tables([*(table for table, _ in required), *all_of_them], timeout_s)
    for table, column in required:
        if table not in tables:
            raise DomainAway(pool.name, "changed", f"there is no table {table} that its role may read")
        if column not in tables[table].columns:
            raise DomainAway(pool.name, "changed", f"{table} has no column {column}")
    statement = make(tables)
    found = tables[kind.table].columns
    families = {each: found[each].family for each in statement.columns}
    rows, columns = await pool.read(statement, until - time.monotonic()), list(enumerate(statement.columns))
    return StatementRows(
        tuple(
            FactRow(each["key"], each["parent"], {name: shown(each[f"c{n}"], families[name]) for n, name in columns})
            for each in rows
            if _names(each["key"])
        ),
        families,
        max((each["total"] for each in rows), default=0),
        tuple(each for each in wanted_columns(kind) if each not in found),
    )


def key_of(entity: Entity) -> str:
    """The key in a thing's id."""
    return entity.id.partition(":")[2]


class Run(Struct, frozen=True):
    """`pools`: the tenant's own. `until`: monotonic seconds."""

    pools: Mapping[str, DomainPool]
    ontology: Ontology
    until: float

    async def one(self, ask: TraversalQuery) -> QueryOutcome:
        """A thing's own row, and what is asked for from it: at the same time, since its key is known."""
        key, kind = key_of(ask.entity), ask.type
        own, *below = await asyncio.gather(
            self._asked(ask, {kind.key: key}, lambda tables: by_key(kind, tables[kind.table], [key])),
            *(self._below(kind, each, [key]) for each in ask.onward),
        )
        return replace(own, onward=tuple(below))

    async def _below(self, source: EntityType, ask: TraversalQuery, keys: Sequence[str]) -> QueryOutcome:
        """What a relation leads to from these rows, and onward from there."""
        relation, kind = ask.relation, ask.type
        assert relation is not None, "only a thing's own row is asked for without one"
        ends = [(b, a) if ask.backwards else (a, b) for a, b in relation.join]
        needed = [
            (source.table, source.key),
            *((source.table, a) for a, _ in ends),
            *((kind.table, b) for _, b in ends),
            *((kind.table, column) for column, _ in ask.where),
        ]
        filters: dict[str, Any] = {source.key: keys[0] if len(keys) == 1 else list(keys)}
        if ask.span is not None and kind.time:
            filters["date_range"] = days(ask.span)
        filters |= dict(ask.where)
        pool = self.pools.get(kind.domain)
        limit = min(ask.limit, pool.source.rows) if pool is not None and ask.listed else ask.limit
        told = await self._asked(
            ask,
            filters,
            lambda tables: related(
                source, tables[source.table], relation, kind, tables[kind.table], keys,
                backwards=ask.backwards, span=ask.span, limit=limit, equal=ask.where,
            ),
            needed,
        )  # fmt: skip
        if not told.rows or not ask.onward:
            return told
        keys = list(dict.fromkeys(each.key for each in told.rows))
        below = await asyncio.gather(*(self._below(kind, each, keys) for each in ask.onward))
        return replace(told, onward=tuple(below))

    async def _asked(
        self,
        ask: TraversalQuery,
        filters: Mapping[str, Any],
        make: Callable[[Mapping[str, Table]], SelectStatement],
        needed: Sequence[tuple[str, str]] = (),
    ) -> QueryOutcome:
        """One query, and the note of it. What is late or away is left out."""
        kind, began = ask.type, time.monotonic()
        error: str | None = None
        part = StatementRows((), {}, 0, ())
        try:
            if (pool := self.pools.get(kind.domain)) is None:
                raise DomainAway(kind.domain, "refused", "it is no domain of this tenant's")
            if self.until <= began:
                raise DomainAway(kind.domain, "timeout", "the deadline had passed")
            part = await read(pool, kind, self.ontology, make, min(self.until - began, pool.patience_s), needed)
            if part.gone:
                error = f"changed ({kind.table} has no column {', '.join(part.gone)})"
        except DomainAway as away:
            error = f"{away.reason} ({away.detail})" if away.detail else away.reason
        took = round((time.monotonic() - began) * 1000, 1)
        wrong = findings(ask, part.rows, tuple(part.families))
        query = DomainQuery(
            kind.domain, kind.name, ask.entity.id, kind.table, filters, len(part.rows), took, error, wrong
        )
        rows, total = part.rows, part.total
        if ask.listed and total <= len(rows):
            rows = tuple({each.key: each for each in rows}.values())  # one that several rows lead to is told once
            total = len(rows)
        return QueryOutcome(ask, rows, total, part.families, error=error if not rows else None, query=query)


def _names(key: str | None) -> bool:
    """Whether a row can be spoken of by its key: in a view it may be NULL, and a text may be anything."""
    return key is not None and 0 < len(key) <= MAX_KEY_CHARS and key.isprintable()


# --- all domains ---------------------------------------------------------------------------------------------------------

TENANT_S = 60.0
"""Seconds that a tenant's id is believed to be that of its name."""
MAX_WANTED = 32
"""Mentions that are looked for at once; a text with more is no question."""
SEEKING_SHARE = 0.9
"""Of the time that a statement may take, when a search for names is called off: before it would count as a failure."""
LEAST_NAME_CHARS = 3
"""Characters from which a name is looked for within others: shorter ones are in every second name."""
MOST_NAME_CHARS = 200
NO_KEY = "0"
"""What a start looks for: a key of any type, of which most tables have no row."""
DOMAIN = "domain"
"""Why a prompt is poorer than it should be, as `x-mneme-reason` calls it."""


class PlanResult(NamedTuple):
    """What a plan came to. `related`: ids of all rows that were seen beside the things' own. `rows`: by thing and predicate.
    `reason`: why it is poorer than it should be ("domain")."""

    queries: tuple[DomainQuery, ...] = ()
    facts: tuple[DomainFact, ...] = ()
    related: frozenset[str] = frozenset()
    rows: Mapping[str, Mapping[str, RowValue]] = MappingProxyType({})
    reason: str | None = None


class Domains:
    def __init__(
        self,
        sources: Mapping[str, DomainSource],
        ontologies: Ontologies,
        tenant_id: Callable[[str], Awaitable[UUID | None]],
        queries: Queries,
        clock: Clock,
        asked: Counter | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tenant_id`: the tenant of a name. `asked`: counts queries, by domain and result. `now`: seconds, for what
        is cached."""
        self._pools = {name: DomainPool(name, each, queries, asked, now=now) for name, each in sources.items()}
        self._ontologies = ontologies
        self._tenant_id = tenant_id
        self._clock = clock
        self._now = now
        self._tenants: dict[str, tuple[float, UUID]] = {}

    async def close(self) -> None:
        for each in self._pools.values():
            await each.close()

    async def warm(self) -> None:
        """Connect to every domain, read its catalog, and look for a row of each type by a key, so that the first question, too,
        is answered in time: what a connection does first with a table takes it several times as long. One that is away has said
        so, and is asked again when it is needed."""
        for name, pool in self._pools.items():
            with suppress(DomainAway, StoreUnavailable):
                known: list[tuple[EntityType, Ontology]] = []
                for each in pool.source.tenants:
                    if (tenant := await self._tenant(each)) is not None:
                        ontology = await self._ontologies.of(tenant)
                        known += [(kind, ontology) for kind in ontology.types.values() if kind.domain == name]
                await pool.warm({kind.table for kind, _ in known})
                asks = [self._by_key(kind, ontology, [NO_KEY]) for _ in range(AT_ONCE) for kind, ontology in known]
                await asyncio.gather(*asks)

    # --- finding ------------------------------------------------------------------------------------------------------

    async def find(self, tenant: UUID, mentions: Sequence[RowQuery]) -> FoundEntities:
        """The rows that mentions may mean, those of a whole name or key first (seed 004, lazy discovery). Nothing is found in a
        domain that is away, or late."""
        fit = [each for each in mentions if each.mention.strip() and len(each.mention) <= MOST_NAME_CHARS]
        fit = [each for each in fit[:MAX_WANTED] if sendable(each.mention)]
        if not fit or not self._pools:
            return FoundEntities()
        try:
            ontology = await self._ontologies.of(tenant)
            mine = await self._mine(tenant)
        except StoreUnavailable:
            return FoundEntities(away=True)
        types = [each for each in ontology.types.values() if each.domain in mine]
        names = [each.mention for each in fit if not each.types]
        jobs: list[Coroutine[Any, Any, list[FoundRow] | None]] = []
        for kind in types:
            keys = [each.mention for each in fit if kind.name in each.types]
            if keys:
                jobs.append(self._by_key(kind, ontology, keys))
            if names and kind.found_by_name:
                jobs.append(self._by_name(kind, ontology, names, exact=True))
        parts = await asyncio.gather(*jobs)
        found = [each for some in parts for each in some or ()]
        known = {each.mention for each in found}
        rest = [each for each in names if each not in known and len(each.strip()) >= LEAST_NAME_CHARS]
        if rest:
            within = await asyncio.gather(
                *(self._by_name(kind, ontology, rest, exact=False) for kind in types if kind.found_by_name)
            )
            found += [each for some in within for each in some or ()]
            parts += within
        return FoundEntities(tuple(found), away=None in parts)

    async def _by_key(self, kind: EntityType, ontology: Ontology, keys: Sequence[str]) -> list[FoundRow] | None:
        """Keys as they were written, in upper and in lower case."""
        forms = {form: key for key in keys for form in (key.lower(), key.upper(), key)}
        part = await self._looked_up(kind, ontology, lambda table: by_key(kind, table, list(forms)))
        return None if part is None else [_found(forms[row.key], kind, row) for row in part.rows if row.key in forms]

    async def _by_name(
        self, kind: EntityType, ontology: Ontology, names: Sequence[str], *, exact: bool
    ) -> list[FoundRow] | None:
        told = [" ".join(each.split()) for each in names]
        part = await self._looked_up(kind, ontology, lambda table: by_name(kind, table, told, exact=exact))
        return None if part is None else [_found(names[int(row.parent or 1) - 1], kind, row) for row in part.rows]

    async def _looked_up(
        self, kind: EntityType, ontology: Ontology, make: Callable[[Table], SelectStatement]
    ) -> StatementRows | None:
        """None where the domain is away: its pool has said so; or is late, which is no failure of its own: what looks for a
        name in a large table is slower than what reads a row."""
        pool = self._pools[kind.domain]
        try:
            async with asyncio.timeout(SEEKING_SHARE * pool.patience_s):
                return await read(pool, kind, ontology, lambda tables: make(tables[kind.table]), pool.patience_s)
        except (DomainAway, TimeoutError):
            return None

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def rows(self, tenant: UUID, entity: Entity, ontology: Ontology) -> Mapping[str, RowValue]:
        """What a thing's own row says, by predicate; nothing where it has none. Raises DomainAway."""
        kind = ontology.types.get(entity.type)
        if kind is None or not kind.predicates:
            return {}
        try:
            mine = await self._mine(tenant)
        except StoreUnavailable:
            raise DomainAway(kind.domain, "refused", "whose it is cannot be looked up") from None
        if kind.domain not in mine:
            raise DomainAway(kind.domain, "refused", "it is no domain of this tenant's")
        key, pool = key_of(entity), self._pools[kind.domain]
        part = await read(pool, kind, ontology, lambda tables: by_key(kind, tables[kind.table], [key]), pool.patience_s)
        told = QueryOutcome(TraversalQuery(kind, entity), part.rows, part.total, part.families)
        return row_values([told], self._clock.now()).get(entity_id(kind, key), {})

    # --- plans --------------------------------------------------------------------------------------------------------

    async def ask(
        self, tenant: UUID, plan: Sequence[TraversalQuery], ontology: Ontology, *, deadline_s: float
    ) -> PlanResult:
        """Run a plan (`domain_sql.plan`), all that can be at the same time. What has not come within `deadline_s` seconds is
        left out. Raises nothing."""
        if not plan:
            return PlanResult()
        until = time.monotonic() + deadline_s
        try:
            async with asyncio.timeout(deadline_s):
                mine = await self._mine(tenant)
        except (StoreUnavailable, TimeoutError):
            return PlanResult(reason=DOMAIN)
        run = Run({name: self._pools[name] for name in mine}, ontology, until)
        told = await asyncio.gather(*(run.one(each) for each in plan))
        parts = [part for root in told for part in root.each()]
        seen = [(part.ask, row) for part in parts for row in part.rows]
        queries = tuple(part.query for part in parts if part.query is not None)
        return PlanResult(
            queries,
            facts(told),
            frozenset(entity_id(ask.type, row.key) for ask, row in seen if ask.relation is not None),
            row_values(told, self._clock.now()),
            DOMAIN if any(each.error for each in queries) else None,
        )

    # --- whose --------------------------------------------------------------------------------------------------------

    async def _mine(self, tenant: UUID) -> frozenset[str]:
        """The domains of a tenant. Raises StoreUnavailable."""
        found = set()
        for name, pool in self._pools.items():
            for each in pool.source.tenants:
                if await self._tenant(each) == tenant:
                    found.add(name)
        return frozenset(found)

    async def _tenant(self, name: str) -> UUID | None:
        known = self._tenants.get(name)
        if known is not None and self._now() - known[0] <= TENANT_S:
            return known[1]
        found = await self._tenant_id(name)
        if found is not None:  # one that is not there may be made at any time, and has its domain at once
            self._tenants[name] = (self._now(), found)
        return found


def _found(mention: str, kind: EntityType, row: FactRow) -> FoundRow:
    properties = {each: value for each in kind.show if (value := row.values.get(each)) is not None}
    entity = Entity(entity_id(kind, row.key), kind.name, name_of(kind, row))
    exact = row.key.casefold() == mention.casefold()
    return FoundRow(mention, entity, kind.table, kind.key, row.key, kind.domain, properties, exact)
