"""/api/v1/overview: every call in its bucket, whose it is, and how much is read."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from app.features import overview as overview
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.calls import CapturedCall, capture
from tests.support.cases import cases
from tests.support.wired_api import WiredApi, error_of

OVERVIEW = "/api/v1/overview"


@pytest.fixture
def turns(pool: Pool) -> TurnStore:
    return TurnStore(pool, Queries.load())


async def told(client: httpx.AsyncClient, **params: Any) -> dict[str, Any]:
    answer = await client.get(OVERVIEW, params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_nothing_yet(client: httpx.AsyncClient) -> None:
    found = await told(client)
    assert (found["bucket_s"], len(found["buckets"])) in ((1800, 48), (1800, 49))
    assert found["totals"] == {
        "calls": 0, "errors": 0, "streams": 0, "degraded": {}, "prompt_tokens": 0, "completion_tokens": 0,
        "memory_tokens": 0, "memory_prompts": 0, "memory_none": 0, "memory_saved_tokens": 0,
        "cost_microcents": 0, "eta": None, "sampled": False,
        "latency": {name: {"p50": None, "p95": None} for name in ("overhead_ms", "first_byte_ms", "whole_ms")},
    }  # fmt: skip


async def test_calls_stand_in_their_buckets(client: httpx.AsyncClient, api: WiredApi, turns: TurnStore) -> None:
    now = api.clock.now()
    for n, latency in enumerate((100, 200, 300)):
        at = now - timedelta(minutes=5, seconds=n)
        await capture(turns, CapturedCall(at, latency_ms=latency, audit={"tokens": 40}))
    await capture(turns, CapturedCall(now - timedelta(minutes=40), outcome=1, events=[(0, 5)], answer=b"data: x"))
    await capture(turns, CapturedCall(now - timedelta(minutes=40), status=None))
    await capture(turns, CapturedCall(now - timedelta(hours=3)))
    found = await told(client, hours=1)
    total = found["totals"]
    assert (total["calls"], total["errors"], total["streams"]) == (5, 2, 1)
    assert (total["prompt_tokens"], total["completion_tokens"], total["cost_microcents"]) == (35, 15, 55)
    assert total["memory_tokens"] == 120
    assert total["latency"]["whole_ms"] == {"p50": 200, "p95": 290}
    assert sum(each["calls"] for each in found["buckets"]) == 5
    for each in found["buckets"]:
        since, until = (datetime.fromisoformat(each[name]) for name in ("since", "until"))
        holds = [minutes for minutes in (5, 40) if since <= now - timedelta(minutes=minutes) < until]
        assert (each["calls"] > 0) >= bool(holds)
    assert (await told(client, hours=24))["totals"]["calls"] == 6


async def test_degradations_by_reason_and_what_does_not_count(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, admin: Any
) -> None:
    at = api.clock.now() - timedelta(minutes=1)
    stored = [await capture(turns, CapturedCall(at)) for _ in range(5)]
    sql = "UPDATE agent_data.upstream_calls SET {} WHERE call_id = $1"
    degraded = "memory_status = 'degraded', reason = "
    for call, change in zip(
        stored,
        (degraded + "'deadline'", degraded + "'deadline'", degraded + "NULL",
         """metadata = '{"leg_of": "x"}'""", """metadata = '{"imported": {}}'"""),
        strict=True,
    ):  # fmt: skip
        await admin.execute(sql.format(change), call)
    total = (await told(client, hours=1))["totals"]
    assert (total["calls"], total["degraded"]) == (3, {"deadline": 2, "unknown": 1})


async def test_of_very_many_calls_some_are_read(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MAX_CALLS", 4)
    now = api.clock.now()
    for n in range(12):
        await capture(turns, CapturedCall(now - timedelta(days=3, seconds=n * 60)))
    total = (await told(client, hours=144))["totals"]
    assert total["sampled"]
    assert total["calls"] >= 4
    assert total["prompt_tokens"] == pytest.approx(7 * total["calls"], abs=7 * 2)  # rounded, in two buckets at most


async def test_whose_calls(locked: WiredApi, turns: TurnStore) -> None:
    key, row = await locked.tenancy.create_key("one", "app")
    other, _ = await locked.tenancy.create_key("two", "app")
    ana, _ = await locked.tenancy.create_key("one", "ana", user="ana")
    at = locked.clock.now() - timedelta(minutes=1)
    for user in ("ana", "ana", "bob"):
        await capture(turns, CapturedCall(at, tenant=row.tenant_id, user=user))
    async with locked.client(key) as client:
        assert (await told(client))["totals"]["calls"] == 3
        assert (await told(client, user="bob"))["totals"]["calls"] == 1
        assert (await told(client, user="nobody"))["totals"]["calls"] == 0
    async with locked.client(other) as client:
        assert (await told(client))["totals"]["calls"] == 0
        assert (await told(client, user="ana"))["totals"]["calls"] == 0, "the name is of another tenant's user"
    async with locked.client(ana) as client:
        assert (await told(client))["totals"]["calls"] == 2
        assert (await client.get(OVERVIEW, params={"user": "bob"})).status_code == 403
    async with locked.client() as client:
        assert (await client.get(OVERVIEW)).status_code == 401


@cases("hours", ["0", "-1", "745", "x", "1e9", ""])
async def test_windows_are_bounded(client: httpx.AsyncClient, hours: str) -> None:
    answer = await client.get(OVERVIEW, params={"hours": hours})
    assert answer.status_code == 400
    assert error_of(answer)["param"] == "hours"


CROWD = """
INSERT INTO agent_data.upstream_calls (call_id, tenant_id, user_id, created_at, method, path, upstream, outcome, memory_status)
SELECT overlay(agent_data.uuid7_floor(at)::text PLACING lpad(to_hex(n), 12, '0') FROM 25)::uuid, $1,
       md5((n % 40)::text)::uuid, at,
       'POST', '/v1/x', 'u', 0, 'ok'
FROM (SELECT n, $2::timestamptz - n * interval '1 minute' AS at FROM generate_series(1, 3000) n) x
"""


async def test_the_months_of_the_window_are_opened_and_no_other(
    turns: TurnStore, api: WiredApi, admin: Any, pool: Pool
) -> None:
    """By an index, a span at a time; the plan is that of the server's own role."""
    now = api.clock.now()
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
