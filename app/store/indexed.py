"""What a server keeps of a user to rank by, as the database has it (sql/schema/015_index.sql)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from app.store.places import PLACE
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.replicas import Reads

AT_ONCE = 500
"""Rows that are decoded where requests are served (1.5 ms); more are in a thread, 3 ms for each 1,000."""
HAS_VECTOR = 8
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
    that it reads; `epoch`, `snapshot`: of what the server has, None: it has nothing; `most`: items that are kept of a user."""

    space: int | None
    version: int
    chars: int
    epoch: int | None
    snapshot: str | None
    most: int


NO_INDEX = IndexAsk(None, 0, 0, None, None, 0)
"""Nothing is asked."""


class IndexRead(NamedTuple):
    """What `agent_data.index_read` found, as of `epoch` and `snapshot`. `whole`: what a server has leads nowhere, all is to be
    read; `many`: that is too much for an index. Else `items` changed, and `rows` are those of them that are there. `at`: now,
    microseconds since 2000."""

    epoch: int | None
    snapshot: str
    whole: bool
    many: bool
    items: Sequence[UUID]
    at: int
    k1: float
    b: float
    words: int
    rows: Sequence[IndexRow]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> IndexRead:
        """From the columns of `index_read` and `index_columns`."""
        return cls(
            row["epoch"], row["snapshot"], row["whole"], row["many"], row["items"] or (), row["at"], row["k1"], row["b"],
            row["words"], _rows(row) if row["places"] else (),
        )  # fmt: skip


class IndexStore:
    """Reads a user's index, and keeps what it was made of."""

    def __init__(self, reads: Reads, pool: Pool, sql: Queries) -> None:
        """`reads`: of what is found for a request; `pool`: for writing."""
        self._reads = reads
        self._pool = pool
        self._sql = sql

    async def read(self, tenant: UUID, user: UUID, ask: IndexAsk) -> IndexRead:
        """What became of a user's index; or all of it, where the server has nothing. Raises StoreUnavailable."""
        if ask.snapshot is None:
            row = await self._reads.one("index.load", tenant, user, *ask[:3], ask.most)
        else:
            row = await self._reads.one("index.read", tenant, user, *ask)
        assert row is not None, "a function with OUT arguments returns one row"
        if len(row["places"] or b"") <= AT_ONCE * PLACE.itemsize:
            return IndexRead.of(row)
        return await asyncio.to_thread(IndexRead.of, row)

    async def recent(self, limit: int) -> list[tuple[UUID, UUID]]:
        """Tenant and id of users of whom something changed lately, the latest first. Raises StoreUnavailable."""
        async with self._pool.acquire() as connection:
            return [(row[0], row[1]) for row in await connection.fetch(self._sql["index.recent"], limit)]

    async def keep(self, tenant: UUID, user: UUID, made: Sequence[tuple[UUID, int, bytes]]) -> None:
        """Keep terms that were made: item, revision of its text, terms. Raises StoreUnavailable."""
        columns: list[Any] = [list(each) for each in zip(*made, strict=True)]
        async with self._pool.acquire() as connection:
            await connection.execute(self._sql["index.terms"], tenant, user, *columns)


def _rows(row: Mapping[str, Any]) -> list[IndexRow]:
    """The items of `agent_data.index_columns`."""
    places: bytes = row["places"]
    hides: bytes = row["hides"]
    flags = np.frombuffer(hides, np.uint8)
    with_vector = int(np.count_nonzero(flags & HAS_VECTOR))
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
                flag & ~HAS_VECTOR,
                untils[n],
                next(vectors) if flag & HAS_VECTOR else b"",
                all_terms[ends[n] - lengths[n] : ends[n]] if lengths[n] >= 0 else None,
                text,
                revision,
            )
        )
    return rows
