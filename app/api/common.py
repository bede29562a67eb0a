"""What all routes under /api/v1 have in common: strict JSON, texts, pages and OpenAI-shaped errors.

Bad input never becomes a 500: bodies are parsed here, strictly and before anything looks at them, so that what reaches a
route (and, behind it, Postgres) has no NUL, no lone surrogate, no endless nesting and no number that JSON does not have.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol, TypeVar, cast
from urllib.parse import unquote
from uuid import UUID

import orjson
from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, StringConstraints
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import errors
from app.capture.facts import MAX_LABEL_CHARS, MAX_LABELS, is_label
from app.errors import BadBody, BadRequest, MnemeError, TooLarge
from app.gateway.naming import FAULT_TEXTS, MAX_NAME, InvalidName, parse_name
from app.gateway.prepare import ReadsCards
from app.json_text import read_json
from app.store.history import Attach
from app.store.spaces import NAME_PATTERN

PREFIX = "/api/v1"

MAX_NAME_CHARS = MAX_NAME
SEND_A_NAME = "send your own name of the user, or leave it out."
"""Ends the message of an error about a user's name."""

SLASH = "\ufdd0"
"""Stands for an encoded slash inside a path segment: a noncharacter, which no text that is exchanged may hold."""
_ENCODED_SLASH = re.compile(rb"%2[fF]")

T = TypeVar("T")


# --- texts ---------------------------------------------------------------------------------------------------------------

_MAX_WORD_CHARS = 256
"""Longest tag, characters: tags are indexed, too."""
_NUMBER = re.compile(r"\s*[-+]?[\d._]+\s*")


def clean(text: str) -> str:
    """`text` as Postgres can keep it: U+0000 becomes U+FFFD. Raises ValueError for lone surrogates, which UTF-8 has not."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("must be valid Unicode: it holds a lone surrogate") from error
    return text


def parse_user(value: object) -> str:
    """Return the name of a user (`naming.parse_name`). Raises ValueError, which says what to send."""
    try:
        return parse_name(value)
    except InvalidName as error:
        raise ValueError(f"{error}: {SEND_A_NAME}") from error


def _format_number(value: object) -> object:
    return value if isinstance(value, str) else parse_user(value)


def _check_whole(text: str) -> str:
    if "\ufffd" in text:
        raise ValueError(f"{FAULT_TEXTS['damaged']}: send your own name of the session.")
    return text


def _segment(text: str) -> str:
    return clean(text.replace(SLASH, "/"))


def _label(text: str) -> str:
    if not is_label(text):
        raise ValueError("must hold no control characters and no lone surrogates")
    return text


def _dated(given: object) -> object:
    """pydantic takes a bare number for seconds since 1970: "0" would end something at once that was not to end at all."""
    if isinstance(given, int | float) or (isinstance(given, str) and _NUMBER.fullmatch(given)):
        raise ValueError("must be a date and time, such as 2030-01-31T12:00:00Z, or null")
    return given


def utc(moment: datetime) -> datetime:
    """`moment` in UTC; without a time zone it is taken to be UTC already. Raises ValueError outside of what UTC has."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is outside of the years 1 to 9999") from error


Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARS), AfterValidator(clean)]
"""An external id: of a user or of a session."""
SessionName = Annotated[Name, AfterValidator(_check_whole)]
"""An external id of a session that may be made by it."""
UserName = Annotated[str, BeforeValidator(parse_user)]
"""An external id of a user whom it may make; a value that many people may share is refused (`gateway.naming`)."""
StoredUserName = Annotated[Name, BeforeValidator(_format_number)]
"""An external id of a user whose data is read or deleted: any text, as an earlier version may have stored it."""
Segment = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARS), AfterValidator(_segment)]
"""The same in a path, where an encoded slash belongs to the name."""
UserSegment = Annotated[Segment, AfterValidator(parse_user)]
"""A user in the path of a route that may make one. Other routes take any text, so that all that is stored can be erased."""
SpaceName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""Of a shared space."""
Word = Annotated[str, StringConstraints(min_length=1, max_length=_MAX_WORD_CHARS), AfterValidator(clean)]
"""A tag, the name of a speaker, the name of a model."""
Label = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_LABEL_CHARS), AfterValidator(_label)
]
"""A label of calls."""
Text = Annotated[str, AfterValidator(clean)]
Moment = Annotated[datetime, AfterValidator(utc)]
Dated = Annotated[Moment, BeforeValidator(_dated)]
"""A moment that is written as one."""


# --- JSON ----------------------------------------------------------------------------------------------------------------

MAX_JSON_DEPTH = 64
"""Levels of nesting taken. orjson writes 254 and Postgres' jsonb some thousands; nobody's metadata needs more than this."""


def parse_json(body: bytes) -> Any:
    """Return the value of a JSON text; U+FFFD stands for U+0000, lone surrogates and bytes that are no UTF-8.

    Raises:
        BadBody: The text is no JSON, or is nested deeper than `MAX_JSON_DEPTH`.
    """
    try:
        value = read_json(body)
    except ValueError as error:
        raise BadBody(f"The body is not valid JSON: {error}.") from error
    # Few brackets cannot nest deep: most bodies are not walked.
    if body.count(b"[") + body.count(b"{") > MAX_JSON_DEPTH and _too_deep(value):
        raise BadBody(f"The body is nested deeper than {MAX_JSON_DEPTH} levels.")
    return _without_nul(value) if b"\\u0000" in body else value


def _too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True


def _without_nul(value: Any) -> Any:
    # The depth is bounded: a recursion is safe.
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_without_nul(each) for each in value]
    if isinstance(value, dict):
        return {clean(key): _without_nul(each) for key, each in value.items()}
    return value


def is_json(content_type: str | None) -> bool:
    """Whether a Content-Type names JSON. Only then is a body parsed: a form that a web page posts to a local server is not."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


