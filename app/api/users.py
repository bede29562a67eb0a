"""/api/v1/users, /api/v1/me: whom memories are about, and what they told memory to do in a chat.

Users whom nobody has made are made on first sight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from fastapi import APIRouter, Query, Response
from msgspec import Struct
from msgspec.structs import asdict
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import (
    DEFAULT_PAGE,
    Cursor,
    Limit,
    Model,
    Segment,
    UserName,
    clean,
    decode_cursor,
    paged,
)
from app.api.scope import Admitted, Gate
from app.api.tenant import manages
from app.clock import Clock
from app.errors import BadBody, NotFound
from app.store import ids
from app.store.erasure import Eraser, Receipt
from app.store.tenancy import SCOPES, Tenancy, User, UserChange
from app.tasks import Supervisor

# --- users ---------------------------------------------------------------------------------------------------------------

_MAX_EMAIL_CHARS = 320
"""64 before the @, 255 after it (RFC 5321)."""
_Email = Annotated[
    str,
    StringConstraints(max_length=_MAX_EMAIL_CHARS, pattern=r"^[^@\s]+@[^@\s]+$", strip_whitespace=True, to_lower=True),
    AfterValidator(clean),
]
_FullName = Annotated[str, StringConstraints(max_length=_MAX_EMAIL_CHARS), AfterValidator(clean)]


class UserIn(Model):
    """A user to make; one that exists is changed by what is given."""

    id: UserName | None = Field(None, description="Your own name for this user, any text; else one is made.")
    name: _FullName | None = None
    email: _Email | None = Field(None, description="No two users of a tenant have the same.")
    metadata: dict[str, Any] | None = None


class UserPatch(Model):
    """What to change; a field that is left out stays."""

    name: _FullName | None = None
    email: _Email | None = None
    metadata: dict[str, Any] | None = Field(None, description="Replaces all metadata.")


class UserOut(BaseModel):
    """A user. `id` is your own name for them."""

    id: str
    name: str | None
    email: str | None
    metadata: dict[str, Any]
    created_at: datetime
    last_active: datetime


class Erased(BaseModel):
    """The receipt of an erasure: how many rows of which table, and nothing of the user but a keyed hash of the id. `note`: what
    an erasure does not reach."""

    id: UUID
    user_hash: str
    tombstones: bool
    rows: int
    tables: dict[str, int]
    began_at: datetime
    finished_at: datetime
    note: str

    @classmethod
    def of(cls, receipt: Receipt) -> Self:
        """As clients see it."""
        told = {"id": receipt.erasure_id, "user_hash": receipt.user_hash.hex(), "tables": receipt.counts}
        return cls.model_validate(asdict(receipt) | told | {"rows": receipt.rows, "note": receipt.note})


class UserCreated(UserOut):
    created: bool


class UserPage(BaseModel):
    users: list[UserOut]
    next: str | None


def users_router(gate: Gate, tenancy: Tenancy, clock: Clock, eraser: Eraser, tasks: Supervisor) -> APIRouter:
    """The routes of /api/v1/users."""
    routes = _Routes(tenancy, clock, eraser, tasks)
    router = gate.router("users")
    router.add_api_route("/users", routes.listing, methods=["GET"])
    router.add_api_route("/users", routes.create, methods=["POST"], status_code=201)
    router.add_api_route("/users/{user}", routes.get, methods=["GET"])
    router.add_api_route("/users/{user}", routes.patch, methods=["PATCH"])
    router.add_api_route("/users/{user}", routes.erase, methods=["DELETE"])
    return router


class _Routes(Struct, frozen=True):
    tenancy: Tenancy
    clock: Clock
    eraser: Eraser
    tasks: Supervisor

    async def listing(self, scope: Admitted, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None) -> UserPage:
        """List users, by their ids. A key made for one user sees that one."""
        (after,) = decode_cursor(cursor, (str,)) or ("",)
        named = scope.named()
        if named is not None:
            found = await self.tenancy.user(scope.tenant, named.id)
            return UserPage(users=[_out(found)] if found is not None else [], next=None)
        rows = await self.tenancy.users(scope.tenant, after=after, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.external_id,))
        return UserPage(users=[_out(row) for row in page], next=following)

    async def create(self, scope: Admitted, response: Response, body: UserIn) -> UserCreated:
        """Make a user (201), or change the one of that id (200). 409: another user has this e-mail address."""
        named = scope.named(body.id)
        user = named if named is not None else scope.ref(str(ids.uuid7(self.clock.now())))
        change = UserChange(name=body.name, email=body.email, metadata=body.metadata)
        found, created = await self.tenancy.put_user(scope.tenant, user, change)
        if not created:
            response.status_code = 200
        return UserCreated(**_out(found).model_dump(), created=created)

    async def get(self, scope: Admitted, user: Segment) -> UserOut:
        """Read a user."""
        found = await self.tenancy.user(scope.tenant, scope.user(user).id)
        if found is None:
            raise NotFound("There is no such user.")
        return _out(found)

    async def patch(self, scope: Admitted, user: Segment, body: UserPatch) -> UserOut:
        """Change a user."""
        if not body.model_fields_set:
            raise BadBody("Say what to change.")
        change = UserChange(name=body.name, email=body.email, metadata=body.metadata)
        found = await self.tenancy.change_user(scope.tenant, scope.user(user).id, change)
        if found is None:
            raise NotFound("There is no such user.")
        return _out(found)

    async def erase(
        self,
        scope: Admitted,
        user: Segment,
        tombstones: Annotated[
            bool, Query(description="Keep keyed hashes of what was said, so that it is not learned again.")
        ] = True,
    ) -> Erased:
        """Erase a user: every trace, at once. It goes on if you do not wait for it. 409: it is being done already."""
        named = scope.user(user)
        work = self.eraser.erase(scope.tenant, named.id, external=named.external, tombstones=tombstones)
        receipt = await asyncio.shield(self.tasks.spawn(work, "erasure"))
        if not receipt.rows:
            raise NotFound("There is no such user: nothing was stored of them.")
        return Erased.of(receipt)


def _out(row: User) -> UserOut:
    return UserOut.model_validate(asdict(row) | {"id": row.external_id})


# --- what they told memory to do -----------------------------------------------------------------------------------------


class CommandItem(BaseModel):
    """Something that was hidden. `text`: of a memory; a message stands in its conversation."""

    id: UUID
    kind: Literal["memory", "message"]
    text: str | None = None


class CommandOut(BaseModel):
    """A command. `kind`: `stop` and `allow` take a standing wish back, to do something or not to. `outcome`: done; ask: it
    was not clear what was meant; confirm: it was too much to do unasked. `correction`: of `correct`, the memory that says
    what is right. `message_id`: that said it. `undo`: the path to POST to, for it to be as it was before; null: nothing was
    done, or it was undone."""

    id: UUID
    user: str | None
    session_id: UUID
    message_id: UUID | None
    kind: Literal["forget", "correct", "stop", "allow"]
    scope: Literal["thing", "this", "everything"]
    outcome: Literal["done", "ask", "confirm"]
    items: list[CommandItem]
    correction: UUID | None
    at: datetime
    undone_at: datetime | None
    undo: str | None


# --- the caller ----------------------------------------------------------------------------------------------------------


class Me(BaseModel):
    """The caller. `user`: whom requests are about that name nobody else; null: they have to name one. `scopes`: what the key
    may do. `commands`: what that user has told memory to do in chats, the latest first, and how it is undone; none where
    the key may not read."""

    tenant: UUID
    user: str | None
    scopes: list[str]
    commands: list[CommandOut] = []


def me_router(gate: Gate, latest: Callable[[UUID, UUID], Awaitable[list[CommandOut]]] | None) -> APIRouter:
    """One route. `latest`: the commands of a tenant's user; None: nobody does what memory is told."""

    async def me(scope: Admitted) -> Me:
        """Read whose data a request with this key, and this X-Mneme-User, is about."""
        named = scope.named()
        user = named.external if named is not None else scope.local_user
        scopes = set(scope.principal.scopes or SCOPES) - (set() if manages(scope.principal) else {"admin"})
        commands: list[CommandOut] = []
        if latest is not None and user is not None and "read" in scopes:
            commands = await latest(scope.tenant, scope.ref(user).id)
        return Me(tenant=scope.tenant, user=user, scopes=sorted(scopes), commands=commands)

    router = gate.router("users")
    router.add_api_route("/me", me, methods=["GET"])
    return router
