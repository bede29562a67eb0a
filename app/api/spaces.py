"""/api/v1/spaces: memory that several users share, and who is a member of it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Response
from msgspec import Struct
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import (
    DEFAULT_PAGE,
    Cursor,
    Limit,
    Model,
    Segment,
    SpaceName,
    UserSegment,
    clean,
    decode_cursor,
    paged,
)
from app.api.scope import Admitted, CallerScope, Gate
from app.api.tenant import check_admin
from app.api.users import Erased
from app.errors import NotFound
from app.store import ids
from app.store.erasure import Deleter, Eraser
from app.store.spaces import NAME_PATTERN, SharedSpace, SharedSpaces, SpaceKind, no_such_space
from app.tasks import Supervisor

MAX_TITLE_CHARS = 200

SpaceInPath = Annotated[str, Path(pattern=NAME_PATTERN)]


class SpaceIn(Model):
    """A space to make."""

    name: SpaceName = Field(
        description="1 to 63 lower-case letters, digits, and . _ -: it stands in prompts and in X-Mneme-Space."
    )
    kind: SpaceKind = "team"
    title: Annotated[str, StringConstraints(max_length=MAX_TITLE_CHARS), AfterValidator(clean)] = ""
    by_word: bool = Field(False, description="Members may say something to it in a chat: `remember for the team: …`.")


class SpaceOut(BaseModel):
    """A space."""

    name: str
    kind: SpaceKind
    title: str
    by_word: bool
    members: int
    created_at: datetime


class SpacePage(BaseModel):
    """Spaces by name."""

    spaces: list[SpaceOut]
    next: str | None


class SpaceMember(BaseModel):
    """Who may read a space."""

    user: str
    joined_at: datetime


class SpaceMemberPage(BaseModel):
    """Members by name."""

    members: list[SpaceMember]
    next: str | None


class SpaceJoined(BaseModel):
    """A membership as it is now."""

    space: str
    user: str
    member: bool


class SpaceItemOut(BaseModel):
    """Something that is said or remembered in a space. `kind`: message, or that of a memory; `users`: who said it, as
    far as that is known still."""

    id: UUID
    kind: str
    text: str
    said_at: datetime
    users: list[str]


class SpaceItemPage(BaseModel):
    """What is known in a space, oldest first."""

    items: list[SpaceItemOut]
    next: str | None


class SpaceItemTaken(BaseModel):
    """What was taken out of a space: `taken` are the item and what was learned from it. `stays`: others said it, too; it is
    known as theirs alone."""

    space: str
    item: UUID
    taken: list[UUID]
    stays: bool


def spaces_router(gate: Gate, spaces: SharedSpaces, eraser: Eraser, deleter: Deleter, tasks: Supervisor) -> APIRouter:
    """The routes of spaces."""
    routes = _Routes(spaces, eraser, deleter, tasks)
    router = gate.router("spaces")
    one, member = "/spaces/{space}", "/spaces/{space}/members/{user_id}"
    router.add_api_route("/spaces", routes.listing, methods=["GET"])
    router.add_api_route("/spaces", routes.create, methods=["POST"])
    router.add_api_route(one, routes.get, methods=["GET"])
    router.add_api_route(one, routes.erase, methods=["DELETE"])
    router.add_api_route(one + "/items", routes.items, methods=["GET"])
    router.add_api_route(one + "/items/{item_id}", routes.take_back, methods=["DELETE"])
    router.add_api_route(one + "/members", routes.members, methods=["GET"])
    router.add_api_route(member, routes.join, methods=["PUT"])
    router.add_api_route(member, routes.leave, methods=["DELETE"])
    return router


class _Routes(Struct, frozen=True):
    """A key made for one user sees that user's spaces, may leave them, and takes back what that user said; all else is for one
    that may manage the tenant."""

    spaces: SharedSpaces
    eraser: Eraser
    deleter: Deleter
    tasks: Supervisor

    async def listing(self, scope: Admitted, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None) -> SpacePage:
        """List the spaces of a user; without one all, with a key that may manage the tenant."""
        user = scope.owner()
        if user is None:
            check_admin(scope)
        (after,) = decode_cursor(cursor, (str,)) or ("",)
        rows = await self.spaces.page(scope.tenant, user, after=after, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.name,))
        return SpacePage(spaces=[_out(row) for row in page], next=following)

    async def create(self, scope: Admitted, response: Response, body: SpaceIn) -> SpaceOut:
        """Make a space (201); one of this name stays as it is."""
        check_admin(scope)
        made, new = await self.spaces.create(
            scope.tenant, body.name, kind=body.kind, title=body.title, by_word=body.by_word
        )
        response.status_code = 201 if new else 200
        return _out(made)

    async def get(self, scope: Admitted, space: SpaceInPath) -> SpaceOut:
        """Read a space. One that does not exist, and one of others, are refused alike."""
        return _out(await self._one(scope, space))

    async def members(
        self, scope: Admitted, space: SpaceInPath, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None
    ) -> SpaceMemberPage:
        """List who may read a space."""
        found = await self._one(scope, space)
        (after,) = decode_cursor(cursor, (str,)) or ("",)
        rows = await self.spaces.members(scope.tenant, found.space_id, after=after, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.user,))
        return SpaceMemberPage(members=[SpaceMember(**row._asdict()) for row in page], next=following)

    async def items(
        self, scope: Admitted, space: SpaceInPath, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None
    ) -> SpaceItemPage:
        """List all that is said and remembered in a space, and who said it: with its members, an export of it."""
        found, user = await self._one(scope, space), scope.owner()
        rows = await self.spaces.items(
            scope.tenant,
            found.space_id,
            user,
            after=decode_cursor(cursor, (datetime, UUID)),
            limit=limit + 1,
        )
        page, following = paged(rows, limit, lambda row: (row.said_at, row.id))
        return SpaceItemPage(items=[SpaceItemOut(**row._asdict()) for row in page], next=following)

    async def take_back(self, scope: Admitted, space: SpaceInPath, item_id: str) -> SpaceItemTaken:
        """Take back what a user said there, also after they left; with what was learned from it, and all stored blocks that
        quote it. The turn stays in the user's own history. Without a user: any item, with a key that may manage the tenant.

        409: a memory that was learned from others' words as well.
        """
        user, item = scope.owner(), ids.issued(item_id)
        if user is None:
            check_admin(scope)
        found = None
        if item is not None:
            owner = ids.space_id(scope.tenant, space)
            found = await self.deleter.take_back(scope.tenant, owner, item, user)
        if item is None or found is None:
            raise NotFound("There is nothing of this id that this user said in this space.", param="item_id")
        return SpaceItemTaken(space=space, item=item, taken=list(found.forgotten), stays=bool(found.kept))

    async def join(self, scope: Admitted, space: SpaceInPath, user_id: UserSegment) -> SpaceJoined:
        """Let a user read a space, and speak there."""
        check_admin(scope)
        await self.spaces.join(scope.tenant, space, scope.ref(user_id))
        return SpaceJoined(space=space, user=user_id, member=True)

    async def leave(self, scope: Admitted, space: SpaceInPath, user_id: Segment) -> SpaceJoined:
        """End a membership, at once: in every server."""
        if scope.confined is None:
            check_admin(scope)
        found, user = await self._one(scope, space, user_id), scope.user(user_id)
        await self.spaces.leave(scope.tenant, found.space_id, user.id)
        return SpaceJoined(space=space, user=user_id, member=False)

    async def erase(self, scope: Admitted, space: SpaceInPath) -> Erased:
        """Erase a space, and all that was said in it. It goes on if you do not wait for it."""
        check_admin(scope)
        found = await self._one(scope, space)
        await self.spaces.empty(scope.tenant, found.space_id)
        # Without tombstones: no transcript says anything to a space again, and a new one of this name may learn the same.
        erasing = self.eraser.erase(scope.tenant, found.space_id, tombstones=False)
        receipt = await asyncio.shield(self.tasks.spawn(erasing, "erasure"))
        await self.spaces.empty(scope.tenant, found.space_id)  # who came while it was being erased
        return Erased.of(receipt)

    async def _one(self, scope: CallerScope, name: str, *given: str) -> SharedSpace:
        user = scope.owner(*given)
        if user is None:
            check_admin(scope)
        found = await self.spaces.one(scope.tenant, user, name)
        if found is None:
            raise no_such_space(name, "space")
        return found


def _out(row: SharedSpace) -> SpaceOut:
    return SpaceOut.model_validate(row, from_attributes=True)
