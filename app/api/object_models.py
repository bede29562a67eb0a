"""What /api/v1/objects takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator

from app.api.common import Model, clean
from app.gateway.phantom_tools import MAX_QUESTION_CHARS
from app.paging.showing import handle_of
from app.store.objects import Edge, StoredFault, StoredObject, StoredPressure, StoredTransition, WholeObject
from app.store.paging_values import ContentKind, Fault, FaultType, ObjectType, RelationType, Trigger, Zone


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
    """A change of fidelity. `token_count`: of the whole prompt before the changes of that turn."""

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


class HistoryPage(BaseModel):
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
    """An object as it is shown."""
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


def shown_whole(row: WholeObject, edges: Sequence[Edge]) -> ObjectWhole:
    """The same with its texts."""

    def level(text: str | None, losses: list[str], can_answer: list[str]) -> Level | None:
        return Level(text=text, losses=losses, can_answer=can_answer) if text is not None else None

    return ObjectWhole(
        **shown_object(row).model_dump(),
        content=row.content_full,
        detailed=level(row.summary_detailed, row.losses_l1, row.can_answer_l1),
        compact=level(row.summary_compact, row.losses_l2, row.can_answer_l2),
        fault_when=row.fault_when,
        relationships=[
            Related(source=each.source_id, target=each.target_id, relationship=RelationType(each.relationship))
            for each in edges
        ],
    )


def shown_fault(row: StoredFault) -> FaultOut:
    """A fault as it is shown."""
    return FaultOut(
        id=row.fault_id,
        call_id=row.call_id,
        object_id=row.object_id,
        type=FaultType(row.fault_type),
        turn=row.turn_number,
        question=row.question,
        answer=row.answer,
        answer_tokens=row.answer_tokens,
        avoided_tokens=row.avoided_tokens,
        latency_ms=row.latency_ms,
        content_hash=row.content_hash.hex() if row.content_hash is not None else None,
        created_at=row.created_at,
    )


def made_fault(fault: Fault) -> FaultOut:
    """One that was made just now, through the API."""
    return FaultOut(
        id=fault.fault_id,
        call_id=None,
        object_id=fault.object_id,
        type=fault.fault_type,
        turn=fault.turn,
        question=fault.question,
        answer=fault.answer,
        answer_tokens=fault.answer_tokens,
        avoided_tokens=fault.avoided_tokens,
        latency_ms=fault.latency_ms,
        content_hash=fault.content_hash.hex() if fault.content_hash is not None else None,
        created_at=fault.created_at,
    )


def shown_transition(row: StoredTransition) -> TransitionOut:
    """A change of fidelity as it is shown."""
    return TransitionOut(
        object_id=row.object_id,
        call_id=row.call_id,
        before=row.from_fidelity,
        after=row.to_fidelity,
        trigger=Trigger(row.trigger),
        turn=row.turn_number,
        zone=Zone(row.pressure_zone),
        token_count=row.token_count,
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
