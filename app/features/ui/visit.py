"""One request of the page: who makes it, by a signed cookie; what it asks of the API, and how it is answered."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode

import orjson
from itsdangerous import BadData, URLSafeTimedSerializer
from jinja2 import Environment
from msgspec import Struct, field
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.auth import Principal
from app.api.common import PREFIX, SLASH
from app.errors import NotReady
from app.features.ui.rendering import DOT
from app.gateway.identify import PRINCIPAL

# --- who is signed in: nothing of it is stored; who signed out is known to this process ----------------------------------

SECRET_BYTES = 32
"""Entropy of the signing secret, as of a key; written down it has more characters."""
MAX_ENDED = 10_000
"""Sessions that were signed out and are remembered, some 200 bytes each; beyond, the oldest are forgotten."""
_NOTICE_S = 60.0
"""Seconds that a notice waits for the page that shows it."""


class SignedIn(Struct, frozen=True):
    """`digest`: SHA-256 of the key, in hex; None: nobody signed in (yet, or in `open` mode, where nobody needs to).
    `token`: what every form sends back, so that no other site can send one."""

    digest: str | None
    token: str


SESSION_S = 12 * 3600.0
"""Seconds after which one signs in to /ui again: a working day, with its evening."""


class Cookies:
    """Signs and reads. The digest alone opens nothing: keys are looked up by it, and a request needs the key."""

    def __init__(self, secret: str, life_s: float) -> None:
        """`life_s`: seconds after which one has to sign in again."""
        self._signed_in = URLSafeTimedSerializer(secret, salt="mneme.ui.signed-in")
        self._notice = URLSafeTimedSerializer(secret, salt="mneme.ui.notice")
        self._ended: OrderedDict[str, None] = OrderedDict()
        self.life_s = life_s

    def read(self, cookie: str | None) -> SignedIn | None:
        """None: none of ours, too old, or signed out."""
        found = _load(self._signed_in, cookie, self.life_s)
        return SignedIn(found["k"], found["t"]) if found is not None and found["t"] not in self._ended else None

    def end(self, token: str) -> None:
        """Read no copy of this session's cookie any more, in this process."""
        self._ended[token] = None
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def write(self, digest: str | None) -> tuple[SignedIn, str]:
        """A new one, with a token of its own, and the cookie's value."""
        made = SignedIn(digest, secrets.token_urlsafe(16))
        return made, str(self._signed_in.dumps({"k": made.digest, "t": made.token}))

    def notice(self, text: str) -> str:
        """What was done, to be shown on the next page, as a cookie's value."""
        return str(self._notice.dumps(text))

    def noticed(self, cookie: str | None) -> str | None:
        """Signed, for else anybody who may set a cookie could put words into our mouth."""
        found: str | None = _load(self._notice, cookie, _NOTICE_S)
        return found


def _load(serializer: URLSafeTimedSerializer, cookie: str | None, life_s: float) -> Any:
    """What was signed with this serializer, which is given only what `Cookies` writes; None: nothing, or too long ago."""
    try:
        return serializer.loads(cookie, max_age=int(life_s)) if cookie else None
    except BadData:
        return None


def shared_secret(folder: Path) -> str:
    """The secret of all server processes that share `folder`; made by the first, readable by its owner only. Raises NotReady.

    Servers on several machines need MNEME_UI_SECRET instead.
    """
    path, fresh = folder / "ui-secret", folder / f"ui-secret.{secrets.token_hex(8)}"
    try:
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(SECRET_BYTES))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(fresh, path)  # fails where another process was faster: its secret stands
            except FileExistsError:
                pass
            finally:
                fresh.unlink()
        found = path.read_text().strip()
    except OSError as error:
        raise NotReady(f"/ui needs a secret under {folder}: {error}. Set MNEME_UI_SECRET, or MNEME_UI=off.") from error
    if len(found) < SECRET_BYTES:
        raise NotReady(f"{path} holds no secret: delete it, and another one is made.")
    return found


# --- a request -----------------------------------------------------------------------------------------------------------
#
# `/api/v1` is asked from within: no socket, and who asks is known already. So the page can show and do exactly what its key
# may, by the very rules that hold for everybody else.

