"""`mneme reembed`: all vectors are brought into the space of the embedder that the settings name, while the server runs.

    add the space, its indexes built concurrently ─> a job for each user who lacks vectors in it ─> again, for what was said
    meanwhile, until nearly nothing is left ─> the server is restarted with these settings ─> once more, for what was said
    in between ─> `--drop` the old space

Both spaces are kept until then, and a search uses the one of its server's settings. Stopped, it goes on when asked again. The
jobs run in the command's own process, because that one knows the new embedder; the worker's has the old one.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import asyncpg
import click
import orjson
from msgspec import Struct
from msgspec.structs import asdict
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.console import failing_clearly, load_settings, show, with_database
from app.errors import BadBody, Conflict, NotFound, NotReady, StoreUnavailable, Unavailable
from app.jobs.worker import JOB_ATTEMPTS, Worker, connector
from app.providers.embeddings import Embedder, blank, build_embedder
from app.settings import Settings
from app.store.erasure import own_connection
from app.store.pools import (
    APP_ROLE,
    BACKGROUND_POOL_WAIT_MS,
    BACKGROUND_STATEMENT_TIMEOUT_MS,
    OWNER_ROLE,
    Pool,
    halfvec,
    open_pool,
)
from app.store.queries import Queries
from app.store.queue import Queue
from app.store.records import JobRecord, Vector
from app.tasks import CLOSING_S, Supervisor

if TYPE_CHECKING:
    from asyncpg import Connection

# --- what it needs of the store ------------------------------------------------------------------------------------------
#
# Nobody who writes turns waits for it: indexes are built concurrently, partition by partition, and vectors come in batches.
# What concerns all tenants is done as mneme_owner, what concerns one user under row-level security.

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


class _VectorSpace(NamedTuple):
    """An embedding space, and how many vectors are in it."""

    space: int
    name: str
    dimensions: int
    created_at: datetime
    vectors: int


class _MissingVectors(NamedTuple):
    """How many items of a user have no vector in the space."""

    user_id: UUID
    tenant_id: UUID
    items: int


class _ItemRef(NamedTuple):
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


class _VectorSpaces:
    """The spaces of a database, as the one who may make and drop them. Made by `_open_spaces`."""

    def __init__(self, connection: Connection[Any], sql: Queries) -> None:
        self._connection = connection
        self._sql = sql

    async def all(self) -> list[_VectorSpace]:
        """Every space, oldest first."""
        rows = await self._connection.fetch(self._sql["reembed.spaces"], timeout=STATEMENT_S)
        return [_VectorSpace(**dict(row)) for row in rows]

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

    async def lacking(self, space: int) -> list[_MissingVectors]:
        """The users who have items without a vector in the space."""
        found: list[_MissingVectors] = []
        after: UUID | None = None
        while True:
            rows = await self._connection.fetch(
                self._sql["reembed.users_lacking"], space, after, USERS_AT_ONCE, timeout=STATEMENT_S
            )
            found += [
                _MissingVectors(row["user_id"], row["tenant_id"], row["lacking"]) for row in rows if row["lacking"]
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
async def _open_spaces(connect: Connect, sql: Queries) -> AsyncIterator[_VectorSpaces]:
    """The spaces of a database, on a connection of their own. Raises StoreUnavailable."""
    try:
        connection = await connect()
    except (*_GONE, asyncpg.PostgresError) as error:
        raise StoreUnavailable(f"The database cannot be reached as mneme_owner: {error}.") from error
    try:
        yield _VectorSpaces(connection, sql)
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

    async def lacking(self, tenant: UUID, user: UUID, after: _ItemRef | None) -> list[_ItemRef]:
        """The next items without a vector, at most `IDS_AT_ONCE`."""
        place = (after.kind, after.at, after.id) if after is not None else (None, None, None)
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["reembed.lacking"], user, self._space, *place, IDS_AT_ONCE)
        return [_ItemRef(row["kind"], row["id"], row["at"]) for row in rows]

    async def texts(self, tenant: UUID, user: UUID, items: Sequence[_ItemRef]) -> list[ReembedItem]:
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


# --- the command ---------------------------------------------------------------------------------------------------------

REEMBED = "reembed"
"""The entrypoint. No worker but the command's own has it."""

