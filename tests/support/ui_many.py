"""More rows than a page shows, put straight into the tables of a world (`ui_world`)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg

MEMORIES = """
INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, kind, content_text, content_hash,
    provenance_type, token_count, created_at, updated_at)
SELECT overlay(agent_data.uuid7_floor(at)::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid, u.user_id, u.tenant_id, 3, 1,
       'fact', 'Crate ' || n || ' stands in aisle ' || n % 40, sha256(n::text::bytea), 0, 8, at, at
FROM (SELECT n, now() - n * interval '1 minute' AS at FROM generate_series(1, $2::integer) n) x
JOIN agent_data.users u ON u.external_id = $1
"""
MONTHS = "SELECT agent_data.ensure_capture_partitions((now() - $1::interval)::date, now()::date)"
CALLS = """
INSERT INTO agent_data.upstream_calls (call_id, tenant_id, user_id, session_id, created_at, method, path, upstream, model,
    answered_model, streamed, status, outcome, memory_status, reason, prompt_tokens, completion_tokens, cost_microcents,
    latency_ms, first_byte_us, overhead_us)
SELECT overlay(agent_data.uuid7_floor(at)::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid, c.tenant_id, c.user_id,
       c.session_id, at, c.method, c.path, c.upstream, c.model, c.answered_model, c.streamed,
       c.status, c.outcome, c.memory_status, c.reason, c.prompt_tokens + n % 97, c.completion_tokens, c.cost_microcents,
       c.latency_ms + 37 * n % 211, c.first_byte_us, c.overhead_us + 911 * n % 7919
FROM (SELECT n, now() - n * $2::interval - $2::interval * (0.4 * sin(n)) AS at FROM generate_series(1, $1::integer) n) x
JOIN (SELECT *, row_number() OVER (ORDER BY call_id) AS place, count(*) OVER () AS many FROM agent_data.upstream_calls) c
  ON c.place = 1 + 7 * x.n % c.many
"""


async def more_memories(admin: asyncpg.Connection[Any], user: str, count: int) -> None:
    """So many memories of a user; without vectors, for a list needs none."""
    await admin.execute(MEMORIES, user, count)
    await admin.execute("ANALYZE agent_data.memory_store")


async def more_calls(admin: asyncpg.Connection[Any], count: int, apart: timedelta) -> None:
    """So many calls before now, one every `apart`, each like one of those that are there; without what was sent."""
    await admin.execute(MONTHS, apart * (count + 1))
    await admin.execute(CALLS, count, apart)
    await admin.execute("ANALYZE agent_data.upstream_calls")
