"""/api/v1/users/{user}/facts and …/profile: what is known of a user, fact by fact (seed 003)."""

from __future__ import annotations

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
    clean,
    decode_cursor,
    encode_cursor,
    paged,
    parse_json,
)
from app.api.intake import IntakeCheck
from app.api.scope import Admitted, Gate
from app.errors import BadBody, BadRequest, NotFound
from app.features.facts.store import Fact, Facts

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
    """The routes of facts and of the profile."""
    routes = _Routes(facts, intake_check)
    router = gate.router("facts")
    one = "/users/{user}/facts/{key}"
    router.add_api_route("/users/{user}/facts", routes.listing, methods=["GET"], response_model=FactPage)
    router.add_api_route(one, routes.get, methods=["GET"], response_model=FactOut)
    router.add_api_route(one, routes.put, methods=["PUT"], response_model=FactOut)
    router.add_api_route(one, routes.rate, methods=["PATCH"], response_model=FactOut)
    router.add_api_route(one, routes.delete, methods=["DELETE"], response_model=FactDeleted)
    router.add_api_route(f"{one}/history", routes.history, methods=["GET"], response_model=FactChangePage)
    router.add_api_route("/users/{user}/profile", routes.profile, methods=["GET"], response_model=Profile)
    return router


class _Routes:
    def __init__(self, facts: Facts, intake_check: IntakeCheck) -> None:
        self._facts = facts
        self._intake_check = intake_check

    async def listing(
        self,
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
        rows = await self._facts.page(
            scope.tenant,
            scope.user(user).id,
            category=category,
            after=after and (after[0], after[1]),
            limit=limit + 1,
            holding=_json(value),
        )
        if not rows and not await self._facts.has_user(scope.tenant, scope.user(user).id):
            raise NotFound("There is no such user.")
        page, following = paged(rows, limit, lambda row: (row.category, row.fact_key))
        return FactPage(facts=[_out(row) for row in page], next=following)

    async def get(self, scope: Admitted, user: Segment, key: Key, category: CategoryQuery = None) -> FactOut:
        """Read a fact. 409: several categories have this key, and none is named."""
        return _out(await self._named(scope, user, key, category))

    async def put(self, scope: Admitted, response: Response, user: Segment, key: Key, body: FactIn) -> FactOut:
        """Say what is so: a new fact (201), or another value of one that is there (200). It holds until something else is
        said."""
        if body.value is None:
            raise BadRequest("A fact has a value; DELETE takes it away.", param="value")
        if len(orjson.dumps(body.value)) > MAX_VALUE_BYTES:
            raise BadRequest(f"A value has at most {MAX_VALUE_BYTES} bytes.", param="value")
        self._intake_check.check_fact(key, body.value)
        found, created = await self._facts.put(
            scope.tenant, scope.user(user), key, body.value, category=body.category, confidence=body.confidence
        )
        if created:
            response.status_code = 201
        return _out(found)

    async def rate(
        self, scope: Admitted, user: Segment, key: Key, body: FactRating, category: CategoryQuery = None
    ) -> FactOut:
        """Say how far a fact is to be believed."""
        held = await self._named(scope, user, key, category)
        owner = scope.user(user).id
        if not await self._facts.rate(scope.tenant, owner, held.fact_id, body.confidence):
            raise NotFound("There is no such fact.")
        return _out(await self._named(scope, user, key, held.category))

    async def delete(self, scope: Admitted, user: Segment, key: Key, category: CategoryQuery = None) -> FactDeleted:
        """Take a fact away, with the words of its history; it comes back only if it is said again. The memories that it
        came from stay: forget those under /api/v1/memories."""
        held = await self._named(scope, user, key, category)
        if not await self._facts.delete(scope.tenant, scope.user(user).id, held.fact_id):
            raise NotFound("There is no such fact.")
        return FactDeleted(id=held.fact_id, deleted=True)

    async def history(
        self,
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
        rows = await self._facts.history(
            scope.tenant, scope.user(user).id, key, category=category, after=after, limit=limit + 1
        )
        if not rows and not after:
            raise NotFound("There is no such fact.")
        changes = [
            FactChangeOut(
                fact=row.fact_id,
                at=row.at,
                event=row.event,
                value=row.fact_value,
                confidence=row.confidence_score,
                memory=row.source_memory_id,
                actor=row.actor,
            )
            for row in rows[:limit]
        ]
        return FactChangePage(changes=changes, next=encode_cursor([after + limit]) if len(rows) > limit else None)

    async def profile(self, scope: Admitted, user: Segment) -> Profile:
        """Read the persona of a user (at most 1,000 facts)."""
        owner = scope.user(user)
        found = await self._facts.profile(scope.tenant, owner.id)
        if not found and not await self._facts.has_user(scope.tenant, owner.id):
            raise NotFound("There is no such user.")
        return Profile(user=owner.external, profile=found)

    async def _named(self, scope: Admitted, user: str, key: str, category: str | None) -> Fact:
        found = await self._facts.one(scope.tenant, scope.user(user).id, key, category)
        if found is None:
            raise NotFound("There is no such fact.")
        return found


def _json(text: str | None) -> Any:
    """A filter of values; None: there is none. Raises BadRequest."""
    if text is None:
        return None
    try:
        return parse_json(text.encode())
    except (BadBody, UnicodeEncodeError) as error:
        raise BadRequest("This is no JSON.", param="value") from error


def _out(row: Fact) -> FactOut:
    return FactOut(
        id=row.fact_id,
        category=row.category,
        key=row.fact_key,
        value=row.fact_value,
        confidence=row.confidence_score,
        memories=row.source_memory_ids,
        said_at=row.said_at,
        first_mentioned=row.first_mentioned,
        last_updated=row.last_updated,
    )
