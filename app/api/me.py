"""GET /api/v1/me: who a key is, for a client that has been given nothing else."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel

from app.api.keys import manages
from app.api.scope import Admitted, Gate
from app.store.tenancy import SCOPES


class Me(BaseModel):
    """The caller. `user`: whom requests are about that name nobody else; null: they have to name one. `scopes`: what the key
    may do."""

    tenant: UUID
    user: str | None
    scopes: list[str]


def me_router(gate: Gate) -> APIRouter:
    """One route."""

    async def me(scope: Admitted) -> Me:
        """Read whose data a request with this key, and this X-Mneme-User, is about."""
        named = scope.named()
        user = named.external if named is not None else scope.local_user
        scopes = set(scope.principal.scopes or SCOPES) - (set() if manages(scope.principal) else {"admin"})
        return Me(tenant=scope.tenant, user=user, scopes=sorted(scopes))

    router = gate.router("users")
    router.add_api_route("/me", me, methods=["GET"], response_model=Me)
    return router
