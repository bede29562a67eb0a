"""/api/v1/memories: what is remembered, to read, correct and forget."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import Discriminator, Field, Tag

from app.api.appending import Scribe
from app.api.common import DEFAULT_PAGE, Cursor, Limit, Name, Word, decode_cursor, encode_cursor, paged, parse_json
from app.api.finding import find_memory, session_of
from app.api.memory_models import (
    Deleted,
    EventOut,
    EventPage,
    Invalidation,
    MemoriesCreated,
    MemoryCreated,
    MemoryIn,
    MemoryOut,
    MemoryPage,
    MemoryPatch,
    change_of,
    new_memory,
    shown,
    shown_created,
)
from app.api.scope import Admitted, Gate, Scope
from app.api.welcome import Welcome
from app.errors import BadBody, BadRequest, NotFound
from app.store.memories import IN_FORCE, STATUSES, Filter, Kind, Memories, Memory, Status
from app.store.sessions import NewSession, Sessions
from app.store.tenancy import UserRef

MAX_BATCH = 1000
"""Most memories of one request."""
MAX_FILTERS = 64


def _shape(value: object) -> str:
    return "many" if isinstance(value, list) else "one"


OneOrMany = Annotated[
    Annotated[MemoryIn, Tag("one")] | Annotated[list[MemoryIn], Field(min_length=1, max_length=MAX_BATCH), Tag("many")],
    Discriminator(_shape),
]


def memories_router(gate: Gate, memories: Memories, sessions: Sessions, scribe: Scribe, welcome: Welcome) -> APIRouter:
    """The routes of /api/v1/memories."""
    routes = _Routes(memories, sessions, scribe, welcome)
    router = gate.router("memories")
    router.add_api_route("/memories", routes.listing, methods=["GET"], response_model=MemoryPage)
    router.add_api_route(
        "/memories", routes.create, methods=["POST"], response_model=MemoryCreated | MemoriesCreated, status_code=201
    )
    router.add_api_route("/memories/{memory_id}", routes.get, methods=["GET"], response_model=MemoryOut)
    router.add_api_route("/memories/{memory_id}", routes.patch, methods=["PATCH"], response_model=MemoryOut)
    router.add_api_route("/memories/{memory_id}", routes.delete, methods=["DELETE"], response_model=Deleted)
    router.add_api_route(
        "/memories/{memory_id}/invalidate", routes.invalidate, methods=["POST"], response_model=MemoryOut
    )
    router.add_api_route("/memories/{memory_id}/restore", routes.restore, methods=["POST"], response_model=MemoryOut)
    router.add_api_route("/memories/{memory_id}/history", routes.history, methods=["GET"], response_model=EventPage)
    return router


class _Routes:
    def __init__(self, memories: Memories, sessions: Sessions, scribe: Scribe, welcome: Welcome) -> None:
        self._memories = memories
        self._sessions = sessions
        self._scribe = scribe
        self._welcome = welcome

    async def listing(
        self,
        scope: Admitted,
        user: Annotated[Name | None, Query(description="Of this user only.")] = None,
        tier: Annotated[list[Annotated[int, Field(ge=0, le=4)]] | None, Query(max_length=MAX_FILTERS)] = None,
        kind: Annotated[list[Kind] | None, Query(max_length=MAX_FILTERS)] = None,
        tag: Annotated[list[Word] | None, Query(description="All of these.", max_length=MAX_FILTERS)] = None,
        metadata: Annotated[str | None, Query(description="JSON object that the metadata contains.")] = None,
        status: Annotated[
            list[Status | Literal["all"]] | None, Query(description="Else: what is in force.", max_length=MAX_FILTERS)
        ] = None,
        superseded_by: Annotated[
            UUID | None, Query(description="Those whose place this memory took; say `status=all` as well.")
        ] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> MemoryPage:
        """List memories, newest first."""
        after = decode_cursor(cursor, (datetime, UUID))
        wanted = Filter(
            tiers=tier, kinds=list(kind) if kind else None, statuses=_statuses(status), tags=tag, metadata=_object(metadata),
            superseded_by=superseded_by,
        )  # fmt: skip
        named = scope.named(user)
        rows = await self._memories.page(
            scope.tenant, named.id if named else None, wanted, after=after and (after[0], after[1]), limit=limit + 1
        )
        page, following = paged(rows, limit, lambda row: (row.created_at, row.memory_id))
        return MemoryPage(memories=[shown(scope, row) for row in page], next=following)

    async def create(
        self,
        scope: Admitted,
        response: Response,
        body: OneOrMany,
    ) -> MemoryCreated | MemoriesCreated:
        """Add one memory, or a list of them. 201: at least one is new; 200: all were there."""
        wanted = body if isinstance(body, list) else [body]
        owners = [scope.user(each.user) for each in wanted]
        for each in wanted:
            self._welcome.check_memory(each.text, each.tags)
        texts = [each.text for each in wanted]
        counts, vectors = await self._scribe.counts(texts), await self._scribe.vectors(texts)
        made: dict[int, tuple[Memory, bool]] = {}
        for owner in dict.fromkeys(owners):
            places = [i for i, each in enumerate(owners) if each == owner]
            new = [
                new_memory(
                    wanted[i], counts[i], vectors[i], await session_for(self._sessions, scope, owner, wanted[i].session)
                )
                for i in places
            ]
            made |= dict(zip(places, await self._memories.add(scope.tenant, owner, new), strict=True))
        out = [shown_created(scope, *made[i]) for i in range(len(wanted))]
        if not any(each.created for each in out):
            response.status_code = 200
        return MemoriesCreated(memories=out) if isinstance(body, list) else out[0]

    async def get(self, scope: Admitted, memory_id: str) -> MemoryOut:
        """Read a memory."""
        user, memory = await find_memory(self._memories, scope, memory_id)
        return _present(scope, await self._memories.one(scope.tenant, user, memory))

    async def patch(self, scope: Admitted, memory_id: str, body: MemoryPatch) -> MemoryOut:
        """Change a memory in place; what it said before stays in its history. 409: another memory in force says the same."""
        if not body.model_fields_set:
            raise BadBody("Say what to change.")
        self._welcome.check_memory(body.text, body.tags)
        user, memory = await find_memory(self._memories, scope, memory_id)
        texts = [body.text] if body.text is not None else []
        counts, vectors = await self._scribe.counts(texts), await self._scribe.vectors(texts)
        change = change_of(body, counts[0] if counts else None, vectors[0] if vectors else None)
        return _present(scope, await self._memories.change(scope.tenant, user, memory, change))

    async def delete(self, scope: Admitted, memory_id: str) -> Deleted:
        """Forget a memory: its words leave the memory, its history and the indexes for good, and are not learned again.

        What was said in a conversation stays there, and so do captured calls: erase the user to take those away.
        """
        user, memory = await find_memory(self._memories, scope, memory_id)
        if not await self._memories.forget(scope.tenant, user, memory):
            raise NotFound("There is no such memory.")
        return Deleted(id=memory, deleted=True)

    async def invalidate(self, scope: Admitted, memory_id: str, body: Invalidation | None = None) -> MemoryOut:
        """Say that a memory is not true (any more). It stays, to be restored; it is not found or used until then."""
        user, memory = await find_memory(self._memories, scope, memory_id)
        reason = body.reason if body is not None else None
        return _present(scope, await self._memories.invalidate(scope.tenant, user, memory, reason))

    async def restore(self, scope: Admitted, memory_id: str) -> MemoryOut:
        """Bring a memory back that was invalidated or superseded, or has expired."""
        user, memory = await find_memory(self._memories, scope, memory_id)
        return _present(scope, await self._memories.restore(scope.tenant, user, memory))

    async def history(
        self, scope: Admitted, memory_id: str, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None
    ) -> EventPage:
        """What became of a memory, oldest first. Of a forgotten one it says what happened, not what it said."""
        (after,) = decode_cursor(cursor, (int,)) or (0,)
        if after < 0:
            raise BadRequest("This cursor is not one that this list gave out.", param="cursor")
        user, memory = await find_memory(self._memories, scope, memory_id)
        if await self._memories.one(scope.tenant, user, memory) is None:
            raise NotFound("There is no such memory.")
        rows = await self._memories.events(scope.tenant, user, memory, after=after, limit=limit + 1)
        following = encode_cursor([after + limit]) if len(rows) > limit else None
        events = [EventOut.model_validate(row, from_attributes=True) for row in rows[:limit]]
        return EventPage(events=events, next=following)


async def session_for(sessions: Sessions, scope: Scope, owner: UserRef, name: str | None) -> UUID | None:
    """The session that a memory names, made where it is missing. Raises NotFound for another user's."""
    if name is None:
        return None
    if known := await session_of(sessions, scope.tenant, name, owner.id):
        return known.session_id
    made, _ = await sessions.create(scope.tenant, owner, NewSession(external=name))
    return made.session_id


def _statuses(given: list[Any] | None) -> tuple[str, ...]:
    if not given:
        return IN_FORCE
    if "all" in given:
        return tuple(each for each in STATUSES if each != "forgotten" or "forgotten" in given)
    return tuple(given)


def _object(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = parse_json(text.encode())
    except (BadBody, UnicodeEncodeError) as error:
        raise BadRequest("This is not a JSON object.", param="metadata") from error
    if not isinstance(value, dict):
        raise BadRequest("This is not a JSON object.", param="metadata")
    return value


def _present(scope: Scope, row: Memory | None) -> MemoryOut:
    if row is None or row.status == "forgotten":
        raise NotFound("There is no such memory.")
    return shown(scope, row)
