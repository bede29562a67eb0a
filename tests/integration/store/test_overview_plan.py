"""The figures of the overview read the months of their window alone, by an index."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from app.features import overview
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.calls import CapturedCall, capture

CROWD = """
INSERT INTO agent_data.upstream_calls (call_id, tenant_id, user_id, created_at, method, path, upstream, outcome, memory_status)
SELECT overlay(agent_data.uuid7_floor(at)::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid, $1,
       md5((n % 40)::text)::uuid, at,
       'POST', '/v1/x', 'u', 0, 'ok'
FROM (SELECT n, $2::timestamptz - n * interval '1 minute' AS at FROM generate_series(1, 3000) n) x
"""


async def test_the_months_of_the_window_are_opened_and_no_other(admin: asyncpg.Connection[Any], pool: Pool) -> None:
    """Read by an index, a span at a time; the plan is that of the role of the server."""
    turns, now = TurnStore(pool, Queries.load()), datetime.now(UTC)
    await admin.execute(
        "SELECT agent_data.ensure_capture_partitions(($1::timestamptz - interval '70 days')::date, $1::date)", now
    )
    for n in range(30):
        await capture(turns, CapturedCall(now - timedelta(minutes=1, days=2 * n)))
    await admin.execute(CROWD, ids.LOCAL_TENANT, now)
    await admin.execute("ANALYZE agent_data.upstream_calls")
    of = overview.spans(1, now)
    for user, index in ((None, "tenant"), (ids.user_id(ids.LOCAL_TENANT, "ana"), "user")):
        for mode in ("force_custom_plan", "force_generic_plan"):
            scans = await _scans(pool, user, of, mode)
            partitions = {table for table, _ in scans}
            assert len({each for each in partitions if each.startswith("upstream_calls")}) <= 1 + (now.day == 1), scans
            assert scans, "nothing was read"
            assert all(name and index in name for table, name in scans if table.startswith("upstream_calls")), scans


async def _scans(pool: Pool, user: Any, of: Any, mode: str) -> list[tuple[str, str | None]]:
    async with pool.transaction(ids.LOCAL_TENANT) as connection:
        await connection.execute(f"SET LOCAL plan_cache_mode = {mode}; SET LOCAL enable_seqscan = off")
        await connection.execute(
            "PREPARE overview_plan (uuid, uuid, timestamptz[], timestamptz[], integer, integer) AS "
            + Queries.load()["overview.figures"]
        )
        lows, highs = ([str(getattr(each, name)) for each in of] for name in ("since", "until"))
        given = f"{ids.LOCAL_TENANT!s}"
        who = f"'{user}'" if user is not None else "NULL"
        plan = await connection.fetchval(
            "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) EXECUTE overview_plan"
            f" ('{given}', {who}, '{{{','.join(lows)}}}', '{{{','.join(highs)}}}', 500, 20)"
        )
        await connection.execute("DEALLOCATE overview_plan")
    found: list[tuple[str, str | None]] = []

    def walk(node: dict[str, Any]) -> None:
        if node.get("Actual Rows") and "Relation Name" in node:
            found.append((node["Relation Name"], node.get("Index Name")))
        for each in node.get("Plans", []):
            walk(each)

    walk((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
    return found
