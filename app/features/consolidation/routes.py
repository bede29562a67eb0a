"""/api/v1/sessions/{session}: its summary, and the work of consolidation asked for now."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from app.api.common import Model, Name, Segment
from app.api.scope import Admitted, Gate, find_session
from app.api.sessions import Owner
from app.errors import BadRequest, NotFound
from app.features.consolidation.store import (
    COMPACT,
    SESSION_END,
    CompactionOut,
    ConsolidationStore,
    session_job,
    user_job,
)
from app.store import ids
from app.store.sessions import Sessions

MAX_ENTITIES = 20
"""Entities named in one request."""
MAX_TARGET = 10_000_000
"""Tokens; more than any session that can be read."""


class SummaryOut(BaseModel):
    """The summary of a session. `active_tokens`: of its messages that are not compacted; `pending`: something was said, or
    taken back, since it was made. `ratio`: ρ of all compactions together, null without any."""

    session_id: UUID
    summary: str | None
    token_count: int
    active_tokens: int
    pending: bool
    ratio: float | None
    compactions: list[CompactionOut]


class Queued(BaseModel):
    """What was put into the queue."""

    session_id: UUID
    queued: list[str]


class CompactIn(Model):
    """How far a session is to be compacted."""

    target_tokens: Annotated[int, Field(ge=0, le=MAX_TARGET)] | None = Field(
        None, description="Tokens that may stay verbatim; unset: the context window, if the session exceeds it twice."
    )


class ConsolidateIn(Model):
    """What is wanted besides what is due."""

    entities: Annotated[list[Name], Field(max_length=MAX_ENTITIES)] = Field(
        [], description="Names of entities to summarise, however little is known of them."
    )


def consolidation_router(gate: Gate, sessions: Sessions, store: ConsolidationStore) -> APIRouter:
    async def summary(scope: Admitted, session_id: Segment, user: Owner = None) -> SummaryOut:
        """Read a session's summary and its compactions. What was compacted stays in the history."""
        ref = await find_session(sessions, scope, session_id, user)
        found = await store.summary(scope.tenant, ref.user_id, ref.session_id)
        if found is None:
            raise NotFound("There is no such session.", param="session")
        done = await store.compactions(scope.tenant, ref.user_id, ref.session_id)
        spent = sum(each.summary_tokens for each in done)
        return SummaryOut(
            session_id=ref.session_id,
            summary=found.text,
            token_count=found.tokens,
            active_tokens=found.active_tokens,
            pending=found.pending,
            ratio=sum(each.removed_tokens for each in done) / spent if spent else None,
            compactions=done,
        )

    async def end(scope: Admitted, session_id: Segment, user: Owner = None) -> Queued:
        """End a session, and have its session-end work done now: its summary, and what follows for its user."""
        ref = await find_session(sessions, scope, session_id, user)
        await sessions.close(scope.tenant, ref)
        job = session_job(SESSION_END, scope.tenant, ref.user_id, ref.session_id, asked=True)
        await store.enqueue(scope.tenant, [job])
        return Queued(session_id=ref.session_id, queued=[SESSION_END])

    async def compact(
        scope: Admitted, session_id: Segment, user: Owner = None, body: CompactIn | None = None
    ) -> Queued:
        """Compact a session now: its oldest turns give way to a summary, but for the first and the last four."""
        ref = await find_session(sessions, scope, session_id, user)
        target = body.target_tokens if body is not None else None
        more = {} if target is None else {"target": target}
        job = session_job(COMPACT, scope.tenant, ref.user_id, ref.session_id, asked=True, **more)
        await store.enqueue(scope.tenant, [job])
        return Queued(session_id=ref.session_id, queued=[COMPACT])

    async def consolidate(
        scope: Admitted, session_id: Segment, user: Owner = None, body: ConsolidateIn | None = None
    ) -> Queued:
        """Draw together now what the session's user has said: patterns, procedures, and summaries of entities."""
        ref = await find_session(sessions, scope, session_id, user)
        if ref.user_id == ids.nobody(scope.tenant):
            raise BadRequest("This session is nobody's: what is said in it is not drawn together.", param="session")
        wanted = list(body.entities) if body is not None else []
        job = user_job(scope.tenant, ref.user_id, asked=True, entities=wanted)
        await store.enqueue(scope.tenant, [job])
        return Queued(session_id=ref.session_id, queued=["consolidate"])

    router = gate.router("sessions")
    at = "/sessions/{session_id}"
    router.add_api_route(f"{at}/summary", summary, methods=["GET"], response_model=SummaryOut)
    for name, route in (("end", end), ("compact", compact), ("consolidate", consolidate)):
        router.add_api_route(f"{at}/{name}", route, methods=["POST"], response_model=Queued, status_code=202)
    return router
