"""What a server keeps of a user to rank by, as the database has it (sql/schema/015_index.sql)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import orjson
from numpy.typing import NDArray

from app.store.ids import nobody
from app.store.item_columns import PLACE
from app.store.pools import Pool, Reads, halfvec
from app.store.queries import Queries

AT_ONCE = 500
"""Rows that are decoded where requests are served (1.5 ms); more are in a thread, 3 ms for each 1,000."""
_HAS_VECTOR = 8
"""In `hides` of `agent_data.index_columns`."""
ERASED = "mneme_erased"
"""Where an erasure tells servers whose index they drop (NOTIFY): a user's id."""


class IndexRow(NamedTuple):
    """An item, as `agent_data.index_columns` has it. `vector`: b"" for none. `terms` None: they are to be made of `text`."""

    place: bytes
    hides: int
    until: int
    vector: bytes
    terms: bytes | None
    text: str | None
    revision: int

    @property
    def item(self) -> bytes:
        """Its id, 16 bytes: a place begins with it."""
        return self.place[:16]


class IndexAsk(NamedTuple):
    """What a server wants to know of a user's index. `space`: of the vectors; `version`: of the analyser; `chars`: of a text
    that it reads; `epoch`, `snapshot`: of what the server has, None: it has nothing."""

    space: int | None
    version: int
    chars: int
    epoch: int | None
    snapshot: str | None


NO_INDEX = IndexAsk(None, 0, 0, None, None)
"""Nothing is asked."""


class SpacesAsk(NamedTuple):
    """Of which spaces a server has an index, and as of when: as `IndexAsk`, an element for each."""

    spaces: Sequence[UUID]
    epochs: Sequence[int | None]
    snapshots: Sequence[str]


NO_SPACES = SpacesAsk((), (), ())
"""Of none."""


class IndexRead(NamedTuple):
    """What `agent_data.index_read` found, as of `epoch` and `snapshot`. `whole`: what a server has leads nowhere, all is to be
    read. Else `items` changed, and `rows` are those of them that are there. `at`: now,
    microseconds since 2000."""

    epoch: int | None
    snapshot: str
    whole: bool
    items: Sequence[UUID]
    at: int
    rows: Sequence[IndexRow]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> IndexRead:
        """From the columns of `index_read` and `index_columns`."""
        return cls(row["epoch"], row["snapshot"], row["whole"], row["items"] or (), row["at"], _rows(row))


class SharedRead(NamedTuple):
    """A space that a user may read; and what became of its index, where that was asked. `by_word`: its members may say
    something to it in a conversation."""

    space_id: UUID
    name: str
    by_word: bool = False
    read: IndexRead | None = None


_COLUMNS = ("places", "hides", "untils", "vectors", "lengths", "terms", "revisions")


def shared_of(row: Mapping[str, Any]) -> tuple[SharedRead, ...]:
    """From the columns of `agent_data.spaces_read`: an element of each array for each space."""
    found = []
    for n, space in enumerate(row["shared_ids"] or ()):
        read, snapshot = None, row["shared_snapshots"][n]
        if snapshot is not None:
            told: dict[str, Any] = {name: row[f"shared_{name}"][n] for name in _COLUMNS}
            texts = row["shared_texts"][n]
            changed = row["shared_items"][n] or b""
            read = IndexRead(
                row["shared_epochs"][n],
                snapshot,
                row["shared_wholes"][n],
                [UUID(bytes=changed[at : at + 16]) for at in range(0, len(changed), 16)],
                row["shared_ats"][n],
                _rows(told | {"texts": orjson.loads(texts) if texts is not None else None}),
            )
        found.append(SharedRead(space, row["shared_names"][n], row["shared_by_word"][n], read))
    return tuple(found)


_KEPT_AT_ONCE = 500
"""Items whose terms are written at once: some five milliseconds."""