class ApiRequest(Request):
    """A request whose body is parsed by `parse_json`."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = parse_json(await self.body())
        return self._json


class Model(BaseModel, extra="forbid"):
    """A body that a client sends: a field that it does not have is a mistake, and is named as one."""


# --- pages ---------------------------------------------------------------------------------------------------------------

MAX_PAGE = 1000
"""Most rows of one page."""
DEFAULT_PAGE = 100
_MAX_INT = 2**30
"""Bound of integers in cursors: a page may be added to them, and Postgres' integer still holds the sum."""

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Most rows to return.")]
Labelled = Annotated[
    list[Label] | None, Query(description="Only calls with this label; of several, all.", max_length=MAX_LABELS)
]
Cursor = Annotated[str | None, Query(description="Where to go on: `next` of the page before.", max_length=4096)]


def encode_cursor(parts: Sequence[object]) -> str:
    """An opaque place in a list, from the sort key of its last row (UUIDs, datetimes, integers, texts)."""
    return urlsafe_b64encode(orjson.dumps(list(parts), default=str)).rstrip(b"=").decode()


def decode_cursor(cursor: str | None, kinds: tuple[type, ...]) -> tuple[Any, ...] | None:
    """The sort key again, each part of its kind; None without a cursor. Raises BadRequest for what is not ours."""
    if cursor is None:
        return None
    try:
        raw = orjson.loads(urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)))
        if not isinstance(raw, list) or len(raw) != len(kinds):
            raise ValueError("another list's cursor")
        return tuple(_part(value, kind) for value, kind in zip(raw, kinds, strict=True))
    except (ValueError, binascii.Error) as error:
        raise BadRequest("This cursor is not one that this list gave out.", param="cursor") from error


def _part(value: object, kind: type) -> object:
    if kind is int:
        if type(value) is not int or not -_MAX_INT <= value <= _MAX_INT:
            raise ValueError("no integer")
        return value
    if not isinstance(value, str):
        raise ValueError("no text")
    if kind is UUID:
        return UUID(value)
    if kind is datetime:
        return utc(datetime.fromisoformat(value))
    return clean(value)


