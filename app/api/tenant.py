"""/api/v1/tenant/instructions: what a tenant wants to be remembered, in its own words."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import Model, clean
from app.api.keys import check_admin
from app.api.scope import Admitted, Gate
from app.errors import Forbidden
from app.store.instructions import Instructions

MAX_INSTRUCTIONS_CHARS = 8000
"""Longest instructions, characters: some 2,000 tokens, which every call of the helper LLM costs."""

_Text = Annotated[
    str, StringConstraints(max_length=MAX_INSTRUCTIONS_CHARS, strip_whitespace=True), AfterValidator(clean)
]


class InstructionsIn(Model):
    """What extraction is told besides its own rules; null or blank: nothing."""

    instructions: _Text | None = Field(description="Such as: Remember which products a user asks about, never prices.")


class InstructionsOut(BaseModel):
    instructions: str | None
    updated_at: datetime | None


def tenant_router(gate: Gate, instructions: Instructions) -> APIRouter:
    """The routes of /api/v1/tenant."""
    doors = _Doors(instructions)
    router = gate.router("tenant")
    path = "/tenant/instructions"
    router.add_api_route(path, doors.get, methods=["GET"], response_model=InstructionsOut)
    router.add_api_route(path, doors.put, methods=["PUT"], response_model=InstructionsOut)
    return router


class _Doors:
    def __init__(self, instructions: Instructions) -> None:
        self._instructions = instructions

    async def get(self, scope: Admitted) -> InstructionsOut:
        """Read the tenant's instructions. Not with a key made for one user."""
        if scope.confined is not None:
            raise Forbidden("This key was made for one user, and these are the tenant's.")
        text, at = await self._instructions.read(scope.tenant)
        return InstructionsOut(instructions=text, updated_at=at)

    async def put(self, scope: Admitted, body: InstructionsIn) -> InstructionsOut:
        """Change them, with a key that may manage the tenant. They are read by the helper LLM for every turn that is learned
        from then on; extraction by rules has no use for them."""
        check_admin(scope)
        text = body.instructions or None
        at = await self._instructions.write(scope.tenant, text)
        return InstructionsOut(instructions=text, updated_at=at)
