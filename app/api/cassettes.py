"""/api/v1/cassettes: captured calls out of Mneme and into it, one cassette a line (docs/how-to/cassettes.md)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from app.api.appending import check_time
from app.api.common import MAX_NAME_CHARS, Labelled, Moment, Name, Word
from app.api.finding import find_call, owner_and_session
from app.api.importer import CONTENT_TYPES
from app.api.scope import Admitted, Gate, Scope
from app.capture.cassettes import call_id, cassette_of, facts_of
from app.capture.facts import MAX_LABEL_CHARS, MAX_LABELS, is_label
from app.capture.recipe import rebuild
from app.capture.record import Recorder
from app.clock import Clock
from app.errors import BadBody, BadHeader, MnemeError
from app.gateway.relay import Tape, is_event_stream
from app.store import ids
from app.store.captures import Captures, CassetteStore, WantedCalls
from app.store.records import StreamRecord
from app.store.sessions import Sessions
from mneme_replay.bodies import parse_json
from mneme_replay.cassette import Cassette, Response
from mneme_replay.fileformat import BadCassette, document, read

LINES = "application/x-ndjson"
MAX_CALLS = 1000
"""Calls that can be named at once: some 40 KB of a URL."""
MAX_IMPORTED = 1000
"""Cassettes of one import; more are sent in parts."""


class CassettesIn(BaseModel):
    """`imported`: calls that are new. `skipped`: those that were there, or whose user was erased after they were recorded."""

    imported: int
    skipped: int


class Lines(StreamingResponse):
    """JSON lines, as they come."""

    media_type = LINES


def cassettes_router(
    gate: Gate, captures: Captures, store: CassetteStore, sessions: Sessions, recorder: Recorder, clock: Clock
) -> APIRouter:
    """The routes of /api/v1/cassettes."""
    routes = _Routes(captures, store, sessions, recorder, clock)
    router = gate.router("cassettes")
    router.add_api_route(
        "/cassettes",
        routes.export,
        methods=["GET"],
        response_class=Lines,
        responses={200: {"content": {LINES: {"schema": {"type": "string"}}}, "description": "JSON lines."}},
    )
    router.add_api_route(
        "/cassettes",
        routes.take,
        methods=["POST"],
        response_model=CassettesIn,
        openapi_extra={"requestBody": {"required": True, "content": {LINES: {"schema": {"type": "object"}}}}},
    )
    return router


class _Routes:
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
        user: Annotated[Name | None, Query(description="Of this user only.")] = None,
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

    async def _lines(self, tenant: UUID, owner: UUID | None, wanted: WantedCalls) -> AsyncIterator[bytes]:
        count = 0
        try:
            async for call in self._store.ids(tenant, owner, wanted):
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
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in CONTENT_TYPES:
            raise BadHeader(f"Send JSON lines, with Content-Type: {LINES}.", param="Content-Type")
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

    def _checked(self, scope: Scope, line: bytes, number: int, now: datetime) -> tuple[Cassette, UUID, datetime]:
        try:
            doc = parse_json(line.decode())
            json.dumps(doc, ensure_ascii=False).encode()  # no lone surrogate, which Postgres would refuse
            cassette = read(doc, "cassette", lambda path: number)
        except BadCassette as error:
            raise BadBody(f"Line {number}: {error.message}.") from error
        except (ValueError, RecursionError) as error:
            raise BadBody(f"Line {number} is no JSON: {error}.") from error
        name = cassette.call.get("user")
        if name is not None and not (isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS and "\0" not in name):
            raise BadBody(f"Line {number}: call.user: this is no name of a user.")
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
