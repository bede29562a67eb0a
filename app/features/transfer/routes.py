"""What goes out of Mneme and into it as JSON lines: a user's data, past conversations, and captured calls as cassettes.

GET /api/v1/users/{user}/export: everything that is stored of a user.

POST /api/v1/import: past conversations, one message a line, with their own times. The body is read once, checked line by line
and kept in a temporary file; nothing is stored unless every line is good. Then each session is written in its order, some
hundred messages a transaction. The same line gives the same message, so an import that broke off, or is sent again, adds what
is missing and nothing else.

/api/v1/cassettes: captured calls, one cassette a line (docs/how-to/cassettes.md).
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import IO, Annotated, Any, Literal, NamedTuple
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from msgspec import Struct, field
from pydantic import BaseModel, Field, ValidationError, model_validator

from app.api.common import (
    Labelled,
    Model,
    Moment,
    Name,
    Segment,
    SessionName,
    SpaceName,
    StoredUserName,
    Text,
    UserName,
    Word,
    parse_json,
)
from app.api.intake import IntakeCheck, IntakeMessage, IntakePreparer, MessageIn, Role, check_time, plain_text
from app.api.scope import Admitted, CallerScope, Gate, find_call, owner_and_session
from app.capture.facts import MAX_LABEL_CHARS, MAX_LABELS, is_label, rebuild
from app.capture.record import Recorder
from app.clock import Clock
from app.errors import BadBody, BadHeader, MnemeError, NotFound, TooLarge
from app.features.transfer.store import (
    LEFT_OUT,
    VERSION,
    CassetteStore,
    Export,
    WantedCalls,
    call_id,
    cassette_of,
    facts_of,
    written,
)
from app.gateway.naming import InvalidName, parse_name
from app.gateway.prepare import said_in
from app.gateway.relay import Tape, is_event_stream
from app.memory.text import content_hash
from app.patience import take_time
from app.store import ids
from app.store.captures import Captures
from app.store.history import LEARN_BATCH, History
from app.store.records import StreamRecord
from app.store.sessions import NewSession, SessionRef, Sessions
from app.store.spaces import MESSAGE, SharedSpaces, no_such_space, owner_of
from app.store.tenancy import Tenancy, UserRef
from mneme_replay import bodies
from mneme_replay.cassette import Cassette, Response
from mneme_replay.fileformat import BadCassette, document, read

LINES = "application/x-ndjson"
CONTENT_TYPES = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)
"""What JSON lines are called. Types that a web page may send without being asked (text/plain, forms) are not among them."""
MAX_LINES = 100_000
"""Lines of one import; a longer one is sent in parts."""
MAX_TOLD = 100
"""Wrong lines that are named."""
BATCH_BYTES = 2 * 1024 * 1024
"""Bytes of lines stored in one transaction: Postgres reads some 10 MB of text a second into tsvectors, and a statement has
BACKGROUND_STATEMENT_TIMEOUT_MS."""
SPOOL_BYTES = 8 * 1024 * 1024
"""An import up to this size stays in memory."""
MAX_CALLS = 1000
"""Calls that can be named at once: some 40 KB of a URL."""
MAX_IMPORTED = 1000
"""Cassettes of one import; more are sent in parts."""
_STEP = timedelta(milliseconds=1)
"""Between lines without a time."""


class Lines(StreamingResponse):
    """JSON lines, as they come."""

    media_type = LINES


def _check_lines(request: Request) -> None:
    """Raises BadHeader for a body that is said to be anything but JSON lines."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in CONTENT_TYPES:
        raise BadHeader(f"Send JSON lines, with Content-Type: {LINES}.", param="Content-Type")


# --- a user, exported ----------------------------------------------------------------------------------------------------


def export_router(gate: Gate, export: Export, tenancy: Tenancy, clock: Clock) -> APIRouter:
    routes = _ExportRoutes(export, tenancy, clock)
    router = gate.router("users")
    router.add_api_route(
        "/users/{user}/export",
        routes.export,
        methods=["GET"],
        response_class=Lines,
        responses={200: {"content": {LINES: {"schema": {"type": "string"}}}, "description": "JSON lines."}},
    )
    router.add_api_route("/users/{user}/export", routes.head, methods=["HEAD"], include_in_schema=False)
    return router


