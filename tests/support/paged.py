"""Objects of a session as a pager makes them, for tests of what keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any
from uuid import UUID, uuid5

from msgspec.structs import replace

from app.features.paging.values import (
    ContentKind,
    Fault,
    FaultType,
    Fidelity,
    ObjectAdmission,
    ObjectSpan,
    ObjectType,
    PagingRecord,
    Relationship,
    RelationType,
    SemanticObject,
    Transition,
    Trigger,
    Zone,
)

AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


def mark(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def made(session: UUID, name: str, content: str = "", **given: Any) -> SemanticObject:
    """An object that stands whole in one message."""
    text = content or f"content of {name}"
    plain = SemanticObject(
        id=uuid5(session, name),
        object_type=ObjectType.FILE_CONTEXT,
        kind=ContentKind.CODE,
        content=text,
        stub=f"Read {name}",
        tokens_l0=300,
        tokens_l3=12,
        parts=(ObjectSpan(mark(name), 0, len(text)),),
        content_hash=mark(text),
        source_turn_start=1,
        source_turn_end=1,
        source_tool="Read",
        source_key=f"src/{name}.py",
        key_entities=(name, "main"),
        tags=("read", "python"),
        last_accessed=1,
    )
    return replace(plain, **given)


def record(session: UUID, *objects: SemanticObject, turn: int = 1, **given: Any) -> PagingRecord:
    plain = PagingRecord(
        session_id=session,
        turn=turn,
        zone=Zone.NORMAL,
        budget=10_000,
        tokens=4_000,
        shown_tokens=4_000,
        marks=frozenset(part.mark for each in objects for part in each.parts),
        objects=tuple(objects),
    )
    return replace(plain, **given)


def fault(number: int, about: SemanticObject | None, question: str | None = "where?", **given: Any) -> Fault:
    plain = Fault(
        UUID(int=0xFA000 + number),
        FaultType.MICRO_FAULT,
        1,
        AT,
        about.id if about else None,
        about.content_hash if about else None,
        question,
        "there",
        answer_tokens=5,
        avoided_tokens=295,
        latency_ms=3,
    )
    return replace(plain, **given)


def moved(about: SemanticObject, after: Fidelity, before: Fidelity = Fidelity.FULL, turn: int = 1) -> Transition:
    return Transition(about.id, before, after, Trigger.PRESSURE, turn, Zone.WARNING, 8_000)


def admitted(about: SemanticObject | None, preview: str = "what it begins with") -> ObjectAdmission:
    return ObjectAdmission(about.id if about else None, about is not None, 0.5, 0.5, 1.0, 0.25, 1.0, 0.4, preview)


def whole_record(session: UUID, pair: Sequence[SemanticObject] = (), **given: Any) -> PagingRecord:
    """A record that writes into each table of paging."""
    one, two = pair or (made(session, "one"), made(session, "two"))
    return replace(
        record(
            session,
            one,
            two,
            zone=Zone.WARNING,
            tokens=8_000,
            shown_tokens=5_000,
            offered=True,
            relationships=(Relationship(two.id, one.id, RelationType.DEPENDS_ON),),
            admissions=(admitted(one), admitted(two), admitted(None)),
            transitions=(moved(one, Fidelity.STUB),),
            uses=frozenset({two.id}),
            faults=(fault(session.int & 0xFFF, one),),
            hidden={
                mark(f"{session}answer"): {"legs": [{"role": "assistant", "content": "hm"}], "beside": [], "told": None}
            },
        ),
        **given,
    )
