"""POST /api/v1/chat: the same call as on /v1, told whole. No worker runs here: what one would note is written by the tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app.store import ids
from app.store.pools import Pool
from app.store.tenancy import KeyLimits
from tests.support.cases import cases
from tests.support.jobs import until
from tests.support.journey import Message, Reply, completion, error, stream
from tests.support.journey import echo as echoed
from tests.support.rows import insert_row, read_messages
from tests.support.wired_api import WiredApi, build_api, error_of, make_space

MODEL = "gpt-4o"


@pytest.fixture
async def quick(pool: Pool, admin: asyncpg.Connection[Any]) -> WiredApi:
    """WiredApi that do not wait for a worker."""
    return await build_api(pool, await make_space(admin), learn_wait_ms=0)


@pytest.fixture
async def client(quick: WiredApi) -> AsyncIterator[httpx.AsyncClient]:
    async with quick.client() as client:
        yield client


async def chat(client: httpx.AsyncClient, message: str, **more: Any) -> dict[str, Any]:
    answer = await client.post("/api/v1/chat", json={"message": message, "user_id": "ana", "model": MODEL, **more})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def models(*names: str) -> Reply:
    return Reply(chunks=[json.dumps({"object": "list", "data": [{"id": name} for name in names]}).encode()])


async def test_the_answer_has_every_part_of_the_seed(client: httpx.AsyncClient, quick: WiredApi) -> None:
    """Seed 004, stage 7, field by field."""
    told = await chat(client, "What did Gai Media order last month?")
    assert list(told) == [
        "response", "augmentation", "memories_created", "entities_resolved", "conflicts", "metadata",
    ]  # fmt: skip
    assert told["response"] == {"content": "You said: What did Gai Media order last month?", "role": "assistant"}
    assert told["augmentation"] == {"retrieved_memories": [], "domain_queries": []}
    assert told["memories_created"] == []
    assert told["entities_resolved"] == []
    assert told["conflicts"] is None
    metadata = told["metadata"]
    assert metadata["llm_model"] == "gpt-4o"
    assert metadata["query_type"] == "factual_entity_focused"
    assert (metadata["retrieval_count"], metadata["extraction_count"]) == (0, 0)
    assert metadata["processing_time_ms"] >= 0
    assert (metadata["status"], metadata["reason"], metadata["learning"]) == ("ok", None, "pending")
    call = (await client.get(f"/api/v1/calls/{metadata['call_id']}")).json()
    assert (call["path"], call["user"], call["session_id"]) == ("/v1/chat/completions", "ana", metadata["session_id"])


async def test_a_session_goes_on_and_memory_comes_with_it(client: httpx.AsyncClient, quick: WiredApi) -> None:
    first = await chat(client, "My cat is called Tom.", session_id="s1")
    await chat(client, "And I live in Lisbon.", session_id=first["metadata"]["session_id"])
    sent = quick.journey.upstream.asked[-1]["messages"]
    assert [each["role"] for each in sent] == ["user", "assistant", "user"]
    other = await chat(client, "How is my cat called?")
    assert other["metadata"]["session_id"] != first["metadata"]["session_id"]
    memories = other["augmentation"]["retrieved_memories"]
    assert memories
    assert other["metadata"]["retrieval_count"] == len(memories)
    assert {each["memory_type"] for each in memories} == {"episodic"}
    scores = [each["relevance_score"] for each in memories]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= each <= 1 for each in scores)
    (cat,) = [each for each in memories if each["summary"] == "My cat is called Tom."]
    assert cat["memory_id"].startswith("episodic:")
    assert "confidence" not in cat, "nobody doubts that it was said"
    assert datetime.fromisoformat(cat["created_at"]) <= datetime.now(UTC)
    history = (await client.get("/api/v1/sessions/s1/history", params={"user": "ana"})).json()["messages"]
    assert [each["role"] for each in history] == ["user", "assistant", "user", "assistant"]


async def test_a_memory_is_told_by_its_type_with_its_confidence(client: httpx.AsyncClient) -> None:
    made = await client.post(
        "/api/v1/memories", json={"user": "ana", "text": "Gai Media prefers Friday deliveries", "kind": "preference"}
    )
    told = await chat(client, "Gai Media prefers Friday deliveries")
    (memory,) = told["augmentation"]["retrieved_memories"]
    assert memory["memory_id"] == f"semantic:{made.json()['id']}"
    assert memory["memory_type"] == "semantic"
    assert 0 < memory["confidence"] <= 1


async def test_what_is_learned_in_time_is_listed(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    api = await build_api(pool, await make_space(admin), learn_wait_ms=20_000)
    tenant, user = ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, "ana")

    async def learn() -> UUID:
        """What the worker would note."""

        async def said() -> bool:
            return bool(await read_messages(admin, role=1))

        await until(said, "the turn is stored")
        question: UUID = (await read_messages(admin, role=1))[0]["message_id"]
        own = {"user_id": user, "tenant_id": tenant, "at": datetime.now(UTC)}
        session = UUID(int=5)
        await insert_row(admin, "episodes", message_id=question, session_id=session, event_type="statement", **own)
        await insert_row(admin, "job_effects", job_key=f"learn:{question}", **own)
        return question

    async with api.client() as client:
        told, question = await asyncio.gather(chat(client, "Remember:  it is \n Friday " + "x" * 300), learn())
        assert told["metadata"]["learning"] == "done"
        (episode,) = told["memories_created"]
        assert episode["memory_id"] == f"episodic:{question}"
        assert episode["memory_type"] == "episodic"
        assert episode["summary"].startswith("User stated: Remember: it is Friday xxx")
        assert episode["summary"].endswith("x…")
        assert told["metadata"]["extraction_count"] == 1


async def test_who_does_not_wait_or_learns_nothing_is_told_so(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    api = await build_api(pool, await make_space(admin), learn_wait_ms=30_000)
    async with api.client() as client:
        async with asyncio.timeout(20):
            assert (await chat(client, "Hello", wait=False))["metadata"]["learning"] == "pending"
    async with api.client() as client:
        client.headers["X-Mneme-Memory"] = "off"
        told = (await chat(client, "Hello"))["metadata"]
        assert (told["learning"], told["status"], told["reason"]) == ("off", "bypass", "memory-off")
    async with api.client() as client:
        client.headers["X-Mneme-Memory"] = "read-only"
        assert (await chat(client, "Hello"))["metadata"]["learning"] == "off"


async def test_without_a_model_the_default_or_the_upstreams_first(
    client: httpx.AsyncClient, quick: WiredApi, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    upstream = quick.journey.upstream
    upstream.script = lambda asked: echoed(asked) if asked else models("first", "second")
    for _ in range(2):
        answer = await client.post("/api/v1/chat", json={"message": "Hello", "user": "ana"})
        assert answer.status_code == 200, answer.text
    assert [each.get("model") for each in upstream.asked] == ["first", "first"]
    assert len(upstream.requests) == 3, "the list is asked for once"
    upstream.script = lambda asked: models()
    async with quick.client("sk-other") as other:
        refused = await other.post("/api/v1/chat", json={"message": "Hello", "user": "ana"})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "model")
    api = await build_api(pool, await make_space(admin), learn_wait_ms=0, default_model="mine")
    async with api.client() as own:
        await own.post("/api/v1/chat", json={"message": "Hello"})
    assert [each["model"] for each in api.journey.upstream.asked] == ["mine"]


async def test_what_is_given_goes_upstream(client: httpx.AsyncClient, quick: WiredApi) -> None:
    await chat(client, "Hello", temperature=0.3, max_tokens=800, metadata={"page": "home"})
    assert quick.journey.upstream.asked == [
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": "Hello"}],
            "temperature": 0.3,
            "max_tokens": 800,
            "metadata": {"page": "home"},
        }
    ]


@cases(
    ("body", "param"),
    [
        ({}, "message"),
        ({"message": ""}, "message"),
        ({"message": ["Hello"]}, "message"),
        ({"message": "Hello", "stream": True}, "stream"),
        ({"message": "Hello", "temperature": 3}, "temperature"),
        ({"message": "Hello", "max_tokens": 0}, "max_tokens"),
        ({"message": "Hello", "user_id": "ana", "user": "bo"}, "user_id"),
        ({"message": "Hello", "user_id": " ana"}, "user_id"),
        ({"message": "Hello", "session_id": "s "}, "session_id"),
        ({"message": "Hello", "session_id": ""}, "session_id"),
        ({"message": "Hello", "mesage": "Hello"}, "mesage"),
        ({"message": "Hello", "metadata": "home"}, "metadata"),
    ],
)
async def test_bad_input_is_named(client: httpx.AsyncClient, quick: WiredApi, body: Message, param: str) -> None:
    answer = await client.post("/api/v1/chat", json={"model": MODEL, **body})
    assert (answer.status_code, error_of(answer)["param"]) == (400, param)
    assert not quick.journey.upstream.requests


async def test_errors_of_the_upstream_stay_what_they_are(client: httpx.AsyncClient, quick: WiredApi) -> None:
    body = {"message": "Hello", "user_id": "ana", "model": MODEL}
    quick.journey.upstream.script = lambda asked: error(429, "slow down", [(b"retry-after", b"7")])
    answer = await client.post("/api/v1/chat", json=body)
    assert (answer.status_code, error_of(answer)["message"]) == (429, "slow down")
    assert answer.headers["retry-after"] == "7"
    assert answer.headers["x-mneme-call-id"]
    quick.journey.upstream.script = lambda asked: Reply(502, [(b"content-type", b"text/html")], [b"<h1>no</h1>"])
    answer = await client.post("/api/v1/chat", json=body)
    assert (answer.status_code, error_of(answer)["message"]) == (502, "<h1>no</h1>")
    for nonsense in (Reply(chunks=[b"[]"]), Reply(chunks=[b'{"choices": []}']), stream("Hel", "lo"), completion()):
        quick.journey.upstream.script = lambda asked, reply=nonsense: reply  # type: ignore[misc]
        answer = await client.post("/api/v1/chat", json=body)
        assert (answer.status_code, error_of(answer)["code"]) == (502, "upstream_answer")


async def test_a_text_that_is_none(client: httpx.AsyncClient, quick: WiredApi) -> None:
    quick.journey.upstream.script = lambda asked: completion(None)
    assert (await chat(client, "Hello"))["response"] == {"content": None, "role": "assistant"}
    quick.journey.upstream.script = lambda asked: completion(None, refusal="I cannot")
    assert (await chat(client, "Hello"))["response"]["content"] == "I cannot"


async def test_a_repeated_key_makes_no_second_turn(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    body = {"message": "Hello", "user_id": "ana", "model": MODEL, "session_id": "s1"}
    first, second = [(await client.post("/api/v1/chat", json=body, headers=headers)).json() for _ in range(2)]
    assert second["response"] == first["response"]
    assert second["metadata"]["reason"] == "replayed"
    assert second["metadata"]["session_id"] == first["metadata"]["session_id"]
    assert second["memories_created"] == []
    history = (await client.get("/api/v1/sessions/s1/history", params={"user": "ana"})).json()["messages"]
    assert len(history) == 2


async def test_keys_may_do_here_what_they_may_do_on_v1(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    api = await build_api(pool, await make_space(admin), auth="keys", learn_wait_ms=0)
    body = {"message": "Hello", "user_id": "ana", "model": MODEL}
    async with api.client() as nobody:
        assert (await nobody.post("/api/v1/chat", json=body)).status_code == 401
    reads, _ = await api.tenancy.create_key("acme", "reads", scopes=["read", "write"])
    async with api.client(reads) as client:
        refused = await client.post("/api/v1/chat", json=body)
        assert (refused.status_code, error_of(refused)["code"]) == (403, "missing_scope")
    whole, _ = await api.tenancy.create_key("acme", "whole")
    async with api.client(whole) as client:
        told = await chat(client, "Hello")
        assert told["response"]["content"] == "You said: Hello"
        nameless = await client.post("/api/v1/chat", json={"message": "Hello", "model": MODEL})
        assert (nameless.status_code, error_of(nameless)["param"]) == (400, "user")
    sent = [name.lower() for name, _ in api.journey.upstream.requests[-1].headers]
    assert not [name for name in sent if name.startswith(b"x-mneme")]
    assert b"mneme_" not in b"".join(value for _, value in api.journey.upstream.requests[-1].headers)
    own, _ = await api.tenancy.create_key("acme", "own", user="bo")
    async with api.client(own) as client:
        assert (await client.post("/api/v1/chat", json=body)).status_code == 403
        assert (await client.post("/api/v1/chat", json={"message": "Hello", "model": MODEL})).status_code == 200


async def test_limits_hold_here_as_they_do_on_v1(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    api = await build_api(pool, await make_space(admin), auth="keys", learn_wait_ms=0)
    limited, _ = await api.tenancy.create_key("acme", "slow", limits=KeyLimits(requests_per_minute=1))
    async with api.client(limited) as client:
        await chat(client, "Hello")
        refused = await client.post("/api/v1/chat", json={"message": "Hello", "user_id": "ana", "model": MODEL})
    assert (refused.status_code, error_of(refused)["code"]) == (429, "rate_limit_exceeded")
    assert refused.headers["retry-after"]
    assert refused.headers["x-ratelimit-limit-requests"] == "1"
    assert len(api.journey.upstream.requests) == 1
