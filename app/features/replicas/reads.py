"""Reads that a standby may answer, if it has all that was acknowledged to the user before (sql/schema/017_replicas.sql).

A read goes to a standby, and at the same time the primary is asked for the user's marks: which transactions wrote for him
lately. The standby tells those that it has in the very snapshot that it read in. Where they are not the same, or the standby is
late, away, or says anything else, the same read goes to the primary.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

import asyncpg

from app.breaker import Breaker
from app.errors import MnemeError, StoreUnavailable
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.workloads import FromPool, Meter, Result
from app.tasks import Supervisor

Rows = list[asyncpg.Record]
BUSY = 1000
"""Most marks of a user that are compared, which takes some 0.1 ms: they are taken away each minute. `replicas.sql` counts one
more."""
FAILURES = 3
"""Reads in a row that fail or are late until a standby is left alone."""
OPEN_S = 1.0
"""Seconds that it is left alone: within these one that came back is read from again."""
PRIMARY = "primary"
_EXTRA = 2
"""Columns that `replicas.marked` adds at the end: `there` and `marks`."""
_COUNT = 1
"""Where in marks their number stands."""
_REFUSED = (MnemeError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError, TypeError)
"""What a standby may answer instead of rows: away, in conflict with what it replays, not migrated yet, or a question that is
wrong, which the primary will say as well."""


class Replica:
    """One standby. `name`: its host and port."""

    def __init__(self, name: str, pool: Pool) -> None:
        self.name = name
        self.pool = pool
        self.breaker = Breaker(FAILURES, OPEN_S)

    async def read(self, statement: str, arguments: Sequence[Any]) -> Rows | Exception:
        """The rows, or why there are none: a task that nobody waits for any more must not end in an error."""
        try:
            async with self.pool.acquire() as connection:
                return await connection.fetch(statement, *arguments)
        except _REFUSED as error:
            return error


class FromReplicas:
    """Each from a standby, in turn, where that has what the user was acknowledged; else from the primary."""

    def __init__(
        self,
        name: str,
        primary: Pool,
        replicas: Sequence[Replica],
        queries: Queries,
        *,
        wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name`: of the pool. `wait_s`: longest that a standby is waited for."""
        self._name = name
        self._primary = primary
        self.direct = FromPool(primary, queries)
        self._replicas = list(replicas)
        self._sql = queries
        self.wait_s = wait_s
        self._clock = clock
        self._marked: dict[str, str] = {}
        self._tasks = Supervisor()
        self.meter: Meter = _ignore

    @property
    def replicas(self) -> Sequence[Replica]:
        return tuple(self._replicas)

    async def one(self, name: str, tenant: UUID, user: UUID, *rest: Any) -> dict[str, Any] | None:
        rows = await self._read(name, tenant, user, rest)
        if rows is None:
            return await self.direct.one(name, tenant, user, *rest)
        return dict(list(rows[0].items())[:-_EXTRA]) if rows else None

    async def many(self, name: str, tenant: UUID, user: UUID, *rest: Any) -> Sequence[Sequence[Any]]:
        rows = await self._read(name, tenant, user, rest)
        if rows is None:
            return await self.direct.many(name, tenant, user, *rest)
        return [row[:-_EXTRA] for row in rows]

    @property
    def pools(self) -> Sequence[Pool]:
        return [each.pool for each in self._replicas]

    async def close(self) -> None:
        """Close the connections to the standbys, and what nobody waits for any more."""
        await self._tasks.close(0)
        await asyncio.gather(*(each.pool.close() for each in self._replicas))

    async def _read(self, name: str, tenant: UUID, user: UUID, rest: Sequence[Any]) -> Rows | None:
        """The rows of a standby that has all of this user's; None: the primary is to be asked."""
        replica = self._next()
        if replica is None:
            self.meter(self._name, PRIMARY, "suspended")
            return None
        result, rows = await self._from(replica, name, tenant, user, rest)
        self.meter(self._name, replica.name, result)
        return rows

    async def _from(
        self, replica: Replica, name: str, tenant: UUID, user: UUID, rest: Sequence[Any]
    ) -> tuple[Result, Rows | None]:
        began = self._clock()
        # What is late goes on: a connection that plans a query for the first time would else never come to its end.
        reading = self._tasks.spawn(replica.read(self._statement(name), (tenant, user, *rest)), "read from a replica")
        wanted = await self._marks(tenant, user)
        if wanted is None:
            return "unmarked", None
        if wanted[_COUNT] > BUSY:
            return "busy", None
        await asyncio.wait({reading}, timeout=max(0.0, began + self.wait_s - self._clock()))
        if not reading.done():
            replica.breaker.failed(self._clock())
            return "late", None
        found = reading.result()
        if isinstance(found, Exception):
            replica.breaker.failed(self._clock())
            return "failed", None
        replica.breaker.succeeded()
        if not found or found[0]["marks"] != wanted:
            return "behind", None
        return "replica", found if found[0]["there"] else []

    def _next(self) -> Replica | None:
        """Whose turn it is, of those that are worth asking."""
        now = self._clock()
        for _ in self._replicas:
            self._replicas.append(replica := self._replicas.pop(0))
            if replica.breaker.admit(now) == 0.0:
                return replica
        return None

    def _statement(self, name: str) -> str:
        """A query that says, too, what the server has of the user."""
        if name not in self._marked:
            self._marked[name] = self._sql["replicas.marked"].replace("__read__", self._sql[name])
        return self._marked[name]

    async def _marks(self, tenant: UUID, user: UUID) -> list[int] | None:
        async with self._primary.acquire() as connection:
            row = await connection.fetchrow(self._sql["replicas.marks"], tenant, user)
        if row is None:
            return None
        if row["standby"]:
            await self._primary.failed_over()
            raise StoreUnavailable("What was the primary database is a standby; try again.")
        marks: list[int] = row["marks"]
        return marks