class _ExportRoutes:
    def __init__(self, export: Export, tenancy: Tenancy, clock: Clock) -> None:
        self._export = export
        self._tenancy = tenancy
        self._clock = clock

    async def head(self, scope: Admitted, user: Segment) -> Lines:
        """Whether there is one to be had, and of what type: nothing is read for it."""
        await self._owner(scope, user)
        return Lines(iter(()))

    async def _owner(self, scope: CallerScope, user: str) -> UserRef:
        owner = scope.user(user)
        if await self._tenancy.user(scope.tenant, owner.id) is None:
            raise NotFound("There is no such user.")
        return owner

    async def export(
        self,
        scope: Admitted,
        user: Segment,
        part: Annotated[
            Literal["all", "messages"], Query(description="messages: only these, as POST /api/v1/import takes them.")
        ] = "all",
    ) -> Lines:
        """Export a user, as JSON lines. First `{"export": {version, user, at, tables, left_out}}`, then `{"table", "row"}` for
        each row as it is stored, last `{"end": {table: rows}}`: without that line the export broke off. What is written
        meanwhile may or may not be in it."""
        owner = await self._owner(scope, user)
        take_time()
        if part == "messages":
            return Lines(self._export.messages(scope.tenant, owner.id, owner.external))
        tables = await self._export.tables(scope.tenant)
        head = {
            "version": VERSION,
            "user": owner.external,
            "at": written(self._clock.now()),
            "tables": tables,
            "left_out": LEFT_OUT,
        }
        first = orjson.dumps({"export": head}, option=orjson.OPT_APPEND_NEWLINE)

        async def lines() -> AsyncIterator[bytes]:
            yield first
            async for each in self._export.lines(scope.tenant, owner.id, tables):
                yield each

        return Lines(lines())


# --- conversations, imported ---------------------------------------------------------------------------------------------


class Line(Model):
    """One message."""

    session: SessionName
    user: UserName | None = Field(None, description="Needed unless X-Mneme-User or the key names the user.")
    space: SpaceName | None = Field(
        None, description="The shared space that the user, who is a member of it, said it to: then `role` is user."
    )
    role: Role
    content: Text | list[dict[str, Any] | str] | None
    name: Word | None = None
    created_at: Moment | None = Field(None, description="1970 to tomorrow. Left out: just after the line before.")
    metadata: dict[str, Any] = Field({})
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: Name | None = None

    @model_validator(mode="after")
    def _said_by_the_user(self) -> Line:
        if self.space is not None and self.role != "user":
            raise ValueError("what is said to a shared space is a user's: role is user")
        return self


class Imported(BaseModel):
    """`imported`: messages that are new; `duplicates`: lines that were stored before."""

    imported: int
    duplicates: int
    sessions: int
    users: int


def importer_router(gate: Gate, importer: Importer) -> APIRouter:

    async def run(scope: Admitted, request: Request) -> Imported | JSONResponse:
        """Import past conversations, JSON lines of one message each. Sent again, it adds only what is missing.

        400: `errors` says what is wrong, line by line, and nothing was stored.
        """
        _check_lines(request)
        found = await importer.run(scope, request.stream())
        if isinstance(found, Imported):
            return found
        more = " or more" if len(found) == MAX_TOLD else ""
        error = BadBody(
            f"{len(found)}{more} lines are wrong, the first is line {found[0]['line']}: nothing was stored."
        )
        return JSONResponse(error.body() | {"errors": found}, status_code=error.status)

    router = gate.router("import")
    schema = {"required": True, "content": {LINES: {"schema": Line.model_json_schema()}}}
    router.add_api_route(
        "/import", run, methods=["POST"], response_model=Imported, openapi_extra={"requestBody": schema}
    )
    return router


class _Where(NamedTuple):
    """Where a line belongs: a session of a user's; or the space that they said it to, in that session."""

    user: UserRef
    session: str
    space: str | None


class _Progress(Struct):
    """A session being imported. `ordinal`: lines of it so far; `last`: the time of the line before; `said`: how often the
    same was said at the same time."""

    session: SessionRef | NewSession
    ordinal: int = 0
    last: datetime | None = None
    said: Counter[UUID] = field(default_factory=Counter)


class _Tally(Struct):
    imported: int = 0
    duplicates: int = 0
    sessions: int = 0
    users: set[UserRef] = field(default_factory=set)


