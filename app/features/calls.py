"""/api/v1/calls: captured calls, their compiled context explained, their bodies byte for byte and their streams."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from app.api.common import (
    DEFAULT_PAGE,
    Cursor,
    Label,
    Labelled,
    Limit,
    Model,
    Moment,
    Name,
    StoredUserName,
    Word,
    decode_cursor,
    encode_cursor,
    paged,
)
from app.api.scope import Admitted, CallerScope, Gate, find_call, owner_and_session
from app.capture.facts import MAX_LABELS, rebuild
from app.context.audit import expand, fill, quoted_memories, shown_texts
from app.errors import BadRequest, MnemeError, NotFound
from app.features import Process
from app.gateway.addon import Addon
from app.settings import Settings
from app.store.captures import (
    CallFilter,
    Captures,
    ShownItem,
    StoredCall,
    StoredLeg,
    StreamEvent,
    text_of_item,
)
from app.store.records import ResolutionStore
from app.store.sessions import SESSION_TTL, Sessions

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Outcome = Literal["complete", "broken", "gone", "cancelled", "failed"]
Part = Literal["response", "request", "sent"]


# --- bodies --------------------------------------------------------------------------------------------------------------


class Usage(BaseModel):
    """Tokens. `counted`: by Mneme, because the upstream told nothing."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    counted: bool


class CallOut(BaseModel):
    """A call to an upstream. `status`: of its answer; null: there was none. Costs are in micro-cents (10⁻⁸ US dollars)."""

    id: UUID
    user: str | None
    session: str | None
    session_id: UUID | None
    created_at: datetime
    method: str
    path: str
    upstream: str
    model: str
    answered_model: str | None
    stream: bool
    status: int | None
    outcome: Outcome
    memory_status: str
    reason: str | None
    usage: Usage
    cost_microcents: int
    latency_ms: int | None
    first_byte_us: int | None
    overhead_us: int | None
    retry_count: int
    error: str | None
    labels: list[str]
    tool_calls: int = Field(description="Tools that the answer called.")
    leg_of: UUID | None = Field(
        description="The call whose answer this one is a part of; its usage and cost stand there."
    )
    leg: int | None = Field(description="Which part, from 1.")


class LabelsIn(Model):
    """A call's labels, in place of those that it had."""

    labels: Annotated[list[Label], Field(max_length=MAX_LABELS)]


class LegOut(BaseModel):
    """One of the upstream's answers that the call's own was made of: behind all but the last its model asked for what it was
    not shown. It can be read as a call by its id. `usage` and cost are part of the call's."""

    id: UUID
    leg: int
    created_at: datetime
    upstream: str
    answered_model: str | None
    status: int | None
    outcome: Outcome
    usage: Usage
    cost_microcents: int
    latency_ms: int | None
    first_byte_us: int | None
    error: str | None


class CallDetailOut(CallOut):
    """A call with its headers; secrets in them were masked when it was captured. SHA-256 sums are of the bodies as they came
    in and, where Mneme changed it, as it was sent."""

    request_headers: list[list[str]]
    response_headers: list[list[str]]
    request_bytes: int
    request_truncated: bool
    request_sha256: str | None
    sent_sha256: str | None
    response_bytes: int | None
    response_truncated: bool | None
    metadata: dict[str, Any]
    legs: list[LegOut] = Field(description="Empty where the answer is the upstream's own.")


class CallPage(BaseModel):
    calls: list[CallOut]
    next: str | None


class ContextItem(BaseModel, extra="allow"):
    """An item that was looked at. `text` is null where it was forgotten or erased since. `reason`: why it was chosen or not."""

    id: UUID
    kind: str
    source: str
    text: str | None = None
    chosen: bool
    reason: str
    score: float
    signals: dict[str, float]
    provenance: list[dict[str, Any]]


class ContextOut(BaseModel, extra="allow"):
    """How the context was compiled: the budget in tokens by name, the strategy, and every item that was looked at."""

    call_id: UUID
    session_id: UUID | None
    budget: dict[str, int]
    strategy: str
    items: list[ContextItem]


class StreamEventOut(BaseModel):
    """One event of the answer, from where it begins up to the next: `t_us` microseconds after the request came in."""

    seq: int
    t_us: int
    offset: int
    data: str = Field(description="The bytes as text; as base64, where they are no UTF-8.")
    encoding: Literal["base64"] | None = None


class StreamEventPage(BaseModel):
    events: list[StreamEventOut]
    next: str | None


# --- captured calls ------------------------------------------------------------------------------------------------------


