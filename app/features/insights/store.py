"""The table of insights, under row-level security."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from app.clock import Clock
from app.errors import Conflict
from app.features.insights.render import Insight
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.tenancy import UserRef, ensure_user

MAX_INSIGHTS = 50
"""Of one user: each is a query of the business's database every few hours."""


class StoredInsight(NamedTuple):
    """An insight, and what became of it."""

    user_id: UUID
    user_external_id: str
    name: str
    domain: str
    title: str
    unit: str
    source: str
    period_days: int
    every_hours: int
    due_at: datetime
    ran_at: datetime | None
    memory_id: UUID | None
    error: str | None

    @property
    def insight(self) -> Insight:
        return Insight(self.name, self.domain, self.title, self.source, self.unit, self.period_days, self.every_hours)


class InsightStore:
    """Insights by user."""

    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def put(self, tenant: UUID, user: UserRef, insight: Insight) -> bool:
        """Say what is asked, at once and from then on; whether it is new. Raises Conflict where the user has too many."""
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            await ensure_user(connection, self._sql, tenant, user, now)
            there = await connection.fetchrow(self._sql["insights.count"], tenant, user.id, insight.name)
            assert there is not None, "a count has one row"
            if there["others"] >= MAX_INSIGHTS:
                raise Conflict(f"A user has at most {MAX_INSIGHTS} insights.")
            await connection.execute(
                self._sql["insights.put"],
                tenant, user.id, insight.name, insight.domain, insight.title, insight.unit, insight.source,
                insight.period_days, insight.every_hours, now,
            )  # fmt: skip
        return not there["known"]

    async def page(
        self, tenant: UUID, user: UUID | None, *, after: tuple[UUID, str] | None, limit: int
    ) -> list[StoredInsight]:
        """Of a user or of all, by user and name."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["insights.list"], tenant, user, *(after or (None, None)), limit)
        return [StoredInsight(**dict(row)) for row in rows]

    async def one(self, tenant: UUID, user: UUID, name: str) -> StoredInsight | None:
        """One of a user's."""
        async with self._pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self._sql["insights.one"], tenant, user, name)
        return None if row is None else StoredInsight(**dict(row))

    async def drop(self, tenant: UUID, user: UUID, name: str) -> bool:
        """Take one away; what it said stays until it expires. False: there was none."""
        async with self._pool.transaction(tenant) as connection:
            return await connection.fetchval(self._sql["insights.drop"], tenant, user, name) is not None

    async def failed(self, tenant: UUID, user: UUID, name: str, due_at: datetime, error: str) -> None:
        """It said nothing, because of `error`."""
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(
                self._sql["insights.ran"], tenant, user, name, self._clock.now(), due_at, None, error
            )
