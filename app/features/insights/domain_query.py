"""A domain is asked one SELECT of the tenant's, by a connection of its own that reads and nothing else.

The text stands as a subquery in a statement of ours, so it can only be a query; it is sent by the extended protocol, which
takes one statement; the transaction is READ ONLY, has a time limit, and is always rolled back, with whatever settings were made
in it. Beside that the role is looked at: one that could write into a table that the query reads is refused, unless the domain's
`allow_writer` says otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from math import isfinite
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from app.errors import AwayReason, BadRequest, DomainAway
from app.features.insights.render import Bounds, Figures, Measured
from app.sources import DomainSource
from app.store.pools import COMMAND_GRACE_S, CONNECT_TIMEOUT_S
from app.store.queries import Queries

MAX_ROWS = 1000
"""Rows that one query may have: a figure for each post or customer of a small business; more are grouped by the query."""
MAX_LABEL_CHARS = 100
REFUSALS = frozenset({"0A", "21", "22", "25", "42", "54"})
"""Classes of SQLSTATE that are the query's fault: what is not supported, cardinality, data, what a transaction that only reads
does not do, syntax and rights, too complex."""
NUMERIC = frozenset({"int2", "int4", "int8", "numeric", "float4", "float8"})
TEXTUAL = frozenset({"text", "varchar", "bpchar", "name", "citext"})


class DomainAsker:
    """Asks the domains that the settings name, each for its own tenants alone."""

    def __init__(
        self,
        sources: Mapping[str, DomainSource],
        tenant_of: Callable[[str], Awaitable[UUID | None]],
        sql: Queries,
    ) -> None:
        """`tenant_of`: the tenant of a name."""
        self._sources = sources
        self._tenant_of = tenant_of
        self._sql = sql

    async def ask(self, tenant: UUID, domain: str, source: str, bounds: Bounds) -> Figures:
        """What a query says of a period and of the one before. Raises BadRequest for what is no query of this tenant's, and
        DomainAway."""
        found = self._sources.get(domain)
        if found is None or tenant not in [await self._tenant_of(each) for each in found.tenants]:
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
        (who,) = await connection.fetch(self._sql["domain.writer"])
        if who["is_superuser"]:
            raise DomainAway(domain, "writer", "its role is a superuser")
        explained = await connection.fetchval(f"EXPLAIN (VERBOSE, FORMAT JSON) {statement}", bounds.begin, bounds.end)
        tables = sorted(set(tables_of(orjson.loads(explained))))
        if tables:
            schemas, names = map(list, zip(*tables, strict=True))
            for row in await connection.fetch(self._sql["domain.tables"], schemas, names):
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
