"""/api/v1/memories/due and /validate: what may have ceased to be true, and what the user says of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app.api.appending import Scribe
from app.api.common import Limit, Model, Name
from app.api.finding import find_memory
from app.api.memory_models import MemoryOut, Said, shown
from app.api.scope import Admitted, Gate, Scope
from app.api.welcome import Welcome
from app.errors import BadBody, NotFound
from app.memory.answers import validation_question
from app.memory.text import content_hash
from app.store.memories import Memories
from app.store.memory_rows import MemoryText
from app.store.validation import Validation

DEFAULT_DUE = 10
"""Memories to ask about in one answer: nobody answers more questions in a row."""


class DueOut(BaseModel):
    """A memory to ask about. `confidence`: what is left of it; `noted_at`: when it was said, or last confirmed."""

    id: UUID
    text: str
    question: str
    noted_at: datetime
    confidence: float
    importance: float


class DuePage(BaseModel):
    memories: list[DueOut]


class Answer(Model):
    """What the user says of a memory. `no` with a correction puts what is right in its place."""

    answer: Literal["yes", "no"]
    correction: Said | None = Field(None, description="What is right instead.")
    object: Name | None = Field(None, description="The value in the correction, where the memory is a triple.")


class Judged(BaseModel):
    """The memory after the answer, and the one that took its place."""

    memory: MemoryOut
    correction: MemoryOut | None


def validation_router(
    gate: Gate, memories: Memories, validation: Validation, scribe: Scribe, welcome: Welcome
) -> APIRouter:
    """Two routes of /api/v1/memories; they go before `memories_router`, to which `due` would be an id."""
    routes = _Routes(memories, validation, scribe, welcome)
    router = gate.router("memories")
    router.add_api_route("/memories/due", routes.due, methods=["GET"], response_model=DuePage)
    router.add_api_route("/memories/{memory_id}/validate", routes.validate, methods=["POST"], response_model=Judged)
    return router


class _Routes:
    def __init__(self, memories: Memories, validation: Validation, scribe: Scribe, welcome: Welcome) -> None:
        self._memories = memories
        self._validation = validation
        self._scribe = scribe
        self._welcome = welcome

    async def due(
        self,
        scope: Admitted,
        user: Annotated[Name | None, Query(description="Whose; else the header's, else the key's.")] = None,
        limit: Limit = DEFAULT_DUE,
    ) -> DuePage:
        """List what to ask the user about: old statements that nobody has confirmed, what matters most first."""
        found = await self._validation.due(scope.tenant, scope.user(user).id, limit=limit)
        return DuePage(
            memories=[
                DueOut(
                    id=each.memory_id,
                    text=each.content_text,
                    question=validation_question(each.content_text, each.noted_at),
                    noted_at=each.noted_at,
                    confidence=each.confidence,
                    importance=each.importance,
                )
                for each in found
            ]
        )

    async def validate(self, scope: Admitted, memory_id: str, body: Answer) -> Judged:
        """Say whether a memory is still right. 409: it is not in force."""
        if body.answer == "yes" and (body.correction is not None or body.object is not None):
            raise BadBody("A memory that is right needs no correction.", param="correction")
        if body.object is not None and body.correction is None:
            raise BadBody("The object is that of a correction.", param="object")
        self._welcome.check(*(each for each in (body.correction, body.object) if each is not None), param="correction")
        user, memory = await find_memory(self._memories, scope, memory_id)
        heir = None
        if body.answer == "yes":
            await self._validation.confirm(scope.tenant, user, memory)
        elif body.correction is None:
            await self._validation.deny(scope.tenant, user, memory)
        else:
            heir = await self._correct(scope, user, memory, body.correction, body.object)
        return Judged(
            memory=await self._shown(scope, user, memory),
            correction=await self._shown(scope, user, heir) if heir is not None else None,
        )

    async def _correct(self, scope: Scope, user: UUID, memory: UUID, text: str, value: str | None) -> UUID:
        counts, vectors = await self._scribe.counts([text]), await self._scribe.vectors([text])
        said = MemoryText(text, content_hash(text), counts[0], vectors[0])
        return await self._validation.correct(scope.tenant, user, memory, said, value)

    async def _shown(self, scope: Scope, user: UUID, memory: UUID) -> MemoryOut:
        row = await self._memories.one(scope.tenant, user, memory)
        if row is None:
            raise NotFound("There is no such memory.")
        return shown(scope, row)
