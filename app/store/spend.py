"""What was spent, by key, user, session, model or day."""

from __future__ import annotations

from datetime import date
from typing import Literal, get_args
from uuid import UUID

from msgspec import Struct

from app.store.ids import NIL, nobody
from app.store.pools import Pool
from app.store.queries import Queries

By = Literal["key", "user", "session", "model", "day"]
GROUPS: tuple[str, ...] = get_args(By)


class Spent(Struct, frozen=True):
    """One group of calls. `value`: the id of a key, user or session as text (None in `id`: calls that have none), the name of
    a model, or a day; `name`: what the tenant calls it. `unpriced_tokens`: those whose model has no known price: the cost,
    micro-cents, does not hold them."""

    value: str
    name: str | None
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    unpriced_tokens: int
    cost_microcents: int


class SpendStore:
    """Reads what was spent. It outlives the calls, which are kept for a while only."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def spent(
        self, tenant: UUID, user: UUID | None, by: By, since: date, until: date, *, after: str = "", limit: int
    ) -> list[Spent]:
        """Groups in the order of their values, after `after`, of the UTC days from `since` to `until`, both included; of one
        user, or of the whole tenant. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self._sql["limits.spend"], tenant, since, until, user, by, after, limit, nobody(tenant)
            )
        return [Spent(**dict(row)) for row in rows]


def is_nothing(tenant: UUID, value: str) -> bool:
    """Whether a group's value stands for calls without a key or session, or without a user."""
    return value in (str(NIL), str(nobody(tenant)))
