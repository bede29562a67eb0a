"""Postgres: what it takes of texts and JSON, connections to it, and the pools of a process, one for each kind of work.

A connection is always waited for with a limit, and is of the application's role. Whatever keeps a statement from being answered
is one kind of failure, StoreUnavailable; a statement that is wrong stays the error that asyncpg raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol
from uuid import UUID

import asyncpg
import numpy as np
import orjson
from msgspec import Struct, field
from msgspec.structs import asdict
from numpy.typing import ArrayLike, NDArray

from app.errors import NotReady, StoreUnavailable
from app.optional import needed
from app.patience import Patience, patience_now
from app.settings import Settings
from app.store.queries import Queries
from app.tasks import Supervisor

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from asyncpg.pool import PoolConnectionProxy
    from asyncpg.transaction import Transaction


# --- texts and JSON ------------------------------------------------------------------------------------------------------

MAX_LEVELS = 200
"""Of arrays and objects within each other, in a message's parts, that the API writes: orjson and pydantic end at some 255, and
an answer has a few of its own around them. (orjson reads 1,024, and what was read is forwarded and stored.)"""

_LONE = re.compile("[\ud800-\udfff]")


def storable(text: str) -> str:
    """A text without what Postgres refuses, U+0000 and lone surrogates: U+FFFD stands for each, so that places stay where they
    are. The bytes that came have it as it was."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _LONE.sub("\ufffd", text)
    return text


def plain(value: object) -> object:
    """What orjson does not know (its `default`): a struct by its fields, anything else as text."""
    return asdict(value) if isinstance(value, Struct) else str(value)