EMBEDDED_AT_ONCE = 256
"""Items embedded and committed together: one request to an embeddings endpoint (`OpenAIEmbedder.MAX_BATCH_TEXTS`)."""

CONCURRENCY = 2
"""Users at once: one whose texts are embedded, and one whose vectors are written."""
SETTLED = EMBEDDED_AT_ONCE
"""Items that a pass may leave to the last one, after the restart: one batch, which a running server has written meanwhile."""
MAX_PASSES = 20
"""Passes while a server keeps writing; each has only what was written during the one before."""
LOOK_S = 0.1
"""Seconds between two looks at the queue."""
ENQUEUE_AT_ONCE = 1000
"""Jobs put into the queue by one statement."""


class ReembedResult(Struct, frozen=True):
    """What came of it. `wordless`: items without any words, which have no vector in any space; `left`: items written since."""

    space: str
    dimensions: int
    embedded: int
    wordless: int
    left: int
    spaces: list[_VectorSpace]


class RunProgress(Struct):
    """Told how it goes: `step` says what is being done, `more` how many items there are to do, `done` how many were."""

    step: Callable[[str], None] = lambda _: None
    more: Callable[[int], None] = lambda _: None
    done: Callable[[int], None] = lambda _: None


async def spaces_of(dsn: str) -> list[_VectorSpace]:
    """The spaces that there are. Raises StoreUnavailable."""
    async with _open_spaces(own_connection(dsn, OWNER_ROLE), Queries.load()) as spaces:
        return await spaces.all()


async def drop_space(settings: Settings, dsn: str, name: str, watch: RunProgress) -> int:
    """Drop a space that is not the settings' own; how many vectors went. Raises NotFound, Conflict, StoreUnavailable."""
    embedder = build_embedder(settings)
    try:
        async with _open_spaces(own_connection(settings.direct(dsn), OWNER_ROLE), Queries.load()) as spaces:
            await spaces.lock()
            return await spaces.drop(name, embedder.space, watch.done)
    finally:
        await embedder.close()


async def bring_over(
    settings: Settings, dsn: str, watch: RunProgress, *, attempts: int = JOB_ATTEMPTS
) -> ReembedResult:
    """Give everything a vector in the space of the settings' embedder; each job is tried `attempts` times. Raises NotReady
    where that is none, Conflict where somebody else is at it, Unavailable where users are left, StoreUnavailable."""
    sql, embedder = Queries.load(), build_embedder(settings)
    try:
        if not embedder.dimensions:
            raise NotReady("MNEME_EMBEDDER=none makes no vectors: name the embedder to change to.")
        await embedder.embed(["Does it answer, and with as many dimensions as the settings say?"])
        async with _open_spaces(own_connection(settings.direct(dsn), OWNER_ROLE), sql) as spaces:
            await spaces.lock()
            pool = await open_pool(
                dsn,
                size=2 * CONCURRENCY,
                timeout_ms=BACKGROUND_POOL_WAIT_MS,
                statement_timeout_ms=BACKGROUND_STATEMENT_TIMEOUT_MS,
                statement_cache_size=settings.statement_cache_size,
                role=APP_ROLE,
            )
            try:
                return await _Run(settings, dsn, sql, spaces, pool, embedder, watch, attempts).run()
            finally:
                await pool.close()
    finally:
        await embedder.close()


