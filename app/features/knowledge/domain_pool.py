"""One business's own database: connections that only read, what its catalog says, and when it is left alone.

Every statement runs in a transaction of its own that is READ ONLY and has a statement timeout, both said in the transaction
itself: so it holds behind PgBouncer too, which hands sessions around. No statement is prepared under a name, for the same
reason. Whatever goes wrong is a `DomainAway`, with nothing of the DSN in it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import asyncpg
from prometheus_client import Counter

from app.breaker import Breaker
from app.errors import AwayReason, DomainAway, StoreUnavailable
from app.features.knowledge.domain_sql import DomainColumn, SelectStatement, Table, no_longer_than, split_table
from app.sources import DomainSource
from app.store.pools import COMMAND_GRACE_S, CONNECT_TIMEOUT_S, Pool
from app.store.queries import Queries

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
        if self._pool is not None:
            await self._pool.open(AT_ONCE)
        await self.catalog(names, WARM_S)

    def forget(self) -> None:
        """Look everything up again."""
        self._tables.clear()

    async def close(self) -> None:
        """Close every connection."""
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
            self.forget()
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
