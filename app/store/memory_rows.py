"""Memories as values: as they are stored, and as they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, get_args
from uuid import UUID

from msgspec import Struct, field

from app.store.records import Vector

Kind = Literal[
    "fact", "preference", "instruction", "correction", "episode", "event", "pattern", "procedure", "summary",
    "entity_profile", "tool_outcome",
]  # fmt: skip
KINDS: tuple[str, ...] = get_args(Kind)
Status = Literal["active", "aging", "superseded", "invalidated", "expired", "forgotten"]
STATUSES: tuple[str, ...] = get_args(Status)
IN_FORCE = ("active", "aging")

TTL = {1: timedelta(hours=24), 2: timedelta(days=90)}
"""Life of a memory by tier (seed 000 §5.1); L3 and L4 have no end."""

STATED_CONFIDENCE = 0.95
"""Of what a client says outright: the most that repetition alone can give."""


class Memory(Struct, frozen=True):
    """A memory as stored, with the names of its user and session. `sources`: see `memory_store`."""

    memory_id: UUID
    user_id: UUID
    user_external_id: str | None
    session_id: UUID | None
    session_external_id: str | None
    memory_tier: int
    memory_scope: int
    kind: str
    content_text: str
    provenance_type: int
    sources: list[dict[str, Any]]
    confidence: float
    confidence_factors: dict[str, Any]
    importance: float
    access_count: int
    reinforcement_count: int
    last_accessed_at: datetime | None
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    valid_from: datetime | None
    valid_to: datetime | None
    status: str
    is_validated: bool
    validated_by: str | None
    token_count: int
    superseded_by: UUID | None
    subject_entity_id: str | None
    predicate: str | None
    object_value: str | None
    entity_ids: list[str]
    tags: list[str]
    details: dict[str, Any]
    metadata: dict[str, Any]


class NewMemory(Struct, frozen=True):
    """A memory to add. `content_hash`: SHA-256 of the normalised text; `vector`: None where there is none."""

    text: str
    content_hash: bytes
    token_count: int
    vector: Vector | None = None
    kind: str = "fact"
    tier: int = 3
    tags: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    importance: float = 0.5
    session: UUID | None = None


class MemoryText(Struct, frozen=True):
    """A new text of a memory, with what is derived from it."""

    text: str
    content_hash: bytes
    token_count: int
    vector: Vector | None


class MemoryChange(Struct, frozen=True):
    """What to change; None leaves what is stored. `expires_at` counts where `set_expiry`: None then means never."""

    text: MemoryText | None = None
    kind: str | None = None
    tier: int | None = None
    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    importance: float | None = None
    confidence: float | None = None
    set_expiry: bool = False
    expires_at: datetime | None = None


class Filter(Struct, frozen=True):
    """Which memories to list; None: any."""

    tiers: list[int] | None = None
    kinds: list[str] | None = None
    statuses: Sequence[str] = IN_FORCE
    tags: list[str] | None = None
    metadata: dict[str, Any] | None = None
    superseded_by: UUID | None = None


class MemoryEvent(Struct, frozen=True):
    """One change of a memory."""

    at: datetime
    event: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    actor: str
