"""What a request asks of what is known of the things that it names: whether there is anything, and what memories say of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from app.store.pools import Pool
from app.store.queries import Queries

NOBODY = UUID(int=0)
"""Whose things those of the whole tenant are."""


class Claim(NamedTuple):
    """What a memory says of a thing, as a triple. `stated_at`: when it was learned, or confirmed."""

    memory_id: UUID
    entity_id: str
    predicate: str
    value: str
    stated_at: datetime
    confidence: float


class ResolutionStore:
    """Hot reads, one look-up each."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def has_things(self, tenant: UUID, user: UUID | None) -> bool:
        """Whether the tenant has things, or the user of his own. Raises StoreUnavailable."""
        async with self._pool.acquire() as connection:
            return bool(await connection.fetchval(self._sql["knowing.has_things"], tenant, user or NOBODY))

    async def claims(self, tenant: UUID, user: UUID, memories: Sequence[UUID]) -> list[Claim]:
        """What these memories of a user say of things, as far as they may be shown. Raises StoreUnavailable."""
        if not memories:
            return []
        async with self._pool.acquire() as connection:
            rows = await connection.fetch(self._sql["knowing.claims"], tenant, user, list(memories))
        return list(map(Claim._make, rows))
