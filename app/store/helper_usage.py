"""The use of the helper LLM by day: calls, tokens, messages that it read, and that it did not. All processes count together."""

from __future__ import annotations

from typing import Any, Literal, get_args

from msgspec import Struct

from app.clock import Clock
from app.errors import HelperBudgetError
from app.store.pools import Pool
from app.store.queries import Queries

UnreadReason = Literal["budget", "shape", "away"]
"""Why messages were left to the rules alone: the day's tokens were spent, two answers in a row had another shape, or the LLM
was away each time that it was asked."""


class HelperDay(Struct, frozen=True):
    """One day's figures (UTC). `messages`: those of users that the helper LLM read; `unread_…`: those that it
    did not, by reason."""

    calls: int = 0
    tokens: int = 0
    messages: int = 0
    unread_budget: int = 0
    unread_shape: int = 0
    unread_away: int = 0


class HelperUsage:
    """Counts, and keeps to `tokens_per_day` (0: no limit)."""

    def __init__(self, pool: Pool, sql: Queries, clock: Clock, *, tokens_per_day: int) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock
        self.tokens_per_day = tokens_per_day

    async def reserve(self, tokens: int) -> None:
        """Count a call and its tokens. Raises HelperBudgetError where the day has fewer left, and StoreUnavailable."""
        limit = self.tokens_per_day or None
        if not await self._run("reserve", tokens, limit):
            raise HelperBudgetError(f"the helper LLM has used its {self.tokens_per_day:,} tokens of today")

    async def settle(self, tokens: int) -> None:
        await self._run("settle", tokens)

    async def count_read(self, messages: int) -> None:
        """Count messages of users that were read."""
        await self._run("count_messages", messages, 0, 0, 0)

    async def count_unread(self, messages: int, reason: UnreadReason) -> None:
        """Count messages of users that were not read."""
        counts = [messages * (reason == name) for name in get_args(UnreadReason)]
        await self._run("count_messages", 0, *counts)

    async def read_day(self) -> HelperDay:
        """Return today's figures."""
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(self._sql["helper.day"], self._clock.now())
        return HelperDay(**dict(row)) if row is not None else HelperDay()

    async def _run(self, statement: str, *values: object) -> Any:
        async with self._pool.acquire() as connection:
            return await connection.fetchval(self._sql[f"helper.{statement}"], self._clock.now(), *values)