class _Run(Struct):
    """One run, which holds the lock."""

    settings: Settings
    dsn: str
    sql: Queries
    spaces: _VectorSpaces
    pool: Pool
    embedder: Embedder
    watch: RunProgress
    attempts: int

    async def run(self) -> ReembedResult:
        self.watch.step("adding the space")
        space = await self.spaces.add(self.embedder.space, self.embedder.dimensions, self.watch.step)
        await self.spaces.clear_jobs()
        doing = Reembedder(ReembedStore(self.pool, self.sql, space), self.embedder, self.watch.done)
        stop, tasks = asyncio.Event(), Supervisor()
        working = tasks.spawn(self._worker(doing).run(stop), "reembedding")
        try:
            for _ in range(MAX_PASSES):
                self.watch.step("looking for what has no vector")
                lacking = await self._lacking(space, doing)
                if not lacking:
                    break
                items = sum(each.items for each in lacking)
                self.watch.more(items)
                self.watch.step("embedding")
                await self._pass(space, lacking, working)
                if items <= SETTLED:
                    break
        finally:
            stop.set()
            await asyncio.wait([working], timeout=2 * CLOSING_S)
            await tasks.close(CLOSING_S)
        return ReembedResult(
            space=self.embedder.space,
            dimensions=self.embedder.dimensions,
            embedded=doing.embedded,
            wordless=sum(len(each) for each in doing.wordless.values()),
            left=sum(each.items for each in await self._lacking(space, doing)),
            spaces=await self.spaces.all(),
        )

    def _worker(self, doing: Reembedder) -> Worker:
        return Worker(
            connect=connector(self.settings.direct(self.dsn), role=APP_ROLE, name="mneme reembed"),
            sql=self.sql,
            handlers={REEMBED: doing.reembed},
            lease_s=self.settings.job_lease_s,
            attempts=self.attempts,
            grace_s=CLOSING_S,
            concurrency=CONCURRENCY,
        )

    async def _lacking(self, space: int, doing: Reembedder) -> list[_MissingVectors]:
        """The users with items that lack a vector, but for those that are known to have no words."""
        found = await self.spaces.lacking(space)
        known = [each._replace(items=each.items - len(doing.wordless.get(each.user_id, ()))) for each in found]
        return [each for each in known if each.items > 0]

    async def _pass(self, space: int, lacking: list[_MissingVectors], working: asyncio.Task[None]) -> None:
        """Have the jobs of these users done. Raises Unavailable where some failed for good, or nobody works on them."""
        queue = Queue(self.pool, self.sql)
        for at in range(0, len(lacking), ENQUEUE_AT_ONCE):
            async with self.pool.acquire() as connection:
                jobs = [reembed_job(each.tenant_id, each.user_id, space) for each in lacking[at : at + ENQUEUE_AT_ONCE]]
                await queue.enqueue(connection, jobs)
        while True:
            waiting, dead = await self.spaces.jobs()
            if not waiting:
                break
            if working.done():
                raise Unavailable("The embedding has stopped by itself. Run it again, and it goes on.")
            await asyncio.sleep(LOOK_S)
        if dead:
            raise Unavailable(
                f"{dead} users could not be embedded: the embedder or the database failed too often, as the queue's dead"
                " letters say. Run it again, and it goes on."
            )


def reembed_job(tenant: UUID, user: UUID, space: int) -> JobRecord:
    payload = orjson.dumps({"tenant": str(tenant), "user": str(user)})
    return JobRecord(REEMBED, payload, f"{REEMBED}:{space}:{user}", 0.0)