class Importer(Struct):
    """`intake_check`: of what is said to spaces, which others read."""

    sessions: Sessions
    history: History
    preparer: IntakePreparer
    spaces: SharedSpaces
    intake_check: IntakeCheck

    async def run(self, scope: CallerScope, chunks: AsyncIterator[bytes]) -> Imported | list[dict[str, Any]]:
        """Store all lines, or say which are wrong: [{line, error}], counted from 1. Raises TooLarge over `MAX_LINES`."""
        with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as file:
            places = await self._check(scope, chunks, file)
            if isinstance(places, list):
                return places
            tally = _Tally()
            for where, own in places.items():
                await self._import_session(scope, where, file, own, tally)
        return Imported(
            imported=tally.imported, duplicates=tally.duplicates, sessions=tally.sessions, users=len(tally.users)
        )

    async def _check(
        self, scope: CallerScope, chunks: AsyncIterator[bytes], file: IO[bytes]
    ) -> dict[_Where, list[tuple[int, int]]] | list[dict[str, Any]]:
        """Where the lines of each session lie in `file`, in the order they came in; or which lines are wrong."""
        places: dict[_Where, list[tuple[int, int]]] = {}
        member: dict[UserRef, set[str]] = {}
        wrong: list[dict[str, Any]] = []
        now, at, lines = self.preparer.now(), 0, 0
        async for number, line in _numbered_lines(chunks):
            lines += 1
            if lines > MAX_LINES:
                raise TooLarge(f"An import holds up to {MAX_LINES} lines: send it in parts.")
            try:
                read = _read(line)
                user = scope.user(read.user)
                if read.created_at is not None:
                    check_time(read.created_at, now)
                if read.space is not None:
                    if user not in member:
                        member[user] = {each.name for each in await self.spaces.of(scope.tenant, user.id)}
                    if read.space not in member[user]:
                        raise no_such_space(read.space)
                    self.intake_check.check(
                        plain_text(MessageIn(role=read.role, content=read.content)) or "", param="content"
                    )
            except (MnemeError, ValidationError) as error:
                if len(wrong) < MAX_TOLD:
                    wrong.append({"line": number, "error": _told(error)})
                continue
            if not wrong:
                file.write(line)
                places.setdefault(_Where(user, read.session, read.space), []).append((at, len(line)))
                at += len(line)
        return wrong or places

    async def _import_session(
        self,
        scope: CallerScope,
        where: _Where,
        file: IO[bytes],
        places: list[tuple[int, int]],
        tally: _Tally,
    ) -> None:
        owner, name = where.user, where.session
        known = await self.sessions.resolve(scope.tenant, name, owner.id)
        if where.space is not None:
            own = known[0].session_id if known else ids.session_id(scope.tenant, owner.id, name)
            owner, name = owner_of(scope.tenant, where.space), said_in(own)
            known = await self.sessions.resolve(scope.tenant, name, owner.id)
        progress = _Progress(known[0] if known else NewSession(external=name))
        for batch in _batches(places):
            lines = [_read(_slice(file, *place)) for place in batch]
            said = await self._place(scope, owner, lines, progress)
            if isinstance(progress.session, NewSession):
                progress.session = NewSession(external=name, began_at=said[0].created_at)
            messages = await self.preparer.messages(said)
            noted = None
            if where.space is not None:
                session = ids.session_id(scope.tenant, owner.id, name)
                spoken = [each.message_id for each in messages]
                noted = self.spaces.saying(scope.tenant, where.user.id, where.space, spoken, MESSAGE, session)
            added = await self.history.append(scope.tenant, owner, progress.session, messages, within=noted)
            progress.session = added.session
            tally.imported += len(added.placed)
            tally.duplicates += added.duplicates
        tally.sessions += 1
        tally.users.add(where.user)

    async def _place(
        self, scope: CallerScope, user: UserRef, lines: list[Line], progress: _Progress
    ) -> list[IntakeMessage]:
        """Give each line its time and its id."""
        if isinstance(progress.session, SessionRef):
            session = progress.session.session_id
        else:
            session = ids.session_id(scope.tenant, user.id, progress.session.external or "")
        stored = await self._times(scope, progress, lines)
        said = []
        for line in lines:
            message = MessageIn.model_validate(line.model_dump(exclude={"session", "user", "space"}))
            text = plain_text(message) or ""
            at = line.created_at
            if at is None:
                # A line without a time was given one when it came in first: that one, so that it is not stored twice.
                known = stored.get(content_hash(text), []) if text else []
                at = next(
                    (t for i, t in known if i == ids.message_id(session, progress.ordinal, line.role, text, t)), None
                )
            if at is None:
                at = progress.last + _STEP if progress.last is not None else self.preparer.now()
            ordinal = progress.ordinal
            if line.created_at is not None:
                # Not its place: the same line is the same message in another file, or another part of one.
                same = ids.message_id(session, 0, line.role, text, at)
                ordinal = progress.said[same]
                progress.said[same] += 1
            said.append(IntakeMessage(ids.message_id(session, ordinal, line.role, text, at), at, message))
            progress.ordinal += 1
            progress.last = at
        return said

    async def _times(self, scope: CallerScope, progress: _Progress, lines: list[Line]) -> dict[bytes, Any]:
        if isinstance(progress.session, NewSession):
            return {}
        texts = [plain_text(MessageIn(role=each.role, content=each.content)) for each in lines if not each.created_at]
        wanted = [content_hash(text) for text in texts if text]
        return await self.history.times_of(scope.tenant, progress.session, wanted) if wanted else {}


