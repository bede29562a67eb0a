"""What the learner's job leaves behind of each exchange: an episode, and that its session has gone on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct

from app.store.queries import Queries

MAX_TOOLS = 32
"""Tools kept of one episode: longer loops repeat themselves."""


class Episode(Struct, frozen=True):
    """One answered exchange (seed 004, layer 3). `event_type`: question, request, statement, correction or confirmation;
    `entities`: slugs; `topics`: words with a content, in their order; `tools`: names of those called, in their order;
    `measure`: {label, value, unit} where the user reported a figure; `things`: those that were resolved, with their mentions,
    as seed 004 has `entities` (the job's `Spoken` writes them)."""

    message_id: UUID
    session_id: UUID
    at: datetime
    event_type: str
    entities: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    measure: Mapping[str, Any] | None = None
    things: tuple[Mapping[str, Any], ...] = ()


async def note(
    connection: PoolConnectionProxy[Any],
    sql: Queries,
    tenant: UUID,
    user: UUID,
    session: UUID,
    *,
    episodes: Sequence[Episode],
    messages: Sequence[UUID],
    since: datetime,
    until: datetime,
    now: datetime,
    pooled: bool,
) -> None:
    """Within the learner's transaction: add episodes, count the messages' tokens, and say that there is work to do. `since` and
    `until` bound the messages' months. `pooled`: what all sessions of this user say may be drawn together."""
    await connection.execute(
        sql["consolidation.note"],
        tenant, user, session, [_row(each) for each in episodes], list(messages), since, until, now, pooled,
    )  # fmt: skip


async def more_tools(
    connection: PoolConnectionProxy[Any], sql: Queries, tenant: UUID, user: UUID, session: UUID, tools: Sequence[str]
) -> None:
    """Tools that were called to the same question as before."""
    await connection.execute(sql["consolidation.more_tools"], tenant, user, session, list(tools), MAX_TOOLS)


def episode_from(row: Any) -> Episode:
    """An episode as it is stored."""
    return Episode(
        row["message_id"],
        row["session_id"],
        row["at"],
        row["event_type"],
        tuple(row["entities"]),
        tuple(row["topics"]),
        tuple(row["tools"]),
        row["measure"],
        tuple(row["things"]),
    )


def _row(each: Episode) -> dict[str, Any]:
    names = ("message_id", "at", "event_type", "entities", "topics", "tools", "measure")
    return {name: getattr(each, name) for name in names}
