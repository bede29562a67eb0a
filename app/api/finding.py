"""Finding what a path names: sessions by either of their names, memories and calls by their ids."""

from __future__ import annotations

from uuid import UUID

from app.api.scope import Scope
from app.errors import Conflict, NotFound
from app.store import ids
from app.store.memories import Memories
from app.store.sessions import SessionRef, Sessions


async def find_session(sessions: Sessions, scope: Scope, text: str, user: str | None = None) -> SessionRef:
    """The session that `text` names. Raises NotFound, or Conflict where several users have one of that name."""
    named = scope.named(user)
    found = await sessions.resolve(scope.tenant, text, named.id if named is not None else None)
    if not found:
        raise NotFound("There is no such session.", param="session")
    if len(found) > 1:
        raise Conflict(
            "Several users have a session of this name: say whose, with `user` or the header X-Mneme-User.",
            param="user",
            code="ambiguous_session",
        )
    return found[0]


async def owner_and_session(
    sessions: Sessions, scope: Scope, session: str | None, user: str | None
) -> tuple[UUID | None, UUID | None]:
    """Whose calls, and of which session, a list is to show; None: any. Raises as `find_session`."""
    if session is not None:
        ref = await find_session(sessions, scope, session, user)
        return ref.user_id, ref.session_id
    named = scope.named(user)
    return named.id if named is not None else None, None


async def session_of(sessions: Sessions, tenant: UUID, text: str, user: UUID) -> SessionRef | None:
    """The session of `user` that `text` names; None: there is none yet. Raises NotFound for an id that Mneme gave to
    another user's session: a new one of that name would be found by nobody."""
    if known := await sessions.resolve(tenant, text, user):
        return known[0]
    issued = ids.issued(text)
    if issued is not None and any(each.session_id == issued for each in await sessions.resolve(tenant, text, None)):
        raise NotFound("There is no such session for this user.", param="session")
    return None


async def find_memory(memories: Memories, scope: Scope, text: str) -> tuple[UUID, UUID]:
    """User and id of the memory that `text` names. Raises NotFound, for another user's memory as well."""
    memory = ids.issued(text)
    named = scope.named()
    if memory is not None:
        owner = await memories.owner(scope.tenant, memory)
        # A memory without a route is still found by whoever says whose it is.
        owner = owner or (named.id if named is not None else None)
        if owner is not None and (named is None or named.id == owner):
            return owner, memory
    raise NotFound("There is no such memory.")


def find_call(text: str) -> UUID:
    """The id of a call. Raises NotFound for what is no id."""
    call = ids.issued(text)
    if call is None:
        raise NotFound("There is no such call.")
    return call
