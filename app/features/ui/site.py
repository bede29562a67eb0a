"""The ASGI application at /ui: lets visitors in, finds their page, and puts the right headers on every answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from hashlib import sha256
from typing import Any

from jinja2 import Environment
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.auth import Authenticator, Principal
from app.api.common import SLASH, ApiMiddleware
from app.errors import MnemeError, StoreUnavailable, TooLarge, Unauthenticated
from app.features.ui import calls, conflicts, entities, look, memories, overview, sessions, users
from app.features.ui import settings as settings_page
from app.features.ui.rendering import assets, environment, ours, url
from app.features.ui.visit import (
    COOKIE,
    SESSION_S,
    THEME,
    THEMES,
    WENT_WRONG,
    ApiClient,
    Cookies,
    Entry,
    Page,
    Refused,
    Visit,
    shared_secret,
)
from app.gateway.turn import Application
from app.patience import Patient
from app.settings import Settings

MAX_FORM_BYTES = 1024 * 1024
"""Largest form, bytes: thirty times the longest memory."""
YEAR_S = 365 * 86400
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Site:
    """Plain ASGI. `routes`: of all pages; those of signing in are its own."""

    def __init__(
        self,
        authenticator: Authenticator,
        api: ASGIApp,
        cookies: Cookies,
        routes: Iterable[Entry],
        *,
        open_mode: bool,
        helper_model: str | None = None,
    ) -> None:
        """`api`: what answers under /api/v1. `helper_model`: the LLM that learns beside the rules, or None."""
        self._authenticator = authenticator
        self._api = api
        self._cookies = cookies
        self._open = open_mode
        self._templates: Environment = environment()
        self._templates.globals["helper_model"] = helper_model
        own = [Entry("/login", self._login, ("GET", "POST")), Entry("/theme", self._theme, ("POST",))]
        own.append(Entry("/logout", self._logout, ("POST",)))
        self.entries = (*own, *routes)
        table: list[BaseRoute] = [Route("/ui/static/{name}", _static)]
        table += [
            Route(f"/ui{each.path}", self._endpoint(each.page, public=each in own), methods=list(each.methods))
            for each in self.entries
        ]
        app = Starlette(routes=table, exception_handlers={HTTPException: self._missing, Exception: self._failed})
        app.router.redirect_slashes = False  # it would go by the Host that was sent
        self._app = Patient(ApiMiddleware(app, MAX_FORM_BYTES, ("/ui",), self._too_large))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message.get("headers", ())))
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
                message = {**message, "headers": headers.raw}
            await send(message)

        await self._app(scope, receive, guarded)

    # --- letting in ------------------------------------------------------------------------------------------------------

    def _endpoint(self, page: Page, *, public: bool) -> Callable[[Request], Awaitable[Response]]:
        async def checked(visit: Visit) -> Response:
            if visit.principal is None and not public:
                return _to_login(visit)
            if visit.request.method == "POST":
                await visit.form()  # no page can forget the token
            return await page(visit)

        async def endpoint(request: Request) -> Response:
            return await self._answer(request, checked, public=public)

        return endpoint

    async def _answer(self, request: Request, page: Page, *, public: bool = False) -> Response:
        """What `page` answers; in words, where it cannot."""
        visit = self._stranger(request)
        try:
            visit = await self._visit(request, public=public)
            answer = await page(visit)
        except (Refused, MnemeError) as refused:
            answer = _refusal(visit, refused.status, refused.message)
        except HTTPException as error:  # a form that is none
            answer = _refusal(visit, error.status_code, str(error.detail))
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

    def _stranger(self, request: Request) -> Visit:
        return Visit(request, self._templates, self._cookies, None, "", None, self._open)

    async def _visit(self, request: Request, *, public: bool) -> Visit:
        visit = self._stranger(request)
        found = self._cookies.read(request.cookies.get(COOKIE))
        if found is None:
            found, made = self._cookies.write(None)
            visit.set_cookies.append((COOKIE, made, self._cookies.life_s))
        visit.token = found.token
        try:
            visit.principal = await self._principal(found.digest)
        except StoreUnavailable:
            if not public:  # whoever signs out need not wait for the database
                raise
        visit.within = ApiClient(self._api, visit.principal) if visit.principal is not None else None
        return visit

    async def _principal(self, digest: str | None) -> Principal | None:
        if self._open:
            return await self._authenticator.check({})
        if digest is None:
            return None
        try:
            return await self._authenticator.check_digest(bytes.fromhex(digest))
        except Unauthenticated:
            return None  # revoked or expired since

    # --- what is no page --------------------------------------------------------------------------------------------------

    async def _missing(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        path = str(request.scope["path"])
        if status == 404 and path.endswith("/") and request.method in ("GET", "HEAD"):
            segments = (each.replace(SLASH, "/") for each in path.strip("/").split("/")[1:])
            return RedirectResponse(url(*segments), status_code=308)

        async def words(visit: Visit) -> Response:
            return _refusal(
                visit, status, "There is no such page." if status == 404 else "This page takes no such request."
            )

        return await self._answer(request, words)

    async def _failed(self, request: Request, _: Exception) -> Response:
        # Starlette logs the exception after this answer; its text stays out of it.
        return _refusal(self._stranger(request), 500, WENT_WRONG)

    def _too_large(self, error: TooLarge) -> ASGIApp:
        async def refusal(scope: Scope, receive: Receive, send: Send) -> None:
            answer = _refusal(self._stranger(Request(scope)), error.status, error.message)
            await answer(scope, receive, send)

        return refusal

    # --- its own pages ---------------------------------------------------------------------------------------------------

    async def _login(self, visit: Visit) -> Response:
        wanted = ours(visit.query("next"))
        if visit.principal is not None:
            return visit.redirect(wanted)
        if visit.request.method != "POST":
            return visit.render("login.html", next=wanted, message=None)
        given = await visit.form()
        wanted = ours(str(given.get("next", "")))
        key = str(given.get("key", "")).strip()
        try:
            await self._authenticator.check({"x-mneme-key": key})
        except Unauthenticated as error:
            return visit.render("login.html", status=401, next=wanted, message=error.message)
        _, cookie = self._cookies.write(sha256(key.encode()).hexdigest())
        visit.set_cookies.append((COOKIE, cookie, self._cookies.life_s))
        return visit.redirect(wanted)

    async def _logout(self, visit: Visit) -> Response:
        signed_in = self._cookies.read(visit.request.cookies.get(COOKIE))
        if signed_in is not None and signed_in.digest is not None:  # what strangers send is not remembered
            self._cookies.end(signed_in.token)
        visit.set_cookies.append((COOKIE, "", 0))
        return visit.redirect(url("login"))

    async def _theme(self, visit: Visit) -> Response:
        given = await visit.form()
        wanted = str(given.get("theme", ""))
        visit.set_cookies.append((THEME, wanted, YEAR_S) if wanted in THEMES else (THEME, "", 0))
        return visit.redirect(ours(str(given.get("next", ""))))


def _to_login(visit: Visit) -> Response:
    if visit.partial:  # else the form would stand inside a page that is there already
        return Response(headers={"hx-redirect": url("login")})
    return visit.redirect(url("login", next=visit.location if visit.request.method != "POST" else None))


def _refusal(visit: Visit, status: int, message: str) -> Response:
    return visit.render("refused.html", status=status, message=message)


async def _static(request: Request) -> Response:
    found = assets().get(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    content, kind = found
    kept = f"public, max-age={YEAR_S}, immutable" if "v" in request.query_params else "no-cache"
    return Response(content, media_type=kind, headers={"cache-control": kept})


def open_site(settings: Settings, authenticator: Authenticator, api: ASGIApp, gateway: Application) -> Site:
    """`api`: what answers under /api/v1; `gateway`: under /v1."""
    secret = settings.ui_secret.get_secret_value() if settings.ui_secret else shared_secret(settings.data_dir)
    routes = [
        *overview.ROUTES,
        *look.routes(gateway, settings.default_model),
        *calls.ROUTES,
        *users.ROUTES,
        *memories.ROUTES,
        *sessions.ROUTES,
        *entities.ROUTES,
        *conflicts.ROUTES,
        *settings_page.ROUTES,
        *settings_page.routes(settings),
    ]
    return Site(
        authenticator,
        api,
        Cookies(secret, SESSION_S),
        routes,
        open_mode=settings.auth_mode == "open",
        helper_model=settings.helper_model,
    )