def nested(value: Any) -> bool:
    """Whether JSON is nested deeper than can be written."""
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [
            each
            for one in level
            if isinstance(one, dict | list)
            for each in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def content_of(text: str | None, parts: Any) -> str | list[Any] | None:
    """A stored message's content: its parts as they came, or its text, where it has none or they cannot be written."""
    return parts if isinstance(parts, list) and not nested(parts) else text


# --- connections ---------------------------------------------------------------------------------------------------------
# A connection keeps its session when it goes back: asyncpg's `RESET ALL` would cost a second round trip, half of what a
# short query costs. So nothing here may change a session: settings are made local to a transaction, and LISTEN and
# advisory locks of a session have connections of their own.
#
# The first connection of a process is waited for (`reach`): after a reboot Postgres may come up later than we do.

logger = logging.getLogger(__name__)

APP_ROLE = "mneme_app"
"""What the server and the worker run as; row-level security holds it to one tenant."""
OWNER_ROLE = "mneme_owner"
"""What the schedule makes partitions as."""

POOL_WAIT_MS = 1000
"""Milliseconds that a request waits for a connection before it goes on without memory: twice the retrieval deadline's default,
so that a full pool is not taken for one that is away."""
STATEMENT_TIMEOUT_MS = 5000
"""Longest statement of a request, milliseconds (seed 000 §11.2: 5 s)."""
BACKGROUND_POOL_WAIT_MS = 5000
"""Milliseconds that a caller of the background pool waits for a connection before a 503: an API call can wait longer than a
prompt."""
BACKGROUND_STATEMENT_TIMEOUT_MS = 30_000
"""Longest statement of the background pool, milliseconds: an import may take longer than a request may."""
START_WAIT_S = 60.0
"""Seconds that a command waits for the database to come up: Postgres needs less after a reboot. Servers and workers wait as
long as it takes."""
CONNECT_TIMEOUT_S = 10.0
"""Seconds to open one connection when the pool is made; later the pool's own timeout is shorter."""
RELEASE_TIMEOUT_S = 0.25
"""Seconds for a backend to confirm a cancellation or a rollback, before its connection is dropped."""
SUSPECT_S = 1.0
"""Seconds of use after which a connection may be one whose backend is frozen, so that its pools are probed: longer than nearly
all statements of a request take, and half of the two seconds within which pools recover."""
PROBE_S = 0.5
"""Seconds for an idle backend to answer a probe, before its connection is dropped: a busy server takes some milliseconds, or
tens of them."""
REOPEN_S = 2.0
"""Seconds for a probe to open a connection in a pool that has none: longer than a request waits for memory, so that a server
which is slow to connect does not leave the pool empty."""
_CLOSE_TIMEOUT_S = 5.0
"""Seconds for connections in use to come back when the pool closes."""
COMMAND_GRACE_S = 0.5
"""Seconds that we wait longer than the server's own statement timeout: then it is the server that hangs."""
SESSION = {
    "search_path": "agent_data, public",
    # Not every server says UTC by default; GMT is the name that needs no zone files.
    "timezone": "GMT",
    # Compiling costs more than any of our queries.
    "jit": "off",
}

AGAIN_S = 0.5
"""Seconds between two tries of a process's first connection: well within what a person or a probe notices, and no load."""
_UNAVAILABLE = (
    OSError,  # refused, reset, no such host; TimeoutError is one
    asyncpg.PostgresConnectionError,  # 08: lost
    asyncpg.OperatorInterventionError,  # 57: stopping, starting, cancelled by its timeout
    asyncpg.InsufficientResourcesError,  # 53: disk full, out of memory, too many connections
    asyncpg.PostgresSystemError,  # 58: I/O error
    asyncpg.ReadOnlySQLTransactionError,  # 25006: we talk to what was the primary
    asyncpg.LockNotAvailableError,  # 55P03: somebody holds what we need, for longer than lock_timeout
    asyncpg.TransactionRollbackError,  # 40: two waited for each other, and this one gave way
)
_TOO_MUCH = (asyncpg.QueryCanceledError, asyncpg.OutOfMemoryError, asyncpg.LockNotAvailableError)
REFUSALS = (
    ValueError,  # among them what asyncpg cannot encode
    TypeError,
    asyncpg.CardinalityViolationError,  # 21
    asyncpg.DataError,  # 22
    asyncpg.IntegrityConstraintViolationError,  # 23
    asyncpg.ProgramLimitExceededError,  # 54: deeper or longer than Postgres takes
    asyncpg.RaiseError,  # P0001
)
"""What is refused for what it is. Of everything else the database may be the reason: a schema that is being migrated, a role
that lacks something, a deadlock that does not end, a damaged page."""
_BROKEN = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Whatever may go wrong where we open, roll back or give back a connection, and not where somebody uses it."""
_NOT_YET = (
    OSError,  # refused, no route, no such host yet; TimeoutError is one
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,  # 57P03: it starts, recovers or stops
    asyncpg.TooManyConnectionsError,
)
"""What time may mend. A wrong password, or a database that is not there, it does not."""
REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
"""A login or a database that is not there: somebody has to do something."""
AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""Whatever may come of opening a connection."""
_VECTOR_HEAD = struct.Struct(">HH")
"""pgvector's binary form of `vector` and `halfvec`: dimensions, zero, then the numbers, most significant byte first."""


class LivenessProbe:
    """Finds the backends of a group of pools that no longer answer, and has their connections replaced.

    A frozen backend leaves its connection open, so each one would be found only by the request that waits for it in vain.
    """

    def __init__(self) -> None:
        self.pools: Sequence[Pool] = ()
        self._tasks = Supervisor()
        self._closed = False

    def start(self) -> None:
        """Probe all pools of the group in the background, unless a probe runs already."""
        if not len(self._tasks) and not self._closed:
            self._tasks.spawn(self._run(), "probe of the connections to Postgres")

    async def close(self) -> None:
        self._closed = True
        await self._tasks.close(0)

    async def _run(self) -> None:
        answers = await asyncio.gather(*(pool.probe_idle() for pool in self.pools))
        all_answers = [answer for pool_answers in answers for answer in pool_answers]
        for pool, pool_answers in zip(self.pools, answers, strict=True):
            evidence = pool_answers or all_answers
            if evidence and not any(evidence):
                pool.drop_stuck()
        await asyncio.gather(*(pool.reopen() for pool in self.pools))


class Pool:
    """Connections that are alike: same server, same role. Made by `open_pool`."""

    def __init__(self, pool: asyncpg.Pool[asyncpg.Record], queries: Queries, timeout_s: float) -> None:
        self._pool = pool
        self._set_tenant = queries["pool.set_tenant"]
        self._timeout_s = timeout_s
        self._probe_statement = queries["pool.probe"]
        self._in_use: dict[PoolConnectionProxy[Any], float] = {}
        """Connections that are in use, each with the loop's time at which it was taken."""
        self.liveness = LivenessProbe()
        self.liveness.pools = [self]
        self.failed_over: Callable[[], Awaitable[None]] = self.expire
        """Called when the server has turned out to be read-only."""

    @property
    def size(self) -> int:
        """Connections that are open."""
        return self._pool.get_size()

    @property
    def idle(self) -> int:
        """Open connections that nobody uses."""
        return self._pool.get_idle_size()

    def acquire(self) -> AbstractAsyncContextManager[PoolConnectionProxy[Any]]:
        """A connection for the `async with` block, within the request's patience. Raises StoreUnavailable, on entry as within
        the block."""
        patience = patience_now()
        return self._acquired() if patience is None else self._acquired_within(patience)

    @contextlib.asynccontextmanager
    async def _acquired_within(self, patience: Patience) -> AsyncIterator[PoolConnectionProxy[Any]]:
        async with patience.waiting(), self._acquired() as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def _acquired(self) -> AsyncIterator[PoolConnectionProxy[Any]]:
        connection = await self._take()
        loop = asyncio.get_running_loop()
        self._in_use[connection] = loop.time()
        suspicion = loop.call_later(SUSPECT_S, self.liveness.start)
        try:
            yield connection
        except asyncpg.ReadOnlySQLTransactionError as error:
            # After a failover all our connections lead to the server that is no longer the primary.
            await self.failed_over()
            raise StoreUnavailable("The database is read-only at the moment; try again.") from error
        except _UNAVAILABLE as error:
            unavailable = StoreUnavailable("The database did not answer, or not in time; try again.")
            unavailable.too_much = isinstance(error, _TOO_MUCH)
            raise unavailable from error
        except asyncpg.InterfaceError as error:
            if not _is_gone(connection):
                # Used wrongly, such as by two tasks at once: it may be busy still, so it must not go back.
                _terminate(connection)
                raise
            raise StoreUnavailable("The connection to the database was lost; try again.") from error
        except asyncpg.InternalClientError as error:
            # The server has said that it ends this connection, and the end itself has not been read yet.
            _terminate(connection)
            raise StoreUnavailable("The connection to the database was lost; try again.") from error
        finally:
            suspicion.cancel()
            del self._in_use[connection]
            await self._release(connection)

    async def _take(self) -> PoolConnectionProxy[Any]:
        """Take a connection from asyncpg's pool. Raises StoreUnavailable."""
        try:
            # `release` takes this limit, too, where it has none of its own: else it hangs on a frozen backend.
            return await self._pool.acquire(timeout=self._timeout_s)
        except _BROKEN as error:
            raise StoreUnavailable("The database gives no connection at the moment; try again.") from error
        except asyncio.CancelledError:
            if not self.size:  # a request's deadline may be shorter than it takes to connect
                self.liveness.start()
            raise

    @contextlib.asynccontextmanager
    async def transaction(self, tenant: UUID | None) -> AsyncIterator[PoolConnectionProxy[Any]]:
        """A transaction that sees the rows of one tenant; with None, only what belongs to no tenant."""
        async with self.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            async with contextlib.AsyncExitStack() as undo:
                undo.push_async_callback(self._roll_back, connection, transaction)
                if tenant is not None:
                    await connection.execute(self.naming(tenant))
                if (patience := patience_now()) is not None:
                    patience.answered()
                yield connection
                undo.pop_all()
            await transaction.commit()

    async def _roll_back(self, connection: PoolConnectionProxy[Any], transaction: Transaction) -> None:
        """Roll back within a limit, where `connection.transaction()` waits for a frozen backend as long as for a statement."""
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await transaction.rollback()
        except _BROKEN as error:
            _terminate(connection)
            self._suspect(error)

    def _suspect(self, error: BaseException) -> None:
        """Have the connections probed where a backend has confirmed neither a cancellation nor a rollback."""
        if isinstance(error, TimeoutError):
            self.liveness.start()

    def naming(self, tenant: UUID) -> str:
        """The statement by which a transaction says whose rows it may see."""
        return self._set_tenant.replace("__tenant__", str(UUID(int=tenant.int)))  # an id, whatever else says it is one

    async def expire(self) -> None:
        """Replace every connection when it is next asked for."""
        await self._pool.expire_connections()

    async def probe_idle(self) -> list[bool]:
        """Ask the backends of all idle connections for an answer, side by side, and drop the connections of those that give
        none. Return for each that was asked whether it answered."""
        answers = await asyncio.gather(*(self._probe_connection() for _ in range(self.idle)))
        return [answer for answer in answers if answer is not None]

    async def _probe_connection(self) -> bool | None:
        """Return whether the backend of a connection answers; None: there was no connection to ask."""
        try:
            connection = await self._pool.acquire(timeout=PROBE_S)
        except (*_BROKEN, NotReady):
            # Others may have taken the idle ones meanwhile, which says nothing about the backends.
            return None
        try:
            # asyncpg's own limit: an answer that has come counts, even where this process is late to read it.
            await connection.execute(self._probe_statement, timeout=PROBE_S)
        except _BROKEN as error:
            logger.info("a connection was dropped, for its backend does not answer: %r", error)
            _terminate(connection)
            return False
        finally:
            await self._release(connection)
        return True

    def drop_stuck(self) -> None:
        """Drop the connections that have been in use for SUSPECT_S: their statements fail as on a lost connection."""
        taken_before = asyncio.get_running_loop().time() - SUSPECT_S
        for connection in [connection for connection, taken_at in self._in_use.items() if taken_at <= taken_before]:
            logger.info("a connection was dropped in use, for no backend of its pool answers")
            _terminate(connection)

    async def reopen(self) -> None:
        """Open a connection where the pool has none."""
        if self.size:
            return
        try:
            await self._release(await self._pool.acquire(timeout=REOPEN_S))
        except (*_BROKEN, NotReady) as error:
            logger.info("no connection could be opened: %r", error)

    async def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Close every connection; those still in use after `timeout_s` seconds are cut."""
        await self.liveness.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self._pool.close()
        except _BROKEN as error:
            # asyncpg has terminated the pool by now.
            logger.warning("connections were cut when the pool closed: %s", str(error) or "still in use")

    async def _release(self, connection: PoolConnectionProxy[Any]) -> None:
        try:
            await self._pool.release(connection, timeout=RELEASE_TIMEOUT_S)
        except _BROKEN as error:
            # What was asked for is done or has failed already; asyncpg has dropped the connection.
            logger.info("a connection was dropped: %r", error)
            self._suspect(error)


class UserRows(Struct, frozen=True):
    """The rows of one user, within the caller's transaction: statements by name, whose first arguments are tenant and user."""

    connection: Any
    """A pool's, or an asyncpg.Connection of the caller's own."""
    sql: Queries
    tenant: UUID
    user: UUID

    async def run(self, name: str, *arguments: object) -> None:
        await self.connection.execute(self.sql[name], self.tenant, self.user, *arguments)

    async def value(self, name: str, *arguments: object) -> Any:
        return await self.connection.fetchval(self.sql[name], self.tenant, self.user, *arguments)

    async def row(self, name: str, *arguments: object) -> Any:
        return await self.connection.fetchrow(self.sql[name], self.tenant, self.user, *arguments)

    async def rows(self, name: str, *arguments: object) -> list[Any]:
        found: list[Any] = await self.connection.fetch(self.sql[name], self.tenant, self.user, *arguments)
        return found


class NoPool(Pool):
    """Of a database that has not been there yet: gives no connection, and lets nobody wait for one."""

    def __init__(self) -> None:
        self.failed_over = self.expire

    @property
    def size(self) -> int:
        return 0

    @property
    def idle(self) -> int:
        return 0

    @contextlib.asynccontextmanager
    async def _acquired(self) -> AsyncIterator[PoolConnectionProxy[Any]]:
        raise StoreUnavailable("The database has not been there yet; try again.")
        yield  # what makes a generator of it

    async def expire(self) -> None:
        pass

    async def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        pass


async def open_pool(
    dsn: str,
    *,
    size: int,
    open_at_once: int = 1,
    timeout_ms: int,
    statement_timeout_ms: int,
    statement_cache_size: int,
    role: str | None,
    application_name: str = "mneme",
) -> Pool:
    """A pool of `size` connections, each of them in the role `role` (None: as the login is).

    `open_at_once`: how many are opened now; the others when all that are open are in use. With 0, a server that is away is
    no error.
    `timeout_ms`: wait for a connection. `statement_timeout_ms`: longest statement. With `statement_cache_size` 0 (behind
    PgBouncer in transaction mode) no session settings are sent: the login itself must have role and search_path, and
    only we keep the time of a statement. Raises StoreUnavailable when the server cannot be reached, NotReady when it
    refuses us or the role is not ours.
    """
    queries = Queries.load()
    sessions_are_ours = statement_cache_size > 0

    async def prepare(connection: asyncpg.Connection[asyncpg.Record]) -> None:
        try:
            await _prepare(connection, queries, role, sessions_are_ours=sessions_are_ours)
        except (Exception, asyncio.CancelledError):
            # asyncpg would close the connection politely, which a frozen backend never answers.
            connection.terminate()
            raise

    session = {"application_name": application_name}
    if sessions_are_ours:
        session |= {**SESSION, "statement_timeout": str(statement_timeout_ms)}
    try:
        pool = await asyncpg.create_pool(
            dsn,
            min_size=0,
            init_size=min(open_at_once, size),
            max_size=size,
            max_inactive_connection_lifetime=0,  # a reconnect takes longer than all queries of a request
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=statement_timeout_ms / 1000 + COMMAND_GRACE_S,
            statement_cache_size=statement_cache_size,
            server_settings=session,
            init=prepare,
            reset=_keep_session,
        )
    except REFUSED as error:
        raise NotReady(f"The database refuses us: {error}. Look at MNEME_DATABASE_URL.") from error
    except _BROKEN as error:
        raise StoreUnavailable(f"The database cannot be reached: {str(error) or 'no answer'}.") from error
    return Pool(pool, queries, timeout_ms / 1000)


@contextlib.asynccontextmanager
async def command_pool(settings: Settings, dsn: str) -> AsyncIterator[Pool]:
    """One connection as the application's role, for a command: it does one thing after the other."""
    pool = await open_pool(
        dsn,
        size=1,
        timeout_ms=POOL_WAIT_MS,
        statement_timeout_ms=STATEMENT_TIMEOUT_MS,
        statement_cache_size=settings.statement_cache_size,
        role=APP_ROLE,
    )
    try:
        yield pool
    finally:
        await pool.close()


async def reach(dsn: str, wait_s: float) -> asyncpg.Connection[asyncpg.Record]:
    """A connection, as soon as there is one to be had, for `wait_s` seconds at most. Raises NotReady."""
    deadline = time.monotonic() + wait_s
    told = False
    while True:
        try:
            return await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT_S)
        except AWAY as error:
            reason = why(error)
            if not isinstance(error, _NOT_YET) or time.monotonic() + AGAIN_S > deadline:
                raise NotReady(f"The database cannot be reached: {reason}. Look at MNEME_DATABASE_URL.") from error
            if not told:
                logger.warning("waiting for the database", extra={"seconds": wait_s, "error": reason})
                told = True
        await asyncio.sleep(AGAIN_S)


