"""Users' indexes in the server's memory, as the database has them at the moment of each question."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import asyncpg
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from app.errors import MnemeError
from app.index.analyse import READ_CHARS, VERSION, asked, pack
from app.index.user_index import NOTHING_ELSE, FurtherItems, ItemRow, SharedPart, UserIndex, joined, without
from app.metrics import Metrics
from app.patience import patiently
from app.store.indexed import AT_ONCE, IndexAsk, IndexRead, IndexRow, IndexStore, SpacesAsk
from app.store.item_columns import MEMORY_KIND, LaterWords, Scan
from app.tasks import Supervisor
from app.text_cache import forget

log = logging.getLogger("mneme.index")

MOST_ITEMS = 100_000
"""Items of one user that are kept, unless a setting says otherwise: 45 MB, and ten milliseconds for each question."""
OLDER_MESSAGES = 500
"""Messages that the database is asked for beside the index, of a user who has more than an index holds."""
OLDER_WAIT_S = 0.02
"""Seconds that a search waits for these messages, which take a few milliseconds; without them the index alone answers."""
SAMPLE_EVERY = 100
"""Of so many questions to the graph one is asked of all vectors, too, one at a time: it reads some 50 MB of a user who has
100,000 of 256 dimensions."""
SAMPLE_NEAREST = 50
"""Nearest that are looked for there, as seed 000 §6.4 has them."""
AT_ONCE_CHARS = 10_000
"""Characters of texts whose terms are made where requests are served (1.2 ms); of more in a thread."""
AT_ONCE_ITEMS = 20_000
"""Items that a question is put to where requests are served (7 ms); to more in a thread."""
WARM_USERS, WARM_S = 1_000, 3.0
"""Users whose indexes a server loads before it is ready, and seconds that this may take: ten milliseconds for one who has
1,000 items, 50 for 10,000."""
OBJECT_BYTES = 4_096
"""Of an index, beside its columns: the objects that hold them."""


# --- a cache, bounded in bytes: the least recently used goes first -------------------------------------------------------

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Values by key, in one event loop. With no room it keeps nothing, and still loads once for all who ask at a time."""

    def __init__(self, limit: int, size: Callable[[V], int], tasks: Supervisor) -> None:
        """`limit`: bytes; `size`: those of a value."""
        self.limit = limit
        self.bytes = 0
        self._size = size
        self._tasks = tasks
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._loading: dict[K, asyncio.Future[V]] = {}

    async def get(self, key: K, load: Callable[[], Awaitable[V]]) -> V:
        """The value at hand, or what `load` brings: one load for all that wait. It goes on when they go away, so that a request
        that is too late for its own deadline has it ready for the next.

        Raises what the load raised; the next who asks loads again.
        """
        if (held := self.held(key)) is not None:
            return held
        return await patiently(asyncio.shield(self._loading.get(key) or self._begun(key, load)))

    def held(self, key: K) -> V | None:
        """The value if it is at hand."""
        if (held := self._held.get(key)) is None:
            return None
        self._held.move_to_end(key)
        return held[0]

    def loading(self, key: K) -> bool:
        """Whether it is being loaded."""
        return key in self._loading

    def keep(self, key: K, value: V) -> None:
        """Have this value at hand from now on, in place of what there was or is being loaded. One that alone is too large is
        not kept."""
        self.drop(key)
        size = self._size(value)
        if size > self.limit:
            return
        self._held[key] = value, size
        self.bytes += size
        while self.bytes > self.limit:
            _, (_, freed) = self._held.popitem(last=False)
            self.bytes -= freed

    def drop(self, key: K) -> None:
        """Have it no more: it is not so any longer. What is being loaded may be as old: it goes to those who wait already, and
        is not kept."""
        self._loading.pop(key, None)
        if (held := self._held.pop(key, None)) is not None:
            self.bytes -= held[1]

    def known(self) -> list[K]:
        """Of all values that are at hand or being loaded."""
        return [*self._held, *(each for each in self._loading if each not in self._held)]

    def _begun(self, key: K, load: Callable[[], Awaitable[V]]) -> asyncio.Future[V]:
        future: asyncio.Future[V] = asyncio.get_running_loop().create_future()
        self._loading[key] = future
        self._tasks.spawn(self._load(key, load, future), "load index")
        return future

    async def _load(self, key: K, load: Callable[[], Awaitable[V]], future: asyncio.Future[V]) -> None:
        try:
            value = await load()
        except asyncio.CancelledError:
            future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - no boundary: those who wait raise it
            future.set_exception(error)
            future.exception()  # that is said: nobody may be waiting any more
        else:
            if self._loading.get(key) is future:
                self.keep(key, value)
            future.set_result(value)
        finally:
            if self._loading.get(key) is future:
                del self._loading[key]


# --- the indexes ---------------------------------------------------------------------------------------------------------


