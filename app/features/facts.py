"""What is known of a user, fact by fact: the persona of seed 003 §6, at /api/v1/users/{user}/facts and …/profile.

Memories keep it by themselves (`agent_data.keep_facts`, a trigger): what a triple says becomes a fact in the transaction that
learns it. Here it is read, and changed by clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import (
    DEFAULT_PAGE,
    Cursor,
    Limit,
    Model,
    Segment,
    Text,
    UserSegment,
    clean,
    decode_cursor,
    encode_cursor,
    paged,
    parse_json,
)
from app.api.intake import IntakeCheck
from app.api.scope import Admitted, Gate
from app.clock import Clock
from app.errors import BadBody, BadRequest, Conflict, NotFound
from app.features import Process
from app.memory.secrets import unwelcome
from app.settings import Settings
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.tenancy import UserRef, ensure_user

PROFILE_FACTS = 1000
"""Most facts of a profile: it is meant to be read, and 1,000 lines are more than anybody's prompt holds."""


class Facts:
    def __init__(self, pool: Pool, sql: Queries, clock: Clock) -> None:
        self._pool = pool
        self._sql = sql
        self._clock = clock

    async def has_user(self, tenant: UUID, user: UUID) -> bool:
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
    ) -> list[FactOut]:
        """Facts by category and key, after (category, key). `holding`: those whose value contains this, as JSON; None: all."""
        return [_out(row) for row in await self._rows(tenant, user, category, after, limit, holding)]

    async def _rows(
        self,
        tenant: UUID,
        user: UUID,
        category: str | None,
        after: tuple[str, str] | None,
        limit: int,
        holding: Any = None,
    ) -> list[Any]:
        async with self._pool.transaction(tenant) as connection:
            found: list[Any] = await connection.fetch(
                self._sql["facts.page"],
                tenant,
                user,
                category,
                *(after or (None, None)),
                limit,
                None if holding is None else orjson.dumps(holding).decode(),
            )
        return found

    async def profile(self, tenant: UUID, user: UUID) -> dict[str, dict[str, Any]]:
        """Seed 003's `get_user_profile`: {category: {key: value}}; of what there may be many, a list of values."""
        found: dict[str, dict[str, Any]] = {}
        for row in await self._rows(tenant, user, None, None, PROFILE_FACTS):
            own = found.setdefault(row["category"], {})
            if row["is_many"]:  # one of several values of its predicate, which its key names as well (`likes:tea`)
                own.setdefault(row["fact_key"].partition(":")[0], []).append(row["fact_value"])
            else:
                own[row["fact_key"]] = row["fact_value"]
        return found

    async def one(self, tenant: UUID, user: UUID, key: str, category: str | None = None) -> FactOut | None:
        """The fact of that key. Raises Conflict where several categories have one and none is named."""
        async with self._pool.transaction(tenant) as connection:
            return await self._one(connection, tenant, user, key, category)

    async def put(
        self, tenant: UUID, user: UserRef, key: str, value: Any, *, category: str | None, confidence: int
    ) -> tuple[FactOut, bool]:
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
    ) -> list[FactChangeOut]:
        """What became of the facts of that key, gone ones too, oldest first, after the first `after` changes."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["facts.ids_of"], user, category, key)
            facts = [row["fact_id"] for row in rows]
            changes = await connection.fetch(self._sql["facts.history"], tenant, user, facts, after, limit)
        return [
            FactChangeOut(
                fact=row["fact_id"],
                at=row["at"],
                event=row["event"],
                value=row["fact_value"],
                confidence=row["confidence_score"],
                memory=row["source_memory_id"],
                actor=row["actor"],
            )
            for row in changes
        ]

    async def _one(self, connection: Any, tenant: UUID, user: UUID, key: str, category: str | None) -> FactOut | None:
        rows = await connection.fetch(self._sql["facts.named"], tenant, user, key, category)
        if len(rows) > 1:
            names = ", ".join(row["category"] for row in rows)
            raise Conflict(f"There are facts of this key in {names}: say which, with `category`.", param="category")
        return _out(rows[0]) if rows else None


# --- the routes ----------------------------------------------------------------------------------------------------------

MAX_KEY_CHARS = 255
MAX_CATEGORY_CHARS = 100
"""Seed 003 §6: VARCHAR(255) and VARCHAR(100)."""
STATED = 95
"""Confidence of what a client says outright, unless it says otherwise: the seed's own example, and as memories have it."""

