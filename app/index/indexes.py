"""Users' indexes in the server's memory, as the database has them at the moment of each question."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import xor
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from app.errors import MnemeError
from app.index.analyse import READ_CHARS, VERSION, asked, forget, pack
from app.index.cache import Cache
from app.index.user_index import Row, UserIndex
from app.store.indexed import IndexRead, IndexRow, IndexStore
from app.store.places import Scan
from app.tasks import Supervisor

log = logging.getLogger("mneme.index")

MOST_ITEMS = 100_000
"""Items of one user that are kept, unless a setting says otherwise: 45 MB, and ten milliseconds for each question."""
PATIENCE_S = 0.03
"""Seconds that a question waits for an index that is being loaded: of the default deadline's 50 ms that leaves the database
20 to answer it. 10,000 items take 40 ms."""
AT_ONCE = 500
"""Rows that are decoded where requests are served (1.5 ms); more are in a thread, 3 ms for each 1,000."""
LONG_LOG = 2_000
"""Numbers in a user's log from which it is cut at once: each question goes through them, .1 ms for each 1,000."""
OBJECT_BYTES = 4_096
"""Of an index, beside its columns: the objects that hold them."""
SEEN_BYTES = 70
"""Of a number that was seen, in its set."""


class Part(NamedTuple):
    """What of a user's memory is asked (see `UserIndex.scan`)."""

    session: UUID | None = None
    visible_from: int = 1
    ancestors: Sequence[UUID] = ()
    history: bool = False
    only: int | None = None


class Meter(Protocol):
    """Counts what became of indexes."""

    def index_asked(self, how: str) -> None:
        """`held`: it was at hand; `loaded`: it was not; `changed`: some of it was read again; `missing`: it is not made yet, or
        has too many items; `late`: it was not loaded in time; `failed`: its load failed."""

    def index_loaded(self, seconds: float, items: int) -> None:
        """How long it took to load so many items."""

    def index_unreadable(self, items: int) -> None:
        """Items that were left out, for nothing could be made of them."""


@dataclass(frozen=True, slots=True)
class _Held:
    """An index, its stamp, and the numbers that the log had then."""

    index: UserIndex
    stamp: int
    seen: frozenset[int]


class _Missing(Exception):
    """There is no index of this user."""


