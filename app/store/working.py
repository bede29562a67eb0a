"""Working memory (L0, seed 001 §5) in its unlogged table, and what it is made from when it is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct, field

from app.store import ids
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, tool_calls_of

RESULT_CHARS = 500
"""Of a tool's result that is kept here; all of it stands in the history."""
RECENT_MESSAGES = 80
"""Messages read for it: twenty turns with a tool call and its result in each."""
PREFERENCES = 10
"""Preferences and instructions, the most important."""


class RecentMessage(Struct, frozen=True):
    """A message of a session, its content cut to `RESULT_CHARS`."""

    message_id: UUID
    turn_index: int
    role: str
    content: str
    name: str | None
    tool_calls: Sequence[Mapping[str, Any]]
    tool_call_id: str | None
    created_at: datetime


class Working(Struct, frozen=True):
    """`pending_confirmations`: what the assistant asked leave for, and nobody has answered; `tool_results_buffer`: newest
    last."""

    active_preferences: list[dict[str, Any]] = field(default_factory=list)
    pending_confirmations: list[dict[str, Any]] = field(default_factory=list)
    tool_results_buffer: list[dict[str, Any]] = field(default_factory=list)


async def read_recent(
    connection: PoolConnectionProxy[Any], sql: Queries, tenant: UUID, user: UUID, session: UUID, now: datetime
) -> tuple[list[RecentMessage], list[dict[str, Any]]]:
    """The session's newest messages, oldest first, and the preferences that hold in it."""
    rows = await connection.fetch(sql["consolidation.recent"], tenant, user, session, RECENT_MESSAGES, RESULT_CHARS)
    messages = [
        RecentMessage(
            row["message_id"],
            row["turn_index"],
            ROLE_NAMES.get(row["role"], "other"),
            row["content"],
            row["name"],
            tool_calls_of(row["tool_calls"]),
            row["tool_call_id"],
            row["created_at"],
        )
        for row in reversed(rows)
    ]
    confined = user == ids.nobody(tenant)
    found = await connection.fetch(sql["consolidation.preferences"], tenant, user, session, confined, now, PREFERENCES)
    preferences = [{"memory_id": str(row["memory_id"]), "kind": row["kind"], "text": row["text"]} for row in found]
    return messages, preferences


async def read_working(
    connection: PoolConnectionProxy[Any], sql: Queries, tenant: UUID, user: UUID, session: UUID
) -> tuple[Working, datetime] | None:
    """What is kept, and since when; None: it is lost, or was never made."""
    row = await connection.fetchrow(sql["consolidation.working"], tenant, user, session)
    if row is None:
        return None
    kept = Working(row["active_preferences"], row["pending_confirmations"], row["tool_results_buffer"])
    return kept, row["updated_at"]


async def keep_working(
    connection: PoolConnectionProxy[Any],
    sql: Queries,
    tenant: UUID,
    user: UUID,
    session: UUID,
    working: Working,
    now: datetime,
) -> None:
    """Set it."""
    await connection.execute(
        sql["consolidation.keep_working"],
        tenant, user, session, working.active_preferences, working.pending_confirmations, working.tool_results_buffer, now,
    )  # fmt: skip