MAX_VALUE_BYTES = 32_768
"""Longest value, bytes of JSON: as long as a memory may be."""

Key = Annotated[Segment, StringConstraints(max_length=MAX_KEY_CHARS)]
Category = Annotated[str, StringConstraints(min_length=1, max_length=MAX_CATEGORY_CHARS), AfterValidator(clean)]
CategoryQuery = Annotated[Category | None, Query(description="Where several categories have this key: which.")]
Score = Annotated[int, Field(ge=0, le=100)]


class FactIn(Model):
    """A fact, said outright."""

    value: Any = Field(description="Any JSON but null.")
    category: Category | None = Field(
        None,
        description="personal, professional, preference, interest, or one of your own; else where the key belongs.",
    )
    confidence: Score = Field(STATED, description="0 to 100.")


class FactRating(Model):
    """How far a fact is to be believed."""

    confidence: Score


class FactOut(BaseModel):
    """A fact. `memories`: those that say so, as far as they are known; a fact outlives their pruning."""

    id: UUID
    category: str
    key: str
    value: Any
    confidence: int
    memories: list[UUID]
    said_at: datetime
    first_mentioned: datetime
    last_updated: datetime


class FactPage(BaseModel):
    facts: list[FactOut]
    next: str | None


class FactChangeOut(BaseModel):
    """A change: created, changed, rated, ended (not true any more), deleted, forgotten; by system or api. `value` is null
    where it stayed, or went."""

    fact: UUID
    at: datetime
    event: str
    value: Any
    confidence: int | None
    memory: UUID | None
    actor: str


class FactChangePage(BaseModel):
    changes: list[FactChangeOut]
    next: str | None


class FactDeleted(BaseModel):
    id: UUID
    deleted: bool


class Profile(BaseModel):
    """The persona: values by category and key; a list where there may be several."""

    user: str
    profile: dict[str, dict[str, Any]]


