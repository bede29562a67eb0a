"""Whose data a request under /api/v1 may touch: the key's tenant, and within it the user; and what its path names of that.

Every router is made by `Gate.router`, so every route asks the gate, before its body is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Depends, Header, Request, Response, Security
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader, HTTPBearer
from msgspec import Struct
from starlette.routing import compile_path

from app.api.auth import Authenticator
from app.api.common import ERRORS, MAX_NAME_CHARS, PREFIX, SEND_A_NAME, ApiRequest, clean, is_json
from app.errors import BadBody, BadHeader, BadRequest, Conflict, Forbidden, NotFound, Unauthenticated
from app.gateway.identify import LOCAL_USER, PRINCIPAL, Principal, check_agreement
from app.gateway.naming import InvalidName, decode_header, parse_name
from app.store import ids
from app.store.memories import Memories
from app.store.sessions import SessionRef, Sessions
from app.store.tenancy import UserRef

_READING = frozenset({"GET", "HEAD"})
_READING_POSTS = ("/search", "/context", "/replay", "/cards/call")
"""POSTs that change nothing."""
_MAKING = frozenset({"POST", "PUT"})
"""Methods that may make a user. Others take any name, so that all that is stored can be read and erased."""


class LazyRoute(APIRoute):
    """A route that FastAPI builds when the first request, or the OpenAPI document, asks for it: some 2 ms each, and there are
    more than a hundred."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self._options = options
        self.path, self.endpoint, self.methods = path, endpoint, set(options.get("methods") or ["GET"])
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)

    def __getattr__(self, name: str) -> Any:
        """Build the route, and return what was asked for; Python comes here only for an attribute that is not set yet."""
        options = self.__dict__.pop("_options", None)
        if options is None:
            raise AttributeError(f"a route has no attribute {name!r}")
        super().__init__(self.path, self.endpoint, **options)
        return getattr(self, name)


class CallerScope(Struct, frozen=True):
    """What a caller may see. `header_user`: X-Mneme-User; `query_user`: `?user=`, which any route takes; `confined`: the one
    user of the key."""

    tenant: UUID
    confined: str | None
    header_user: str | None
    local_user: str | None
    principal: Principal
    query_user: str | None = None

    def named(self, *given: str | None) -> UserRef | None:
        """The user whom the path or the body (`given`), else the query, else the header, else the key names; None: the
        whole tenant.

        Raises Forbidden when a key made for one user names another.
        """
        names = [name for name in (*given, self.query_user, self.header_user) if name is not None]
        if self.confined is not None:
            if any(name != self.confined for name in names):
                raise Forbidden("This key was made for one user, and this is another.", param="user")
            return self.ref(self.confined)
        return self.ref(names[0]) if names else None

    def owner(self, *given: str | None) -> UUID | None:
        """The id of whom `named` finds."""
        found = self.named(*given)
        return found.id if found is not None else None

    def user(self, *given: str | None) -> UserRef:
        """As `named`, else the local user of `open` mode. Raises BadRequest when there is none."""
        found = self.named(*given)
        if found is None and self.local_user is not None:
            found = self.ref(self.local_user)
        if found is None:
            raise BadRequest("Say whose: with `user`, or with the header X-Mneme-User.", param="user")
        return found

    def ref(self, external: str) -> UserRef:
        """The user whom this tenant calls `external`."""
        return UserRef(ids.user_id(self.tenant, external), external)


