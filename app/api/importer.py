"""POST /api/v1/import: past conversations, one message a line, with their own times.

The body is read once, checked line by line and kept in a temporary file; nothing is stored unless every line is good. Then
each session is written in its order, some hundred messages a transaction. The same line gives the same message, so an
import that broke off, or is sent again, adds what is missing and nothing else.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import IO, Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from msgspec import Struct, field
from pydantic import BaseModel, Field, ValidationError

from app.api.appending import MessageIn, Role, Said, Scribe, check_time, plain_text
from app.api.common import Model, Moment, Name, Text, Word, parse_json
from app.api.scope import Admitted, Gate, Scope
from app.errors import BadBody, BadHeader, MnemeError, TooLarge
from app.memory.text import content_hash
from app.store import ids
from app.store.history import LEARN_BATCH, History
from app.store.sessions import NewSession, SessionRef, Sessions
from app.store.tenancy import UserRef

MAX_LINES = 100_000
"""Lines of one import; a longer one is sent in parts."""
MAX_TOLD = 100
"""Wrong lines that are named."""
BATCH_BYTES = 2 * 1024 * 1024
"""Bytes of lines stored in one transaction: Postgres reads some 10 MB of text a second into tsvectors, and a statement has
MNEME_STATEMENT_TIMEOUT_MS."""
SPOOL_BYTES = 8 * 1024 * 1024
"""An import up to this size stays in memory."""

CONTENT_TYPES = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)
"""What JSON lines are called. Types that a web page may send without being asked (text/plain, forms) are not among them."""

_STEP = timedelta(milliseconds=1)
"""Between lines without a time."""


class Line(Model):
    """One message."""

    session: Name
    user: Name | None = Field(None, description="Needed unless X-Mneme-User or the key names the user.")
    role: Role
    content: Text | list[dict[str, Any] | str] | None
    name: Word | None = None
    created_at: Moment | None = Field(None, description="1970 to tomorrow. Left out: just after the line before.")
    metadata: dict[str, Any] = Field({})
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: Name | None = None


class Imported(BaseModel):
    """`imported`: messages that are new; `duplicates`: lines that were stored before."""

    imported: int
    duplicates: int
    sessions: int
    users: int


class _Checked(Struct, frozen=True):
    """A body whose lines are all good: where the lines of each session lie in `file`, in the order they came in."""

    file: IO[bytes]
    places: dict[tuple[UserRef, str], list[tuple[int, int]]]


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


class Importer:
    """Checks and stores an import."""

    def __init__(self, sessions: Sessions, history: History, scribe: Scribe) -> None:
        self._sessions = sessions
        self._history = history
        self._scribe = scribe

    async def run(self, scope: Scope, chunks: AsyncIterator[bytes]) -> Imported | list[dict[str, Any]]:
        """Store all lines, or say which are wrong: [{line, error}], counted from 1. Raises TooLarge over `MAX_LINES`."""
        with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as file:
            checked = await self._check(scope, chunks, file)
            if isinstance(checked, list):
                return checked
            tally = _Tally()
            for (user, name), places in checked.places.items():
                await self._import_session(scope, user, name, checked.file, places, tally)
        return Imported(
            imported=tally.imported, duplicates=tally.duplicates, sessions=tally.sessions, users=len(tally.users)
        )

    async def _check(
        self, scope: Scope, chunks: AsyncIterator[bytes], file: IO[bytes]
    ) -> _Checked | list[dict[str, Any]]:
        places: dict[tuple[UserRef, str], list[tuple[int, int]]] = {}
        wrong: list[dict[str, Any]] = []
        now, at, lines = self._scribe.now(), 0, 0
        async for number, line in _lines(chunks):
            lines += 1
            if lines > MAX_LINES:
                raise TooLarge(f"An import holds up to {MAX_LINES} lines: send it in parts.")
            try:
                read = _read(line)
                user = scope.user(read.user)
                if read.created_at is not None:
                    check_time(read.created_at, now)
            except (MnemeError, ValidationError) as error:
                if len(wrong) < MAX_TOLD:
                    wrong.append({"line": number, "error": _told(error)})
                continue
            if not wrong:
                file.write(line)
                places.setdefault((user, read.session), []).append((at, len(line)))
                at += len(line)
        return wrong or _Checked(file, places)

    async def _import_session(
        self,
        scope: Scope,
        user: UserRef,
        name: str,
        file: IO[bytes],
        places: list[tuple[int, int]],
        tally: _Tally,
    ) -> None:
        known = await self._sessions.resolve(scope.tenant, name, user.id)
        progress = _Progress(known[0] if known else NewSession(external=name))
        for batch in _batches(places):
            lines = [_read(_slice(file, *place)) for place in batch]
            said = await self._place(scope, user, lines, progress)
            if isinstance(progress.session, NewSession):
                progress.session = NewSession(external=name, began_at=said[0].created_at)
            messages = await self._scribe.messages(said)
            added = await self._history.append(scope.tenant, user, progress.session, messages)
            progress.session = added.session
            tally.imported += len(added.placed)
            tally.duplicates += added.duplicates
        tally.sessions += 1
        tally.users.add(user)

    async def _place(self, scope: Scope, user: UserRef, lines: list[Line], progress: _Progress) -> list[Said]:
        """Give each line its time and its id."""
        if isinstance(progress.session, SessionRef):
            session = progress.session.session_id
        else:
            session = ids.session_id(scope.tenant, user.id, progress.session.external or "")
        stored = await self._times(scope, progress, lines)
        said = []
        for line in lines:
            message = MessageIn.model_validate(line.model_dump(exclude={"session", "user"}))
            text = plain_text(message) or ""
            at = line.created_at
            if at is None:
                # A line without a time was given one when it came in first: that one, so that it is not stored twice.
                known = stored.get(content_hash(text), []) if text else []
                at = next(
                    (t for i, t in known if i == ids.message_id(session, progress.ordinal, line.role, text, t)), None
                )
            if at is None:
                at = progress.last + _STEP if progress.last is not None else self._scribe.now()
            ordinal = progress.ordinal
            if line.created_at is not None:
                # Not its place: the same line is the same message in another file, or another part of one.
                same = ids.message_id(session, 0, line.role, text, at)
                ordinal = progress.said[same]
                progress.said[same] += 1
            said.append(Said(ids.message_id(session, ordinal, line.role, text, at), at, message))
            progress.ordinal += 1
            progress.last = at
        return said

    async def _times(self, scope: Scope, progress: _Progress, lines: list[Line]) -> dict[bytes, Any]:
        if isinstance(progress.session, NewSession):
            return {}
        texts = [plain_text(MessageIn(role=each.role, content=each.content)) for each in lines if not each.created_at]
        wanted = [content_hash(text) for text in texts if text]
        return await self._history.times_of(scope.tenant, progress.session, wanted) if wanted else {}


def importer_router(gate: Gate, importer: Importer) -> APIRouter:
    """POST /api/v1/import."""
    routes = _Routes(importer)
    router = gate.router("import")
    router.add_api_route(
        "/import",
        routes.run,
        methods=["POST"],
        response_model=Imported,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/x-ndjson": {"schema": Line.model_json_schema()}},
            }
        },
    )
    return router


class _Routes:
    def __init__(self, importer: Importer) -> None:
        self._importer = importer

    async def run(self, scope: Admitted, request: Request) -> Imported | JSONResponse:
        """Import past conversations, JSON lines of one message each. Sent again, it adds only what is missing.

        400: `errors` says what is wrong, line by line, and nothing was stored.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in CONTENT_TYPES:
            raise BadHeader("Send JSON lines, with Content-Type: application/x-ndjson.", param="Content-Type")
        found = await self._importer.run(scope, request.stream())
        if isinstance(found, Imported):
            return found
        more = " or more" if len(found) == MAX_TOLD else ""
        error = BadBody(
            f"{len(found)}{more} lines are wrong, the first is line {found[0]['line']}: nothing was stored."
        )
        return JSONResponse(error.body() | {"errors": found}, status_code=error.status)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
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