async def _numbered_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1."""
    number = 1
    begun: list[bytes] = []  # of a line that goes on in the next chunk; joined once
    async for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            if line := _bare(b"".join([*begun, piece]), number):
                yield number, line
            number += 1
            begun = []
        begun.append(rest)
    if line := _bare(b"".join(begun), number):
        yield number, line


def _bare(line: bytes, number: int) -> bytes:
    return (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()


def _batches(places: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Lines that are stored together: at most `LEARN_BATCH`, and `BATCH_BYTES` unless one alone is longer."""
    batch: list[tuple[int, int]] = []
    size = 0
    for place in places:
        if batch and (len(batch) == LEARN_BATCH or size + place[1] > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(place)
        size += place[1]
    if batch:
        yield batch


def _slice(file: IO[bytes], at: int, length: int) -> bytes:
    file.seek(at)
    return file.read(length)


def _read(line: bytes) -> Line:
    """Raises BadBody or ValidationError."""
    return Line.model_validate(parse_json(line))


def _told(error: MnemeError | ValidationError) -> str:
    if isinstance(error, MnemeError):
        return error.message
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the line"
    return f"{where}: {first['msg']}"


# --- captured calls, out and in ------------------------------------------------------------------------------------------


class CassettesIn(BaseModel):
    """`imported`: calls that are new. `skipped`: those that were there, or whose user was erased after they were recorded."""

    imported: int
    skipped: int


def cassettes_router(
    gate: Gate, captures: Captures, store: CassetteStore, sessions: Sessions, recorder: Recorder, clock: Clock
) -> APIRouter:
    routes = _CassetteRoutes(captures, store, sessions, recorder, clock)
    router = gate.router("cassettes")
    router.add_api_route(
        "/cassettes",
        routes.export,
        methods=["GET"],
        response_class=Lines,
        responses={200: {"content": {LINES: {"schema": {"type": "string"}}}, "description": "JSON lines."}},
    )
    router.add_api_route("/cassettes", routes.head, methods=["HEAD"], include_in_schema=False)
    router.add_api_route(
        "/cassettes",
        routes.take,
        methods=["POST"],
        response_model=CassettesIn,
        openapi_extra={"requestBody": {"required": True, "content": {LINES: {"schema": {"type": "object"}}}}},
    )
    return router


class _CassetteRoutes:
    def __init__(
        self, captures: Captures, store: CassetteStore, sessions: Sessions, recorder: Recorder, clock: Clock
    ) -> None:
        self._captures = captures
        self._store = store
        self._sessions = sessions
        self._recorder = recorder
        self._clock = clock

    async def export(
        self,
        scope: Admitted,
        user: Annotated[StoredUserName | None, Query(description="Of this user only.")] = None,
        session: Annotated[Name | None, Query(description="Of this session only.")] = None,
        model: Annotated[Word | None, Query(description="As the client asked for it.")] = None,
        status: Annotated[int | None, Query(ge=100, le=599, description="Of the upstream's answer.")] = None,
        since: Annotated[Moment | None, Query(description="Only calls that came in then or later.")] = None,
        until: Annotated[Moment | None, Query(description="Only calls that came in before.")] = None,
        label: Labelled = None,
        call: Annotated[list[str] | None, Query(description="Only these calls.", max_length=MAX_CALLS)] = None,
        legs: Annotated[bool, Query(description="Also the parts that answers were made of.")] = False,
    ) -> Lines:
        """Export captured calls, oldest first: a cassette a line, and last `{"end": {"calls": n}}`. Without that line it broke
        off; `{"error"}` in its place says why."""
        owner, within = await owner_and_session(self._sessions, scope, session, user)
        wanted = WantedCalls(
            session=within,
            model=model,
            status=status,
            since=_within(since),
            until=_within(until),
            labels=label or (),
            calls=[find_call(each) for each in call] if call is not None else None,
            legs=legs,
        )
        return Lines(self._lines(scope.tenant, owner, wanted))

    async def head(self, scope: Admitted) -> Lines:
        """Of what type it is: nothing is read for it."""
        scope.named()
        return Lines(iter(()))

    async def _lines(self, tenant: UUID, owner: UUID | None, wanted: WantedCalls) -> AsyncIterator[bytes]:
        count = 0
        try:
            async for call in self._store.ids(tenant, owner, wanted):
                take_time()
                cassette = await self._cassette(tenant, owner, call)
                if cassette is not None:
                    count += 1
                    yield _line(document(cassette))
        except MnemeError as error:  # the head is out: a line has to say it
            yield _line(error.body())
            return
        yield _line({"end": {"calls": count}})

    async def _cassette(self, tenant: UUID, owner: UUID | None, call: UUID) -> Cassette | None:
        """None: it was dropped meanwhile."""
        detail = await self._captures.one(tenant, call, owner)
        if detail is None:
            return None
        request = await self._body(tenant, owner, call, sent=False)
        sent = await self._body(tenant, owner, call, sent=True) if detail.sent_sha256 is not None else None
        answer = await self._store.answer(tenant, call, owner)
        return cassette_of(detail, request, sent, answer)

    async def _body(self, tenant: UUID, owner: UUID | None, call: UUID, *, sent: bool) -> bytes:
        parts = await self._captures.request(tenant, call, owner, sent=sent)
        if parts is None:
            return b""
        if parts.sha256 is None:
            return b"".join([parts.prefix, *parts.elements, parts.suffix])
        try:
            return rebuild(parts.prefix, parts.elements, parts.suffix, parts.sha256)
        except ValueError as error:
            raise MnemeError(f"Call {call}: {error}.", code="capture_mismatch") from error

    async def take(self, scope: Admitted, request: Request) -> CassettesIn:
        """Import cassettes, one a line, as calls of the users whom they name (of nobody, where none is named). They can be
        read, replayed and exported; nothing is learned from them. What is wrong with one line stores none."""
        _check_lines(request)
        lines = [each for each in enumerate((await request.body()).split(b"\n"), 1) if each[1].strip()]
        if len(lines) > MAX_IMPORTED:
            raise BadBody(f"An import holds up to {MAX_IMPORTED} cassettes: send it in parts.")
        now = self._clock.now()
        checked = [self._checked(scope, line, number, now) for number, line in lines]
        holders = await self._store.holders(scope.tenant, [call_id(each.id, at) for each, _, at in checked])
        imported = 0
        for cassette, user, at in checked:
            users = holders.setdefault(call_id(cassette.id, at), set())
            if users and user not in users:  # no two calls of a tenant have one id
                cassette = replace(cassette, id=str(call_id(f"{cassette.id} {user}", at)))
            users.add(user)
            facts = facts_of(cassette, scope.tenant, user, at, _stream(cassette.response))
            imported += await self._recorder.record(facts, None, None)
        return CassettesIn(imported=imported, skipped=len(checked) - imported)

    def _checked(self, scope: CallerScope, line: bytes, number: int, now: datetime) -> tuple[Cassette, UUID, datetime]:
        try:
            doc = bodies.parse_json(line.decode())
            json.dumps(doc, ensure_ascii=False).encode()  # no lone surrogate, which Postgres would refuse
            cassette = read(doc, "cassette", lambda path: number)
        except BadCassette as error:
            raise BadBody(f"Line {number}: {error.message}.") from error
        except (ValueError, RecursionError) as error:
            raise BadBody(f"Line {number} is no JSON: {error}.") from error
        name = cassette.call.get("user")
        try:
            name = parse_name(name) if name is not None else None
        except InvalidName as error:
            raise BadBody(f"Line {number}: call.user {error}.") from error
        labels = cassette.labels or ()
        if len(labels) > MAX_LABELS or not all(map(is_label, labels)):
            raise BadBody(f"Line {number}: labels: up to {MAX_LABELS}, each of 1 to {MAX_LABEL_CHARS} characters.")
        named = scope.named(*([name] if name is not None else []))
        try:
            at = cassette.at
            check_time(at, now)
        except (ValueError, OverflowError) as error:
            raise BadBody(f"Line {number}: recorded_at: this is no time in ISO 8601.") from error
        return cassette, named.id if named is not None else ids.nobody(scope.tenant), at


def _within(moment: datetime | None) -> datetime | None:
    """A uuid of version 7 has no time before 1970."""
    return max(moment, datetime(1970, 1, 1, tzinfo=UTC)) if moment is not None else None


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _stream(response: Response | None) -> StreamRecord | None:
    """The record that the answer would have left, had it come through Mneme."""
    if response is None:
        return None
    now = 0
    tape = Tape(0, now_ns=lambda: now)
    if is_event_stream([(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]):
        tape.listen_for_events()
    at = 0
    for chunk in response.chunks:
        now = chunk.at_us * 1000
        tape.add(response.body[at : at + chunk.size])
        at += chunk.size
    tape.finish()
    return tape.record()._replace(truncated=response.truncated)
