"""The ASGI application at /ui: lets visitors in, finds their page, and puts the right headers on every answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import urlsplit

from jinja2 import Environment
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.auth import Authenticator, Principal
from app.api.common import DoorMiddleware
from app.api.origin import LOOPBACK, check_host
from app.errors import MnemeError, Unauthenticated
from app.ui.cookie import Cookies
from app.ui.rendering import assets, environment, url
from app.ui.visit import COOKIE, THEME, THEMES, Page, Visit
from app.ui.within import Doors, Refused

MAX_FORM_BYTES = 1024 * 1024
"""Largest form, bytes: thirty times the longest memory."""
YEAR_S = 365 * 86400
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A page of the site: path under /ui, its handler, and the methods it takes."""

    path: str
    page: Page
    methods: Sequence[Literal["GET", "POST"]] = ("GET",)


class Site:
    """Plain ASGI. `routes`: of all pages; those of signing in are its own."""

    def __init__(
        self,
        authenticator: Authenticator,
        doors: ASGIApp,
        cookies: Cookies,
        routes: Iterable[Entry],
        *,
        open_mode: bool,
        hosts: Iterable[str],
    ) -> None:
        """`doors`: what answers under /api/v1. `hosts`: as in `McpDoor`; they matter in `open` mode only, for else the cookie
        is bound to the name under which one signed in."""
        self._authenticator = authenticator
        self._doors = doors
        self._cookies = cookies
        self._open = open_mode
        self._hosts = LOOPBACK | {each.lower() for each in hosts}
        self._templates: Environment = environment()
        own = [Entry("/login", self._login, ("GET", "POST")), Entry("/logout", self._logout, ("POST",))]
        own.append(Entry("/theme", self._theme, ("POST",)))
        table: list[BaseRoute] = [Route("/ui/static/{name}", _static)]
        table += [
            Route(f"/ui{each.path}", self._endpoint(each.page, public=each in own), methods=list(each.methods))
            for each in [*own, *routes]
        ]
        app = Starlette(routes=table)
        app.add_exception_handler(HTTPException, self._missing)
        self._app = DoorMiddleware(app, MAX_FORM_BYTES, ("/ui",))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                headers += [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
                if not any(name == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, guarded)

    # --- letting in ------------------------------------------------------------------------------------------------------

    def _endpoint(self, page: Page, *, public: bool) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            visit = await self._visit(request)
            try:
                if self._open:
                    check_host(request.headers.get("host"), self._hosts)
                if visit.principal is None and not public:
                    answer = self._to_login(visit)
                else:
                    answer = await page(visit)
            except Refused as refused:
                answer = self._refusal(visit, refused.status, refused.message)
            except MnemeError as error:
                answer = self._refusal(visit, error.status, error.message)
            for name, value, life_s in visit.set_cookies:
                answer.set_cookie(
                    name,
                    value,
                    max_age=int(life_s),
                    path="/ui",
                    httponly=True,
                    samesite="lax",
                    secure=request.url.scheme == "https",
                )
            return answer

        return endpoint

    async def _visit(self, request: Request) -> Visit:
        found = self._cookies.read(request.cookies.get(COOKIE))
        made = None
        if found is None:
            found, made = self._cookies.write(None)
        principal = await self._principal(found.digest)
        visit = Visit(
            request=request,
            templates=self._templates,
            cookies=self._cookies,
            principal=principal,
            token=found.token,
            within=Doors(self._doors, principal) if principal is not None else None,
            open_mode=self._open,
        )
        if made is not None:
            visit.set_cookies.append((COOKIE, made, self._cookies.life_s))
        return visit

    async def _principal(self, digest: str | None) -> Principal | None:
        if self._open:
            return await self._authenticator.check(Headers())
        if digest is None:
            return None
        try:
            return await self._authenticator.check_digest(bytes.fromhex(digest))
        except Unauthenticated:
            return None  # revoked or expired since

    def _to_login(self, visit: Visit) -> Response:
        asked = visit.request.url
        wanted = f"{asked.path}?{asked.query}" if asked.query else asked.path
        return visit.redirect(url("login", next=wanted if visit.request.method == "GET" else None))

    def _refusal(self, visit: Visit, status: int, message: str) -> Response:
        return visit.render("refused.html", status=status, message=message)

    async def _missing(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        visit = await self._visit(request)
        return self._refusal(visit, status, "There is no such page.")

    # --- its own pages ---------------------------------------------------------------------------------------------------

    async def _login(self, visit: Visit) -> Response:
        wanted = _ours(visit.query("next"))
        if visit.principal is not None:
            return visit.redirect(wanted)
        if visit.request.method == "GET":
            return visit.render("login.html", next=wanted, message=None)
        given = await visit.form()
        wanted = _ours(str(given.get("next", "")))
        key = str(given.get("key", "")).strip()
        try:
            await self._authenticator.check(Headers({"x-mneme-key": key}))
        except Unauthenticated as error:
            return visit.render("login.html", status=401, next=wanted, message=error.message)
        _, cookie = self._cookies.write(sha256(key.encode()).hexdigest())
        visit.set_cookies.append((COOKIE, cookie, self._cookies.life_s))
        return visit.redirect(wanted)

    async def _logout(self, visit: Visit) -> Response:
        await visit.form()
        visit.set_cookies.append((COOKIE, "", 0))
        return visit.redirect(url("login"))

    async def _theme(self, visit: Visit) -> Response:
        given = await visit.form()
        wanted = str(given.get("theme", ""))
        visit.set_cookies.append((THEME, wanted, YEAR_S) if wanted in THEMES else (THEME, "", 0))
        return visit.redirect(_ours(str(given.get("next", ""))))


def _ours(location: str | None) -> str:
    """`location` if it is a page of this site, else the first: no link of ours leads elsewhere."""
    if not location:
        return url()
    parts = urlsplit(location)
    inside = not parts.scheme and not parts.netloc and (parts.path == "/ui" or parts.path.startswith("/ui/"))
    return location if inside and "\\" not in location else url()


async def _static(request: Request) -> Response:
    found = assets().get(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    content, kind = found
    kept = f"public, max-age={YEAR_S}, immutable" if "v" in request.query_params else "no-cache"
    return Response(content, media_type=kind, headers={"cache-control": kept})