def facts_router(gate: Gate, facts: Facts, intake_check: IntakeCheck) -> APIRouter:
    async def _named(scope: Admitted, user: str, key: str, category: str | None) -> FactOut:
        found = await facts.one(scope.tenant, scope.user(user).id, key, category)
        if found is None:
            raise NotFound("There is no such fact.")
        return found

    async def listing(
        scope: Admitted,
        user: Segment,
        category: Annotated[Category | None, Query(description="Of this category only.")] = None,
        value: Annotated[
            Text | None, Query(description="JSON that the value contains.", max_length=MAX_VALUE_BYTES)
        ] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> FactPage:
        """List a user's facts, by category and key."""
        after = decode_cursor(cursor, (str, str))
        rows = await facts.page(
            scope.tenant,
            scope.user(user).id,
            category=category,
            after=after and (after[0], after[1]),
            limit=limit + 1,
            holding=_json(value),
        )
        if not rows and not await facts.has_user(scope.tenant, scope.user(user).id):
            raise NotFound("There is no such user.")
        page, following = paged(rows, limit, lambda row: (row.category, row.key))
        return FactPage(facts=page, next=following)

    async def get(scope: Admitted, user: Segment, key: Key, category: CategoryQuery = None) -> FactOut:
        """Read a fact. 409: several categories have this key, and none is named."""
        return await _named(scope, user, key, category)

    async def put(scope: Admitted, response: Response, user: UserSegment, key: Key, body: FactIn) -> FactOut:
        """Say what is so: a new fact (201), or another value of one that is there (200). It holds until something else is
        said."""
        if body.value is None:
            raise BadRequest("A fact has a value; DELETE takes it away.", param="value")
        if len(orjson.dumps(body.value)) > MAX_VALUE_BYTES:
            raise BadRequest(f"A value has at most {MAX_VALUE_BYTES} bytes.", param="value")
        intake_check.check_fact(key, body.value)
        found, created = await facts.put(
            scope.tenant, scope.user(user), key, body.value, category=body.category, confidence=body.confidence
        )
        if created:
            response.status_code = 201
        return found

    async def rate(
        scope: Admitted, user: Segment, key: Key, body: FactRating, category: CategoryQuery = None
    ) -> FactOut:
        """Say how far a fact is to be believed."""
        held = await _named(scope, user, key, category)
        owner = scope.user(user).id
        if not await facts.rate(scope.tenant, owner, held.id, body.confidence):
            raise NotFound("There is no such fact.")
        return await _named(scope, user, key, held.category)

    async def delete(scope: Admitted, user: Segment, key: Key, category: CategoryQuery = None) -> FactDeleted:
        """Take a fact away, with the words of its history; it comes back only if it is said again. The memories that it
        came from stay: forget those under /api/v1/memories."""
        held = await _named(scope, user, key, category)
        if not await facts.delete(scope.tenant, scope.user(user).id, held.id):
            raise NotFound("There is no such fact.")
        return FactDeleted(id=held.id, deleted=True)

    async def history(
        scope: Admitted,
        user: Segment,
        key: Key,
        category: CategoryQuery = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> FactChangePage:
        """What became of a fact, oldest first; of one that is gone, too."""
        (after,) = decode_cursor(cursor, (int,)) or (0,)
        if after < 0:
            raise BadRequest("This cursor is not one that this list gave out.", param="cursor")
        rows = await facts.history(
            scope.tenant, scope.user(user).id, key, category=category, after=after, limit=limit + 1
        )
        if not rows and not after:
            raise NotFound("There is no such fact.")
        following = encode_cursor([after + limit]) if len(rows) > limit else None
        return FactChangePage(changes=rows[:limit], next=following)

    async def profile(scope: Admitted, user: Segment) -> Profile:
        """Read the persona of a user (at most 1,000 facts)."""
        owner = scope.user(user)
        found = await facts.profile(scope.tenant, owner.id)
        if not found and not await facts.has_user(scope.tenant, owner.id):
            raise NotFound("There is no such user.")
        return Profile(user=owner.external, profile=found)

    router = gate.router("facts")
    one = "/users/{user}/facts/{key}"
    router.add_api_route("/users/{user}/facts", listing, methods=["GET"], response_model=FactPage)
    router.add_api_route(one, get, methods=["GET"], response_model=FactOut)
    router.add_api_route(one, put, methods=["PUT"], response_model=FactOut)
    router.add_api_route(one, rate, methods=["PATCH"], response_model=FactOut)
    router.add_api_route(one, delete, methods=["DELETE"], response_model=FactDeleted)
    router.add_api_route(f"{one}/history", history, methods=["GET"], response_model=FactChangePage)
    router.add_api_route("/users/{user}/profile", profile, methods=["GET"], response_model=Profile)
    return router


def _json(text: str | None) -> Any:
    """A filter of values; None: there is none. Raises BadRequest."""
    if text is None:
        return None
    try:
        return parse_json(text.encode())
    except (BadBody, UnicodeEncodeError) as error:
        raise BadRequest("This is no JSON.", param="value") from error


def _out(row: Any) -> FactOut:
    return FactOut(
        id=row["fact_id"],
        category=row["category"],
        key=row["fact_key"],
        value=row["fact_value"],
        confidence=row["confidence_score"],
        memories=row["source_memory_ids"],
        said_at=row["said_at"],
        first_mentioned=row["first_mentioned"],
        last_updated=row["last_updated"],
    )


def routes(process: Process, settings: Settings, gate: Gate) -> Sequence[APIRouter]:
    intake_check = IntakeCheck(unwelcome(settings.store_secrets, settings.refuse_pii, settings.refuse_patterns))
    return (facts_router(gate, Facts(process.pool, process.queries, process.clock), intake_check),)
