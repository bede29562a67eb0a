"""What changing the embedder needs of the store: a second space, what has no vector in it yet, and the end of the first.

Nobody who writes turns waits for it: indexes are built concurrently, partition by partition, and vectors come in batches. What
concerns all tenants is done as mneme_owner, what concerns one user under row-level security.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import asyncpg
from msgspec import Struct

from app.errors import Conflict, NotFound, NotReady, StoreUnavailable
from app.store.pools import Pool, halfvec
from app.store.queries import Queries
from app.store.records import Vector

if TYPE_CHECKING:
    from asyncpg import Connection

USERS_AT_ONCE = 200
"""Users counted in one statement: a second or so where each has thousands of messages."""

IDS_AT_ONCE = 50_000
"""Ids of a user's items read at once, some 2 MB: the user's whole history is looked through for each such part."""

DROP_AT_ONCE = 5000
"""Vectors deleted in one transaction: locks stay short."""

STATEMENT_S = 3600.0
"""Longest statement, seconds: an index over millions of vectors."""

_GONE = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.OperatorInterventionError)

Connect = Callable[[], Awaitable["Connection[Any]"]]
"""Opens a direct connection as mneme_owner."""


class VectorSpace(NamedTuple):
    """An embedding space, and how many vectors are in it."""

    space: int
    name: str
    dimensions: int
    created_at: datetime
    vectors: int


class MissingVectors(NamedTuple):
    """How many items of a user have no vector in the space."""

    user_id: UUID
    tenant_id: UUID
    items: int


class ItemRef(NamedTuple):
    """An item that lacks a vector. `kind`: 0 message, 1 memory; `at`: when it was made."""

    kind: int
    id: UUID
    at: datetime


class ReembedItem(Struct, frozen=True):
    """The same with its words. `hash`: of them; None for a message without any."""

    kind: int
    id: UUID
    at: datetime
    text: str
    hash: bytes | None


class VectorSpaces:
    """The spaces of a database, as the one who may make and drop them. Made by `open_spaces`."""

    def __init__(self, connection: Connection[Any], sql: Queries) -> None:
        self._connection = connection
        self._sql = sql

    async def all(self) -> list[VectorSpace]:
        """Every space, oldest first."""
        rows = await self._connection.fetch(self._sql["reembed.spaces"], timeout=STATEMENT_S)
        return [VectorSpace(**dict(row)) for row in rows]

    async def lock(self) -> None:
        """Be the only one who changes spaces, until the connection ends. Raises Conflict where somebody else does."""
        if not await self._connection.fetchval(self._sql["reembed.alone"]):
            raise Conflict("Another `mneme reembed` is at work on this database.")

    async def add(self, name: str, dimensions: int, progress: Callable[[str], None] = lambda _: None) -> int:
        """The number of a space, made with its indexes where it is missing; turns are written meanwhile. Raises NotReady
        where it has other dimensions."""
        row = await self._connection.fetchrow(self._sql["reembed.register"], name, dimensions)
        assert row is not None, "an upsert returns its row"
        if row["dimensions"] != dimensions:
            raise NotReady(f"The space {name} has {row['dimensions']} dimensions, not {dimensions}.")
        number: int = row["space"]
        for each in await self._connection.fetch(self._sql["reembed.index_statements"], number, dimensions):
            progress(each["statement"].partition(" ON ")[0])
            await self._connection.execute(each["statement"], timeout=STATEMENT_S)
        await self._connection.execute(self._sql["turns.ensure_space"], name, dimensions, timeout=STATEMENT_S)
        return number

    async def lacking(self, space: int) -> list[MissingVectors]:
        """The users who have items without a vector in the space."""
        found: list[MissingVectors] = []
        after: UUID | None = None
        while True:
            rows = await self._connection.fetch(
                self._sql["reembed.users_lacking"], space, after, USERS_AT_ONCE, timeout=STATEMENT_S
            )
            found += [
                MissingVectors(row["user_id"], row["tenant_id"], row["lacking"]) for row in rows if row["lacking"]
            ]
            if len(rows) < USERS_AT_ONCE:
                return found
            after = rows[-1]["user_id"]

    async def clear_jobs(self) -> None:
        """Take away what an earlier run left in the queue."""
        await self._connection.execute(self._sql["reembed.clear"])

    async def jobs(self) -> tuple[int, int]:
        """How many jobs are still to be done, and how many failed for good."""
        row = await self._connection.fetchrow(self._sql["reembed.jobs"])
        assert row is not None, "an aggregate has one row"
        return row["open"], row["dead"]

    async def drop(self, name: str, keep: str, progress: Callable[[int], None] = lambda _: None) -> int:
        """Drop a space; how many vectors went. What was begun goes on when it is asked again. Raises NotFound for a space that
        is none, Conflict for `keep`, and where anything has a vector in it and none in `keep`."""
        spaces = {each.name: each for each in await self.all()}
        if name not in spaces:
            raise NotFound(f"There is no space {name!r}; there are {', '.join(spaces) or 'none'}.")
        if name == keep:
            raise Conflict(f"{name} is the space of the embedder that the settings name.")
        if keep not in spaces:
            raise Conflict(f"There is nothing yet in {keep}, the space of the settings: run `mneme reembed` first.")
        old, new = spaces[name].space, spaces[keep].space
        left = await self._connection.fetchval(
            self._sql["reembed.only_in"], old, new, DROP_AT_ONCE, timeout=STATEMENT_S
        )
        if left:
            many = f"{left} items" if left < DROP_AT_ONCE else f"{left} items or more"
            raise Conflict(f"{many} have a vector in {name} and none in {keep}: run `mneme reembed` first.")
        total = 0
        while gone := await self._connection.fetchval(
            self._sql["reembed.drop_vectors"], old, DROP_AT_ONCE, timeout=STATEMENT_S
        ):
            total += gone
            progress(gone)
        await self._connection.execute(self._sql["reembed.drop_space"], old, timeout=STATEMENT_S)
        return total


@asynccontextmanager
async def open_spaces(connect: Connect, sql: Queries) -> AsyncIterator[VectorSpaces]:
    """The spaces of a database, on a connection of their own. Raises StoreUnavailable."""
    try:
        connection = await connect()
    except (*_GONE, asyncpg.PostgresError) as error:
        raise StoreUnavailable(f"The database cannot be reached as mneme_owner: {error}.") from error
    try:
        yield VectorSpaces(connection, sql)
    except _GONE as error:
        raise StoreUnavailable("The connection to the database was lost; run it again, and it goes on.") from error
    finally:
        connection.terminate()


class ReembedStore:
    """What a job reads and writes of one user."""

    def __init__(self, pool: Pool, sql: Queries, space: int) -> None:
        self._pool = pool
        self._sql = sql
        self._space = space

    async def epoch(self, tenant: UUID, user: UUID) -> int | None:
        """Which life of the user this is; None: there is none."""
        async with self._pool.transaction(tenant) as connection:
            found: int | None = await connection.fetchval(self._sql["reembed.epoch"], user)
        return found

    async def lacking(self, tenant: UUID, user: UUID, after: ItemRef | None) -> list[ItemRef]:
        """The next items without a vector, at most `IDS_AT_ONCE`."""
        place = (after.kind, after.at, after.id) if after is not None else (None, None, None)
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["reembed.lacking"], user, self._space, *place, IDS_AT_ONCE)
        return [ItemRef(row["kind"], row["id"], row["at"]) for row in rows]

    async def texts(self, tenant: UUID, user: UUID, items: Sequence[ItemRef]) -> list[ReembedItem]:
        """The words of items, as far as they are still there."""
        messages = [each.id for each in items if each.kind == 0]
        memories = [each.id for each in items if each.kind == 1]
        ats = [each.at for each in items]
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["reembed.texts"], user, messages, memories, min(ats), max(ats))
        return [ReembedItem(**dict(row)) for row in rows]

    async def add(
        self, tenant: UUID, user: UUID, epoch: int, items: Sequence[ReembedItem], vectors: Sequence[Vector]
    ) -> int | None:
        """Write the vectors of items that are still what they were; how many. None: the user was erased meanwhile."""
        async with self._pool.transaction(tenant) as connection:
            added: int | None = await connection.fetchval(
                self._sql["reembed.add"],
                tenant, user, self._space, epoch, [each.kind for each in items], [each.id for each in items],
                [each.at for each in items], [each.hash for each in items], [halfvec(each) for each in vectors],
            )  # fmt: skip
        return added
