"""Which captured calls are wanted as cassettes, and their answers piece by piece."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from app.store.pools import Pool
from app.store.queries import Queries

PAGE = 200
"""Ids that are read at once."""


class Wanted(Struct, frozen=True):
    """Which calls; None: any. `since` and later, before `until`. `labels`: all of them. `legs`: those of calls, too; named in
    `calls` they always are."""

    session: UUID | None = None
    model: str | None = None
    status: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    labels: Sequence[str] = ()
    calls: Sequence[UUID] | None = None
    legs: bool = False


class Answer(NamedTuple):
    """The body of an answer, and (microseconds since the request came in, bytes) of each piece of it."""

    body: bytes
    truncated: bool
    pieces: list[tuple[int, int]]


class CassetteStore:
    """The captured calls of a tenant, for export. `user`: only that user's; None: any user's."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def ids(self, tenant: UUID, user: UUID | None, wanted: Wanted) -> AsyncIterator[UUID]:
        """The calls, oldest first. Each page is a transaction of its own: a slow reader holds no connection."""
        after: UUID | None = None
        labels = list(wanted.labels) or None
        filters = (wanted.session, wanted.model, wanted.status, wanted.since, wanted.until, labels)
        calls = list(wanted.calls) if wanted.calls is not None else None
        while True:
            async with self._pool.transaction(tenant) as connection:
                rows = await connection.fetch(
                    self._sql["cassettes.wanted"], tenant, user, *filters, calls, after, PAGE, wanted.legs
                )
            for row in rows:
                yield row["call_id"]
            if len(rows) < PAGE:
                return
            after = rows[-1]["call_id"]

    async def holders(self, tenant: UUID, calls: Sequence[UUID]) -> dict[UUID, set[UUID]]:
        """Whose calls these are, of those that are there."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["cassettes.holders"], tenant, list(calls))
        found: dict[UUID, set[UUID]] = {}
        for row in rows:
            found.setdefault(row["call_id"], set()).add(row["user_id"])
        return found

    async def answer(self, tenant: UUID, call: UUID, user: UUID | None) -> Answer | None:
        """The answer of a call; None: nothing was captured."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["cassettes.stream"], tenant, call, user)
        if row is None:
            return None
        offsets = [*row["chunk_offsets"], len(row["body"])]
        sizes = [end - start for start, end in pairwise(offsets)]
        return Answer(row["body"], row["truncated"], list(zip(row["chunk_times"], sizes, strict=True)))
