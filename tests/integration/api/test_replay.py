"""POST /api/v1/calls/{id}/replay over real Postgres: the answer of now beside the captured one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

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
from app.features.replay.routes import Replayer, replay_router
from app.features.replay.store import ReplayStore
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
from tests.support.responses import response_of, said
from tests.support.rows import count_rows, read_spend, update_rows
from tests.support.stored_stage import ANA, TENANT, StoredStage, make_stage
from tests.support.wired_api import TTL, error_of

FACT = "Ana plays chess on Mondays."


class Desk:
    """A gateway, and the replay route beside it with an upstream of its own."""

    def __init__(self, stage: StoredStage, pool: Pool, settings: Settings | None = None) -> None:
        self.stage = stage
        sql = Queries.load()
        settings = settings or Settings(upstream_base_url=UPSTREAM)
        self.tenancy = Tenancy(pool, sql, stage.clock)
        self.upstream = ScriptedTransport(lambda asked: completion("Chess, as ever."))
        captures, router = Captures(pool, sql), Router.from_settings(settings)
        transports = {False: self.upstream, True: self.upstream}
        replayer = Replayer(
            Sender(transports, router, Metrics(CollectorRegistry()), stage.clock, retry=RetryPolicy()),
            router,
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
        add_routes(self.app, replay_router(gate, replayer))

    @asynccontextmanager
    async def client(self, key: str | None = None, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        given = headers | ({"x-mneme-key": key} if key is not None else {})
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://mneme", headers=given) as client:
            yield client

    async def replay(self, call: str) -> dict[str, Any]:
        async with self.client(authorization="Bearer sk-upstream") as client:
            answer = await client.post(f"/api/v1/calls/{call}/replay")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        assert found["call_id"] == call
        compared: dict[str, Any] = found["answer"]
        return compared


@pytest.fixture
async def desk(pool: Pool, admin: asyncpg.Connection[Any]) -> Desk:
    return Desk(await make_stage(pool, admin), pool)


async def test_the_stored_request_is_sent_and_the_answers_compared(desk: Desk, admin: asyncpg.Connection[Any]) -> None:
    (memory,) = await desk.stage.remember(FACT)
    call = (await desk.stage.ask([user("What about my chess?")])).headers["x-mneme-call-id"]
    stored = ("upstream_calls", "conversation_history", "compilations")
    before = await count_rows(admin, *stored), await count_rows(admin, "spend_entries")
    compared = await desk.replay(call)
    assert compared["text"]["now"] == "Chess, as ever."
    assert compared["text"]["difference"][:2] == ["--- was", "+++ now"]
    assert compared["finish_reason"] == {"was": ["stop"], "now": ["stop"]}
    assert compared["status"] == {"was": 200, "now": 200}
    assert not compared["identical"]
    (asked,) = desk.upstream.requests
    assert asked.body == desk.stage.sent()
    assert FACT.encode() in asked.body
    assert (b"authorization", b"Bearer sk-upstream") in asked.headers
    # It was paid for, and nothing else: no turn, no capture, nothing to learn from.
    assert (await count_rows(admin, *stored), await count_rows(admin, "spend_entries")) == (before[0], before[1] + 1)
    spent = (await read_spend(admin))[-1]
    assert (spent["model"], spent["user_id"]) == ("gpt-4o", ANA)
    assert spent["cost_microcents"] > 0

    # Whatever memory and the settings are by now, the same bytes go out.
    await desk.stage.remember("Ana's chess rating is 1900: what about my chess?")
    await desk.stage.memories.forget(TENANT, ANA, memory)
    text = compared["text"]["was"]
    desk.upstream.script = lambda asked: stream(text)
    compared = await desk.replay(call)
    assert compared["identical"]
    assert compared["text"]["difference"] == []
    assert desk.upstream.requests[-1].body == asked.body


async def send_response(desk: Desk) -> str:
    made = [json.dumps(response_of({"model": "gpt-4o"}, [said("On Mondays.")], "resp_1")).encode()]
    desk.stage.journey.upstream.script = desk.upstream.script = lambda asked: Reply(chunks=made)
    body = {"model": "gpt-4o", "instructions": "Be brief.", "input": "What about my chess?"}
    answer = await desk.stage.journey.post(json.dumps(body).encode(), path="/v1/responses")
    await desk.stage.journey.settled()
    return answer.headers["x-mneme-call-id"]


async def send_without_memory(desk: Desk) -> str:
    answer = await desk.stage.journey.ask([user("hi")], headers={"x-mneme-memory": "off"})
    desk.upstream.script = lambda asked: completion(answer.text)
    return answer.headers["x-mneme-call-id"]


async def send_in_a_session(desk: Desk) -> str:
    """Send a request whose earlier turns Mneme supplies."""
    await desk.stage.ask([user("I keep bees.")], session="s")
    answer = await desk.stage.ask([user("What do I keep?")], session="s")
    desk.upstream.script = lambda asked: completion(answer.text)
    return answer.headers["x-mneme-call-id"]


async def send_streamed(desk: Desk) -> str:
    answer = await desk.stage.ask([user("What about my chess?")], stream=True)
    desk.upstream.script = lambda asked: Reply(200, [(b"content-type", b"text/event-stream")], [answer.body])
    return answer.headers["x-mneme-call-id"]


@pytest.mark.parametrize("send", [send_response, send_without_memory, send_in_a_session, send_streamed])
async def test_each_kind_of_chat_is_sent_as_it_was(desk: Desk, send: Callable[[Desk], Awaitable[str]]) -> None:
    await desk.stage.remember(FACT)
    compared = await desk.replay(await send(desk))
    assert desk.upstream.requests[-1].body == desk.stage.sent()
    assert compared["identical"], compared


async def test_another_upstream_gets_its_own_name_for_the_model(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin)
    call = (await stage.ask([user("hi")])).headers["x-mneme-call-id"]
    upstream = {"name": "other", "base_url": UPSTREAM, "models": ["*"], "aliases": {"gpt-4o": "gpt-4.1"}}
    desk = Desk(stage, pool, Settings(upstreams=[upstream]))
    compared = await desk.replay(call)
    assert compared["upstream"] == "other"
    (asked,) = desk.upstream.requests
    assert isinstance(asked.body, bytes)
    assert json.loads(asked.body) == json.loads(stage.sent()) | {"model": "gpt-4.1"}


async def test_an_upstream_that_fails_is_a_finding(desk: Desk, admin: asyncpg.Connection[Any]) -> None:
    call = (await desk.stage.ask([user("hi")])).headers["x-mneme-call-id"]
    spent = await count_rows(admin, "spend_entries")
    desk.upstream.script = lambda asked: error(429, "slow down")
    compared = await desk.replay(call)
    assert (compared["status"]["now"], compared["identical"]) == (429, False)
    assert "slow down" in compared["error"]["now"]
    desk.upstream.script = lambda asked: UpstreamUnreachable("nobody there")
    compared = await desk.replay(call)
    assert compared["status"]["now"] is None
    assert compared["error"]["now"] == "nobody there"
    desk.upstream.script = lambda asked: completion("x" * 20_000)
    compared = await desk.replay(call)
    assert "longer than 10000 bytes" in compared["error"]["now"]
    assert await count_rows(admin, "spend_entries") == spent + 1


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
    for key, code in ((reader, "missing_scope"), (limited, "limited_key")):
        async with desk.client(key) as client:
            answer = await client.post(path, headers={"x-mneme-user": "local"})
            assert (answer.status_code, error_of(answer)["code"]) == (403, code)
    assert desk.upstream.requests == []


REMOVED = [
    ({"mode": "as_of"}, "mode", "leave `mode` out"),
    ({"mode": "today", "send": True}, "mode", "leave `mode` out"),
    ({"send": True}, "send", "leave `send` out"),
    ({"send": False}, "send", "leave `send` out"),
    ({"messages": True}, "messages", "/request?sent=true"),
]


@pytest.mark.parametrize(("body", "param", "instead"), REMOVED)
async def test_a_removed_field_is_refused_with_what_replaces_it(
    desk: Desk, body: dict[str, Any], param: str, instead: str
) -> None:
    call = (await desk.stage.ask([user("hi")])).headers["x-mneme-call-id"]
    async with desk.client() as client:
        answer = await client.post(f"/api/v1/calls/{call}/replay", json=body)
    refusal = error_of(answer)
    assert (answer.status_code, refusal["type"], refusal["code"]) == (400, "invalid_request_error", "removed_field")
    assert refusal["param"] == param
    assert instead in refusal["message"]
    assert desk.upstream.requests == []


async def test_what_cannot_be_sent_again_says_why(desk: Desk, admin: asyncpg.Connection[Any]) -> None:
    call = (await desk.stage.ask([user("hi")])).headers["x-mneme-call-id"]
    desk.stage.journey.upstream.script = lambda asked: Reply(chunks=[b'{"data": []}'])
    embedded = await desk.stage.journey.post(b'{"model": "m", "input": "x"}', path="/v1/embeddings")
    await desk.stage.journey.settled()
    async with desk.client() as client:
        for body in (b'{"what": 1}', b"[]"):
            assert (await client.post(f"/api/v1/calls/{call}/replay", content=body)).status_code == 400
        assert (await client.post("/api/v1/calls/nonsense/replay")).status_code == 404

        async def refuse(identity: str) -> tuple[int, Any]:
            answer = await client.post(f"/api/v1/calls/{identity}/replay")
            return answer.status_code, error_of(answer)["code"]

        assert await refuse(embedded.headers["x-mneme-call-id"]) == (409, "not_a_chat")
        for metadata, code in (({"captured": False}, "not_captured"), ({"redacted": ["sent"]}, "capture_redacted")):
            await update_rows(admin, "upstream_calls", {"call_id": UUID(call)}, metadata=json.dumps(metadata))
            assert await refuse(call) == (409, code)
    assert desk.upstream.requests == []