def calls_router(
    gate: Gate, captures: Captures, sessions: Sessions, knowing: ResolutionStore, addon: Addon | None = None
) -> APIRouter:
    """The routes of /api/v1/calls. `addon`: whose part in a call is explained with it."""

    async def listing(
        scope: Admitted,
        user: Annotated[StoredUserName | None, Query(description="Of this user only.")] = None,
        session: Annotated[Name | None, Query(description="Of this session only.")] = None,
        model: Annotated[Word | None, Query(description="As the client asked for it.")] = None,
        since: Annotated[Moment | None, Query(description="Only calls that came in then or later.")] = None,
        until: Annotated[Moment | None, Query(description="Only calls that came in before that.")] = None,
        status: Annotated[int | None, Query(ge=100, le=599, description="Of the upstream's answer.")] = None,
        outcome: Annotated[Outcome | None, Query(description="How the call ended.")] = None,
        label: Labelled = None,
        tools: Annotated[bool | None, Query(description="Whether the answer called tools.")] = None,
        has_error: Annotated[
            bool | None, Query(description="Whether there was no answer, or an error, or it broke off.")
        ] = None,
        min_latency_ms: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="At least so slow.")] = None,
        legs: Annotated[bool, Query(description="Also the parts that answers were made of.")] = False,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> CallPage:
        """List calls, newest first."""
        (before,) = decode_cursor(cursor, (UUID,)) or (None,)
        owner, within = await owner_and_session(sessions, scope, session, user)
        wanted = CallFilter(
            session=within,
            model=model,
            status=status,
            since=max(since, _EPOCH) if since else None,
            until=max(until, _EPOCH) if until else None,
            outcome=outcome,
            labels=label or (),
            tools=tools,
            failed=has_error,
            min_latency_ms=min_latency_ms,
            legs=legs,
        )
        rows = await captures.page(scope.tenant, owner, wanted, before=before, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.call_id,))
        return CallPage(calls=[CallOut.model_validate(_fields(row, CallOut)) for row in page], next=following)

    async def get(scope: Admitted, call_id: str) -> CallDetailOut:
        """Read a call: what was asked of whom, how it went, what it cost."""
        found = await captures.one(scope.tenant, find_call(call_id), _owner(scope))
        if found is None:
            raise NotFound("There is no such call.")
        legs = [_leg(each) for each in await captures.legs(scope.tenant, found)]
        return CallDetailOut.model_validate(_fields(found, CallDetailOut) | {"legs": legs})

    async def label(scope: Admitted, call_id: str, body: LabelsIn) -> CallDetailOut:
        """Label a call: sets of calls are chosen by their labels, for cassettes and regression replays."""
        if not await captures.label(scope.tenant, find_call(call_id), _owner(scope), body.labels):
            raise NotFound("There is no such call.")
        return await get(scope, call_id)

    async def request(
        scope: Admitted,
        call_id: str,
        sent: Annotated[bool, Query(description="As it went upstream, rather than as it came in.")] = False,
    ) -> Response:
        """The request's body, to the byte."""
        parts = await captures.request(scope.tenant, find_call(call_id), _owner(scope), sent=sent)
        if parts is None:
            raise NotFound("There is no such call.")
        if parts.sha256 is None:
            return _bytes(b"".join([parts.prefix, *parts.elements, parts.suffix]), truncated=parts.truncated)
        try:
            return _bytes(rebuild(parts.prefix, parts.elements, parts.suffix, parts.sha256), truncated=False)
        except ValueError as error:
            raise MnemeError(f"{error}.", code="capture_mismatch") from error

    async def raw(
        scope: Admitted,
        call_id: str,
        part: Annotated[
            Part, Query(description="The answer, or the request as it came in, or as it was sent.")
        ] = "response",
    ) -> Response:
        """A body of the call, to the byte: the answer's, unless the request's is asked for."""
        if part != "response":
            return await request(scope, call_id, sent=part == "sent")
        found = await captures.body(scope.tenant, find_call(call_id), _owner(scope))
        if found is None:
            raise NotFound("Of this call no answer was captured.")
        return _bytes(found[0], truncated=found[1])

    async def context(scope: Admitted, call_id: str) -> ContextOut:
        """How the call's context was compiled: each item that was considered, its score's parts, and where it comes from."""
        call = find_call(call_id)
        found = await captures.compilation(scope.tenant, call, _owner(scope))
        if found is None:
            raise NotFound("For this call no context was compiled.")
        wanted = {source: [UUID(each) for each in each_ids] for source, each_ids in shown_texts(found.audit).items()}
        explained = expand(found.audit)
        said = {UUID(each["message_id"]) for item in explained["items"] for each in item["provenance"]}
        shown = await captures.shown(
            scope.tenant, found.user_id, messages=[*{*wanted["message"], *said}], memories=wanted["memory"]
        )
        for item in explained["items"]:
            _complete(item, shown)
        if quoted := quoted_memories(explained):
            claims = await knowing.claims(scope.tenant, found.user_id, quoted)
            fill(explained, {each.memory_id: each.value for each in claims})
        if addon is not None and (part := explained.get(addon.name)) is not None:
            explained[addon.name] = addon.shown(part)
        return ContextOut.model_validate(explained | {"call_id": call, "session_id": found.session_id})

    async def events(
        scope: Admitted, call_id: str, limit: Limit = DEFAULT_PAGE, cursor: Cursor = None
    ) -> StreamEventPage:
        """The answer's stream, event by event, with the time of each."""
        (after,) = decode_cursor(cursor, (int,)) or (0,)
        if after < 0:
            raise BadRequest("This cursor is not one that this list gave out.", param="cursor")
        found = await captures.events(scope.tenant, find_call(call_id), _owner(scope), after=after, limit=limit)
        if found is None:
            raise NotFound("Of this call no answer was captured.")
        events, total = found
        following = encode_cursor([after + limit]) if after + limit < total else None
        return StreamEventPage(events=[_event(each) for each in events], next=following)

    router = gate.router("calls")
    binary: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": {}}}}
    router.add_api_route("/calls", listing, methods=["GET"], response_model=CallPage)
    router.add_api_route("/calls/{call_id}", get, methods=["GET"], response_model=CallDetailOut)
    router.add_api_route("/calls/{call_id}", label, methods=["PATCH"], response_model=CallDetailOut)
    router.add_api_route(
        "/calls/{call_id}/request", request, methods=["GET"], response_class=Response, responses=binary
    )
    router.add_api_route("/calls/{call_id}/raw", raw, methods=["GET"], response_class=Response, responses=binary)
    router.add_api_route("/calls/{call_id}/context", context, methods=["GET"], response_model=ContextOut)
    router.add_api_route(
        "/calls/{call_id}/events",
        events,
        methods=["GET"],
        response_model=StreamEventPage,
        response_model_exclude_none=False,
    )
    return router


