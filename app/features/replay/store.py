"""Records what a replayed answer cost: no call is recorded for it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from app.store.pools import Pool
from app.store.queries import Queries


class ReplayCost(Struct, frozen=True):
    """Tokens and cost of a replayed answer. `priced`: the model's price is known."""

    model: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    microcents: int
    priced: bool


class ReplayStore:
    """Writes the spend of replays."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def record_spend(
        self, tenant: UUID, user: UUID, call: UUID, replay: UUID, key: UUID | None, at: datetime, cost: ReplayCost
    ) -> None:
        """Add the cost of a replayed answer to the tenant's spend. Raises StoreUnavailable.

        Args:
            tenant: Whose spend it is.
            user: The user of the captured call.
            call: The captured call.
            replay: The replay's own id, by which its cost is counted once.
            key: The key that asked for the replay; None without one.
            at: When the request was sent.
            cost: What the answer came to.
        """
        async with self._pool.transaction(tenant) as connection:
            await connection.execute(self._sql["replays.hold_user"], user)
            await connection.execute(
                self._sql["replays.record_spend"],
                tenant, replay, call, user, key, cost.model, at, cost.prompt_tokens, cost.completion_tokens,
                cost.cached_tokens, cost.priced, cost.microcents,
            )  # fmt: skip
