"""/api/v1/overview: every call in its bucket, whose it is, and how much is read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest

from app.features import overview as overview
from app.store.turns import TurnStore
from tests.support.calls import CapturedCall, capture
from tests.support.cases import cases
from tests.support.rows import update_rows
from tests.support.wired_api import WiredApi, error_of

OVERVIEW = "/api/v1/overview"


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
    changes = [{"memory_status": "degraded", "reason": reason} for reason in ("deadline", "deadline", None)]
    changes += [{"metadata": '{"leg_of": "x"}'}, {"metadata": '{"imported": {}}'}]
    for call, change in zip(stored, changes, strict=True):
        await update_rows(admin, "upstream_calls", {"call_id": UUID(call)}, **change)
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