class IndexStore:
    """Reads a user's index, and keeps what it was made of."""

    def __init__(self, reads: Reads, pool: Pool, sql: Queries) -> None:
        """`reads`: of what is found for a request; `pool`: for writing."""
        self._reads = reads
        self._pool = pool
        self._sql = sql

    async def read(self, tenant: UUID, user: UUID, ask: IndexAsk) -> IndexRead:
        """What became of a user's index. Raises StoreUnavailable."""
        return await self._read("index.read", tenant, user, *ask)

    async def load(self, tenant: UUID, user: UUID, ask: IndexAsk, most: int) -> IndexRead:
        """All that there is for a user's index; of the messages the latest, where all would be more than `most` items. Raises
        StoreUnavailable."""
        return await self._read("index.load", tenant, user, *ask[:3], most)

    async def session(self, tenant: UUID, user: UUID, ask: IndexAsk, session: UUID, most: int) -> IndexRead:
        """The same of one session of nobody's, which all of a tenant's share a user. Raises StoreUnavailable."""
        return await self._read("index.session", tenant, user, *ask[:3], session, most)

    async def beside(
        self, tenant: UUID, user: UUID, ask: IndexAsk, vector: NDArray[np.float32], before: int, limit: int
    ) -> Sequence[IndexRow]:
        """Of the messages from before a time (microseconds since 2000) those with the nearest vectors, by the graph. Raises
        StoreUnavailable."""
        row = await self._reads.one("index.beside", tenant, user, *ask[:3], vector, before, limit)
        return _rows(row) if row is not None else ()

    async def recall(
        self,
        tenant: UUID,
        user: UUID,
        ask: IndexAsk,
        vector: NDArray[np.float32],
        before: int,
        limit: int,
        nearest: int,
    ) -> float | None:
        """Of the `nearest` messages the share that is among what `beside` finds: every vector is compared. None: there are
        none. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            arguments = (tenant, user, ask[0], halfvec(vector), before, limit, nearest)
            row = await connection.fetchrow(self._sql["index.recall"], *arguments)
        if row is None or not row["wanted"]:
            return None
        return len(set(row["wanted"]) & set(row["found"] or ())) / len(row["wanted"])

    async def _read(self, query: str, *arguments: Any) -> IndexRead:
        row = await self._reads.one(query, *arguments)
        assert row is not None, "a function with OUT arguments returns one row"
        if len(row["places"] or b"") <= AT_ONCE * PLACE.itemsize:
            return IndexRead.of(row)
        return await asyncio.to_thread(IndexRead.of, row)

    async def recent(self, limit: int) -> list[tuple[UUID, UUID]]:
        """Tenant and id of users of whom something changed lately, the latest first; without nobody, of whom no index is kept.
        Raises StoreUnavailable."""
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(self._sql["index.recent"], limit)
        return [(tenant, user) for tenant, user in rows if user != nobody(tenant)]

    async def keep(self, tenant: UUID, user: UUID, made: Sequence[tuple[UUID, int, bytes]]) -> None:
        """Keep terms that were made: item, revision of its text, terms; part by part, for requests wait while one is sent.
        Raises StoreUnavailable."""
        for begin in range(0, len(made), _KEPT_AT_ONCE):
            columns: list[Any] = [list(each) for each in zip(*made[begin : begin + _KEPT_AT_ONCE], strict=True)]
            async with self._pool.acquire() as connection:
                await connection.execute(self._sql["index.terms"], tenant, user, *columns)


def _rows(row: Mapping[str, Any]) -> Sequence[IndexRow]:
    """The items of `agent_data.index_columns`."""
    if not row["places"]:
        return ()
    places: bytes = row["places"]
    hides: bytes = row["hides"]
    flags = np.frombuffer(hides, np.uint8)
    with_vector = int(np.count_nonzero(flags & _HAS_VECTOR))
    all_vectors: bytes = row["vectors"] or b""
    width = len(all_vectors) // with_vector if with_vector else 0
    vectors = (all_vectors[at : at + width] for at in range(0, len(all_vectors), width or 1))
    lengths = np.frombuffer(row["lengths"], ">i4").tolist()
    all_terms: bytes = row["terms"] or b""
    ends = np.cumsum(np.maximum(np.frombuffer(row["lengths"], ">i4"), 0)).tolist()
    untils = np.frombuffer(row["untils"], ">i8").tolist()
    made = iter(zip(row["texts"] or (), np.frombuffer(row["revisions"] or b"", ">i4").tolist(), strict=True))
    rows = []
    for n, flag in enumerate(hides):
        text, revision = (None, 0) if lengths[n] >= 0 else next(made)
        rows.append(
            IndexRow(
                places[n * PLACE.itemsize : (n + 1) * PLACE.itemsize],
                flag & ~_HAS_VECTOR,
                untils[n],
                next(vectors) if flag & _HAS_VECTOR else b"",
                all_terms[ends[n] - lengths[n] : ends[n]] if lengths[n] >= 0 else None,
                text,
                revision,
            )
        )
    return rows
