"""/api/v1/conflicts: where memories contradict each other, or the business's own database (seed 004, table 9)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import DEFAULT_PAGE, Cursor, Limit, Model, Name, clean, decode_cursor, paged
from app.api.scope import Admitted, CallerScope, Gate
from app.errors import NotFound
from app.features.conflicts.store import ConflictFilter, ConflictStore, Keep
from app.store import ids
from app.store.conflicts import LoggedConflict

Type = Literal["memory_vs_memory", "memory_vs_db", "temporal"]
MAX_NOTE_CHARS = 2000
"""Longest note, characters: why somebody decided so."""


class Resolution(Model):
    """What stands. `memory_id`: which memory, where there are two."""

    keep: Keep = Field(description="memory: the (first) memory; other: the second; domain: the row; both.")
    memory_id: UUID | None = None
    note: Annotated[str, StringConstraints(max_length=MAX_NOTE_CHARS), AfterValidator(clean)] | None = None


class ConflictOut(BaseModel):
    """A contradiction: `data` and `outcome` are seed 004's `conflict_data` and `resolution_outcome`."""

    id: UUID
    user: str | None
    session_id: UUID | None
    type: Type
    entity: str | None
    predicate: str | None
    status: Literal["open", "resolved"]
    strategy: str | None
    memory_ids: list[UUID]
    data: dict[str, Any]
    outcome: dict[str, Any] | None
    message_id: UUID | None
    created_at: datetime
    resolved_at: datetime | None


class ConflictPage(BaseModel):
    conflicts: list[ConflictOut]
    next: str | None


def conflicts_router(gate: Gate, conflicts: ConflictStore) -> APIRouter:
    """The routes of /api/v1/conflicts."""
    routes = _Routes(conflicts)
    router = gate.router("conflicts")
    router.add_api_route("/conflicts", routes.listing, methods=["GET"], response_model=ConflictPage)
    router.add_api_route("/conflicts/{conflict_id}", routes.get, methods=["GET"], response_model=ConflictOut)
    router.add_api_route(
        "/conflicts/{conflict_id}/resolve", routes.resolve, methods=["POST"], response_model=ConflictOut
    )
    return router


class _Routes:
    def __init__(self, conflicts: ConflictStore) -> None:
        self._conflicts = conflicts

    async def listing(
        self,
        scope: Admitted,
        user: Annotated[Name | None, Query(description="Of this user only.")] = None,
        status: Literal["open", "resolved"] | None = None,
        type: Annotated[Type | None, Query(description="Of this type only.")] = None,  # noqa: A002 - the parameter's name
        entity: Annotated[Name | None, Query(description="About this thing: its id.")] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> ConflictPage:
        """List contradictions, newest first."""
        after = decode_cursor(cursor, (datetime, UUID))
        named = scope.named(user)
        wanted = ConflictFilter(
            user=named.id if named else None,
            open=None if status is None else status == "open",
            type=type,
            entity=entity,
        )
        rows = await self._conflicts.page(scope.tenant, wanted, after=after and (after[0], after[1]), limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.created_at, row.conflict_id))
        return ConflictPage(conflicts=[conflict_out(row) for row in page], next=following)

    async def get(self, scope: Admitted, conflict_id: str) -> ConflictOut:
        """Read a contradiction: both sides, and what became of it."""
        return conflict_out(await self._one(scope, conflict_id))

    async def resolve(self, scope: Admitted, conflict_id: str, body: Resolution) -> ConflictOut:
        """Decide an open contradiction. What stands is in force afterwards, what does not is invalidated or superseded. 409: it
        is resolved already."""
        found = await self._one(scope, conflict_id)
        await self._conflicts.resolve(
            scope.tenant, found.user_id, found.conflict_id, body.keep, memory=body.memory_id, note=body.note
        )
        return await self.get(scope, conflict_id)

    async def _one(self, scope: CallerScope, text: str) -> LoggedConflict:
        conflict = ids.issued(text)
        named = scope.named()
        found = None
        if conflict is not None:
            found = await self._conflicts.one(scope.tenant, conflict, named.id if named else None)
        if found is None:
            raise NotFound("There is no such conflict.")
        return found


def conflict_out(row: LoggedConflict) -> ConflictOut:
    """A contradiction as it is shown."""
    data = row.conflict_data
    first: dict[str, Any] = data.get("memory") or next(iter(data.get("memories") or ()), {})
    return ConflictOut(
        id=row.conflict_id,
        user=row.user_external_id,
        session_id=row.session_id,
        type=row.conflict_type,
        entity=row.entity_id,
        predicate=first.get("predicate"),
        status="open" if row.resolved_at is None else "resolved",
        strategy=row.resolution_strategy,
        memory_ids=row.memory_ids,
        data=data,
        outcome=row.resolution_outcome,
        message_id=row.detected_at_message,
        created_at=row.created_at,
        resolved_at=row.resolved_at,
    )