class Reembedder:
    """Does `reembed` jobs: vectors of one user's items, batch by batch. No connection is held while texts are embedded, and
    each batch is committed by itself.

    `embedded`: vectors written; `wordless`: items by user that get none, having no words. `progress`: told how many items were
    dealt with just now."""

    def __init__(
        self, store: ReembedStore, embedder: Embedder, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._progress = progress
        self.embedded = 0
        self.wordless: defaultdict[UUID, set[UUID]] = defaultdict(set)

    async def reembed(self, payload: bytes) -> None:
        """Embed what of a user has no vector yet. Raises `BadBody` for a payload that is none, `Unavailable` and
        `StoreUnavailable` for what may work later."""
        try:
            fields = orjson.loads(payload)
            tenant, user = UUID(fields["tenant"]), UUID(fields["user"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadBody("This job's payload cannot be read.") from error
        epoch = await self._store.epoch(tenant, user)
        after: _ItemRef | None = None
        while epoch is not None and (items := await self._store.lacking(tenant, user, after)):
            for at in range(0, len(items), EMBEDDED_AT_ONCE):
                if not await self._batch(tenant, user, epoch, items[at : at + EMBEDDED_AT_ONCE]):
                    return
            after = items[-1]

    async def _batch(self, tenant: UUID, user: UUID, epoch: int, refs: list[_ItemRef]) -> bool:
        """False: the user was erased meanwhile."""
        items = await self._store.texts(tenant, user, refs)
        if items:
            vectors = await self._embedder.embed([each.text for each in items])
            empty = blank(vectors)
            self.wordless[user] |= {each.id for each, none in zip(items, empty, strict=True) if none}
            worded = [(each, vector) for each, vector, none in zip(items, vectors, empty, strict=True) if not none]
            added = await self._store.add(
                tenant, user, epoch, [each for each, _ in worded], [vector for _, vector in worded]
            )
            if added is None:
                return False
            self.embedded += added
        self._progress(len(refs))
        return True


@click.command()
@click.option("--status", is_flag=True, help="Only say which spaces there are, and how many vectors each has.")
@click.option("--drop", metavar="SPACE", help="Drop a space that is not used any more.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@failing_clearly
def reembed(status: bool, drop: str | None, as_json: bool) -> None:
    """Give everything a vector of the embedder that the settings name, while the server runs with the old one.

    Run it with the new MNEME_EMBEDDER…; then restart the server with these settings; then run it once more, for what was said
    in between; then drop the old space. Stopped, it goes on where it was.
    """
    if status and drop is not None:
        raise click.UsageError("--status and --drop do not go together.")
    settings = load_settings()
    if status:
        spaces = with_database(settings, lambda dsn: spaces_of(settings.direct(dsn)))
        show({"spaces": [_told(each) for each in spaces]}, as_json, lambda: _list(spaces))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=0)
        total = 0

        def more(items: int) -> None:
            nonlocal total
            total += items
            progress.update(bar, total=total)

        watch = RunProgress(
            step=lambda text: progress.update(bar, description=text),
            more=more,
            done=lambda items: progress.advance(bar, items),
        )
        if drop is not None:
            name = drop
            watch.step("dropping")
            gone = with_database(settings, lambda dsn: drop_space(settings, dsn, name, watch))
        else:
            result = with_database(settings, lambda dsn: bring_over(settings, dsn, watch))
    if drop is not None:
        show(
            {"dropped": drop, "vectors": gone},
            as_json,
            lambda: click.echo(f"The space {drop} is gone, with {gone} vectors."),
        )
        return
    told = asdict(result) | {"spaces": [_told(each) for each in result.spaces]}

    def text() -> None:
        click.echo(f"{result.embedded} vectors were made in {result.space}.")
        if result.left:
            click.echo(f"{result.left} items were written meanwhile and have none yet.")
        others = [each.name for each in result.spaces if each.name != result.space and each.vectors]
        if others:
            click.echo(
                "Now restart the server with these settings, run `mneme reembed` once more, and then drop what is"
            )
            click.echo("not used any more: " + ", ".join(f"`mneme reembed --drop {each}`" for each in others))

    show(told, as_json, text)


def _told(space: _VectorSpace) -> dict[str, Any]:
    return {name: getattr(space, name) for name in ("name", "dimensions", "vectors", "created_at")}


def _list(spaces: list[_VectorSpace]) -> None:
    for each in spaces:
        click.echo(f"{each.name}: {each.vectors} vectors of {each.dimensions} dimensions")
