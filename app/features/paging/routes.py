"""/api/v1/objects: the parts of long conversations at their fidelities, what was asked of them, and how full prompts are (seed
002)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from msgspec import Struct
from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator

from app.api.common import DEFAULT_PAGE, Cursor, Limit, Model, Name, Segment, Text, Word, clean, decode_cursor, paged
from app.api.scope import Admitted, CallerScope, Gate, find_session
from app.api.sessions import Owner
from app.clock import Clock
from app.errors import BadRequest, NotFound, Unavailable
from app.features.paging.faults import Writer, judged, result_of
from app.features.paging.quotes import ANSWER_TOKENS, AnswerSource, QuotedAnswer
from app.features.paging.store import (
    ObjectFilter,
    ObjectStore,
    PagingStore,
    StoredFault,
    StoredObject,
    StoredPressure,
    WholeObject,
    Wish,
)
from app.features.paging.tools import MAX_QUESTION_CHARS
from app.features.paging.values import (
    WINDOW_TURNS,
    ContentKind,
    Fault,
    FaultRecord,
    FaultType,
    Fidelity,
    ObjectType,
    PagingRecord,
    Relationship,
    RelationType,
    Trigger,
    Zone,
    handle_of,
)
from app.metrics import Metrics
from app.store import ids
from app.store.sessions import SessionRef, Sessions

# --- what is taken and given ---------------------------------------------------------------------------------------------


class FaultIn(Model):
    """What is wanted of an object: an answer, or all of it."""

    question: (
        Annotated[
            str,
            StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUESTION_CHARS),
            AfterValidator(clean),
        ]
        | None
    ) = Field(None, description="Answered from the object's whole content; the object stays as it is shown.")
    restore: bool = Field(False, description="The whole content; the next prompt of the session shows it, too.")

    @model_validator(mode="after")
    def _one(self) -> FaultIn:
        if (self.question is None) != self.restore:
            raise ValueError("say either question, or restore: true")
        return self


class Tokens(BaseModel):
    """At each level; null: not made, or not shorter. L4 is the handle alone."""

    l0: int
    l1: int | None
    l2: int | None
    l3: int


class ObjectOut(BaseModel):
    """A part of a conversation. `fidelity`: how it is shown, from 0 (in full) to 4 (its handle alone). `wanted`: of the next
    prompt. `shrunk`: L1 and L2 were made, where they are shorter."""

    id: UUID
    handle: str
    session_id: UUID
    type: ObjectType
    kind: ContentKind
    source_tool: str | None
    source_key: str | None
    stub: str
    fidelity: Annotated[int, Field(ge=0, le=4)]
    wanted: Literal["restore", "raise", "release"] | None
    pinned: bool
    pin_reason: str | None
    tokens: Tokens
    tags: list[str]
    entities: list[str]
    first_turn: int
    last_turn: int
    accessed_turn: int
    access_count: int
    fault_count: int
    micro_fault_count: int
    shrunk: bool
    created_at: datetime
    last_accessed: datetime


class Level(BaseModel):
    """A text at L1 or L2, what it leaves out, and what it still tells."""

    text: str
    losses: list[str]
    can_answer: list[str]


class Related(BaseModel):
    """`source` depends on (references, was caused by, supersedes, is the parent of) `target`."""

    source: UUID
    target: UUID
    relationship: RelationType


class ObjectWhole(ObjectOut):
    """An object with its texts."""

    content: str
    detailed: Level | None
    compact: Level | None
    fault_when: list[str]
    relationships: list[Related]


class ObjectPage(BaseModel):
    objects: list[ObjectOut]
    next: str | None


class FaultOut(BaseModel):
    """A question about left-out parts, or a part that was wanted back. `call_id` null: through the API; `object_id` null:
    nothing answered. `avoided_tokens`: what the whole content would have cost beside the answer."""

    event: Literal["fault"] = "fault"
    id: UUID
    call_id: UUID | None
    object_id: UUID | None
    type: FaultType
    turn: int
    question: str | None
    answer: str | None
    answer_tokens: int
    avoided_tokens: int
    latency_ms: int
    content_hash: str | None
    created_at: datetime


class FaultPage(BaseModel):
    faults: list[FaultOut]
    next: str | None


class TransitionOut(BaseModel):
    """A change of fidelity. `zone`, `token_count`: of the whole prompt when the change was decided."""

    event: Literal["transition"] = "transition"
    object_id: UUID
    call_id: UUID
    before: int
    after: int
    trigger: Trigger
    turn: int
    zone: Zone
    token_count: int
    created_at: datetime


class TransitionPage(BaseModel):
    transitions: list[TransitionOut]
    next: str | None


class ObjectHistoryPage(BaseModel):
    """What became of an object, newest first."""

    events: list[Annotated[FaultOut | TransitionOut, Field(discriminator="event")]]
    next: str | None


class QuoteOut(BaseModel):
    """Lines of the object that the answer stands on."""

    place: str
    text: str


class Faulted(BaseModel):
    """What came of a fault: `answer` with its quotes (null: nothing answers), or the whole `content`."""

    fault: FaultOut
    answer: str | None
    quotes: list[QuoteOut]
    content: str | None


class Objects(BaseModel):
    """Of a session: how many there are at each level, and what they take there (seed 002 §2.4)."""

    tokens: int
    l0: int
    l1: int
    l2: int
    l3: int
    evicted: int
    pinned: int


class PressureOut(BaseModel):
    """How full the prompt of a session was at its last paged call. `tokens`: as the client wrote it, with memory;
    `shown_tokens`: as it was sent; `avoided_tokens`: of all its calls. `turn` null: it was never paged."""

    session_id: UUID
    zone: Zone
    turn: int | None
    budget: int
    tokens: int
    shown_tokens: int
    share: float
    avoided_tokens: int
    tools_offered: bool
    objects: Objects
    updated_at: datetime | None


def shown_object(row: StoredObject) -> ObjectOut:
    return ObjectOut(
        id=row.object_id,
        handle=handle_of(row.object_id),
        session_id=row.session_id,
        type=ObjectType(row.object_type),
        kind=ContentKind(row.kind),
        source_tool=row.source_tool,
        source_key=row.source_key,
        stub=row.stub,
        fidelity=row.current_fidelity,
        wanted=row.wanted,
        pinned=row.pinned,
        pin_reason=row.pin_reason,
        tokens=Tokens(l0=row.tokens_l0, l1=row.tokens_l1, l2=row.tokens_l2, l3=row.tokens_l3),
        tags=row.tags,
        entities=row.key_entities,
        first_turn=row.source_turn_start,
        last_turn=row.source_turn_end,
        accessed_turn=row.accessed_turn,
        access_count=row.access_count,
        fault_count=row.fault_count,
        micro_fault_count=row.micro_fault_count,
        shrunk=row.shrunk_at is not None,
        created_at=row.created_at,
        last_accessed=row.last_accessed,
    )


def shown_whole(row: WholeObject, edges: Sequence[Relationship]) -> ObjectWhole:
    """The same with its texts."""

    def level(text: str | None, losses: list[str], can_answer: list[str]) -> Level | None:
        return Level(text=text, losses=losses, can_answer=can_answer) if text is not None else None

    return ObjectWhole(
        **shown_object(row).model_dump(),
        content=row.content_full,
        detailed=level(row.summary_detailed, row.losses_l1, row.can_answer_l1),
        compact=level(row.summary_compact, row.losses_l2, row.can_answer_l2),
        fault_when=row.fault_when,
        relationships=[Related(source=each.source, target=each.target, relationship=each.relation) for each in edges],
    )


def shown_fault(row: StoredFault | Fault, call_id: UUID | None) -> FaultOut:
    """A fault as it is shown: a stored one, or one that was made just now through the API."""
    return FaultOut(
        id=row.fault_id,
        call_id=call_id,
        object_id=row.object_id,
        type=FaultType(row.fault_type),
        turn=row.turn,
        question=row.question,
        answer=row.answer,
        answer_tokens=row.answer_tokens,
        avoided_tokens=row.avoided_tokens,
        latency_ms=row.latency_ms,
        content_hash=row.content_hash.hex() if row.content_hash is not None else None,
        created_at=row.created_at,
    )


def shown_pressure(session: UUID, row: StoredPressure | None) -> PressureOut:
    """The pressure of a session; of one that was never paged there is none."""
    if row is None:
        nothing = Objects(tokens=0, l0=0, l1=0, l2=0, l3=0, evicted=0, pinned=0)
        return PressureOut(
            session_id=session, zone=Zone.NORMAL, turn=None, budget=0, tokens=0, shown_tokens=0, share=0.0,
            avoided_tokens=0, tools_offered=False, objects=nothing, updated_at=None,
        )  # fmt: skip
    return PressureOut(
        session_id=session,
        zone=Zone(row.zone),
        turn=row.turn,
        budget=row.budget,
        tokens=row.tokens,
        shown_tokens=row.shown_tokens,
        share=round(row.shown_tokens / row.budget, 4) if row.budget > 0 else 0.0,
        avoided_tokens=row.avoided_tokens,
        tools_offered=row.offered,
        objects=Objects(
            tokens=row.total_context_tokens,
            l0=row.objects_at_l0,
            l1=row.objects_at_l1,
            l2=row.objects_at_l2,
            l3=row.objects_at_l3,
            evicted=row.objects_evicted,
            pinned=row.objects_pinned,
        ),
        updated_at=row.updated_at,
    )


# --- the routes ----------------------------------------------------------------------------------------------------------

SEARCHED = 100
"""Objects that a search ranks, with their texts; the filters leave some of these out."""
MAX_KEY_CHARS = 2048
"""Longest key to look for, characters: paths and URLs are shorter."""
Session = Annotated[Name | None, Query(description="The session; needed for one that has no user.")]


def objects_router(
    gate: Gate,
    sessions: Sessions,
    objects: ObjectStore,
    keeper: PagingStore,
    writer: Writer,
    clock: Clock,
    meter: Metrics | None = None,
) -> APIRouter:
    """The routes of /api/v1/objects, and what sessions tell of theirs."""
    routes = _Routes(sessions, objects, keeper, writer, clock, meter)
    router = gate.router("objects")
    at, of = "/objects/{object_id}", "/sessions/{session_id}"
    router.add_api_route("/objects", routes.listing, methods=["GET"], response_model=ObjectPage)
    router.add_api_route(at, routes.get, methods=["GET"], response_model=ObjectWhole)
    router.add_api_route(f"{at}/history", routes.history, methods=["GET"], response_model=ObjectHistoryPage)
    router.add_api_route(f"{at}/fault", routes.fault, methods=["POST"], response_model=Faulted)
    router.add_api_route(f"{at}/pin", routes.pin, methods=["POST"], response_model=ObjectOut)
    router.add_api_route(f"{at}/unpin", routes.unpin, methods=["POST"], response_model=ObjectOut)
    router.add_api_route(f"{at}/release", routes.release, methods=["POST"], response_model=ObjectOut)
    router.add_api_route(f"{of}/pressure", routes.pressure, methods=["GET"], response_model=PressureOut)
    router.add_api_route(f"{of}/faults", routes.faults, methods=["GET"], response_model=FaultPage)
    router.add_api_route(f"{of}/transitions", routes.transitions, methods=["GET"], response_model=TransitionPage)
    return router


class _Routes(Struct, frozen=True):
    sessions: Sessions
    objects: ObjectStore
    keeper: PagingStore
    writer: Writer
    clock: Clock
    meter: Metrics | None

    async def listing(
        self,
        scope: Admitted,
        session: Session = None,
        type: Annotated[ObjectType | None, Query(description="Of this type only.")] = None,  # noqa: A002 - the parameter's name
        fidelity: Annotated[
            int | None, Query(ge=0, le=4, description="Shown at this level: 0 (in full) to 4 (its handle alone).")
        ] = None,
        tag: Annotated[Word | None, Query(description="With this tag.")] = None,
        key: Annotated[
            Text | None, Query(max_length=MAX_KEY_CHARS, description="Of this path, URL or command, exactly.")
        ] = None,
        pinned: bool | None = None,
        q: Annotated[
            Text | None,
            Query(
                max_length=MAX_QUESTION_CHARS,
                description="Words to look for in a session's contents, evicted ones too.",
            ),
        ] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> ObjectPage:
        """List the objects of a user or of a session, newest first, without their contents; with `q`, those of the session that
        have its words, the best first, on one page."""
        after = decode_cursor(cursor, (datetime, int, UUID))
        user, ref = await self._whose(scope, session)
        wanted = ObjectFilter(ref.session_id if ref else None, type, fidelity, tag, key, pinned)
        if q is not None:
            if ref is None:
                raise BadRequest("Say in which session: objects are searched within one.", param="session")
            return await self._search(scope, user, ref.session_id, wanted, q, limit)
        rows = await self.objects.page(scope.tenant, user, wanted, after=after, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.created_at, row.ordinal, row.object_id))
        return ObjectPage(objects=[shown_object(each) for each in page], next=following)

    async def _search(
        self, scope: CallerScope, user: UUID, session: UUID, wanted: ObjectFilter, words: str, limit: int
    ) -> ObjectPage:
        hits = await self.keeper.search(scope.tenant, user, session, words, None, None, SEARCHED)
        place = {each.object.id: n for n, each in enumerate(hits) if each.text > 0}
        rows = await self.objects.page(scope.tenant, user, wanted, after=None, limit=SEARCHED, among=list(place))
        best = sorted(rows, key=lambda row: place[row.object_id])[:limit]
        return ObjectPage(objects=[shown_object(each) for each in best], next=None)

    async def get(self, scope: Admitted, object_id: str, session: Session = None) -> ObjectWhole:
        """Read an object: its content, what L1 and L2 say and leave out, and what it has to do with others."""
        user, row = await self._one(scope, object_id, session)
        return shown_whole(row, await self.objects.relationships(scope.tenant, user, row.object_id))

    async def history(
        self,
        scope: Admitted,
        object_id: str,
        session: Session = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> ObjectHistoryPage:
        """Read what became of an object: changes of fidelity, questions about it, and when it was wanted back; newest first."""
        after = decode_cursor(cursor, (datetime, UUID))
        user, row = await self._one(scope, object_id, session)
        of = (scope.tenant, user, row.session_id)
        faults = await self.objects.faults(*of, object_id=row.object_id, after=after, limit=limit + 1)
        moves = await self.objects.transitions(
            *of, object_id=row.object_id, after=after and (*after, row.object_id), limit=limit + 1
        )
        events: list[tuple[datetime, UUID, FaultOut | TransitionOut]] = [
            *((each.created_at, each.fault_id, shown_fault(each, each.call_id)) for each in faults),
            *((each.created_at, each.call_id, TransitionOut.model_validate(each._asdict())) for each in moves),
        ]
        events.sort(key=lambda each: each[:2], reverse=True)
        page, following = paged(events, limit, lambda each: each[:2])
        return ObjectHistoryPage(events=[each for *_, each in page], next=following)

    async def fault(self, scope: Admitted, object_id: str, body: FaultIn, session: Session = None) -> Faulted:
        """Ask a question about an object, or want it back. As when a model does it, it is recorded; what is asked again is
        pinned, three different questions raise the object in the session's next prompt, `restore` shows it there in full."""
        began = time.perf_counter_ns()
        user, row = await self._one(scope, object_id, session)
        key: dict[str, Any] = {"object_id": row.object_id, "content_hash": row.content_hash}
        found = await self._written(body.question, row) if body.question is not None else None
        if found is None:
            fault = self._fault(row, FaultType.FULL_RESTORE, began, **key, answer_tokens=row.tokens_l0, pin=True)
        elif not found.quotes:
            fault = self._fault(row, FaultType.MICRO_FAULT, began, question=body.question)
        else:
            before = await self.objects.asked(scope.tenant, user, row.object_id, row.turn - WINDOW_TURNS)
            shown_less = row.current_fidelity > Fidelity.FULL
            avoided = max(0, row.tokens_l0 - found.tokens) if shown_less else 0
            key |= {"question": body.question, "answer": found.text, "answer_tokens": found.tokens}
            fault = self._fault(row, FaultType.MICRO_FAULT, began, **key, avoided_tokens=avoided)
            fault = judged(fault, [FaultRecord(*each) for each in before], shown_less)
        if self.meter is not None:
            self.meter.fault(fault.fault_type, result_of(fault), fault.latency_ms / 1000)
        record = PagingRecord(row.session_id, row.turn, Zone.NORMAL, 0, 0, 0, faults=(fault,))
        await self.keeper.keep(scope.tenant, user, None, record)
        quotes = found.quotes if found is not None else ()
        return Faulted(
            fault=shown_fault(fault, None),
            answer=fault.answer,
            quotes=[QuoteOut(place=each.place, text=each.text) for each in quotes],
            content=row.content_full if found is None else None,
        )

    async def pin(self, scope: Admitted, object_id: str, session: Session = None) -> ObjectOut:
        """Pin an object: it is shown shorter only when all others are."""
        return await self._wish(scope, object_id, session, "pin")

    async def unpin(self, scope: Admitted, object_id: str, session: Session = None) -> ObjectOut:
        """Take a pin back, whoever set it."""
        return await self._wish(scope, object_id, session, "unpin")

    async def release(self, scope: Admitted, object_id: str, session: Session = None) -> ObjectOut:
        """Say that an object is needed no more: the session's next prompt shows its stub."""
        return await self._wish(scope, object_id, session, "release")

    async def pressure(self, scope: Admitted, session_id: Segment, user: Owner = None) -> PressureOut:
        """Read how full the session's prompt was at its last paged call, and at which levels its objects are."""
        ref = await find_session(self.sessions, scope, session_id, user)
        return shown_pressure(ref.session_id, await self.objects.pressure(scope.tenant, ref.user_id, ref.session_id))

    async def faults(
        self,
        scope: Admitted,
        session_id: Segment,
        user: Owner = None,
        type: Annotated[FaultType | None, Query(description="Of this type only.")] = None,  # noqa: A002 - the parameter's name
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> FaultPage:
        """List what was asked of a session's objects, newest first."""
        after = decode_cursor(cursor, (datetime, UUID))
        ref = await find_session(self.sessions, scope, session_id, user)
        of = (scope.tenant, ref.user_id, ref.session_id)
        rows = await self.objects.faults(*of, kind=type, after=after, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.created_at, row.fault_id))
        return FaultPage(faults=[shown_fault(each, each.call_id) for each in page], next=following)

    async def transitions(
        self,
        scope: Admitted,
        session_id: Segment,
        user: Owner = None,
        trigger: Annotated[Trigger | None, Query(description="For this reason only.")] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> TransitionPage:
        """List the changes of fidelity in a session, newest first."""
        after = decode_cursor(cursor, (datetime, UUID, UUID))
        ref = await find_session(self.sessions, scope, session_id, user)
        of = (scope.tenant, ref.user_id, ref.session_id)
        rows = await self.objects.transitions(*of, trigger=trigger, after=after, limit=limit + 1)
        page, following = paged(rows, limit, lambda row: (row.created_at, row.call_id, row.object_id))
        return TransitionPage(
            transitions=[TransitionOut.model_validate(each._asdict()) for each in page], next=following
        )

    async def _whose(self, scope: CallerScope, session: str | None) -> tuple[UUID, SessionRef | None]:
        """The user whose objects are meant: a session's, else the one who is named."""
        if session is None:
            return scope.user().id, None
        ref = await find_session(self.sessions, scope, session)
        return ref.user_id, ref

    async def _one(self, scope: CallerScope, text: str, session: str | None) -> tuple[UUID, WholeObject]:
        """An object and its user. Raises NotFound in the same words for another user's and for nobody's."""
        key = ids.issued(text)
        user, ref = await self._whose(scope, session)
        row = await self.objects.one(scope.tenant, user, key) if key is not None else None
        if row is None or (ref is not None and row.session_id != ref.session_id):
            raise NotFound("There is no such object.")
        return user, row

    async def _wish(self, scope: CallerScope, text: str, session: str | None, wish: Wish) -> ObjectOut:
        user, row = await self._one(scope, text, session)
        await self.objects.wish(scope.tenant, user, row.object_id, wish)
        _, row = await self._one(scope, text, session)
        return shown_object(row)

    async def _written(self, question: str, row: WholeObject) -> QuotedAnswer:
        name = f"{row.source_key or row.stub} [{handle_of(row.object_id)}]"
        source = AnswerSource(
            row.object_id, name, ContentKind(row.kind), row.content_full, vector=1.0, key=row.source_key
        )
        try:
            return await self.writer.write(question, [source], ANSWER_TOKENS)
        except TimeoutError as error:
            raise Unavailable("The object could not be searched in time; try again.") from error

    def _fault(self, row: WholeObject, kind: FaultType, began: int, **of: Any) -> Fault:
        now = self.clock.now()
        spent = (time.perf_counter_ns() - began) // 1_000_000
        return Fault(ids.uuid7(now), kind, row.turn, now, latency_ms=spent, **of)