def why(error: Exception) -> str:
    """What it was, in words: not every error has some."""
    return str(error) or type(error).__name__


async def set_codecs(connection: asyncpg.Connection[asyncpg.Record], vector_schema: str | None) -> None:
    """How values travel.

    json, jsonb: any Python value out; in, any value that orjson takes, but a `str` is JSON text that is ready.
    uuid: asyncpg's own kind of uuid.UUID, which is read nine times as fast; orjson writes it with `default=plain`. In also as
    text.
    vector, halfvec: float32 arrays of one dimension out; in, anything of one dimension that numpy takes, or bytes that
    are ready (`halfvec`).
    """
    for name in ("json", "jsonb"):
        await connection.set_type_codec(name, schema="pg_catalog", encoder=_json_text, decoder=orjson.loads)
    if vector_schema is None:
        return
    for name, kind in (("vector", ">f4"), ("halfvec", ">f2")):
        encoder, decoder = partial(_packed, kind=kind), partial(_unpacked, kind=kind)
        await connection.set_type_codec(name, schema=vector_schema, encoder=encoder, decoder=decoder, format="binary")


async def _prepare(
    connection: asyncpg.Connection[asyncpg.Record], queries: Queries, role: str | None, *, sessions_are_ours: bool
) -> None:
    """Set up a new connection. Raises NotReady when it cannot become `role`."""
    found = await connection.fetchrow(queries["pool.greet"], role)
    assert found is not None  # a query without FROM has one row
    await set_codecs(connection, found["vector_schema"])
    login = found["login"]
    if role is not None and not found["is_role"]:
        if not found["may_become"]:
            raise NotReady(
                f"The login {login} is no member of the role {role}: run `mneme migrate`, or `GRANT {role} TO {login}`."
            )
        if not sessions_are_ours:
            raise NotReady(
                f"With MNEME_STATEMENT_CACHE_SIZE=0 sessions are not ours to change: run `ALTER ROLE {login} SET role = "
                f"'{role}'` and `ALTER ROLE {login} SET search_path = {SESSION['search_path']}`."
            )
        await connection.execute(queries["pool.become"], role)
    elif not sessions_are_ours and found["has_schema"] and not found["finds_schema"]:
        raise NotReady(
            "With MNEME_STATEMENT_CACHE_SIZE=0 sessions are not ours to change: run "
            f"`ALTER ROLE {login} SET search_path = {SESSION['search_path']}`."
        )