class Gate:
    """Lets requests into /api/v1."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def scope(
        self,
        request: Request,
        _bearer: Annotated[object, Security(HTTPBearer(auto_error=False, description="A Mneme key: `mneme_…`."))],
        _key: Annotated[object, Security(APIKeyHeader(name="X-Mneme-Key", auto_error=False))],
        _user: Annotated[
            str | None, Header(alias="X-Mneme-User", description="The user, where path and body name none.")
        ] = None,
    ) -> CallerScope:
        """The dependency that every route declares."""
        return await self.admit(request)

    async def admit(self, request: Request) -> CallerScope:
        """The scope of a request, found once. Raises Unauthenticated, Forbidden, BadHeader or StoreUnavailable."""
        known: CallerScope | None = getattr(request.state, "mneme_scope", None)
        if known is not None:
            return known
        check_agreement(request.headers.raw)
        principal = request.scope.get(PRINCIPAL) or await self._authenticator.check(request.headers)
        reading = request.method in _READING or (request.method == "POST" and request.url.path.endswith(_READING_POSTS))
        if not principal.allows("read" if reading else "write"):
            raise Forbidden(f"This key has no scope to {'read' if reading else 'write'} here.", code="missing_scope")
        makes = request.method in _MAKING and not reading
        user = request.headers.get("x-mneme-user")
        scope = CallerScope(
            tenant=principal.tenant_id,
            confined=principal.user_external_id,
            header_user=_parse_user_header(user, makes=makes) if user is not None else None,
            local_user=LOCAL_USER if principal.mode == "open" and principal.key_id is None else None,
            principal=principal,
            query_user=_parse_user_query(request.query_params.getlist("user"), makes=makes),
        )
        scope.named()  # a foreign user is refused even where a route does not look at it
        request.state.mneme_scope = scope
        return scope

    def router(self, *tags: str, prefix: str = PREFIX) -> APIRouter:
        """An empty router under `prefix` that admits nobody but through this gate, and reads bodies strictly."""
        return APIRouter(
            prefix=prefix,
            tags=list(tags),
            route_class=self._route_class(),
            dependencies=[Depends(self.scope)],
            responses=ERRORS,
        )

    def _route_class(self) -> type[APIRoute]:
        gate = self

        class ApiRoute(LazyRoute):
            def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
                handle: Callable[[Request], Awaitable[Response]] = super().get_route_handler()
                takes_a_body = self.body_field is not None

                async def guarded(request: Request) -> Response:
                    route = ApiRequest(request.scope, request.receive)
                    # First who, then what: FastAPI alone would read and parse a stranger's body before it asks.
                    await gate.admit(route)
                    json = is_json(route.headers.get("content-type"))
                    if json and await route.body():
                        await route.json()
                    if not json and takes_a_body and await route.body():
                        raise BadBody("Send JSON, with the header Content-Type: application/json.", code="content_type")
                    return await handle(route)

                return guarded

        return ApiRoute


def _parse_user_header(value: str, *, makes: bool) -> str:
    try:
        return _parse_user_text(decode_header(value), makes=makes)
    except ValueError as error:
        raise BadHeader(f"X-Mneme-User {error}: {SEND_A_NAME}", param="X-Mneme-User") from error


def _parse_user_query(values: list[str], *, makes: bool) -> str | None:
    if len(set(values)) > 1:
        raise BadRequest("user comes twice in the query, with different values: send it once.", param="user")
    try:
        return _parse_user_text(values[0], makes=makes) if values else None
    except ValueError as error:
        raise BadRequest(f"user {error}: {SEND_A_NAME}", param="user") from error


def _parse_user_text(text: str, *, makes: bool) -> str:
    """Return the name of a user: of a new one only what names a person, else any text that can be stored."""
    if makes:
        return parse_name(text)
    if not text or len(text) > MAX_NAME_CHARS:
        raise InvalidName("too-long" if text else "blank")
    return clean(text)


async def admitted(request: Request) -> CallerScope:
    """The scope that the gate found. Raises Unauthenticated on a route that no gate stands before."""
    scope: CallerScope | None = getattr(request.state, "mneme_scope", None)
    if scope is None:
        raise Unauthenticated
    return scope


Admitted = Annotated[CallerScope, Depends(admitted)]
"""What a route takes to know whose data it may touch."""


# --- what a path names ---------------------------------------------------------------------------------------------------


async def find_session(sessions: Sessions, scope: CallerScope, text: str, user: str | None = None) -> SessionRef:
    """The session that `text` names. Raises NotFound, or Conflict where several users have one of that name."""
    found = await sessions.resolve(scope.tenant, text, scope.owner(user))
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
    sessions: Sessions, scope: CallerScope, session: str | None, user: str | None
) -> tuple[UUID | None, UUID | None]:
    """Whose calls, and of which session, a list is to show; None: any. Raises as `find_session`."""
    if session is not None:
        ref = await find_session(sessions, scope, session, user)
        return ref.user_id, ref.session_id
    return scope.owner(user), None


async def session_of(sessions: Sessions, tenant: UUID, text: str, user: UUID) -> SessionRef | None:
    """The session of `user` that `text` names; None: there is none yet. Raises NotFound for an id that Mneme gave to
    another user's session: a new one of that name would be found by nobody."""
    if known := await sessions.resolve(tenant, text, user):
        return known[0]
    issued = ids.issued(text)
    if issued is not None and any(each.session_id == issued for each in await sessions.resolve(tenant, text, None)):
        raise NotFound("There is no such session for this user.", param="session")
    return None


async def find_memory(memories: Memories, scope: CallerScope, text: str) -> tuple[UUID, UUID]:
    """User and id of the memory that `text` names. Raises NotFound, for another user's memory as well."""
    memory, named = ids.issued(text), scope.owner()
    if memory is not None:
        # Where no row says whose memory this is, the user whom the request names is tried.
        owner = await memories.owner(scope.tenant, memory) or named
        if owner is not None and named in (None, owner):
            return owner, memory
    raise NotFound("There is no such memory.")


def find_call(text: str) -> UUID:
    """The id of a call. Raises NotFound for what is no id."""
    call = ids.issued(text)
    if call is None:
        raise NotFound("There is no such call.")
    return call
