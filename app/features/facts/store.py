"""What is known of a user, fact by fact: the persona of seed 003 §6.

Memories keep it by themselves (`agent_data.keep_facts`, a trigger): what a triple says becomes a fact in the transaction that
learns it. Here it is read, and changed by clients.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct

from app.clock import Clock
from app.errors import Conflict
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.tenancy import UserRef, ensure_user

PROFILE_FACTS = 1000
"""Most facts of a profile: it is meant to be read, and 1,000 lines are more than anybody's prompt holds."""


class Fact(Struct, frozen=True):
    """A fact. `is_many`: one of several values of its predicate, which its key names as well (`likes:tea`).
    `confidence_score`: 0 to 100 (seed 003)."""

    fact_id: UUID
    category: str
    fact_key: str
    is_many: bool
    fact_value: Any
    confidence_score: int
    source_memory_ids: list[UUID]
    said_at: datetime
    first_mentioned: datetime
    last_updated: datetime


class FactChange(Struct, frozen=True):
    """A line of a fact's history. `fact_value` None: it stayed, or went."""

    fact_id: UUID
    at: datetime
    event: str
    fact_value: Any
    confidence_score: int | None
    source_memory_id: UUID | None
    actor: str


class Facts:
    """The facts of a tenant's users."""

    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def has_user(self, tenant: UUID, user: UUID) -> bool:
        """Whether there is such a user."""
        async with self._pool.transaction(tenant) as connection:
            return await connection.fetchrow(self._sql["tenancy.user_one"], tenant, user) is not None

    async def page(
        self,
        tenant: UUID,
        user: UUID,
        *,
        category: str | None,
        after: tuple[str, str] | None,
        limit: int,
        holding: Any = None,
    ) -> list[Fact]:
        """Facts by category and key, after (category, key). `holding`: those whose value contains this, as JSON; None: all."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self._sql["facts.page"],
                tenant,
                user,
                category,
                *(after or (None, None)),
                limit,
                None if holding is None else orjson.dumps(holding).decode(),
            )
        return [Fact(**dict(row)) for row in rows]

    async def profile(self, tenant: UUID, user: UUID) -> dict[str, dict[str, Any]]:
        """Seed 003's `get_user_profile`: {category: {key: value}}; of what there may be many, a list of values."""
        found: dict[str, dict[str, Any]] = {}
        for fact in await self.page(tenant, user, category=None, after=None, limit=PROFILE_FACTS):
            own = found.setdefault(fact.category, {})
            if fact.is_many:
                own.setdefault(fact.fact_key.partition(":")[0], []).append(fact.fact_value)
            else:
                own[fact.fact_key] = fact.fact_value
        return found

    async def one(self, tenant: UUID, user: UUID, key: str, category: str | None = None) -> Fact | None:
        """The fact of that key. Raises Conflict where several categories have one and none is named."""
        async with self._pool.transaction(tenant) as connection:
            return await self._one(connection, tenant, user, key, category)

    async def put(
        self, tenant: UUID, user: UserRef, key: str, value: Any, *, category: str | None, confidence: int
    ) -> tuple[Fact, bool]:
        """Seed 003's `extract_and_store_fact`, as a client says it; True: it is new. Without a category it is the one that
        has this key already, else the one where such a key belongs. Raises Conflict as `one`, and where the fact was
        deleted at this very moment."""
        now = self._clock.now()
        async with self._pool.transaction(tenant) as connection:
            await ensure_user(connection, self._sql, tenant, user, now)
            if category is None:
                held = await self._one(connection, tenant, user.id, key, None)
                category = held.category if held else await connection.fetchval(self._sql["facts.category_of"], key)
            text = orjson.dumps(value).decode()  # the codec takes a text for JSON already
            done = await connection.fetchval(
                self._sql["facts.put"], tenant, user.id, category, key, text, confidence, now
            )
            found = await self._one(connection, tenant, user.id, key, category)
        if found is None:
            raise Conflict("This fact was deleted by somebody else at this very moment; try again.")
        return found, done == "created"

    async def rate(self, tenant: UUID, user: UUID, fact: UUID, confidence: int) -> bool:
        """Seed 003's `update_fact_confidence`. False: there is none."""
        async with self._pool.transaction(tenant) as connection:
            return bool(
                await connection.fetchval(self._sql["facts.rate"], tenant, user, fact, confidence, self._clock.now())
            )

    async def delete(self, tenant: UUID, user: UUID, fact: UUID) -> bool:
        """Take a fact and the words of its history away. What was said until now does not bring it back; the memories that
        said so stay. False: there is none."""
        async with self._pool.transaction(tenant) as connection:
            return bool(await connection.fetchval(self._sql["facts.drop"], tenant, user, fact, self._clock.now()))

    async def history(
        self, tenant: UUID, user: UUID, key: str, *, category: str | None, after: int, limit: int
    ) -> list[FactChange]:
        """What became of the facts of that key, gone ones too, oldest first, after the first `after` changes."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["facts.ids_of"], user, category, key)
            facts = [row["fact_id"] for row in rows]
            changes = await connection.fetch(self._sql["facts.history"], tenant, user, facts, after, limit)
        return [FactChange(**dict(row)) for row in changes]

    async def _one(self, connection: Any, tenant: UUID, user: UUID, key: str, category: str | None) -> Fact | None:
        rows = await connection.fetch(self._sql["facts.named"], tenant, user, key, category)
        if len(rows) > 1:
            names = ", ".join(row["category"] for row in rows)
            raise Conflict(f"There are facts of this key in {names}: say which, with `category`.", param="category")
        return Fact(**dict(rows[0])) if rows else None