COOKIE = "mneme_ui"
NOTICE = "mneme_ui_notice"
THEME = "mneme_ui_theme"
THEMES = ("light", "dark")
FORM = "application/x-www-form-urlencoded"
"""What our forms send. Multipart is not read: it lets its sender choose a charset, and some take seconds, or fail."""
TOKEN = "csrf"  # noqa: S105 - a field's name
MAX_FIELDS = 100
"""Fields of a form; the largest has some twenty."""
MAX_NOTICE_CHARS = 300
"""Browsers keep cookies of 4 KB."""
MAX_DIGITS = 9
"""Of a number in a form or a query: it fits Postgres' integer, and Python refuses to read thousands of digits."""
WENT_WRONG = "This went wrong; the server's log says why."


class Visit(Struct):
    """`principal`: None where nobody is signed in; then there is no `within` either."""

    request: Request
    templates: Environment
    cookies: Cookies
    principal: Principal | None
    token: str
    within: ApiClient | None
    open_mode: bool
    set_cookies: list[tuple[str, str, float]] = field(default_factory=list)
    """To be set with the answer: name, value, life in seconds; 0 removes it."""

    # --- what was asked -------------------------------------------------------------------------------------------------

    def segment(self, name: str) -> str:
        """A path parameter, whatever `rendering.url` was given for it."""
        return str(self.request.path_params[name]).replace(SLASH, "/").removeprefix(DOT)

    def query(self, name: str, default: str | None = None) -> str | None:
        """`?name=`, without the space around it; an empty one is none."""
        return (self.request.query_params.get(name) or "").strip() or default

    @property
    def location(self) -> str:
        """This very page, as the browser has it: path and query."""
        raw: bytes = self.request.scope.get("raw_path") or self.request.scope["path"].encode()
        path, query = raw.partition(b"?")[0].decode("latin-1"), self.request.url.query
        return f"{path}?{query}" if query else path

    @property
    def api(self) -> ApiClient:
        """/api/v1 with this visitor's rights. Only for pages that nobody sees who is not signed in."""
        if self.within is None:
            raise Refused(401, "Sign in first.")
        return self.within

    @property
    def partial(self) -> bool:
        """Whether htmx asks for a part of the page only."""
        return self.request.headers.get("hx-request") == "true"

    async def form(self) -> FormData:
        """The fields that were sent. Raises Refused where the form is none of this session's, which no POST passes (`site`)."""
        kind = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        given = await self.request.form(max_fields=MAX_FIELDS) if kind == FORM else FormData()
        if not hmac.compare_digest(str(given.get(TOKEN, "")).encode(), self.token.encode()):
            raise Refused(403, "This form is too old, or not one of ours. Go back, load the page again and retry.")
        return given

    # --- how it is answered ----------------------------------------------------------------------------------------------

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        theme = self.request.cookies.get(THEME)
        notice = self.cookies.noticed(self.request.cookies.get(NOTICE))
        if notice is not None:
            self.set_cookies.append((NOTICE, "", 0))
        text = self.templates.get_template(template).render(
            {
                "visit": self,
                "here": self.request.url.path,
                "theme": theme if theme in THEMES else "",
                "notice": notice,
                "csrf": self.token,
                "status": status,
                **values,
            }
        )
        return HTMLResponse(text, status_code=status)

    def redirect(self, location: str, notice: str | None = None) -> Response:
        """To a page of ours, which says once what was done."""
        if notice is not None:
            self.set_cookies.append((NOTICE, self.cookies.notice(notice[:MAX_NOTICE_CHARS]), _NOTICE_S))
        return RedirectResponse(location, status_code=303)

    def pass_on(self, *path: str, **query: Any) -> Response:
        """What a route of /api/v1 answers, as it comes: for downloads of any size."""
        return _PassedOn(self.api, path, query)


class _PassedOn(Response):
    def __init__(self, api: ApiClient, path: tuple[str, ...], query: dict[str, Any]) -> None:
        super().__init__()
        self._api, self._path, self._query = api, path, query

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._api.pass_on(receive, send, *self._path, **self._query)


def whole_number(text: str | None) -> int | None:
    """None: these are no digits, or too many."""
    return int(text) if text and len(text) <= MAX_DIGITS and text.isdecimal() else None


Page = Callable[[Visit], Awaitable[Response]]


