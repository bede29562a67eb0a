"""Memories as clients write and read them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import Model, Moment, Name, Word, clean
from app.api.scope import Scope
from app.memory.text import content_hash
from app.store import ids
from app.store.memory_rows import Kind, Memory, MemoryChange, MemoryText, NewMemory, Status
from app.store.records import Vector

MAX_TEXT_CHARS = 32_768
"""Longest memory: its words must fit one tsvector (1 MB), and its text a prompt."""
MAX_TAGS = 64
SMALLEST_SHARE = 1e-30
"""What is less is nothing: a column of type `real` refuses what it cannot hold, which is below 1e-45 (IEEE 754 binary32)."""


def _worded(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _held(share: float) -> float:
    return share if share >= SMALLEST_SHARE else 0.0


Said = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_TEXT_CHARS), AfterValidator(clean), AfterValidator(_worded)
]
Tags = Annotated[list[Word], Field(max_length=MAX_TAGS)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), AfterValidator(_held)]


class MemoryIn(Model):
    """A memory, said outright: it is taken as true and validated."""

    user: Name | None = Field(None, description="Whose; else X-Mneme-User, else the key's user.")
    text: Said
    kind: Kind = "fact"
    tier: Annotated[int, Field(ge=1, le=4)] | None = Field(
        None, description="1 session, 2 episodic, 3 semantic, 4 procedural; 3, or 4 for a procedure."
    )
    tags: Tags = Field([])
    metadata: dict[str, Any] = Field({})
    importance: Share = 0.5
    session: Name | None = Field(None, description="The session that it belongs to; made where it is missing.")


class MemoryPatch(Model):
    """What to change; a field that is left out stays."""

    text: Said | None = None
    kind: Kind | None = None
    tier: Annotated[int, Field(ge=1, le=4)] | None = None
    tags: Tags | None = None
    metadata: dict[str, Any] | None = Field(None, description="Replaces all metadata.")
    importance: Share | None = None
    confidence: Share | None = None
    expires_at: Moment | None = Field(None, description="null: never.")


def new_memory(given: MemoryIn, tokens: int, vector: Vector | None, session: UUID | None) -> NewMemory:
    """What a client wrote, ready to be stored: its session is there."""
    return NewMemory(
        text=given.text,
        content_hash=content_hash(given.text),
        token_count=tokens,
        vector=vector,
        kind=given.kind,
        tier=given.tier or (4 if given.kind == "procedure" else 3),
        tags=list(dict.fromkeys(given.tags)),
        metadata=given.metadata,
        importance=given.importance,
        session=session,
    )


def change_of(given: MemoryPatch, tokens: int | None, vector: Vector | None) -> MemoryChange:
    """What is to be changed. `tokens` and `vector`: of the new text, if there is one."""
    text = None
    if given.text is not None and tokens is not None:
        text = MemoryText(given.text, content_hash(given.text), tokens, vector)
    return MemoryChange(
        text=text,
        kind=given.kind,
        tier=given.tier,
        tags=list(dict.fromkeys(given.tags)) if given.tags is not None else None,
        metadata=given.metadata,
        importance=given.importance,
        confidence=given.confidence,
        set_expiry="expires_at" in given.model_fields_set,
        expires_at=given.expires_at,
    )


class Source(BaseModel, extra="allow"):
    """A message that an item comes from."""

    session: str | None = None
    message_id: UUID | None = None
    turn_index: int | None = None
    metadata: dict[str, Any] = {}


class MemoryOut(BaseModel):
    """A memory. `tier`: 0 working to 4 procedural; `scope`: local to its session, or global."""

    id: UUID
    user: str | None
    session: str | None
    session_id: UUID | None
    tier: int
    scope: Literal["local", "global"]
    kind: str
    text: str
    status: Status
    importance: float
    confidence: float
    confidence_factors: dict[str, Any]
    tags: list[str]
    entity_ids: list[str]
    subject: str | None
    predicate: str | None
    object: str | None
    metadata: dict[str, Any]
    details: dict[str, Any]
    provenance: list[Source]
    token_count: int
    access_count: int
    reinforcement_count: int
    created_at: datetime
    updated_at: datetime
    last_accessed_at: datetime | None
    expires_at: datetime | None
    valid_from: datetime | None
    valid_to: datetime | None
    validated: bool
    validated_by: str | None
    superseded_by: UUID | None


class MemoryCreated(MemoryOut):
    """`created`: false when a memory in force said the same; that one is returned."""

    created: bool


class MemoriesCreated(BaseModel):
    memories: list[MemoryCreated]


class MemoryPage(BaseModel):
    memories: list[MemoryOut]
    next: str | None


class EventOut(BaseModel):
    """A change: created, merged, reinforced, promoted, demoted, decayed, aging, asked, confirmed, edited, invalidated, expired,
    restored, superseded or deleted; by system, user or api."""

    at: datetime
    event: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    actor: str


class EventPage(BaseModel):
    events: list[EventOut]
    next: str | None


class Invalidation(Model):
    reason: Annotated[str, StringConstraints(max_length=1000), AfterValidator(clean)] | None = None


class Deleted(BaseModel):
    id: UUID
    deleted: bool


def shown(scope: Scope, row: Memory) -> MemoryOut:
    """A stored memory as clients see it."""
    return MemoryOut.model_validate(_fields(scope, row))


def shown_created(scope: Scope, row: Memory, created: bool) -> MemoryCreated:
    """The same, of a memory that was just said."""
    return MemoryCreated.model_validate(_fields(scope, row) | {"created": created})


def _fields(scope: Scope, row: Memory) -> dict[str, Any]:
    same = (
        "kind", "status", "importance", "confidence", "confidence_factors", "tags", "entity_ids", "predicate", "metadata",
        "details", "token_count", "access_count", "reinforcement_count", "created_at", "updated_at", "last_accessed_at",
        "expires_at", "valid_from", "valid_to", "validated_by", "superseded_by", "session_id",
    )  # fmt: skip
    return {name: getattr(row, name) for name in same} | {
        "id": row.memory_id,
        "user": None if row.user_id == ids.nobody(scope.tenant) else row.user_external_id,
        "session": row.session_external_id,
        "tier": row.memory_tier,
        "scope": "global" if row.memory_scope else "local",
        "text": row.content_text,
        "subject": row.subject_entity_id,
        "object": row.object_value,
        "provenance": row.sources,
        "validated": row.is_validated,
    }
