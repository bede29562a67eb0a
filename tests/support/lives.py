"""Memories for tests of the life cycle: put into Postgres as they are wanted, and read back as the pure functions take them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import asyncpg

from app.store import ids
from tests.support.lifecycle import Life
from tests.support.rows import insert_row, read_memory_events

NOW = datetime(2031, 3, 15, 12, tzinfo=UTC)
TENANT = UUID(int=0xA)
USER = UUID(int=7)
DAY = timedelta(days=1)
SELECT_LIFE = """
SELECT memory_id, memory_tier, kind, status, provenance_type, created_at, confidence, importance, relevance_accumulator,
       access_count, reinforcement_count, source_message_ids, provenance_turn_id, validated_by, last_accessed_at,
       last_validated_at, importance_at, expires_at, session_id, agent_data.made_at(memory_id) AS made_at
FROM agent_data.memory_store
"""


async def put(connection: asyncpg.Connection[Any], **given: Any) -> UUID:
    """A memory with these columns; said by the user in one message, unless they say otherwise. Its id."""
    known: dict[str, Any] = {
        "memory_id": ids.uuid7(given.get("created_at", NOW)),
        "user_id": USER,
        "tenant_id": TENANT,
        "memory_tier": 3,
        "memory_scope": 1,
        "kind": "fact",
        "content_text": "Lives in Lisbon",
        "provenance_type": 4,
        "provenance_turn_id": UUID(int=0x51),
        "source_message_ids": [UUID(int=0x51)],
        "token_count": 3,
        "created_at": NOW,
        "updated_at": NOW,
    } | given
    known.setdefault("content_hash", sha256(known["memory_id"].bytes).digest())
    await insert_row(connection, "memory_store", **known)
    memory: UUID = known["memory_id"]
    return memory


def life(row: Any) -> Life:
    """A row of `SELECT_LIFE`."""
    return Life(
        tier=row["memory_tier"],
        kind=row["kind"],
        status=row["status"],
        provenance_type=row["provenance_type"],
        created_at=row["created_at"],
        confidence=row["confidence"],
        importance=row["importance"],
        relevance=row["relevance_accumulator"],
        access_count=row["access_count"],
        reinforcement_count=row["reinforcement_count"],
        sources=len(set(row["source_message_ids"])),
        by_hand=row["provenance_turn_id"] is None,
        of_session=row["kind"] == "summary" and row["session_id"] is not None,
        validated_by=row["validated_by"],
        last_accessed_at=row["last_accessed_at"],
        last_validated_at=row["last_validated_at"],
        importance_at=row["importance_at"],
        expires_at=row["expires_at"],
        made_at=row["made_at"],
    )


async def lives(connection: asyncpg.Connection[Any]) -> dict[UUID, Life]:
    return {row["memory_id"]: life(row) for row in await connection.fetch(SELECT_LIFE)}


async def one(connection: asyncpg.Connection[Any], memory: UUID) -> Life:
    return life(await connection.fetchrow(SELECT_LIFE + "WHERE memory_id = $1", memory))


async def told(connection: asyncpg.Connection[Any], memory: UUID) -> list[str]:
    """The events of a memory, oldest first."""
    rows = await read_memory_events(connection, memory_id=memory)
    return [row["event"] for row in sorted(rows, key=lambda row: (row["at"], row["event"]))]
