"""Reads that a standby may answer, if it has all that was acknowledged to the user before (sql/schema/017_replicas.sql); and
the pools, one for each kind of work, of which those that only read may have standbys.

A read goes to a standby, and at the same time the primary is asked for the user's marks: which transactions wrote for him
lately. The standby tells those that it has in the very snapshot that it read in. Where they are not the same, or the standby is
late, away, or says anything else, the same read goes to the primary.

Pools do not wait for each other's connections: slow searches and imports cannot keep a turn from being recorded, and recording
cannot keep a prompt from being compiled.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

import asyncpg
from msgspec import Struct, field

from app.breaker import Breaker
from app.errors import MnemeError, StoreUnavailable
from app.store.pools import AWAY, Pool, open_pool, why
from app.store.queries import Queries
from app.tasks import Supervisor

Result = Literal["replica", "behind", "late", "failed", "suspended", "busy", "unmarked"]
"""What came of a read. `replica`: a standby answered; else the primary did. `behind`: the standby lacks a write of this user's,
or has one that came since; `late`: it took too long; `failed`: it gave no answer; `suspended`: none was asked, because of such
failures; `busy`: more marks than are compared; `unmarked`: nothing is marked, so nothing can be told."""
Rows = list[asyncpg.Record]
Meter = Callable[[str, str, Result], None]
"""Told of each read: the pool, the server, the result."""
POOL_NAMES = ("write", "history", "memory", "background")
STANDBYS = ("history", "memory")
"""Pools that may be read from standbys: no other only reads."""
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


class Reads(Protocol):
    """Reads of one user, by the name of their query, whose first arguments are tenant and user. They raise StoreUnavailable."""

    @property
    def direct(self) -> FromPool:
        """The same from the primary."""

    async def one(self, name: str, tenant: UUID, user: UUID, *rest: Any) -> dict[str, Any] | None:
        """The first row, by column."""

    async def many(self, name: str, tenant: UUID, user: UUID, *rest: Any) -> Sequence[Sequence[Any]]:
        """All rows, by position."""


class FromPool:
    """All of them from one server."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    @property
    def direct(self) -> FromPool:
        return self

    async def one(self, name: str, tenant: UUID, user: UUID, *rest: Any) -> dict[str, Any] | None:
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(self._sql[name], tenant, user, *rest)
        return dict(row) if row is not None else None

    async def many(self, name: str, tenant: UUID, user: UUID, *rest: Any) -> Sequence[Sequence[Any]]:
        async with self._pool.acquire() as connection:
            return await connection.fetch(self._sql[name], tenant, user, *rest)


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


# --- a pool for each kind of work (seed 000 §11.1) ---------------------------------------------------------------------


class PoolLimits(Struct, frozen=True):
    """`size`: most connections. `timeout_ms`: wait for one. `statement_timeout_ms`: longest statement."""

    size: int
    timeout_ms: int
    statement_timeout_ms: int


class Pools(Struct, frozen=True):
    """Connections by what they are for. `write`: recording; `history` and `memory`: what a request reads before it goes out
    (where it stands, and what is found for it); `background`: all that no request under /v1 waits for."""

    write: Pool
    history: Pool
    memory: Pool
    background: Pool
    replicas: Mapping[str, FromReplicas] = field(default_factory=dict)
    """Of `history` and `memory`, where standbys are read from."""

    @classmethod
    def of(cls, pool: Pool) -> Pools:
        """One pool for everything, as in a worker, which only does background work."""
        return cls(pool, pool, pool, pool)

    @property
    def by_name(self) -> dict[str, Pool]:
        """Each pool under what it is for; one that is for everything is `background`."""
        return {name: pool for pool, name in {getattr(self, name): name for name in POOL_NAMES}.items()}

    def reads(self, name: str) -> Reads:
        """How `history` or `memory` is read."""
        return self.replicas.get(name) or FromPool(getattr(self, name), Queries.load())

    @contextlib.contextmanager
    def warming(self) -> Iterator[None]:
        """`Pool.warming` of all of them."""
        with contextlib.ExitStack() as stack:
            for pool in [
                *self.by_name.values(),
                *(each.pool for some in self.replicas.values() for each in some.replicas),
            ]:
                stack.enter_context(pool.warming())
            yield

    async def expire(self) -> None:
        """After a failover: those that only read would not notice, and read what the old primary still has."""
        for pool in self.by_name.values():
            await pool.expire()

    async def connections_allowed(self) -> int:
        """How many connections the server gives to roles like ours. Raises StoreUnavailable."""
        async with self.background.acquire() as connection:
            return int(await connection.fetchval(Queries.load()["pool.connections_allowed"]))

    async def close(self) -> None:
        """Close all of them, at the same time."""
        await _close(self.by_name, self.replicas)


async def _close(pools: Mapping[str, Pool], replicas: Mapping[str, FromReplicas]) -> None:
    closing = [each.close() for each in pools.values()] + [each.close() for each in replicas.values()]
    await asyncio.gather(*closing)