async def _keep_session(_: asyncpg.Connection[asyncpg.Record]) -> None:
    """Instead of asyncpg's `RESET ALL`; an open transaction is rolled back before this is called."""


def _terminate(connection: PoolConnectionProxy[Any]) -> None:
    with contextlib.suppress(asyncpg.InterfaceError):  # asyncpg took it back when it broke
        connection.terminate()


def _is_gone(connection: PoolConnectionProxy[Any]) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True  # asyncpg took it back when it broke


def _json_text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=plain).decode()


def halfvec(value: ArrayLike) -> bytes:
    """A vector as it goes over the wire. Needed inside arrays, where asyncpg takes a numpy array for a nested array."""
    return _packed(value, ">f2")


def _packed(value: ArrayLike | bytes, kind: str) -> bytes:
    if isinstance(value, bytes):
        return value
    array = np.asarray(value, dtype=kind)
    if array.ndim != 1:
        raise ValueError(f"a vector has one dimension, not {array.ndim}")
    return _VECTOR_HEAD.pack(len(array), 0) + array.tobytes()


def _unpacked(value: bytes, kind: str) -> NDArray[np.float32]:
    return np.frombuffer(value, dtype=kind, offset=_VECTOR_HEAD.size).astype(np.float32)


# --- the pools of a process (seed 000 §11.1), and reads of one user ------------------------------------------------------
# A standby may answer reads in place of the primary (a feature, `replicas`). Pools do not wait for each other's
# connections: slow searches and imports cannot keep a turn from being recorded, and recording cannot keep a prompt from
# being compiled.

