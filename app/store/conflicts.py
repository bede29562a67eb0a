"""A contradiction in the log (seed 004, table 9)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from msgspec import Struct


class LoggedConflict(Struct, frozen=True):
    """A contradiction as it is stored. `resolved_at` None: it is open."""

    conflict_id: UUID
    user_id: UUID
    user_external_id: str | None
    session_id: UUID | None
    detected_at_message: UUID | None
    conflict_type: Literal["memory_vs_memory", "memory_vs_db", "temporal"]
    conflict_data: dict[str, Any]
    memory_ids: list[UUID]
    resolution_strategy: str | None
    resolution_outcome: dict[str, Any] | None
    resolved_at: datetime | None
    created_at: datetime
    entity_id: str | None