class Elsewhere(Struct, frozen=True):
    """Servers beside the primary. `urls`: by pool; those of `history` and `memory` name standbys, that of `background` leads to
    the primary. `wait_s`: longest that a standby is waited for."""

    urls: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0


async def open_pools(
    dsn: str,
    limits: Mapping[str, PoolLimits],
    *,
    statement_cache_size: int,
    role: str | None,
    elsewhere: Elsewhere | None = None,
    open_at_once: int = 1,
) -> Pools:
    """A pool for each of POOL_NAMES that has limits; the others' work is done by `background`. Raises as `open_pool`; a standby
    that is not there keeps nobody from starting. `open_at_once`: connections of each that are opened now."""
    opened: dict[str, Pool] = {}
    others = elsewhere or Elsewhere()

    async def one(dsn: str, name: str, limit: PoolLimits, open_at_once: int) -> Pool:
        return await open_pool(
            dsn,
            size=limit.size,
            open_at_once=open_at_once,
            timeout_ms=limit.timeout_ms,
            statement_timeout_ms=limit.statement_timeout_ms,
            statement_cache_size=statement_cache_size,
            role=role,
            application_name=f"mneme {name}",
        )

    replicas: dict[str, FromReplicas] = {}
    try:
        for name, limit in limits.items():
            own = dsn if name in STANDBYS else others.urls.get(name, dsn)
            opened[name] = await one(own, name, limit, open_at_once)
        for name in STANDBYS:
            if name in limits and name in others.urls:
                found = [
                    Replica(host, await one(each, name, limits[name], 0)) for host, each in hosts_of(others.urls[name])
                ]
                replicas[name] = FromReplicas(name, opened[name], found, Queries.load(), wait_s=others.wait_s)
    except BaseException:
        await _close(opened, replicas)
        raise
    by_name = {name: opened.get(name, opened["background"]) for name in POOL_NAMES}
    pools = Pools(**by_name, replicas=replicas)
    for pool in opened.values():
        pool.failed_over = pools.expire
    return pools


# --- what the servers of the pools are: for `mneme doctor` -------------------------------------------------------------

ASK_S = 5.0
"""Seconds that a server has to answer."""
CATCH_UP_S = 2.0
"""Seconds for which a standby is watched, whether it comes to where the primary was: twenty times the lag of which there is an
alert (seed 000 §11.3: 100 ms)."""
POLL_S = 0.005


class PoolServer(Struct, frozen=True):
    """A server of a pool. `away`: why it says nothing. `ours`: a copy of the primary. `lag_s`: after which it had replayed what
    the primary had written; None: not within `CATCH_UP_S`."""

    pool: str
    name: str
    away: str = ""
    standby: bool = False
    ours: bool = True
    paused: bool = False
    feedback: bool = True
    lag_s: float | None = 0.0


async def servers_of(primary_dsn: str, urls: Mapping[str, str]) -> tuple[PoolServer, bool, list[PoolServer]]:
    """The primary; whether it marks its writers; and each server of the pools that have URLs of their own."""
    sql = Queries.load()
    try:
        connection = await asyncpg.connect(primary_dsn, timeout=ASK_S)
    except AWAY as error:
        return PoolServer("write", "primary", away=why(error)), False, []
    try:
        told = await connection.fetchrow(sql["replicas.server"])
        assert told is not None, "a query without FROM has one row"
        primary = PoolServer("write", "primary", standby=told["standby"])
        marking = await _marks(connection, sql)
        found = [
            await _server(pool, name, dsn, connection, told["cluster"], sql)
            for pool, url in urls.items()
            for name, dsn in hosts_of(url)
        ]
    finally:
        await connection.close()
    return primary, marking, found


async def _marks(primary: asyncpg.Connection[Any], sql: Queries) -> bool:
    try:
        return bool(await primary.fetchval(sql["replicas.marking"]))
    except asyncpg.UndefinedTableError:  # not migrated yet
        return False


async def _server(
    pool: str, name: str, dsn: str, primary: asyncpg.Connection[Any], cluster: int, sql: Queries
) -> PoolServer:
    try:
        connection = await asyncpg.connect(dsn, timeout=ASK_S, statement_cache_size=0)
    except AWAY as error:
        return PoolServer(pool, name, away=why(error))
    try:
        written = (await primary.fetchrow(sql["replicas.server"]))["position"]  # type: ignore[index]  # as above
        began = time.monotonic()
        while True:
            told = await connection.fetchrow(sql["replicas.server"])
            assert told is not None, "a query without FROM has one row"
            lag_s = time.monotonic() - began
            if not told["standby"] or told["position"] >= written:
                break
            if lag_s > CATCH_UP_S:
                return PoolServer(
                    pool, name, "", True, told["cluster"] == cluster, told["paused"], told["feedback"], None
                )
            await asyncio.sleep(POLL_S)
    except AWAY as error:
        return PoolServer(pool, name, away=why(error))
    finally:
        await connection.close()
    return PoolServer(
        pool, name, "", told["standby"], told["cluster"] == cluster, told["paused"], told["feedback"], lag_s
    )
