"""/api/v1/tenant: what a tenant wants to be remembered, and who it is, in its own words."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import Model, clean
from app.api.keys import check_admin
from app.api.scope import Admitted, Gate
from app.errors import Forbidden
from app.store.tenancy import Instructions

MAX_INSTRUCTIONS_CHARS = 8000
"""Longest instructions, characters: some 2,000 tokens, which every call of the helper LLM costs."""

MAX_PROFILE_CHARS = 4000
"""Longest profile, characters: some 1,000 tokens, five times its section of a prompt."""

_Text = Annotated[
    str, StringConstraints(max_length=MAX_INSTRUCTIONS_CHARS, strip_whitespace=True), AfterValidator(clean)
]
_Profile = Annotated[str, StringConstraints(max_length=MAX_PROFILE_CHARS, strip_whitespace=True), AfterValidator(clean)]


class InstructionsIn(Model):
    """What extraction is told besides its own rules; null or blank: nothing."""

    instructions: _Text | None = Field(description="Such as: Remember which products a user asks about, never prices.")


class InstructionsOut(BaseModel):
    instructions: str | None
    updated_at: datetime | None


class ProfileIn(Model):
    """What every prompt is told about the tenant, line by line, the most important first; null or blank: nothing."""

    profile: _Profile | None = Field(description="Such as: - Business: Mumbai Bakery (food & bakery)")


class ProfileOut(BaseModel):
    profile: str | None
    updated_at: datetime | None


def tenant_router(gate: Gate, instructions: Instructions) -> APIRouter:
    """The routes of /api/v1/tenant."""
    routes = _Routes(instructions)
    router = gate.router("tenant")
    path = "/tenant/instructions"
    router.add_api_route(path, routes.get, methods=["GET"], response_model=InstructionsOut)
    router.add_api_route(path, routes.put, methods=["PUT"], response_model=InstructionsOut)
    path = "/tenant/profile"
    router.add_api_route(path, routes.get_profile, methods=["GET"], response_model=ProfileOut)
    router.add_api_route(path, routes.put_profile, methods=["PUT"], response_model=ProfileOut)
    return router


class _Routes:
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

    async def get_profile(self, scope: Admitted) -> ProfileOut:
        """Read the tenant's profile (seed 001 §6, step 2). Not with a key made for one user."""
        if scope.confined is not None:
            raise Forbidden("This key was made for one user, and this is the tenant's.")
        text, at = await self._instructions.read_profile(scope.tenant)
        return ProfileOut(profile=text, updated_at=at)

    async def put_profile(self, scope: Admitted, body: ProfileIn) -> ProfileOut:
        """Change it, with a key that may manage the tenant. From then on the memory blocks of its users' conversations begin
        with it, as quoted data, within `MNEME_PROFILE_BUDGET_TOKENS`; those that have another one in their prompts begin their
        blocks anew."""
        check_admin(scope)
        text = body.profile or None
        at = await self._instructions.write_profile(scope.tenant, text)
        return ProfileOut(profile=text, updated_at=at)
