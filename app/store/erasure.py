"""Erasing a user, and deleting a message: as mneme_eraser, the only role that may take away what was said.

A user goes with every trace, in batches, with a receipt that says how many rows of which table, and nothing else:

    fence      nothing of the user's that began before the end is recorded any more, jobs find another user than they read of
    settle     what is being written this moment comes to its end
    spaces     what they said in shared spaces goes from there, too, with what came from it; or stays, as the space's own
    marks      keyed hashes of what was said and learned, so that a transcript that comes again is not learned from
    batches    every table that has a `user_id`, found in the catalogue; the queue; keys; system prompts that nobody else uses;
               what was spent stays in the sums of its key, day and model, without user and session
    again      until a whole pass finds nothing
    open       from now on it is a new user's

What stopped half-way goes on where it was when it is asked for again (`unfinished`, by the worker's schedule): the fence stands
until the end. Dead rows stay in Postgres' files and its WAL until vacuum and checkpoints take them, and backups are the
operator's.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import orjson
from msgspec import Struct

from app.clock import Clock
from app.errors import Conflict, NotFound, NotReady, StoreUnavailable
from app.patience import patiently
from app.store import ids
from app.store.ids import mark_of
from app.store.indexed import ERASED
from app.store.memories import LockedMemory, content_hmac, forget, hold
from app.store.pools import Pool, UserRows, set_codecs
from app.store.queries import Queries
from app.store.sessions import SessionRef, line_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = logging.getLogger("mneme.index")


ERASER_ROLE = "mneme_eraser"
"""The only role that may delete what was said; row-level security holds it to one tenant, too."""
_SPENT = ("spend_entries", "spend")
"""Where what was spent loses its user, in the order in which the schedule moves it: behind it nothing is left."""
NOTE = "Backups, archives of replicas and logs of your own are not reached."
"""What every receipt says to whoever asked for it."""
_NOTE_OF_SPACES = (
    f"{NOTE} Captured calls of a space's members, and answers that they were given, keep what they quote of it until their"
    " retention ends (MNEME_CAPTURE_DAYS), as with a message that is deleted."
)
"""The same, where something was taken out of a space that others could read."""
SPACE_ITEMS, SPACE_BLOCKS = "space_items", "space_blocks"
"""On a receipt: what was taken out of spaces, and the stored blocks of members that quoted it."""
BATCH = 1000
"""Rows erased in one transaction: locks last milliseconds."""
STATEMENT_S = 600.0
"""Longest statement, seconds; the longest hashes all messages of a user."""
_CONNECT_S = 5.0
"""Seconds to connect."""
MAX_PASSES = 50
"""Passes over all tables; each follows what was written during the one before. More says that somebody keeps writing."""
_SHA256_BLOCK = 64
"""Bytes of a block of SHA-256: what HMAC pads its key to (RFC 2104)."""
Connect = Callable[[], Awaitable["asyncpg.Connection[Any]"]]
"""Opens a connection of its own as mneme_eraser."""
Progress = Callable[[str, int], None]
"""Told what was erased of a table just now."""
Elsewhere = Callable[[UUID, UUID], Awaitable[Mapping[str, int]]]
"""Erases (tenant, user) outside of Postgres, such as in a spool; what it counted, by name. May be called several times."""
_UNAVAILABLE = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.OperatorInterventionError)


def own_connection(dsn: str, role: str) -> Connect:
    """Opens direct connections of a role other than the pool's (no PgBouncer in transaction mode)."""

    async def connect() -> asyncpg.Connection[Any]:
        return await asyncpg.connect(
            dsn,
            timeout=_CONNECT_S,
            server_settings={"role": role, "application_name": role, "search_path": "agent_data, public"},
        )

    return connect


