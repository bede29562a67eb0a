"""/api/v1/objects: the parts of long conversations at their fidelities, what was asked of them, and how full prompts are (seed
002)."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated, Protocol
from uuid import UUID

from fastapi import APIRouter, Query
from msgspec.structs import replace

from app.api.common import DEFAULT_PAGE, Cursor, Limit, Name, Segment, Text, Word, decode_cursor, paged
from app.api.finding import find_session
from app.api.object_models import (
    Faulted,
    FaultIn,
    FaultOut,
    FaultPage,
    HistoryPage,
    ObjectOut,
    ObjectPage,
    ObjectWhole,
    PressureOut,
    QuoteOut,
    TransitionOut,
    TransitionPage,
    made_fault,
    shown_fault,
    shown_object,
    shown_pressure,
    shown_transition,
    shown_whole,
)
from app.api.scope import Admitted, Gate, Scope
from app.api.session_models import Owner
from app.clock import Clock
from app.errors import NotFound, Unavailable
from app.gateway.fault_answers import Meter, Writer, judged, result_of
from app.paging.answering import ANSWER_TOKENS, Answer, Source
from app.paging.showing import handle_of
from app.store import ids
from app.store.objects import ObjectFilter, ObjectStore, WholeObject, Wish
from app.store.paging_values import (
    WINDOW_TURNS,
    Asked,
    ContentKind,
    Fault,
    FaultType,
    Fidelity,
    ObjectType,
    PagingRecord,
    Trigger,
    Zone,
)
from app.store.sessions import SessionRef, Sessions

MAX_KEY_CHARS = 2048
"""Longest key to look for, characters: paths and URLs are shorter."""

Session = Annotated[Name | None, Query(description="The session; needed for one that has no user.")]


class Keeper(Protocol):
    """Writes what was asked through the API (`store/paging.py`)."""

    async def keep(self, tenant: UUID, user: UUID, call_id: UUID | None, record: PagingRecord) -> None: ...


def objects_router(
    gate: Gate,
    sessions: Sessions,
    objects: ObjectStore,
    keeper: Keeper,
    writer: Writer,
    clock: Clock,
    meter: Meter | None = None,
) -> APIRouter:
    """The routes of /api/v1/objects, and what sessions tell of theirs."""
    doors = _Doors(sessions, objects, keeper, writer, clock, meter)
    router = gate.router("objects")
    at, of = "/objects/{object_id}", "/sessions/{session_id}"
    router.add_api_route("/objects", doors.listing, methods=["GET"], response_model=ObjectPage)
    router.add_api_route(at, doors.get, methods=["GET"], response_model=ObjectWhole)
    router.add_api_route(f"{at}/history", doors.history, methods=["GET"], response_model=HistoryPage)
    router.add_api_route(f"{at}/fault", doors.fault, methods=["POST"], response_model=Faulted)
    router.add_api_route(f"{at}/pin", doors.pin, methods=["POST"], response_model=ObjectOut)
    router.add_api_route(f"{at}/unpin", doors.unpin, methods=["POST"], response_model=ObjectOut)
    router.add_api_route(f"{at}/release", doors.release, methods=["POST"], response_model=ObjectOut)
    router.add_api_route(f"{of}/pressure", doors.pressure, methods=["GET"], response_model=PressureOut)
    router.add_api_route(f"{of}/faults", doors.faults, methods=["GET"], response_model=FaultPage)
    router.add_api_route(f"{of}/transitions", doors.transitions, methods=["GET"], response_model=TransitionPage)
    return router


class _Doors:
    def __init__(
        self,
        sessions: Sessions,
        objects: ObjectStore,
        keeper: Keeper,
        writer: Writer,
        clock: Clock,
        meter: Meter | None,
    ) -> None:
        self._sessions = sessions
        self._objects = objects
        self._keeper = keeper
        self._writer = writer
        self._clock = clock
        self._meter = meter

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
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> ObjectPage:
        """List the objects of a user or of a session, newest first, without their contents."""
        after = decode_cursor(cursor, (datetime, int, UUID))
        user, ref = await self._whose(scope, session)
        wanted = ObjectFilter(ref.session_id if ref else None, type, fidelity, tag, key, pinned)
        rows = await self._objects.page(
            scope.tenant, user, wanted, after=after and (after[0], after[1], after[2]), limit=limit + 1
        )
        page, following = paged(rows, limit, lambda row: (row.created_at, row.ordinal, row.object_id))
        return ObjectPage(objects=[shown_object(each) for each in page], next=following)

    async def get(self, scope: Admitted, object_id: str, session: Session = None) -> ObjectWhole:
        """Read an object: its content, what L1 and L2 say and leave out, and what it has to do with others."""
        user, row = await self._one(scope, object_id, session)
        return shown_whole(row, await self._objects.relationships(scope.tenant, user, row.object_id))

    async def history(
        self,
        scope: Admitted,
        object_id: str,
        session: Session = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> HistoryPage:
        """Read what became of an object: changes of fidelity, questions about it, and when it was wanted back; newest first."""
        after = decode_cursor(cursor, (datetime, UUID))
        user, row = await self._one(scope, object_id, session)
        of = (scope.tenant, user, row.session_id)
        faults = await self._objects.faults(
            *of, object_id=row.object_id, after=after and (after[0], after[1]), limit=limit + 1
        )
        moves = await self._objects.transitions(
            *of, object_id=row.object_id, after=after and (after[0], after[1], row.object_id), limit=limit + 1
        )
        events: list[tuple[datetime, UUID, FaultOut | TransitionOut]] = [
            *((each.created_at, each.fault_id, shown_fault(each)) for each in faults),
            *((each.created_at, each.call_id, shown_transition(each)) for each in moves),
        ]
        events.sort(key=lambda each: each[:2], reverse=True)
        page, following = paged(events, limit, lambda each: each[:2])
        return HistoryPage(events=[each for *_, each in page], next=following)

    async def fault(self, scope: Admitted, object_id: str, body: FaultIn, session: Session = None) -> Faulted:
        """Ask a question about an object, or want it back. As when a model does it, it is recorded; what is asked again is
        pinned, three different questions raise the object in the session's next prompt, `restore` shows it there in full."""
        began = time.perf_counter_ns()
        user, row = await self._one(scope, object_id, session)
        found = None
        if body.question is not None:
            found = await self._written(body.question, row)
            before = await self._objects.asked(scope.tenant, user, row.object_id, row.turn - WINDOW_TURNS)
            fault = self._answered(row, body.question, found, began)
            if found.quotes:
                asked = [Asked(turn, question) for turn, question in before]
                fault = judged(fault, asked, row.current_fidelity > Fidelity.FULL)
        else:
            fault = replace(self._fault(row, FaultType.FULL_RESTORE, began), answer_tokens=row.tokens_l0, pin=True)
        if self._meter is not None:
            self._meter.fault(fault.fault_type, result_of(fault), fault.latency_ms / 1000)
        await self._keeper.keep(
            scope.tenant,
            user,
            None,
            PagingRecord(row.session_id, row.turn, Zone.NORMAL, 0, 0, 0, faults=(fault,)),
        )
        quotes = found.quotes if found is not None else ()
        return Faulted(
            fault=made_fault(fault),
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
        ref = await find_session(self._sessions, scope, session_id, user)
        return shown_pressure(ref.session_id, await self._objects.pressure(scope.tenant, ref.user_id, ref.session_id))

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
        ref = await find_session(self._sessions, scope, session_id, user)
        rows = await self._objects.faults(
            scope.tenant,
            ref.user_id,
            ref.session_id,
            kind=type,
            after=after and (after[0], after[1]),
            limit=limit + 1,
        )
        page, following = paged(rows, limit, lambda row: (row.created_at, row.fault_id))
        return FaultPage(faults=[shown_fault(each) for each in page], next=following)

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
        ref = await find_session(self._sessions, scope, session_id, user)
        rows = await self._objects.transitions(
            scope.tenant,
            ref.user_id,
            ref.session_id,
            trigger=trigger,
            after=after and (after[0], after[1], after[2]),
            limit=limit + 1,
        )
        page, following = paged(rows, limit, lambda row: (row.created_at, row.call_id, row.object_id))
        return TransitionPage(transitions=[shown_transition(each) for each in page], next=following)

    async def _whose(self, scope: Scope, session: str | None) -> tuple[UUID, SessionRef | None]:
        """The user whose objects are meant: a session's, else the one who is named."""
        if session is None:
            return scope.user().id, None
        ref = await find_session(self._sessions, scope, session)
        return ref.user_id, ref

    async def _one(self, scope: Scope, text: str, session: str | None) -> tuple[UUID, WholeObject]:
        """An object and its user. Raises NotFound in the same words for another user's and for nobody's."""
        key = ids.issued(text)
        user, ref = await self._whose(scope, session)
        row = await self._objects.one(scope.tenant, user, key) if key is not None else None
        if row is None or (ref is not None and row.session_id != ref.session_id):
            raise NotFound("There is no such object.")
        return user, row

    async def _wish(self, scope: Scope, text: str, session: str | None, wish: Wish) -> ObjectOut:
        user, row = await self._one(scope, text, session)
        await self._objects.wish(scope.tenant, user, row.object_id, wish)
        _, row = await self._one(scope, text, session)
        return shown_object(row)

    async def _written(self, question: str, row: WholeObject) -> Answer:
        name = f"{row.source_key or row.stub} [{handle_of(row.object_id)}]"
        source = Source(row.object_id, name, ContentKind(row.kind), row.content_full, vector=1.0, key=row.source_key)
        try:
            return await self._writer.write(question, [source], ANSWER_TOKENS)
        except TimeoutError as error:
            raise Unavailable("The object could not be searched in time; try again.") from error

    def _answered(self, row: WholeObject, question: str, found: Answer, began: int) -> Fault:
        fault = self._fault(row, FaultType.MICRO_FAULT, began)
        if not found.quotes:
            return replace(fault, object_id=None, content_hash=None, question=question)
        shown_less = row.current_fidelity > Fidelity.FULL
        return replace(
            fault,
            question=question,
            answer=found.text,
            answer_tokens=found.tokens,
            avoided_tokens=max(0, row.tokens_l0 - found.tokens) if shown_less else 0,
        )

    def _fault(self, row: WholeObject, kind: FaultType, began: int) -> Fault:
        now = self._clock.now()
        spent = (time.perf_counter_ns() - began) // 1_000_000
        return Fault(ids.uuid7(now), kind, row.turn, now, row.object_id, row.content_hash, latency_ms=spent)
