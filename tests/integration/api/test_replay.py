"""POST /api/v1/calls/{id}/replay over real Postgres: the difference, and the answer of now beside the captured one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from app.api.auth import Authenticator
from app.api.common import add_routes, install_errors
from app.api.scope import Gate
from app.errors import UpstreamUnreachable
from app.features.calls import calls_router
from app.features.replay.recompile import ReplayStore
from app.features.replay.routes import Replayer, replay_router
from app.gateway.forward import RetryPolicy, Sender
from app.gateway.upstream import Router
from app.metrics import Metrics
from app.providers.models import ModelRegistry
from app.settings import Settings
from app.store.captures import Captures
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import ResolutionStore
from app.store.sessions import Sessions
from app.store.tenancy import KeyLimits, Tenancy
from tests.support.journey import TOKENIZERS, UPSTREAM, Reply, ScriptedTransport, completion, error, stream, user
from tests.support.replaying import ANA, TENANT, ReplayStage, make_stage
from tests.support.responses import response_of, said
from tests.support.wired_api import TTL, error_of

FACT = "Ana plays chess on Mondays."


class Desk:
    """A gateway, and the replay route beside it with an upstream of its own."""

    def __init__(self, stage: ReplayStage, pool: Pool) -> None:
        self.stage = stage
        sql = Queries.load()
        settings = Settings(upstream_base_url=UPSTREAM)
        self.tenancy = Tenancy(pool, sql, stage.clock)
        self.upstream = ScriptedTransport(lambda asked: completion("Chess, as ever."))
        captures, router = Captures(pool, sql), Router.from_settings(settings)
        transports = {False: self.upstream, True: self.upstream}
        caller = Replayer(
            Sender(transports, router, Metrics(CollectorRegistry()), stage.clock, retry=RetryPolicy()),
            captures,
            ReplayStore(pool, sql),
            ModelRegistry(),
            TOKENIZERS,
            stage.clock,
            max_bytes=10_000,
        )
        gate = Gate(Authenticator(self.tenancy, settings, stage.clock))
        self.app = FastAPI()
        install_errors(self.app)
        sessions = Sessions(pool, sql, stage.clock, ttl=TTL)
        add_routes(self.app, calls_router(gate, captures, sessions, ResolutionStore(pool, sql)))
        add_routes(self.app, replay_router(gate, captures, stage.recompiler(), caller))

    @asynccontextmanager
    async def client(self, key: str | None = None, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        given = headers | ({"x-mneme-key": key} if key is not None else {})
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://mneme", headers=given) as client:
            yield client

    async def replay(self, call: str, **wish: Any) -> dict[str, Any]:
        async with self.client(authorization="Bearer sk-upstream") as client:
            answer = await client.post(f"/api/v1/calls/{call}/replay", json=wish)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.fixture
async def desk(pool: Pool, admin: asyncpg.Connection[Any]) -> Desk:
    return Desk(await make_stage(pool, admin), pool)


async def test_messages_of_a_response_are_shown_as_those_of_a_chat(desk: Desk) -> None:
    await desk.stage.remember(FACT)
    made = [json.dumps(response_of({"model": "gpt-4o"}, [said("On Mondays.")], "resp_1")).encode()]
    desk.stage.journey.upstream.script = lambda asked: Reply(chunks=made)
    body = {"model": "gpt-4o", "instructions": "Be brief.", "input": "What about my chess?"}
    answer = await desk.stage.journey.post(json.dumps(body).encode(), path="/v1/responses")
    await desk.stage.journey.settled()
    same = await desk.replay(answer.headers["x-mneme-call-id"], mode="as_of", messages=True)
    assert same["identical"]
    assert [each["role"] for each in same["messages"]] == ["system", "user"]
    assert FACT in same["messages"][-1]["content"]


async def test_a_call_is_replayed_item_by_item(desk: Desk) -> None:
    (memory,) = await desk.stage.remember(FACT)
    call = (await desk.stage.ask([user("What about my chess?")])).headers["x-mneme-call-id"]
    same = await desk.replay(call, mode="as_of", messages=True)
    assert same["identical"]
    assert same["sha256"]["was"] == same["sha256"]["now"]
    assert same["changes"] == {"kept": 1, "moved": 0, "rescored": 0, "new": 0, "gone": 0}
    (item,) = same["items"]
    assert (item["id"], item["text"], item["change"]) == (str(memory), FACT, "kept")
    assert item["was"] == item["now"]
    assert item["was"]["rank"] == 1
    assert item["was"]["signals"]
    assert FACT in same["messages"][-1]["content"]
    assert "answer" not in same

    await desk.stage.remember("Ana's chess rating is 1900: what about my chess?")
    now = await desk.replay(call)
    assert (now["mode"], now["identical"]) == ("today", False)
    assert now["changes"]["new"] == 1
    (new,) = [each for each in now["items"] if each["change"] == "new"]
    assert new["was"] == {"rank": None, "score": None, "reason": "not_found", "signals": {}}
    assert new["now"]["reason"] == "chosen"

    await desk.stage.memories.forget(TENANT, ANA, memory)
    gone = await desk.replay(call, mode="as_of")
    (item,) = gone["items"]
    assert (item["change"], item["text"], item["now"]["reason"]) == ("gone", None, "forgotten")


async def test_a_replay_that_is_sent_compares_answers(desk: Desk, admin: asyncpg.Connection[Any]) -> None:
    await desk.stage.remember(FACT)
    call = (await desk.stage.ask([user("What about my chess?")])).headers["x-mneme-call-id"]
    tables = ("upstream_calls", "conversation_history", "compilations", "spend_entries")

    async def counted() -> list[int]:
        return [await admin.fetchval(f"SELECT count(*) FROM agent_data.{each}") for each in tables]

    before = await counted()
    told = (await desk.replay(call, mode="as_of", send=True))["answer"]
    assert told["text"]["now"] == "Chess, as ever."
    assert told["text"]["difference"][:2] == ["--- was", "+++ now"]
    assert told["finish_reason"] == {"was": ["stop"], "now": ["stop"]}
    assert told["status"] == {"was": 200, "now": 200}
    assert not told["identical"]
    (asked,) = desk.upstream.requests
    assert asked.body == desk.stage.sent()
    assert (b"authorization", b"Bearer sk-upstream") in asked.headers
    # Paid for, and nothing else: no turn, no capture, nothing to learn from.
    assert await counted() == [*before[:3], before[3] + 1]
    spent = await admin.fetchrow("SELECT * FROM agent_data.spend_entries ORDER BY call_id DESC LIMIT 1")
    assert spent is not None
    assert (spent["model"], spent["user_id"]) == ("gpt-4o", ANA)
    assert spent["cost_microcents"] > 0

    text = told["text"]["was"]
    desk.upstream.script = lambda asked: stream(text)
    again = (await desk.replay(call, mode="as_of", send=True))["answer"]
    assert again["identical"]
    assert again["text"]["difference"] == []


async def test_an_upstream_that_fails_is_a_finding(desk: Desk, admin: asyncpg.Connection[Any]) -> None:
    call = (await desk.stage.ask([user("hi")])).headers["x-mneme-call-id"]
    spent = await admin.fetchval("SELECT count(*) FROM agent_data.spend_entries")
    desk.upstream.script = lambda asked: error(429, "slow down")
    told = (await desk.replay(call, send=True))["answer"]
    assert (told["status"]["now"], told["identical"]) == (429, False)
    assert "slow down" in told["error"]["now"]
    desk.upstream.script = lambda asked: UpstreamUnreachable("nobody there")
    told = (await desk.replay(call, send=True))["answer"]
    assert told["status"]["now"] is None
    assert told["error"]["now"] == "nobody there"
    desk.upstream.script = lambda asked: completion("x" * 20_000)
    told = (await desk.replay(call, send=True))["answer"]
    assert "longer than 10000 bytes" in told["error"]["now"]
    assert await admin.fetchval("SELECT count(*) FROM agent_data.spend_entries") == spent + 1


async def test_who_may_not(desk: Desk) -> None:
    call = (await desk.stage.ask([user("hi")])).headers["x-mneme-call-id"]
    stranger, _ = await desk.tenancy.create_key("acme", "k")
    reader, _ = await desk.tenancy.create_key("local", "r", scopes={"read"})
    limited, _ = await desk.tenancy.create_key("local", "l", limits=KeyLimits(requests_per_minute=5))
    path = f"/api/v1/calls/{call}/replay"
    async with desk.client(stranger) as client:
        answer = await client.post(path)
        assert answer.status_code == 404
        assert error_of(answer)["type"] == "not_found_error"
        assert (await client.patch(f"/api/v1/calls/{call}", json={"labels": ["x"]})).status_code == 404
    async with desk.client(reader) as client:
        assert (await client.post(path, headers={"x-mneme-user": "local"})).status_code == 200
        answer = await client.post(path, json={"send": True})
        assert (answer.status_code, error_of(answer)["code"]) == (403, "missing_scope")
    async with desk.client(limited) as client:
        answer = await client.post(path, json={"send": True})
        assert (answer.status_code, error_of(answer)["code"]) == (403, "limited_key")
    async with desk.client() as client:
        for body, status in (({"mode": "never"}, 400), ({"what": 1}, 400), ([], 400)):
            assert (await client.post(path, json=body)).status_code == status
        assert (await client.post("/api/v1/calls/nonsense/replay")).status_code == 404
        off = await desk.stage.journey.ask([user("hi")], headers={"x-mneme-memory": "off"})
        answer = await client.post(f"/api/v1/calls/{off.headers['x-mneme-call-id']}/replay")
        assert (answer.status_code, error_of(answer)["code"]) == (409, "not_compiled")