Result = Literal["replica", "behind", "late", "failed", "suspended", "busy", "unmarked"]
"""What came of a read. `replica`: a standby answered; else the primary did. `behind`: the standby lacks a write of this user's,
or has one that came since; `late`: it took too long; `failed`: it gave no answer; `suspended`: none was asked, because of such
failures; `busy`: more marks than are compared; `unmarked`: nothing is marked, so nothing can be told."""
Meter = Callable[[str, str, Result], None]
"""Told of each read: the pool, the server, the result."""
POOL_NAMES = ("write", "history", "memory", "background")
STANDBYS = ("history", "memory")
"""Pools that may be read from standbys: no other only reads."""


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


class Replicated(Reads, Protocol):
    """Reads from standbys, where these have what is asked for."""

    meter: Meter
    wait_s: float
    """Longest that a standby is waited for."""

    @property
    def pools(self) -> Sequence[Pool]:
        """Connections to the standbys."""

    async def close(self) -> None:
        """Close them, and what nobody waits for any more."""


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
    replicas: Mapping[str, Replicated] = field(default_factory=dict)
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


async def _close(pools: Mapping[str, Pool], replicas: Mapping[str, Replicated]) -> None:
    closing = [each.close() for each in pools.values()] + [each.close() for each in replicas.values()]
    await asyncio.gather(*closing)


