"""Taking the words of memories away for good: what forgetting a memory and deleting a message have in common."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from asyncpg import Connection
from asyncpg.pool import PoolConnectionProxy

from app.store.queries import Queries


class Held(NamedTuple):
    """A memory that is held against other writers, until the end of the transaction."""

    memory_id: UUID
    status: str
    content_hash: bytes


async def hold(
    connection: PoolConnectionProxy[Any] | Connection[Any],
    sql: Queries,
    tenant: UUID,
    user: UUID,
    memories: Sequence[UUID],
) -> list[Held]:
    """Those of these memories that are there and not forgotten."""
    rows = await connection.fetch(sql["memories.hold"], tenant, user, list(memories))
    return [Held(row["memory_id"], row["status"], row["content_hash"]) for row in rows]


async def forget(
    connection: PoolConnectionProxy[Any] | Connection[Any],
    sql: Queries,
    key: bytes,
    tenant: UUID,
    user: UUID,
    held: Sequence[Held],
    now: datetime,
) -> None:
    """Leave of memories that there were some, and keyed hashes (`key`) of what they said, so that it is not learned again."""
    memories = [each.memory_id for each in held]
    earlier = await connection.fetch(sql["memories.hashes_before"], tenant, user, memories)
    await connection.execute(sql["memories.void"], tenant, user, memories, now)
    for each in held:
        before = {"status": each.status}
        await connection.execute(
            sql["memories.event"], tenant, user, each.memory_id, now, "deleted", before, None, "api"
        )
    # Under its own id what it said last; what it said before it was edited is what a transcript would bring back.
    marks = {each.memory_id: content_hmac(key, each.content_hash) for each in held}
    marks |= {
        uuid5(row["memory_id"], row["content_hash"].hex()): content_hmac(key, row["content_hash"]) for row in earlier
    }
    await connection.execute(
        sql["memories.suppress"], tenant, user, list(marks), "forgotten", list(marks.values()), now
    )


def content_hmac(key: bytes, content_hash: bytes) -> bytes:
    """What is kept of a forgotten text: HMAC-SHA256 over its content hash, so that nobody without the key can guess it."""
    return hmac.digest(key, content_hash, sha256)