def paged(rows: Sequence[T], limit: int, key: Callable[[T], Sequence[object]]) -> tuple[list[T], str | None]:
    """The page and its `next`, of `limit` + 1 rows asked for."""
    page = list(rows[:limit])
    return page, encode_cursor(key(page[-1])) if len(rows) > limit else None


# --- errors --------------------------------------------------------------------------------------------------------------

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
    503: "service_unavailable",
}
MAX_ERRORS_TOLD = 5
"""Validation errors named in one answer; the rest would be noise."""
_MAX_PARAM_CHARS = 200
_SHAPES = frozenset({"one", "many"})
"""Tags of bodies that are one object or a list: they stand in pydantic's paths, and not in the body."""


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """Every error, as OpenAI writes it."""

    error: ErrorDetail


ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "What is wrong with the request."},
    "503": {"model": ErrorBody, "description": "The database cannot be reached at the moment."},
}
"""The error answers of every route, for the OpenAPI document."""


def error_response(error: MnemeError) -> JSONResponse:
    """An error as OpenAI's clients read it."""
    headers = {"retry-after": "1"} if isinstance(error, errors.Unavailable) else None
    return JSONResponse(error.body(), status_code=error.status, headers=headers)


def install_errors(app: FastAPI) -> None:
    """Give every error of the app OpenAI's shape: Mneme's own, bad bodies and parameters, unknown routes, and surprises."""

    def known(_: Request, error: Exception) -> JSONResponse:
        return error_response(cast("MnemeError", error))

    def invalid(_: Request, error: Exception) -> JSONResponse:
        return error_response(_of_validation(cast("RequestValidationError", error)))

    def plain(request: Request, error: Exception) -> JSONResponse:
        found = cast("HTTPException", error)
        kind = _TYPES.get(found.status_code, "invalid_request_error" if found.status_code < 500 else "server_error")
        return JSONResponse(
            {"error": {"message": _of_status(found, request), "type": kind, "param": None, "code": None}},
            status_code=found.status_code,
            headers=dict(found.headers or {}),
        )

    def surprise(_: Request, __: Exception) -> JSONResponse:
        # Starlette logs the exception after this answer; its text stays out of it.
        return error_response(MnemeError())

    app.add_exception_handler(MnemeError, known)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, plain)
    app.add_exception_handler(Exception, surprise)


def _of_status(error: HTTPException, request: Request) -> str:
    if error.status_code == 404 and error.detail == "Not Found":
        return f"There is no {request.method} {request.url.path[:_MAX_PARAM_CHARS]} here; /docs lists what there is."
    if error.status_code == 405:
        return f"{request.method} is not allowed here; /docs lists what is."
    return str(error.detail)


def _of_validation(error: RequestValidationError) -> BadRequest:
    found = error.errors()
    told = [f"{_param(each) or 'body'}: {each['msg']}" for each in found[:MAX_ERRORS_TOLD]]
    if len(found) > MAX_ERRORS_TOLD:
        told.append(f"and {len(found) - MAX_ERRORS_TOLD} more")
    return BadRequest("; ".join(told), param=_param(found[0]) or None, code=str(found[0]["type"]))


def _param(error: dict[str, Any]) -> str:
    """Where: `messages.3.content` in a body; the name of a parameter."""
    if error["loc"][0] != "body":
        return str(error["loc"][1])
    return ".".join(str(part) for part in error["loc"][1:] if part not in _SHAPES)[:_MAX_PARAM_CHARS]


# --- the way in ----------------------------------------------------------------------------------------------------------


def add_routes(app: FastAPI, router: APIRouter) -> None:
    """The router's routes as they are. `include_router` would make each a second time when the first request passes it, some
    2 ms each, and look at every request's path in a longer way."""
    app.router.routes.extend(router.routes)