class Entry(Struct, frozen=True):
    """A page of the site: path under /ui, its handler, and the methods it takes."""

    path: str
    page: Page
    methods: Sequence[Literal["GET", "POST"]] = ("GET",)


Value = TypeVar("Value")

# --- asking /api/v1 ------------------------------------------------------------------------------------------------------

MISTAKES = (400, 404, 409, 422)
"""Answers to a filter or a form that its page shows beside it."""


class Refused(Exception):
    """The API said no. `message` is for people; `param`: the name of what was wrong, where there is one."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param


async def or_none(asked: Awaitable[Value], *of: int) -> Value | None:
    """What a route says; None where there is nothing of the kind, or it cannot be rebuilt; not where the database is away.
    `of`: of these statuses alone."""
    try:
        return await asked
    except Refused as refused:
        if refused.status >= 500 or (of and refused.status not in of):
            raise
        return None


async def or_refused(asked: Awaitable[Value], otherwise: Value) -> tuple[Value, Refused | None]:
    """What a route says; where it is one of `MISTAKES`, `otherwise` and why."""
    try:
        return await asked, None
    except Refused as refused:
        if refused.status not in MISTAKES:
            raise
        return otherwise, refused


class ApiClient(Struct, frozen=True):
    """What answers under /api/v1, as one caller sees it."""

    app: ASGIApp
    principal: Principal

    async def get(self, *path: str, **query: Any) -> Any:
        """The JSON of GET /api/v1/…; `path` in segments of any text, without `None`s in `query`. Raises Refused."""
        return await self.send("GET", *path, query=query)

    async def send(
        self, method: str, *path: str, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        """The JSON of any request; None where the answer has no body. Raises Refused."""
        status, content = await self._ask(method, path, query or {}, body)
        if status < 300:
            return orjson.loads(content) if content else None
        raise _refused(status, content)

    async def content(self, *path: str, **query: Any) -> bytes:
        """The bytes of GET /api/v1/…, whatever they are. Raises Refused."""
        status, content = await self._ask("GET", path, query, None)
        if status >= 300:
            raise _refused(status, content)
        return content

    async def pass_on(self, receive: Receive, send: Send, *path: str, **query: Any) -> None:
        """Answer a request with what GET /api/v1/… answers, as it comes: for downloads of any size."""
        await self.app(self._scope("GET", path, query, []), receive, send)

    async def _ask(
        self, method: str, path: tuple[str, ...], query: Mapping[str, Any], body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        try:
            content = b"" if body is None else orjson.dumps(body)
        except TypeError as error:  # a number without measure, half a character
            raise Refused(400, f"This cannot be sent: {error}.") from error
        headers = [] if body is None else [(b"content-type", b"application/json")]
        status, _, told = await ask_within(self.app, self._scope(method, path, query, headers), content)
        return status, told

    def _scope(
        self, method: str, path: tuple[str, ...], query: Mapping[str, Any], headers: list[tuple[bytes, bytes]]
    ) -> Scope:
        given = {name: _said(value) for name, value in query.items() if value is not None and value != ""}
        asked = "/".join((PREFIX, *path))
        raw = "/".join((PREFIX, *(quote(each, safe="") for each in path)))
        return scope_of(self.principal, method, asked, headers, raw, urlencode(given, doseq=True))


def scope_of(
    principal: Principal, method: str, path: str, headers: list[tuple[bytes, bytes]], raw: str = "", query: str = ""
) -> Scope:
    """A request of this server's own. `raw`: the path, quoted, where that is another."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": (raw or path).encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(b"host", b"mneme"), *headers],
        "client": None,
        "server": None,
        PRINCIPAL: principal,
    }


async def ask_within(app: ASGIApp, scope: Scope, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and body of what an application of this server answers."""
    started: dict[str, Any] = {}
    parts: list[bytes] = []
    pending = [body]
    stays = asyncio.Event()

    async def receive() -> Message:
        if not pending:
            await stays.wait()  # nobody goes away
        return {"type": "http.request", "body": pending.pop(), "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in started.get("headers", ())}
    return started.get("status", 500), headers, b"".join(parts)


def _refused(status: int, content: bytes) -> Refused:
    try:
        error = orjson.loads(content)["error"]
        return Refused(status, str(error["message"]), error["param"])
    except (ValueError, LookupError, TypeError):
        return Refused(status, WENT_WRONG)


def _said(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
