"""Health, metrics and the queue."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx
import pytest

from app.api import probes
from app.errors import NotReady
from app.store.ids import LOCAL_TENANT
from tests.support.rows import insert_row, read_jobs
from tests.support.wired_api import WiredApi, all_pages, error_of


async def test_alive(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "alive"}
    assert (await client.head("/healthz")).status_code == 200


async def test_ready_only_when_everything_is(
    client: httpx.AsyncClient, api: WiredApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    state: dict[str, Exception | None] = {"embedder": NotReady("the weights are missing"), "pool": None}

    def check(name: str) -> Any:
        async def look() -> None:
            if error := state[name]:
                raise error

        return look

    api.checks.update({name: check(name) for name in state})
    cold = await client.get("/readyz")
    assert cold.status_code == 503
    assert cold.json() == {"ready": False, "checks": {"embedder": "the weights are missing", "pool": "ok"}}
    assert (await client.head("/readyz")).status_code == 503
    state["embedder"] = None
    warm = await client.get("/readyz")
    assert warm.status_code == 200
    assert warm.json()["ready"] is True

    async def hang() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(probes, "CHECK_TIMEOUT_S", 0.01)
    api.checks["hangs"] = hang
    assert (await client.get("/readyz")).json()["checks"]["hangs"] == "no answer within 0.01 s"


async def test_metrics_are_shown(client: httpx.AsyncClient, api: WiredApi) -> None:
    api.metrics.request("chat", "complete", "ok")
    api.metrics.degraded("retrieval-timeout")
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'mneme_requests_total{kind="chat",memory="ok",outcome="complete"} 1.0' in answer.text
    assert 'mneme_degradations_total{reason="retrieval-timeout"} 1.0' in answer.text
    opened = await client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert opened.text.endswith("# EOF\n")


async def dead(admin: asyncpg.Connection[Any], n: int, tenant: object = LOCAL_TENANT) -> None:
    for i in range(n):
        await bury(admin, f'{{"tenant": "{tenant}", "n": {i}}}'.encode())


async def bury(admin: asyncpg.Connection[Any], payload: bytes) -> None:
    dead = {"priority": 0, "entrypoint": "learn", "status": "failed", "attempts": 5}
    await insert_row(admin, "pgqueuer", payload=payload, **dead)


@pytest.mark.parametrize("payload", [b"", b"\xff\xfe", b"no json", b"[1]", b'"x"', b'{"a": "\\u0000"}', b"[" * 100_000])
async def test_a_payload_that_cannot_be_read_hides_no_other(
    client: httpx.AsyncClient, admin: asyncpg.Connection[Any], api: WiredApi, payload: bytes
) -> None:
    await dead(admin, 1)
    await bury(admin, payload)
    assert (await client.get("/api/v1/queue")).json() == {"queued": 0, "running": 0, "dead": 1}, "it is nobody's"
    listed = (await client.get("/api/v1/queue/dead")).json()["dead"]
    assert [each["payload"]["n"] for each in listed] == [0]
    assert (await api.queue.counts()).dead == 2
    letters, _ = await api.queue.dead_letters()
    assert [each.payload.get("n") for each in letters] == [None, 0]
    unreadable = letters[0].id
    assert (await client.post(f"/api/v1/queue/dead/{unreadable}/retry")).status_code == 404


async def test_a_body_that_does_not_say_that_it_is_json_is_told_so(client: httpx.AsyncClient) -> None:
    for headers in ({}, {"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}):
        answer = await client.post("/api/v1/users", content=b'{"id": "ana"}', headers=headers)
        assert answer.status_code == 400
        assert "Content-Type: application/json" in error_of(answer)["message"]
    assert (await client.get("/api/v1/users")).json()["users"] == []


async def test_storage_is_told_to_the_operator(locked: WiredApi) -> None:
    whole, _ = await locked.tenancy.create_key("local", "ops")
    one, _ = await locked.tenancy.create_key("local", "one", user="ana")
    other, _ = await locked.tenancy.create_key("t", "other")
    async with locked.client(whole) as client:
        told = (await client.get("/api/v1/storage")).json()
        assert told["bytes"] == sum(told["groups"].values()) > 0
    for key in (one, other):
        async with locked.client(key) as client:
            assert (await client.get("/api/v1/storage")).status_code == 403


async def test_the_queue_is_counted(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    assert (await client.get("/api/v1/queue")).json() == {"queued": 0, "running": 0, "dead": 0}
    body = {"user": "ana", "messages": [{"role": "user", "content": "x"}]}
    await client.post("/api/v1/sessions/s/messages", json=body)
    await dead(admin, 2)
    assert (await client.get("/api/v1/queue")).json() == {"queued": 1, "running": 0, "dead": 2}


async def test_dead_letters_are_seen_and_tried_again(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    await dead(admin, 5)
    rows = await all_pages(client, "/api/v1/queue/dead", "dead", limit=2)
    assert [each["payload"]["n"] for each in rows] == [4, 3, 2, 1, 0]
    job = rows[0]["id"]
    assert (await client.post(f"/api/v1/queue/dead/{job}/retry")).json() == {"id": job, "retried": True}
    assert (await client.get("/api/v1/queue")).json() == {"queued": 1, "running": 0, "dead": 4}
    again = await client.post(f"/api/v1/queue/dead/{job}/retry")
    assert again.status_code == 404
    error_of(again)


async def test_dead_letters_of_another_tenant(api: WiredApi, admin: asyncpg.Connection[Any]) -> None:
    key, row = await api.tenancy.create_key("acme", "k")
    await dead(admin, 1, row.tenant_id)
    job = (await read_jobs(admin))[0]["id"]
    async with api.client() as client:
        assert (await client.get("/api/v1/queue/dead")).json()["dead"] == []
        assert (await client.get("/api/v1/queue")).json()["dead"] == 0
        assert (await client.post(f"/api/v1/queue/dead/{job}/retry")).status_code == 404
    async with api.client(key) as client:
        assert len((await client.get("/api/v1/queue/dead")).json()["dead"]) == 1