class IndexScope(NamedTuple):
    """What of a user's memory is asked (see `UserIndex.scan`)."""

    session: UUID | None = None
    visible_from: int = 1
    ancestors: Sequence[UUID] = ()
    history: bool = False
    only: int | None = None
    confine: UUID | None = None
    """A session of nobody's, which is all that is asked."""


class HeldIndex(Struct, frozen=True):
    """An index, and of which epoch and snapshot it is. `since`: it has the messages from then on (microseconds since 2000), for
    of all there are too many; None: it has all."""

    index: UserIndex
    epoch: int | None
    snapshot: str
    since: int | None = None


class CurrentIndex(NamedTuple):
    """What a server has of a user's index, and what the database said of it."""

    held: HeldIndex
    read: IndexRead


class Indexes:
    """Answers questions from indexes in memory, each as the database has it at that moment."""

    def __init__(
        self, store: IndexStore, tasks: Supervisor, *, space: int | None, dimensions: int, limit: int,
        meter: Metrics | None = None, most: int = MOST_ITEMS, beside_s: float = OLDER_WAIT_S,
    ) -> None:  # fmt: skip
        """`space`: of the vectors, and their `dimensions`; `limit`: bytes of all indexes; `most`: items of one user;
        `beside_s`: how long the database is waited for that adds what is older."""
        self._store = store
        self._tasks = tasks
        self._meter = meter
        self._space = space
        self._dimensions = dimensions if space is not None else 0
        self._most = most
        self._beside_s = beside_s
        self._cache: Cache[UUID, HeldIndex] = Cache(limit, _size, tasks)
        self._sorting: dict[UUID, list[tuple[HeldIndex, HeldIndex, IndexRead]]] = {}
        """Users whose index is being sorted, and what it became since that began: before, after, and by what."""
        self._beside_asked = 0
        self._sampling = False
        self._keeping: set[asyncio.Task[None]] = set()
        """What writes terms that were made."""

    @property
    def bytes(self) -> int:
        """Of all indexes that are kept."""
        return self._cache.bytes

    def held(self, user: UUID) -> HeldIndex | None:
        """What there is of a user's index."""
        return self._cache.held(user)

    def late(self, user: UUID) -> None:
        """A request of this user's is at its deadline: say so, if the index is still being loaded. (Whoever is cancelled while
        it loads cannot tell a deadline from a client that hung up.)"""
        if self._cache.loading(user):
            self._told("late")

    def ask_spaces(self, spaces: Sequence[UUID]) -> tuple[SpacesAsk, dict[UUID, HeldIndex]]:
        """What to ask of these spaces' indexes, as far as there are any; and what there is."""
        held = {each: found for each in spaces if (found := self._cache.held(each)) is not None}
        ask = SpacesAsk(list(held), [each.epoch for each in held.values()], [each.snapshot for each in held.values()])
        return ask, held

    def ask(self, held: HeldIndex | None) -> IndexAsk:
        """What to ask the database, to have it as it is now."""
        epoch, snapshot = (held.epoch, held.snapshot) if held is not None else (None, None)
        return IndexAsk(self._space, VERSION, READ_CHARS, epoch, snapshot)

    async def scan(
        self, tenant: UUID, user: UUID, query: str, vector: NDArray[np.float32] | None, scope: IndexScope, *, vectors: int,
        texts: int, also: FurtherItems = NOTHING_ELSE, fresh: CurrentIndex | None = None, shared: Sequence[SharedPart] = (),
        shared_fresh: Mapping[UUID, CurrentIndex] = MappingProxyType({}),
    ) -> Scan:  # fmt: skip
        """What answers a question, as the database has it now, or had it at `fresh`; the others as of `UserIndex.scan`.
        `shared`: of spaces, together with the user's own (`shared_fresh`: as `fresh`, by space). Raises StoreUnavailable."""
        if scope.confine is not None:
            read = await self._store.session(tenant, user, self.ask(None), scope.confine, self._most)
            own, since, at = await self._made(tenant, user, read.rows), None, read.at
            self._told("loaded")
            shared = ()
        else:
            own, since, at = await self._current(tenant, user, fresh)
        wanted = None if vector is None else np.asarray(vector, np.float32)
        length = 0.0 if wanted is None else float(np.linalg.norm(wanted))
        wanted = wanted / np.float32(length) if wanted is not None and length else None
        # `since` is given only for a user with more items than an index holds; they entered the graph at half that number.
        if since is not None and wanted is not None and scope.only != MEMORY_KIND:
            own = await self._beside(tenant, user, own, wanted, since)
        coming = (self._current(tenant, each.space_id, shared_fresh.get(each.space_id)) for each in shared)
        spaces = await asyncio.gather(*coming) if shared else []
        indexes = [own, *(index for index, *_ in spaces)]
        terms = asked(query, list(dict.fromkeys(each for index in indexes for each in index.languages)))

        def put() -> Scan:
            scans = [
                own.scan(
                    terms, wanted, vectors=vectors, texts=texts, only=scope.only, history=scope.history, also=also, now=at,
                    session=scope.session, visible_from=scope.visible_from, ancestors=scope.ancestors,
                )
            ]  # fmt: skip
            for each, (index, _, then) in zip(shared, spaces, strict=True):
                found = index.scan(
                    terms, wanted, vectors=vectors, texts=texts, only=scope.only, history=scope.history, also=also, now=then,
                    session=each.session,
                )  # fmt: skip
                scans.append(without(found, each.session))
            scan = joined(scans) if shared else scans[0]
            return scan._replace(find_later=partial(own.find_later_words, **_read_prompt_place(scope)))

        return put() if sum(map(len, indexes)) <= AT_ONCE_ITEMS else await asyncio.to_thread(put)

    async def find_later(
        self, tenant: UUID, user: UUID, items: Sequence[str], scope: IndexScope, fresh: CurrentIndex | None = None
    ) -> LaterWords:
        """Return the user's later messages with the telling words of some items, where nothing is searched. Raises
        StoreUnavailable."""
        index, *_ = await self._current(tenant, user, fresh)
        return index.find_later_words(items, **_read_prompt_place(scope))

    async def warm(self, seconds: float = WARM_S) -> None:
        """Have the indexes of those who were here last, as many as half the room holds and so many seconds load, with the terms
        that are made for them kept: writing them would keep the first requests waiting. Raises StoreUnavailable where nobody
        can tell who they are."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for tenant, user in await self._store.recent(WARM_USERS):
                    if 2 * self._cache.bytes >= self._cache.limit:
                        break
                    try:
                        await self._cache.get(user, partial(self._load, tenant, user, []))
                    except (MnemeError, asyncpg.PostgresError, ValueError) as error:  # no reason not to start
                        log.warning("an index was not loaded", extra={"user": str(user), "error": str(error)})
                while self._keeping:
                    await asyncio.wait(self._keeping)

    def drop(self, user: UUID) -> None:
        """Have nothing of a user any more, who is being erased; nor what is kept of texts, which may have been his."""
        self._cache.drop(user)
        forget()

    def drop_all(self) -> None:
        """Have nothing: nobody knows what was missed."""
        for user in self._cache.known():
            self._cache.drop(user)
        forget()

    async def _current(self, tenant: UUID, user: UUID, fresh: CurrentIndex | None) -> tuple[UserIndex, int | None, int]:
        """The index as it is now, since when it has messages (`HeldIndex`), and when now is."""
        if fresh is None and (held := self._cache.held(user)) is not None:
            fresh = CurrentIndex(held, await self._store.read(tenant, user, self.ask(held)))
        if fresh is not None:
            if not fresh.read.whole:
                return await self._later(tenant, user, *fresh), fresh.held.since, fresh.read.at
            if self._cache.held(user) is fresh.held:  # it leads nowhere
                self._cache.drop(user)
        told: list[IndexRead] = []
        try:
            held = await self._cache.get(user, partial(self._load, tenant, user, told))
        except MnemeError:
            self._told("failed")
            raise
        if told:  # it was this question that began the load: nothing older is in it
            self._told("loaded")
            return held.index, held.since, told[0].at
        return await self._current(
            tenant, user, CurrentIndex(held, await self._store.read(tenant, user, self.ask(held)))
        )

    async def _later(self, tenant: UUID, user: UUID, held: HeldIndex, read: IndexRead) -> UserIndex:
        """The index with what changed since."""
        if read.items:
            change = partial(self._changed, held.index, read)
            index, made = change() if _few(read.rows) else await asyncio.to_thread(change)
            self._keep(tenant, user, made)
            self._unreadable(index.unreadable - held.index.unreadable, user)
        else:
            index = held.index
        self._told("changed" if read.items else "held")
        # What was dropped meanwhile stays so: it may have been for an erasure.
        if self._cache.held(user) is held:
            later = HeldIndex(index, read.epoch, read.snapshot, held.since)
            self._cache.keep(user, later)
            if user in self._sorting:
                self._sorting[user].append((held, later, read))
            elif index.unsorted:
                self._sorting[user] = []
                self._aside(self._sorted(user, later), "sort index")
        return index

    async def _sorted(self, user: UUID, held: HeldIndex) -> None:
        """Keep the index sorted and no larger than it may be, with what changes meanwhile. (In a thread: it takes longer than a
        request has.)"""

        def tidied() -> tuple[UserIndex, int | None]:
            index, since = held.index.latest(self._most)
            return index.sorted(), since

        try:
            index, since = await asyncio.to_thread(tidied)
        finally:
            steps = self._sorting.pop(user)
        for before, after, read in steps:
            if before is held:
                index, held = self._changed(index, read)[0], after
        if self._cache.held(user) is held:
            self._cache.keep(user, replace(held, index=index, since=since if since is not None else held.since))

    @staticmethod
    def _changed(index: UserIndex, read: IndexRead) -> tuple[UserIndex, _Made]:
        there = {row.item for row in read.rows}
        rows, made = _with_terms(read.rows)
        return index.without([item for item in read.items if item.bytes not in there]).with_rows(rows), made

    async def _load(self, tenant: UUID, user: UUID, told: list[IndexRead]) -> HeldIndex:
        began = time.monotonic()
        read = await self._store.load(tenant, user, self.ask(None), self._most)
        index = await self._made(tenant, user, read.rows)
        if self._meter is not None:
            self._meter.index_loaded(time.monotonic() - began, len(read.rows))
        told.append(read)
        # As many as there may be: there are more, or nearly so.
        since = index.since if len(read.rows) >= self._most else None
        return HeldIndex(index, read.epoch, read.snapshot, since)

    async def _beside(
        self, tenant: UUID, user: UUID, index: UserIndex, vector: NDArray[np.float32], since: int
    ) -> UserIndex:
        """With the nearest of the messages that are too old for the index; without, where they do not come in time."""
        try:
            async with asyncio.timeout(self._beside_s):
                rows = await self._store.beside(tenant, user, self.ask(None), vector, since, OLDER_MESSAGES)
        except TimeoutError:
            self._told("beside_late")
            return index
        self._beside_asked += 1
        if self._meter is not None and self._beside_asked % SAMPLE_EVERY == 1 and not self._sampling:
            self._sampling = True
            self._aside(self._sample(tenant, user, vector, since), "sample recall")
        decoded, made = _with_terms(rows)
        self._keep(tenant, user, made)
        return index.with_rows(decoded)

    async def _sample(self, tenant: UUID, user: UUID, vector: NDArray[np.float32], since: int) -> None:
        """Hold the graph against the exact scan, beside the request that has gone on."""
        try:
            ask = self.ask(None)
            recall = await self._store.recall(tenant, user, ask, vector, since, OLDER_MESSAGES, SAMPLE_NEAREST)
            if recall is not None and self._meter is not None:
                self._meter.graph_recall(recall)
        finally:
            self._sampling = False

    async def _made(self, tenant: UUID, user: UUID, rows: Sequence[IndexRow]) -> UserIndex:
        def make() -> tuple[UserIndex, _Made]:
            decoded, made = _with_terms(rows)
            return UserIndex.of(decoded, self._dimensions), made

        index, made = make() if _few(rows) else await asyncio.to_thread(make)
        self._keep(tenant, user, made)
        self._unreadable(index.unreadable, user)
        return index

    def _keep(self, tenant: UUID, user: UUID, made: _Made) -> None:
        if made:
            task = self._aside(self._store.keep(tenant, user, made), "keep terms")
            self._keeping.add(task)
            task.add_done_callback(self._keeping.discard)

    def _aside(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[None]:
        async def done() -> None:
            try:
                await work
            except MnemeError as error:  # the next who asks tries again
                log.warning("the index of a user was not kept", extra={"what": name, "error": str(error)})

        return self._tasks.spawn(done(), name)

    def _unreadable(self, items: int, user: UUID) -> None:
        if items <= 0:
            return
        log.warning(
            "items of a user are left out of the index: they cannot be read", extra={"user": str(user), "items": items}
        )
        if self._meter is not None:
            self._meter.index_unreadable(items)

    def _told(self, how: str) -> None:
        if self._meter is not None:
            self._meter.index_asked(how)


def _read_prompt_place(scope: IndexScope) -> dict[str, Any]:
    return {"session": scope.session, "visible_from": scope.visible_from, "ancestors": scope.ancestors}


_Made = list[tuple[UUID, int, bytes]]
"""Terms that were made: item, revision of its text, terms."""


def _few(rows: Sequence[IndexRow]) -> bool:
    """Whether they are decoded while requests wait."""
    return len(rows) <= AT_ONCE and sum(len(row.text) for row in rows if row.text is not None) <= AT_ONCE_CHARS


def _with_terms(rows: Collection[IndexRow]) -> tuple[list[ItemRow], _Made]:
    """Rows for the index, and the terms that were made for it."""
    made: _Made = []
    decoded: list[ItemRow] = []
    for row in rows:
        terms = row.terms
        if terms is None:
            terms = pack(row.text or "")
            if row.text is not None:
                made.append((UUID(bytes=row.item), row.revision, terms))
        decoded.append(ItemRow(row.place, row.vector, terms, row.hides, row.until))
    return decoded, made


def _size(held: HeldIndex) -> int:
    return held.index.nbytes + OBJECT_BYTES