class Indexes:
    """Answers questions from indexes in memory, each as the database has it at that moment; None where it has none."""

    def __init__(
        self, store: IndexStore, tasks: Supervisor, *, limit: int, meter: Meter | None = None, most: int = MOST_ITEMS,
        patience_s: float | None = PATIENCE_S,
    ) -> None:  # fmt: skip
        """`limit`: bytes of all indexes; `most`: items of one user; `patience_s`: None: for as long as a load takes."""
        self._store = store
        self._tasks = tasks
        self._meter = meter
        self._most = most
        self._patience_s = patience_s
        self._cache: Cache[tuple[UUID, int | None], _Held] = Cache(limit, _size, tasks)
        self._filling: set[UUID] = set()
        self._folding: set[UUID] = set()

    @property
    def bytes(self) -> int:
        """Of all indexes that are kept."""
        return self._cache.bytes

    async def scan(
        self, tenant: UUID, user: UUID, space: int | None, dimensions: int, query: str, vector: NDArray[np.float32] | None,
        scope: Part, *, vectors: int, texts: int,
    ) -> Scan | None:  # fmt: skip
        """What answers a question, as the database has it now; `vectors` and `texts` as `retrieve.Limits` has them.

        None: there is no index of this user (yet), or not in time: the database is to be asked. Raises StoreUnavailable.
        """
        found = await self._current(tenant, user, space, dimensions if space is not None else 0)
        if found is None:
            return None
        index, read = found
        wanted = None if vector is None else np.asarray(vector, np.float32)
        length = 0.0 if wanted is None else float(np.linalg.norm(wanted))
        return index.scan(
            asked(query, index.languages), wanted / np.float32(length) if wanted is not None and length else None,
            vectors=vectors, texts=texts, only=scope.only, session=scope.session, visible_from=scope.visible_from,
            ancestors=scope.ancestors, history=scope.history, now=read.at, most=read.words, k1=read.k1, b=read.b,
        )  # fmt: skip

    def drop(self, user: UUID) -> None:
        """Have nothing of a user any more, who is being erased; nor words that may have been his."""
        for space in {space for held, space in self._cache.known() if held == user}:
            self._cache.drop((user, space))
        forget()

    def drop_all(self) -> None:
        """Have nothing: nobody knows what was missed."""
        for key in self._cache.known():
            self._cache.drop(key)
        forget()

    async def _current(
        self, tenant: UUID, user: UUID, space: int | None, dimensions: int
    ) -> tuple[UserIndex, IndexRead] | None:
        key = user, space
        held = self._cache.held(key)
        fresh: list[IndexRead] = []
        if held is None:
            load = partial(self._load, tenant, user, space, dimensions, fresh)
            try:
                async with asyncio.timeout(self._patience_s):
                    held = await self._cache.get(key, load)
            except TimeoutError:
                self._told("late")
                return None
            except _Missing:
                self._told("missing")
                return None
            except MnemeError:
                self._told("failed")
                raise
            self._told("loaded")
            if fresh:  # it was this question that began the load: nothing older is in it
                return held.index, fresh[0]
        read = await self._read(tenant, user, space, held)
        if read.stamp == held.stamp:
            self._told("held")
            return held.index, read
        if read.stamp is None:
            self._cache.drop(key)
            self._told("missing")
            return None
        change = partial(self._later, held, read)
        changed = change() if len(read.rows) <= AT_ONCE else await asyncio.to_thread(change)
        if changed is None:
            # More changed than the log can tell: all of it is read again.
            self._cache.drop(key)
            return await self._current(tenant, user, space, dimensions)
        self._told("changed")
        later, made = changed
        self._keep(tenant, user, made)
        self._unreadable(later.index.unreadable - held.index.unreadable, user)
        self._shorten(tenant, user, read)
        # What was dropped meanwhile stays so: it may have been for an erasure.
        if self._cache.held(key) is held:
            self._cache.keep(key, later)
        return later.index, read

    @staticmethod
    def _later(held: _Held, read: IndexRead) -> tuple[_Held, _Made] | None:
        """The index with what changed; None: the numbers do not lead from one stamp to the other."""
        assert read.stamp is not None, "who has none is not asked about"
        new = [each for each in read.numbers if each not in held.seen]
        if reduce(xor, new, held.stamp) != read.stamp:
            return None
        there = {row.item for row in read.rows}
        gone = [item for item in read.items or () if item.bytes not in there]
        rows, made = _with_terms(read.rows)
        return _Held(held.index.without(gone).with_rows(rows), read.stamp, frozenset(read.numbers)), made

    async def _load(self, tenant: UUID, user: UUID, space: int | None, dimensions: int, told: list[IndexRead]) -> _Held:
        began = time.monotonic()
        read = await self._read(tenant, user, space, None)
        if read.stamp is None:
            if not read.many:
                self._fill(tenant, user)
            raise _Missing
        make = partial(self._made, read.rows, dimensions)
        index, made = make() if len(read.rows) <= AT_ONCE else await asyncio.to_thread(make)
        self._keep(tenant, user, made)
        self._unreadable(index.unreadable, user)
        self._shorten(tenant, user, read)
        if self._meter is not None:
            self._meter.index_loaded(time.monotonic() - began, len(read.rows))
        told.append(read)
        return _Held(index, read.stamp, frozenset(read.numbers))

    async def _read(self, tenant: UUID, user: UUID, space: int | None, held: _Held | None) -> IndexRead:
        return await self._store.read(
            tenant, user, space, version=VERSION, chars=READ_CHARS, stamp=held.stamp if held else None,
            seen=list(held.seen) if held else (), most=self._most,
        )  # fmt: skip

    @staticmethod
    def _made(rows: Sequence[IndexRow], dimensions: int) -> tuple[UserIndex, _Made]:
        decoded, made = _with_terms(rows)
        return UserIndex.of(decoded, dimensions), made

    def _keep(self, tenant: UUID, user: UUID, made: _Made) -> None:
        if made:
            self._aside(self._store.keep(tenant, user, made), "keep terms")

    def _fill(self, tenant: UUID, user: UUID) -> None:
        if user not in self._filling:
            self._filling.add(user)
            task = self._aside(self._store.fill(tenant, user), "fill index")
            task.add_done_callback(lambda _: self._filling.discard(user))

    def _shorten(self, tenant: UUID, user: UUID, read: IndexRead) -> None:
        if len(read.numbers) > LONG_LOG and user not in self._folding:
            self._folding.add(user)
            task = self._aside(self._store.fold(tenant, user), "fold index")
            task.add_done_callback(lambda _: self._folding.discard(user))

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


_Made = list[tuple[UUID, int, bytes]]
"""Terms that were made: item, revision of its text, terms."""


def _with_terms(rows: Collection[IndexRow]) -> tuple[list[Row], _Made]:
    """Rows for the index, and the terms that were made for it."""
    made: _Made = []
    decoded: list[Row] = []
    for row in rows:
        terms = row.terms
        if terms is None:
            terms = pack(row.text or "")
            if row.text is not None:
                made.append((UUID(bytes=row.item), row.revision, terms))
        decoded.append(Row(row.place, row.vector, terms, row.hides, row.until))
    return decoded, made


def _size(held: _Held) -> int:
    return held.index.nbytes + OBJECT_BYTES + SEEN_BYTES * len(held.seen)
