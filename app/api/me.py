"""GET /api/v1/me: who a key is, for a client that has been given nothing else, and what this user has told memory to do."""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel

from app.api.commands import CommandOut, shown
from app.api.keys import manages
from app.api.scope import Admitted, Gate
from app.store.commands import CommandStore
from app.store.tenancy import SCOPES

LATEST = 10
"""Commands that are told: `GET /api/v1/commands` has all of them."""


class Me(BaseModel):
    """The caller. `user`: whom requests are about that name nobody else; null: they have to name one. `scopes`: what the key
    may do. `commands`: what that user has told memory to do in chats, the latest first, and how it is undone; none where
    the key may not read."""

    tenant: UUID
    user: str | None
    scopes: list[str]
    commands: list[CommandOut] = []


def me_router(gate: Gate, commands: CommandStore) -> APIRouter:
    """One route."""

    async def me(scope: Admitted) -> Me:
        """Read whose data a request with this key, and this X-Mneme-User, is about."""
        named = scope.named()
        user = named.external if named is not None else scope.local_user
        scopes = set(scope.principal.scopes or SCOPES) - (set() if manages(scope.principal) else {"admin"})
        rows = []
        if user is not None and "read" in scopes:
            rows = await commands.page(scope.tenant, scope.ref(user).id, after=None, limit=LATEST)
        return Me(tenant=scope.tenant, user=user, scopes=sorted(scopes), commands=[shown(each) for each in rows])

    router = gate.router("users")
    router.add_api_route("/me", me, methods=["GET"], response_model=Me)
    return router
