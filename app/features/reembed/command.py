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
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import click
import orjson
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.console import failing_clearly, load_settings, show, with_database
from app.errors import BadBody, NotReady, Unavailable
from app.features.reembed.store import ItemRef, MissingVectors, ReembedStore, VectorSpace, VectorSpaces, open_spaces
from app.jobs.worker import Worker, connector
from app.providers.embeddings import Embedder, blank, build_embedder
from app.settings import Settings
from app.store.erasure import own_connection
from app.store.pools import APP_ROLE, OWNER_ROLE, Pool, open_pool
from app.store.queries import Queries
from app.store.queue import Queue
from app.store.records import JobRecord
from app.tasks import CLOSING_S, Supervisor

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
    spaces: list[VectorSpace]


class RunProgress(Struct):
    """Told how it goes: `step` says what is being done, `more` how many items there are to do, `done` how many were."""

    step: Callable[[str], None] = lambda _: None
    more: Callable[[int], None] = lambda _: None
    done: Callable[[int], None] = lambda _: None


async def spaces_of(dsn: str) -> list[VectorSpace]:
    """The spaces that there are. Raises StoreUnavailable."""
    async with open_spaces(own_connection(dsn, OWNER_ROLE), Queries.load()) as spaces:
        return await spaces.all()


async def drop_space(settings: Settings, dsn: str, name: str, watch: RunProgress) -> int:
    """Drop a space that is not the settings' own; how many vectors went. Raises NotFound, Conflict, StoreUnavailable."""
    embedder = build_embedder(settings)
    try:
        async with open_spaces(own_connection(settings.direct(dsn), OWNER_ROLE), Queries.load()) as spaces:
            await spaces.lock()
            return await spaces.drop(name, embedder.space, watch.done)
    finally:
        await embedder.close()


async def bring_over(settings: Settings, dsn: str, watch: RunProgress) -> ReembedResult:
    """Give everything a vector in the space of the settings' embedder. Raises NotReady where that is none, Conflict where
    somebody else is at it, Unavailable where users are left, StoreUnavailable."""
    sql, embedder = Queries.load(), build_embedder(settings)
    try:
        if not embedder.dimensions:
            raise NotReady("MNEME_EMBEDDER=none makes no vectors: name the embedder to change to.")
        await embedder.embed(["Does it answer, and with as many dimensions as the settings say?"])
        async with open_spaces(own_connection(settings.direct(dsn), OWNER_ROLE), sql) as spaces:
            await spaces.lock()
            pool = await open_pool(
                dsn,
                size=2 * CONCURRENCY,
                timeout_ms=settings.pool_background_timeout_ms,
                statement_timeout_ms=settings.background_statement_timeout_ms,
                statement_cache_size=settings.statement_cache_size,
                role=APP_ROLE,
            )
            try:
                return await _Run(settings, dsn, sql, spaces, pool, embedder, watch).run()
            finally:
                await pool.close()
    finally:
        await embedder.close()


class _Run:
    """One run, which holds the lock."""

    def __init__(
        self,
        settings: Settings,
        dsn: str,
        sql: Queries,
        spaces: VectorSpaces,
        pool: Pool,
        embedder: Embedder,
        watch: RunProgress,
    ) -> None:
        self._settings = settings
        self._dsn = dsn
        self._sql = sql
        self._spaces = spaces
        self._pool = pool
        self._embedder = embedder
        self._watch = watch

    async def run(self) -> ReembedResult:
        """Pass after pass."""
        self._watch.step("adding the space")
        space = await self._spaces.add(self._embedder.space, self._embedder.dimensions, self._watch.step)
        await self._spaces.clear_jobs()
        doing = Reembedder(ReembedStore(self._pool, self._sql, space), self._embedder, self._watch.done)
        stop, tasks = asyncio.Event(), Supervisor()
        working = tasks.spawn(self._worker(doing).run(stop), "reembedding")
        try:
            for _ in range(MAX_PASSES):
                self._watch.step("looking for what has no vector")
                lacking = await self._lacking(space, doing)
                if not lacking:
                    break
                items = sum(each.items for each in lacking)
                self._watch.more(items)
                self._watch.step("embedding")
                await self._pass(space, lacking, working)
                if items <= SETTLED:
                    break
        finally:
            stop.set()
            await asyncio.wait([working], timeout=2 * CLOSING_S)
            await tasks.close(CLOSING_S)
        return ReembedResult(
            space=self._embedder.space,
            dimensions=self._embedder.dimensions,
            embedded=doing.embedded,
            wordless=sum(len(each) for each in doing.wordless.values()),
            left=sum(each.items for each in await self._lacking(space, doing)),
            spaces=await self._spaces.all(),
        )

    def _worker(self, doing: Reembedder) -> Worker:
        return Worker(
            connect=connector(self._settings.direct(self._dsn), role=APP_ROLE, name="mneme reembed"),
            sql=self._sql,
            handlers=doing.handlers(),
            lease_s=self._settings.job_lease_s,
            attempts=self._settings.job_attempts,
            grace_s=CLOSING_S,
            concurrency=CONCURRENCY,
        )

    async def _lacking(self, space: int, doing: Reembedder) -> list[MissingVectors]:
        """The users with items that lack a vector, but for those that are known to have no words."""
        found = await self._spaces.lacking(space)
        known = [each._replace(items=each.items - len(doing.wordless.get(each.user_id, ()))) for each in found]
        return [each for each in known if each.items > 0]

    async def _pass(self, space: int, lacking: list[MissingVectors], working: asyncio.Task[None]) -> None:
        """Have the jobs of these users done. Raises Unavailable where some failed for good, or nobody works on them."""
        queue = Queue(self._pool, self._sql)
        for at in range(0, len(lacking), ENQUEUE_AT_ONCE):
            async with self._pool.acquire() as connection:
                jobs = [reembed_job(each.tenant_id, each.user_id, space) for each in lacking[at : at + ENQUEUE_AT_ONCE]]
                await queue.enqueue(connection, jobs)
        while True:
            waiting, dead = await self._spaces.jobs()
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
    """The job for one user."""
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

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """By entrypoint, for the worker."""
        return {REEMBED: self.reembed}

    async def reembed(self, payload: bytes) -> None:
        """Embed what of a user has no vector yet. Raises `BadBody` for a payload that is none, `Unavailable` and
        `StoreUnavailable` for what may work later."""
        try:
            fields = orjson.loads(payload)
            tenant, user = UUID(fields["tenant"]), UUID(fields["user"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadBody("This job's payload cannot be read.") from error
        epoch = await self._store.epoch(tenant, user)
        after: ItemRef | None = None
        while epoch is not None and (items := await self._store.lacking(tenant, user, after)):
            for at in range(0, len(items), EMBEDDED_AT_ONCE):
                if not await self._batch(tenant, user, epoch, items[at : at + EMBEDDED_AT_ONCE]):
                    return
            after = items[-1]

    async def _batch(self, tenant: UUID, user: UUID, epoch: int, refs: list[ItemRef]) -> bool:
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
    told = {
        "space": result.space,
        "dimensions": result.dimensions,
        "embedded": result.embedded,
        "wordless": result.wordless,
        "left": result.left,
        "spaces": [_told(each) for each in result.spaces],
    }

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


def _told(space: VectorSpace) -> dict[str, Any]:
    return {
        "name": space.name,
        "dimensions": space.dimensions,
        "vectors": space.vectors,
        "created_at": space.created_at,
    }


def _list(spaces: list[VectorSpace]) -> None:
    for each in spaces:
        click.echo(f"{each.name}: {each.vectors} vectors of {each.dimensions} dimensions")