def _owner(scope: CallerScope) -> UUID | None:
    named = scope.named()
    return named.id if named is not None else None


def _bytes(body: bytes, *, truncated: bool) -> Response:
    # Never shown by a browser as anything: these bytes are somebody else's.
    headers = {"x-content-type-options": "nosniff", "content-disposition": "attachment"}
    if truncated:
        headers["x-mneme-truncated"] = "true"
    return Response(body, media_type="application/octet-stream", headers=headers)


def _complete(item: dict[str, Any], shown: dict[UUID, ShownItem]) -> None:
    """Add what may still be shown: the item's words, and the metadata of the messages that it comes from."""
    item["text"] = text_of_item(item, shown.get(UUID(item["id"])))
    for source in item["provenance"]:
        message = shown.get(UUID(source["message_id"]))
        source["metadata"] = message.metadata if message is not None else {}


def _event(event: StreamEvent) -> StreamEventOut:
    try:
        return StreamEventOut(seq=event.seq, t_us=event.t_us, offset=event.offset, data=event.data.decode())
    except UnicodeDecodeError:
        data = b64encode(event.data).decode()
        return StreamEventOut(seq=event.seq, t_us=event.t_us, offset=event.offset, data=data, encoding="base64")


def _same(row: StoredCall | StoredLeg, model: type[BaseModel]) -> dict[str, Any]:
    """What is shown under the name that it has in the row."""
    return {name: getattr(row, name) for name in model.model_fields if hasattr(row, name)}


def _fields(row: StoredCall, model: type[CallOut]) -> dict[str, Any]:
    return _same(row, model) | {
        "id": row.call_id,
        "user": row.user_external_id,
        "session": row.session_external_id,
        "stream": row.streamed,
        "usage": {
            "prompt_tokens": row.prompt_tokens,
            "completion_tokens": row.completion_tokens,
            "cached_tokens": row.cached_tokens,
            "counted": row.usage_counted,
        },
    }


def _leg(row: StoredLeg) -> dict[str, Any]:
    told = {name: row.metadata[name] for name in ("leg", "usage", "cost_microcents")}
    return _same(row, LegOut) | told | {"id": row.call_id}


def routes(process: Process, settings: Settings, gate: Gate) -> Sequence[APIRouter]:
    assert process.path is not None, "a server with routes has one"
    pool, sql = process.pool, process.queries
    sessions = Sessions(pool, sql, process.clock, ttl=SESSION_TTL)
    return (calls_router(gate, Captures(pool, sql), sessions, ResolutionStore(pool, sql), process.path.addon),)
