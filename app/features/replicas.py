"""Reads that a standby may answer (docs/how-to/scaling.md), if it has all that was acknowledged to the user before
(sql/schema/017_replicas.sql). `app/store/pools.py` and `app/server/core.py` find this by its name.

A read goes to a standby, and at the same time the primary is asked for the user's marks: which transactions wrote for him
lately. The standby tells those that it has in the very snapshot that it read in. Where they are not the same, or the standby is
late, away, or says anything else, the same read goes to the primary.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import UUID

import asyncpg
from msgspec import Struct

from app.errors import MnemeError, StoreUnavailable
from app.features import Feature, Finding
from app.patience import Breaker
from app.settings import Settings
from app.store.pools import AWAY, FromPool, Meter, Pool, Result, why
from app.store.queries import Queries
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


# --- `mneme doctor`: what the servers of the pools are -------------------------------------------------------------------

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
            there = not told["standby"] or told["position"] >= written
            if there or lag_s > CATCH_UP_S:
                break
            await asyncio.sleep(POLL_S)
    except AWAY as error:
        return PoolServer(pool, name, away=why(error))
    finally:
        await connection.close()
    ours, lag = told["cluster"] == cluster, lag_s if there else None
    return PoolServer(pool, name, "", told["standby"], ours, told["paused"], told["feedback"], lag)


async def findings(settings: Settings, dsn: str) -> list[Finding]:
    """Where pools have servers of their own: what each is, and whether it is what its pool needs."""
    primary, marking, servers = await servers_of(dsn, settings.pool_urls)
    if primary.away:
        return []  # told already
    found = []
    if primary.standby:
        mend = "With several hosts add target_session_attrs=read-write to MNEME_DATABASE_URL and MNEME_DATABASE_DIRECT_URL."
        found.append(Finding("error", "What is written to is a standby: nothing can be stored.", mend))
    if settings.standby_urls and not marking:
        mend = "Run `mneme migrate` with these settings: until then all is read from the primary."
        found.append(Finding("warning", "Standbys are named, and the primary does not mark its writers.", mend))
    return found + [_told(each) for each in servers]


def _told(server: PoolServer) -> Finding:
    told = f"The {server.pool} pool's server {server.name}"
    setting = f"MNEME_DATABASE_{server.pool.upper()}_URL"
    reads = server.pool != "background"
    if server.away:
        meanwhile = "; the primary answers meanwhile" if reads else ""
        level: Literal["warning", "error"] = "warning" if reads else "error"
        return Finding(level, f"{told} cannot be reached{meanwhile}: {server.away}", f"Check it, or {setting}.")
    if not server.ours:
        return Finding("error", f"{told} is another database, no copy of the primary.", f"Check {setting}.")
    if not server.standby:
        if not reads:
            return Finding("ok", f"{told} is the primary.")
        return Finding(
            "warning", f"{told} is the primary itself: reading there costs more, and takes nothing off it.",
            f"Name a standby in {setting}, or leave it unset.",
        )  # fmt: skip
    if not reads:
        return Finding("error", f"{told} is a standby, and jobs write.", f"Have {setting} lead to the primary.")
    if server.paused:
        return Finding(
            "warning", f"{told} replays nothing: somebody paused it.", "SELECT pg_wal_replay_resume() there."
        )
    if server.lag_s is None:
        mend = "See its log, disk and network; what its users wrote lately is read from the primary."
        return Finding("warning", f"{told} is a standby, and more than {CATCH_UP_S:g} s late.", mend)
    if not server.feedback:
        mend = "Set it to on: else vacuum on the primary ends searches there."
        return Finding("warning", f"{told} is a standby with hot_standby_feedback off.", mend)
    return Finding("ok", f"{told} is a standby, {1000 * server.lag_s:.0f} ms late.")


class Replicas(Feature):
    async def findings(self, dsn: str | None) -> Sequence[Finding]:
        """Also before the first migration."""
        url = self.settings.database_url
        if url is None or not self.settings.pool_urls:
            return ()
        return await findings(self.settings, self.settings.direct(url.get_secret_value()))


FEATURE = Replicas