@asynccontextmanager
async def connected(connect: Connect) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection for the `async with` block. Raises StoreUnavailable, on entry as within the block."""
    try:
        connection = await patiently(connect())
    except (*_UNAVAILABLE, asyncpg.PostgresError) as error:
        raise StoreUnavailable("The database cannot be reached as mneme_eraser; try again.") from error
    try:
        yield connection
    except _UNAVAILABLE as error:
        raise StoreUnavailable("This was interrupted before it was done; ask again.") from error
    finally:
        connection.terminate()


class Receipt(Struct, frozen=True):
    """What an erasure leaves. `user_hash`: HMAC-SHA256 of the user's id, under the database's own key. `counts`: rows by table.
    `tombstones`: whether keyed hashes of what was said were kept."""

    erasure_id: UUID
    tenant_id: UUID
    user_hash: bytes
    tombstones: bool
    counts: dict[str, int]
    began_at: datetime
    finished_at: datetime

    @property
    def rows(self) -> int:
        """All rows that were erased."""
        return sum(self.counts.values())

    @property
    def note(self) -> str:
        """What was not reached."""
        shared = self.counts.keys() & {"spaces", SPACE_ITEMS, SPACE_BLOCKS}
        return _NOTE_OF_SPACES if shared else NOTE


class Eraser(Struct, frozen=True):
    """Erases users. `leave_to_spaces`: what a user said in a shared space stays there, without saying whose it was."""

    connect: Connect
    sql: Queries
    clock: Clock
    elsewhere: Sequence[Elsewhere] = ()
    batch: int = BATCH
    leave_to_spaces: bool = False

    async def tenant(self, name: str) -> UUID:
        """The id of the tenant of that name. Raises NotFound, StoreUnavailable."""
        async with connected(self.connect) as connection:
            found: UUID | None = await connection.fetchval(self.sql["erasure.tenant"], name)
        if found is None:
            raise NotFound(f"There is no tenant {name!r}.")
        return UUID(bytes=found.bytes)

    async def erase(
        self,
        tenant: UUID,
        user: UUID,
        *,
        external: str | None = None,
        tombstones: bool = True,
        progress: Progress | None = None,
    ) -> Receipt:
        """Erase everything of a user. `external`: what the tenant calls the user, for keys that were made for them.

        Without `tombstones` nothing but the receipt remains: what a client sends again is learned again. A user of whom there
        is nothing gets a receipt all the same. Raises Conflict while the same user is being erased, StoreUnavailable; asked
        again, it goes on.
        """
        async with connected(self.connect) as connection, self._alone(connection, user):
            await connection.execute(self.sql["erasure.set_tenant"], str(tenant))
            run = _Erasing(UserRows(connection, self.sql, tenant, user), self.batch, progress)
            key = bytes.fromhex(await connection.fetchval(self.sql["erasure.hmac_key"]))
            await run.fence(key, external, self.clock.now(), tombstones=tombstones)
            if tombstones:
                await run.mark(key)
            for _ in range(MAX_PASSES):
                # Elsewhere may be at giving back rows: what came until then is seen by the second sweep.
                taken = await self._out_of_spaces(run, key)
                but = () if self.leave_to_spaces else ("space_sayings",)
                if (
                    not await run.sweep(but=but)
                    and not taken
                    and not await self._elsewhere_too(run)
                    and not await run.sweep(but=but)
                ):
                    return await run.finish(self.clock.now(), tombstones=tombstones)
        raise Conflict("Somebody keeps writing for this user: stop that, and erase again.")

    @asynccontextmanager
    async def _alone(self, connection: asyncpg.Connection[Any], user: UUID) -> AsyncIterator[None]:
        if not await connection.fetchval(self.sql["erasure.alone"], user):
            raise Conflict("This user is being erased already.")
        try:
            yield
        finally:
            # Of a connection that was closed the server lets go later: who asks again at once would find the lock held.
            if not connection.is_closed():
                await connection.execute(self.sql["erasure.alone_no_more"], user)

    async def _out_of_spaces(self, run: _Erasing, key: bytes) -> int:
        """Take what the user said in shared spaces out of them, each item with what came from it and every block that quotes
        it; of a space, every block that quotes it. (No member any more, they say no more: the pass after the one that ends
        their membership has seen all.)"""
        async with connected(self.connect) as connection:
            await set_codecs(connection, None)
            await connection.execute(self.sql["erasure.set_tenant"], str(run.tenant))
            quoting = await connection.fetchval(self.sql["spaces.unquote"], run.tenant, run.user)
            await run.note({SPACE_BLOCKS: quoting})
            said = [] if self.leave_to_spaces else await connection.fetch(self.sql["spaces.said"], run.tenant, run.user)
            for row in said:
                async with connection.transaction():
                    gone = await _take_out(connection, self.sql, key, run.tenant, row, self.clock.now())
                    await connection.execute(
                        self.sql["spaces.unsay"], run.tenant, run.user, row["space_id"], row["item_id"]
                    )
                await run.note({SPACE_ITEMS: len(gone), "space_sayings": 1})
        return len(said)

    async def _elsewhere_too(self, run: _Erasing) -> int:
        total = 0
        for each in self.elsewhere:
            total += await run.note(await each(run.tenant, run.user))
        return total


async def _take_out(
    connection: asyncpg.Connection[Any], sql: Queries, key: bytes, tenant: UUID, row: Any, now: datetime
) -> list[UUID]:
    """An item that a user said in a space, and what was learned from it; which items went. A memory that somebody else said,
    too, stays."""
    space, item = row["space_id"], row["item_id"]
    await connection.execute(sql["learning.lock"], space)
    await connection.execute(sql["erasure.settle"], space)
    if row["session_id"] is not None:
        said_at = await connection.fetchval(sql["spaces.said_at"], tenant, space, item)
        if said_at is None:
            return []
        deletion = await _Deleting(connection, sql, tenant, space, item, said_at, now).delete()
        return [item, *deletion.forgotten] if deletion is not None else []
    if row["shared"]:
        return []
    rows = UserRows(connection, sql, tenant, space)
    held = await hold(rows, [item])
    if held:
        await forget(rows, key, held, now)
    return [each.memory_id for each in held]


class _Erasing:
    """One erasure, on its connection."""

    def __init__(self, rows: UserRows, batch: int, progress: Progress | None) -> None:
        self.tenant, self.user = rows.tenant, rows.user
        self._connection, self._sql = rows.connection, rows.sql
        self._batch = batch
        self._progress = progress
        self._id = ids.NIL

    async def fence(self, key: bytes, external: str | None, now: datetime, *, tombstones: bool) -> None:
        """Begin, or go on: from here on nothing new comes in but what is written by others than the gateway."""
        async with self._connection.transaction():
            name = external or await self._ask("name_of")
            hashed = user_hash(key, self.user)
            self._id = await self._ask("receipt", ids.uuid7(now), hashed, tombstones, now)
            await self._ask("fence", self._id)
            await self._ask("new_epoch")
            await self._ask("tell", self._id)
            await self._tell_servers()
            if name is not None:
                ended = await self._connection.fetchval(self._sql["erasure.revoke_keys"], self.tenant, name, now)
                await self.note({"api_keys": ended})
        await self._connection.execute(self._sql["erasure.settle"], self.user, timeout=STATEMENT_S)

    async def mark(self, key: bytes) -> None:
        """Keep keyed hashes of all that was said and learned."""
        inner, outer = hmac_pads(key)
        for name in ("mark_messages", "mark_memories"):
            await self._ask(name, inner, outer)
        await self._ask("mark_forgotten")

    async def sweep(self, but: Collection[str] = ()) -> int:
        """One pass over everything `but` these tables; how many rows it erased."""
        total = 0
        while sum(found := await self._calls()):
            total += sum(found)
        tables = await self._connection.fetch(self._sql["erasure.tables"])
        if loose := [row["name"] for row in tables if not row["held"]]:
            raise NotReady(f"Nothing protects the table {loose[0]}: run `mneme migrate`, and erase again.")
        for row in tables:
            while row["name"] not in but and (gone := await self._count(row["name"], "rows", row["name"], self._batch)):
                total += gone
        for name in _SPENT:
            while gone := await self._count(name, name, self._batch):
                total += gone
        total += await self._count("pgqueuer", "jobs")
        async with self._connection.transaction():
            gone = await self._connection.fetchval(self._sql["erasure.prompts"], self.tenant, timeout=STATEMENT_S)
            total += await self.note({"system_prompts": gone})
        return total

    async def finish(self, now: datetime, *, tombstones: bool) -> Receipt:
        async with self._connection.transaction():
            if tombstones:
                await self._connection.execute(self._sql["erasure.open"], self.user, now)
            else:
                await self._ask("drop_tombstones")
            row = await self._connection.fetchrow(self._sql["erasure.finish"], self._id, now)
            await self._tell_servers()  # again: somebody may have asked meanwhile
        assert row is not None, "the receipt was made or found by this erasure"
        fields: dict[str, Any] = dict(row) | {"counts": orjson.loads(row["counts"])}
        own = {name: UUID(bytes=row[name].bytes) for name in ("erasure_id", "tenant_id")}
        return Receipt(**fields | own)

    async def _tell_servers(self) -> None:
        await self._connection.execute(self._sql["erasure.tell_servers"], ERASED, str(self.user))

    async def note(self, counts: Mapping[str, int]) -> int:
        """Put counts on the receipt; their sum."""
        found = {name: n for name, n in counts.items() if n}
        if found:
            await self._connection.execute(self._sql["erasure.note"], self._id, orjson.dumps(found).decode())
        if self._progress is not None:
            for name, n in found.items():
                self._progress(name, n)
        return sum(found.values())

    async def _calls(self) -> tuple[int, ...]:
        async with self._connection.transaction():
            row = await self._connection.fetchrow(
                self._sql["erasure.calls"], self.tenant, self.user, self._batch, timeout=STATEMENT_S
            )
            assert row is not None, "a query without FROM has one row"
            counts = Counter(dict(row))
            await self.note(counts)
        return tuple(counts.values())

    async def _count(self, table: str, name: str, *arguments: object) -> int:
        """Erase a batch and note it, in one transaction: the receipt is right whenever it stops."""
        async with self._connection.transaction():
            gone: int = await self._ask(name, *arguments)
            await self.note({table: gone})
        return gone

    async def _ask(self, name: str, *arguments: object) -> Any:
        return await self._connection.fetchval(
            self._sql[f"erasure.{name}"], self.tenant, self.user, *arguments, timeout=STATEMENT_S
        )


def user_hash(key: bytes, user: UUID) -> bytes:
    """What a receipt says of whom it is about."""
    return hmac.digest(key, user.bytes, sha256)


def hmac_pads(key: bytes) -> tuple[bytes, bytes]:
    """The inner and the outer padded key of HMAC-SHA256 (RFC 2104), for a database that only has SHA-256:
    `HMAC(key, m) = sha256(outer || sha256(inner || m))`."""
    padded = (sha256(key).digest() if len(key) > _SHA256_BLOCK else key).ljust(_SHA256_BLOCK, b"\0")
    return bytes(each ^ 0x36 for each in padded), bytes(each ^ 0x5C for each in padded)


# --- hearing of erasures -------------------------------------------------------------------------------------------------

PAUSE_S = 1.0
"""Seconds between two attempts to connect."""
LOOK_S = 2.0
"""Seconds between two questions whether the connection still lives, and that an answer may take: a user who is erased is out of
every server's memory within five."""
_LOST = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What a Postgres raises that is lost, frozen or restarting."""


class Erasures:
    """Hears which users are being erased, on a connection of its own: what a server keeps of them in memory goes, whether they
    ask again or not. What is not heard while there is none may have been anybody's erasure."""

    def __init__(
        self, connect: Connect, pool: Pool, sql: Queries, erased: Callable[[UUID], None], lost: Callable[[], None]
    ) -> None:
        """`connect`: opens a session of its own (no PgBouncer in transaction mode), on the server that `pool` asks. `erased`:
        told of each user; `lost`: told when something may have been missed."""
        self._connect = connect
        self._pool = pool
        self._sql = sql
        self._erased = erased
        self._lost = lost
        self.listening = asyncio.Event()

    async def listen(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                connection = await self._connect()
                try:
                    await self._heard(connection)
                finally:
                    connection.terminate()
            except _LOST as error:
                log.warning("erasures are not heard of: indexes are dropped", extra={"error": type(error).__name__})
            finally:
                self.listening.clear()
                self._lost()
            await asyncio.sleep(PAUSE_S)

    async def _heard(self, connection: asyncpg.Connection[Any]) -> None:
        await connection.add_listener(ERASED, self._told)
        self._lost()  # what was kept before nobody told us of
        self.listening.set()
        while True:
            await asyncio.sleep(LOOK_S)
            async with asyncio.timeout(LOOK_S):
                here = await connection.fetchrow(self._sql["index.whose"])
            try:
                async with self._pool.acquire() as asked:
                    there = await asked.fetchrow(self._sql["index.whose"])
            except StoreUnavailable:  # the next look tells
                continue
            if here != there:  # one of the two addresses did not follow a fail-over
                raise ConnectionError("erasures are told on another server than the one that is asked")

    def _told(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        with contextlib.suppress(ValueError):  # somebody else's, or an operator's try
            self._erased(UUID(str(payload)))


# --- deleting a message --------------------------------------------------------------------------------------------------

_DELETIONS_AT_ONCE = 2
"""Deletions of one process at a time: each has a connection of its own."""

_DELETION_S = 60.0
"""Seconds for a deletion; the longest look through the hundred thousands of memories of one user."""

_TOLD_TOGETHER = frozenset({"summary", "episode"})
"""Kinds whose text tells of all their sources at once: without one of them it is not the same text."""
_SESSION_BATCH = 500
"""Messages of a session that are looked up at once to be deleted."""

_WORD = re.compile(r"\w+")


class SourcedMemory(Struct, frozen=True):
    """A memory that has a message among its sources. `stated`: a client said it outright, before anything was learned."""

    memory_id: UUID
    kind: str
    text: str
    sources: Sequence[Mapping[str, Any]]
    source_message_ids: Sequence[UUID]
    stated: bool


class Deletion(Struct, frozen=True):
    """What went with a message: memories that were `forgotten`, and those that only lost it as a source (`kept`)."""

    forgotten: tuple[UUID, ...]
    kept: tuple[UUID, ...]


class SessionDeletion(Struct, frozen=True):
    """What a session's deletion did: messages that went, memories that were forgotten, and those that others still say."""

    messages: int = 0
    forgotten: frozenset[UUID] = frozenset()
    kept: frozenset[UUID] = frozenset()

    def plus(self, one: Deletion, *, messages: int) -> SessionDeletion:
        """This, and one more; `messages`: of the session, that went with it."""
        return SessionDeletion(self.messages + messages, self.forgotten | set(one.forgotten), self.kept | set(one.kept))


class Deleter:
    """Deletes messages, one or a session's: the words of one, and what came from it, in one transaction.

    settle     jobs and calls of the user that write this moment come to their end; later ones find the message gone
    memories   what was learned from it and from nothing else is forgotten; what has other sources loses this one
    quotes     stored memory blocks that quote it or them go, and their sessions' prompts begin a new epoch; summaries go
    objects    what paging made of it goes, and what a model asked and was told in its session
    words      the message's text, vectors, indexes and cards; its place in the conversation stays, so that a transcript that is
               sent again is recognised, and a keyed hash, so that the words are neither found nor learned when they come again

    Captured calls keep what they hold, until their time is over or the user is erased.
    """

    def __init__(self, connect: Connect, sql: Queries, clock: Clock) -> None:
        """`connect`: as mneme_eraser."""
        self._connect = connect
        self._sql = sql
        self._clock = clock
        self._room = asyncio.Semaphore(_DELETIONS_AT_ONCE)

    @asynccontextmanager
    async def _opened(self, tenant: UUID, limit_s: float | None, failed: str) -> AsyncIterator[asyncpg.Connection[Any]]:
        """A connection that sees a tenant's rows, for as long as that. Raises StoreUnavailable; `failed`: what it says where
        others were in the way."""
        try:
            async with self._room, asyncio.timeout(limit_s), connected(self._connect) as connection:
                await set_codecs(connection, None)
                await connection.execute(self._sql["erasure.set_tenant"], str(tenant))
                yield connection
        except (TimeoutError, asyncpg.TransactionRollbackError, asyncpg.UniqueViolationError) as error:
            raise StoreUnavailable(f"{failed}; try again.") from error

    async def delete(self, tenant: UUID, ref: SessionRef, message: UUID) -> Deletion | None:
        """Delete a message that the history of a session shows: its own, or one that a branch shares with its parent. None:
        there is none (any more). Raises StoreUnavailable: then nothing was changed."""
        user = ref.user_id
        async with self._opened(tenant, _DELETION_S, "Nothing was deleted: others write for this user") as connection:
            line = await line_of(connection, self._sql, tenant, ref)
            if line is None:
                return None
            place = await connection.fetchrow(self._sql["history.find"], tenant, user, message, *line)
            return await self._one(connection, tenant, user, message, place) if place is not None else None

    async def delete_session(self, tenant: UUID, ref: SessionRef) -> SessionDeletion:
        """Delete all messages of a session, each as `delete`, the newest first, and end it. Its row stays, without its metadata
        and its summary: a transcript of it that is sent again is recognised, and says nothing. What it shares with its parent
        is the parent's. Raises Conflict where months of it are archived, StoreUnavailable: some may be gone, and asking again
        goes on."""
        user, gone = ref.user_id, SessionDeletion()
        async with self._opened(tenant, None, "Not all was deleted: others write for this user") as connection:
            if months := await connection.fetchval(self._sql["deleting.archived"], tenant, user, ref.session_id):
                raise Conflict(
                    f"Nothing was deleted: messages of this time are archived ({', '.join(months)}), and a restore would "
                    "bring them back. Restore them first (mneme archive restore), or give them up (mneme archive drop)."
                )
            for row in await connection.fetch(self._sql["deleting.dropped"], tenant, user, ref.session_id):
                async with asyncio.timeout(_DELETION_S), self._alone(connection, tenant, ref):
                    now = self._clock.now()
                    run = _Deleting(connection, self._sql, tenant, user, row["message_id"], now, now)
                    gone = gone.plus(await run.forget_dropped(ref.session_id, row["said"] or ""), messages=0)
            # Ended before each look: it sees what was recorded before, and a turn that ends later is recorded as deleted.
            while rows := await self._rest(connection, tenant, ref):
                for row in rows:
                    async with asyncio.timeout(_DELETION_S):
                        one = await self._one(connection, tenant, user, row["message_id"], row)
                    if one is not None:
                        gone = gone.plus(one, messages=1)
        return gone

    async def _rest(
        self, connection: asyncpg.Connection[Any], tenant: UUID, ref: SessionRef
    ) -> Sequence[asyncpg.Record]:
        """End a session, and say what of it is still to be deleted."""
        whose = (tenant, ref.user_id, ref.session_id)
        await connection.execute(self._sql["deleting.end_session"], *whose, self._clock.now())
        return await connection.fetch(self._sql["deleting.of_session"], *whose, _SESSION_BATCH)

    async def _one(
        self, connection: asyncpg.Connection[Any], tenant: UUID, user: UUID, message: UUID, place: Any
    ) -> Deletion | None:
        async with self._alone(connection, tenant, SessionRef(user, place["session_id"])):
            run = _Deleting(connection, self._sql, tenant, user, message, place["created_at"], self._clock.now())
            return await run.delete()

    @asynccontextmanager
    async def _alone(self, connection: asyncpg.Connection[Any], tenant: UUID, ref: SessionRef) -> AsyncIterator[None]:
        """A transaction for the `async with` block, of whom nobody else writes for this user meanwhile."""
        async with connection.transaction():
            # First all that may be waited for: what comes after sees what others have written.
            alone = ref.session_id if ref.user_id == ids.nobody(tenant) else ref.user_id
            await connection.execute(self._sql["learning.lock"], alone)
            await connection.execute(self._sql["erasure.settle"], ref.user_id)
            yield

    async def take_back(self, tenant: UUID, space: UUID, item: UUID, user: UUID | None) -> Deletion | None:
        """Take out of a shared space an item that this user said there (None: whoever's it is), with what came from it and all
        blocks that quote it. What others said, too, stays, and is theirs (`kept`). None: there is none, or it is others'.
        Raises Conflict for a memory that comes from others' words as well, StoreUnavailable: then nothing was changed."""
        failed = "Nothing was taken back: others write to this space"
        async with self._opened(tenant, _DELETION_S, failed) as connection:
            key = bytes.fromhex(await connection.fetchval(self._sql["erasure.hmac_key"]))
            async with connection.transaction():
                await connection.execute(self._sql["learning.lock"], space)
                row = await connection.fetchrow(self._sql["spaces.takeable"], tenant, user, space, item)
                if row is None:
                    return None
                if not row["mine"]:
                    raise Conflict("Others said it, too: take back the message of yours that it comes from.")
                gone = await _take_out(connection, self._sql, key, tenant, row, self._clock.now())
                if row["shared"]:
                    await connection.execute(self._sql["spaces.unsay"], tenant, user, space, item)
                else:
                    await connection.execute(self._sql["spaces.unsay_item"], tenant, space, item)
                return Deletion(tuple(gone), (item,) if row["shared"] else ())


class _Deleting(UserRows, frozen=True):
    """One deletion, within its transaction."""

    message: UUID
    created_at: datetime
    now: datetime

    async def delete(self) -> Deletion | None:
        rows = await self.rows("deleting.hold", self.message, self.created_at)
        if not rows:
            return None
        row = rows[0]
        key = bytes.fromhex(await self.connection.fetchval(self.sql["erasure.hmac_key"]))
        summary: UUID | None = row["compressed_summary_id"]
        gone = await self._learned(key, summary, row["said"])
        if summary is not None:
            await self.run("deleting.uncompress", summary)
        await self._quotes(row["session_id"], [self.message, *gone.forgotten])
        await self._paged(row["session_id"], row["message_hash"])
        await self._words(key, row)
        return gone

    async def forget_dropped(self, session: UUID, said: str) -> Deletion:
        """Forget what was learned from a message that went with its month; `said`: what memories quote of it."""
        key = bytes.fromhex(await self.connection.fetchval(self.sql["erasure.hmac_key"]))
        gone = await self._learned(key, None, said)
        await self._quotes(session, [self.message, *gone.forgotten])
        await self.run("memories.suppress", [self.message], "deleted", [None], self.now)
        return gone

    async def _learned(self, key: bytes, summary: UUID | None, said: str) -> Deletion:
        """Forget what was learned from the message alone, and the `summary` that stands for it; the rest loses it."""
        learned = [SourcedMemory(*each) for each in await self.rows("deleting.learned", self.message, summary)]
        kept = tuple(
            each.memory_id for each in learned if each.memory_id != summary and outlives(each, self.message, said)
        )
        held = await hold(self, [each.memory_id for each in learned if each.memory_id not in kept])
        forgotten = tuple(each.memory_id for each in held)
        await self._memories(key, held, kept)
        return Deletion(forgotten, kept)

    async def _memories(self, key: bytes, held: Sequence[LockedMemory], kept: Collection[UUID]) -> None:
        """Forget, and take from the sources of others; what gave way to a memory that is forgotten comes back."""
        forgotten = [each.memory_id for each in held]
        again = await self._part(forgotten) if forgotten else []
        if held:
            await self.run("deleting.only_source", forgotten, self.message)
            await forget(self, key, held, self.now)
        if kept:
            await self.run("deleting.lose_source", list(kept), self.message, self.now)
            for memory in kept:
                await self.run("memories.event", memory, self.now, "edited", {"message_id": self.message}, None, "api")
        if again:
            await self.run("deleting.restore", again, self.now)
            for memory in again:
                before, after = {"status": "superseded"}, {"status": "active"}
                await self.run("memories.event", memory, self.now, "restored", before, after, "api")

    async def _part(self, forgotten: Sequence[UUID]) -> list[UUID]:
        """Of what was merged into these memories: which are to come back, the one that says most for each. They and the other
        wordings are no longer theirs: what is forgotten takes all its wordings along."""
        older = await self.rows("deleting.older", forgotten, self.now)
        best: dict[UUID, Any] = {}
        for each in older:
            held = best.get(each["heir"])
            if held is None or _says(each["content_text"]) > _says(held["content_text"]):
                best[each["heir"]] = each
        heirs = [best[each["heir"]]["memory_id"] for each in older]
        await self.run("deleting.part", [each["memory_id"] for each in older], heirs)
        return sorted(set(heirs))

    async def _quotes(self, session: UUID, gone: Sequence[UUID]) -> None:
        rows = await self.rows("deleting.summaries", session)
        await self.run("deleting.blocks", list(gone), [each["session_id"] for each in rows])
        await self.run("deleting.working", session)

    async def _paged(self, session: UUID, hashed: bytes | None) -> None:
        if hashed is None:
            return
        (row,) = await self.rows("deleting.same", session, hashed)
        await self.run("deleting.paged", session, [mark_of(hashed, times).hex() for times in range(row["many"])])

    async def _words(self, key: bytes, row: Any) -> None:
        await self.run("memories.drop_vectors", [self.message])
        await self.run("deleting.cards", self.message)
        said: bytes | None = row["content_hash"]
        mark = content_hmac(key, said) if said is not None else None
        await self.run("memories.suppress", [self.message], "deleted", [mark], self.now)
        await self.run("deleting.blank", self.message, self.created_at)


def outlives(memory: SourcedMemory, message: UUID, said: str) -> bool:
    """Whether a memory stays when one of its sources goes: it has others, and they say every word of it that this one
    `said` (its text and tool calls: a source quotes no tool call, and may quote less than was learned from it). (A statement
    that said more took the place of those before it, with their sources: what only it said goes with it.)
    """
    others = [each for each in memory.source_message_ids if each != message]
    if memory.kind in _TOLD_TOGETHER:
        return False
    if not others:
        return memory.stated
    gone, left = _words(said), set[str]()
    for source in memory.sources:
        words = gone if str(source.get("message_id")) == str(message) else left
        words |= _words(str(source.get("quote") or ""))
    return memory.stated or _words(memory.text) & gone <= left


def _says(text: str) -> tuple[int, int]:
    """How much a wording says: its words; of two that have as many, the shorter one."""
    return len(_words(text)), -len(text)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
