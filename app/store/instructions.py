"""What a tenant tells in its own words: to extraction, and to every prompt."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from app.clock import Clock
from app.store.pools import Pool
from app.store.queries import Queries


class Instructions:
    """The instructions and profiles of tenants."""

    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def read(self, tenant: UUID) -> tuple[str | None, datetime | None]:
        """The instructions (None: none) and when they were last changed (None: never)."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["instructions.read"], tenant)
        return (row["instructions"], row["updated_at"]) if row is not None else (None, None)

    async def write(self, tenant: UUID, text: str | None) -> datetime:
        """Change them (None: there are none any more); when. Jobs that begin later read them."""
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["instructions.write"], tenant, text or "", now)
        return now

    async def read_profile(self, tenant: UUID) -> tuple[str | None, datetime | None]:
        """The profile (None: none) and when either was last changed (None: never)."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["instructions.read_profile"], tenant)
        return (row["profile"], row["updated_at"]) if row is not None else (None, None)

    async def write_profile(self, tenant: UUID, text: str | None) -> datetime:
        """Change it (None: there is none any more); when. Prompts that are compiled from now on have it."""
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["instructions.write_profile"], tenant, text or "", now)
        return now

    async def for_extraction(self, tenant: UUID) -> str | None:
        """What a job that extracts for this tenant adds to its prompt."""
        async with self._pool.transaction(tenant) as connection:
            found: str | None = await connection.fetchval(self._sql["instructions.for_extraction"], tenant)
        return found