class OtherServers(Struct, frozen=True):
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
    elsewhere: OtherServers | None = None,
    open_at_once: int = 1,
) -> Pools:
    """A pool for each of POOL_NAMES that has limits; the others' work is done by `background`. Raises as `open_pool`; a standby
    that is not there keeps nobody from starting. `open_at_once`: connections of each that are opened now."""
    opened: dict[str, Pool] = {}
    others = elsewhere or OtherServers()

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

    replicas: dict[str, Replicated] = {}
    async with contextlib.AsyncExitStack() as undo:
        undo.push_async_callback(_close, opened, replicas)
        for name, limit in limits.items():
            own = dsn if name in STANDBYS else others.urls.get(name, dsn)
            opened[name] = await one(own, name, limit, open_at_once)
        for name in STANDBYS:
            if name in limits and name in others.urls:
                reading = needed("replicas", f"MNEME_DATABASE_{name.upper()}_URL")
                opener = partial(one, name=name, limit=limits[name], open_at_once=0)
                replicas[name] = await reading.open_replicas(
                    name, opened[name], others.urls[name], opener, others.wait_s
                )
        undo.pop_all()
    by_name = {name: opened.get(name, opened["background"]) for name in POOL_NAMES}
    pools = Pools(**by_name, replicas=replicas)
    liveness = LivenessProbe()
    liveness.pools = list(opened.values())
    for pool in opened.values():
        pool.failed_over = pools.expire
        pool.liveness = liveness
    return pools