class ApiMiddleware:
    """Bounds the body of a request (413 beyond), and keeps an encoded slash inside its path segment.

    Plain ASGI, for requests whose path begins with one of `prefixes`. The bound holds for a body without a length, too:
    what the app answers to the torn body is replaced by the 413.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_bytes: int,
        prefixes: tuple[str, ...] = ("/api/",),
        refusal: Callable[[TooLarge], ASGIApp] = error_response,
    ) -> None:
        self._app = app
        self._max = max_bytes
        self._prefixes = prefixes
        self._refusal = refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(self._prefixes):
            await self._app(scope, receive, send)
            return
        raw: bytes = scope.get("raw_path") or b""
        if _ENCODED_SLASH.search(raw):
            marked = _ENCODED_SLASH.sub(b"%EF%B7%90", raw.partition(b"?")[0])  # U+FDD0
            scope = {**scope, "path": unquote(marked.decode("latin-1"))}
        length = Headers(scope=scope).get("content-length", "")
        too_large = TooLarge(f"The body is larger than {self._max} bytes.")
        if length.isascii() and length.isdigit() and int(length) > self._max:
            await self._refusal(too_large)(scope, receive, send)
            return
        seen, started, refused = 0, False, False

        async def bounded() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > self._max:
                    raise too_large
            return message

        async def replaced(message: Message) -> None:
            nonlocal started, refused
            if seen > self._max and not started and not refused:
                refused = True
                await self._refusal(too_large)(scope, receive, send)
            if not refused:
                started = True
                await send(message)

        await self._app(scope, bounded, replaced)


# --- cards that are shown with messages ----------------------------------------------------------------------------------

MAX_CARDS = 100
"""Most cards of one request; a screen shows a handful."""
MAX_ORDER = 1000
"""Highest place of a card within its answer."""
_MAX_TYPE_CHARS = 100
"""Longest type of a card, characters (seed 003: VARCHAR(100))."""
MAX_CARD_BYTES = 64 * 1024
"""Largest card, bytes of compact JSON: thirty times the seed's average of 2 KB. Pictures belong behind a URL."""


def _small(data: dict[str, Any]) -> dict[str, Any]:
    if (size := len(compact(data))) > MAX_CARD_BYTES:
        raise ValueError(f"has {size} bytes as JSON, and {MAX_CARD_BYTES} at most")
    return data


def compact(data: object) -> bytes:
    """JSON without white space."""
    return orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)


CardType = Annotated[
    str, StringConstraints(min_length=1, max_length=_MAX_TYPE_CHARS, strip_whitespace=True), AfterValidator(clean)
]
Order = Annotated[int, Field(ge=1, le=MAX_ORDER)]


class CardGiven(Model):
    """A card that is shown with an answer."""

    type: CardType = Field(
        description="product_card, comparison_table, chart, …: its words are what it is asked for by."
    )
    data: Annotated[dict[str, Any], AfterValidator(_small)] = Field(description="All it takes to show it again.")
    display_order: Order | None = Field(
        None, description="Its place among the cards of its answer, from 1; the next one."
    )


Given = Annotated[list[CardGiven], Field(max_length=MAX_CARDS)]


class CardOut(BaseModel):
    """A card. `question` counts what the user asked in the conversation, from 1, branches with what they share; `display_order`
    its place among the cards of its answer. `source`: `api`, or `tool`: taken from the result of the call `tool_call_id`."""

    id: UUID
    session_id: UUID
    message_id: UUID
    turn_index: int
    question: int
    display_order: int
    type: str
    data: dict[str, Any]
    source: str
    tool_call_id: str | None
    token_count: int
    shown_at: datetime


class KeepsCards(ReadsCards, Protocol):
    """Keeps the cards that are shown with messages (`Feature.cards`)."""

    async def attaching(self, tenant: UUID, given: Mapping[UUID, Sequence[CardGiven]]) -> Attach:
        """Stores these, by the message that they are shown with, along with the messages; then raises Conflict where two are to
        stand in one place."""

    async def of_messages(self, tenant: UUID, user: UUID, messages: Sequence[UUID]) -> Mapping[UUID, Sequence[CardOut]]:
        """By message, the cards that were shown with it, in their order."""