async def open_replicas(
    name: str, primary: Pool, dsn: str, open_pool: Callable[[str], Awaitable[Pool]], wait_s: float
) -> FromReplicas:
    """Reads of the pool of this name from each host of a DSN."""
    found = [Replica(host, await open_pool(each)) for host, each in hosts_of(dsn)]
    return FromReplicas(name, primary, found, Queries.load(), wait_s=wait_s)


async def begin_marking(connection: asyncpg.Connection[Any], queries: Queries, *, wanted: bool) -> None:
    """Have the primary mark its writers, where that is wanted or was done before: then tables that came since mark, too. Each
    table in a transaction of its own; `connection` is the owner's."""
    if not wanted and not await connection.fetchval(queries["replicas.marking"]):
        return
    for table in await connection.fetch(queries["replicas.unmarked_tables"]):
        await connection.execute(queries["replicas.mark_table"], table["name"], table["scope"])
    await connection.execute(queries["replicas.marks_begin"])


def hosts_of(dsn: str) -> list[tuple[str, str]]:
    """A DSN for each host of one that names several: (host:port, DSN)."""
    parts = urlsplit(dsn)
    login, at, hosts = parts.netloc.rpartition("@")
    if hosts:
        return [(each, urlunsplit(parts._replace(netloc=f"{login}{at}{each}"))) for each in hosts.split(",")]
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    names, ports = query.pop("host", "").split(","), query.pop("port", "").split(",")
    found = []
    for n, host in enumerate(names):
        own = {"host": host, "port": ports[n] if len(ports) == len(names) else ports[0]}
        told = urlencode({**query, **{name: value for name, value in own.items() if value}})
        # urlunsplit would leave the slashes of a host that is not there out.
        found.append(
            (":".join(filter(None, own.values())), f"{parts.scheme}://{parts.netloc}{parts.path}?{told}".rstrip("?"))
        )
    return found


def _ignore(pool: str, server: str, result: Result) -> None:
    """Nobody counts."""
