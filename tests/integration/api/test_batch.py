"""POST /api/v1/memories/batch over real Postgres, and searches by tags and metadata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app.api.search import WIDER
from app.context.request import SearchResult
from app.context.score import Scored
from app.errors import StoreUnavailable
from app.store.memories import Memories
from tests.support.cases import cases
from tests.support.context_samples import memory, message
from tests.support.rows import read_messages
from tests.support.wired_api import WiredApi, all_pages, error_of

BATCH = "/api/v1/memories/batch"


async def send(client: httpx.AsyncClient, **body: Any) -> list[dict[str, Any]]:
    answer = await client.post(BATCH, json=body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["failed"] == sum(each["done"] == "failed" for each in found["results"])
    results: list[dict[str, Any]] = found["results"]
    return results


def ends(results: Sequence[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return [(each["op"], each["index"], each["done"]) for each in results]


async def texts(client: httpx.AsyncClient, **query: Any) -> set[str]:
    return {each["text"] for each in await all_pages(client, "/api/v1/memories", "memories", **query)}


async def test_many_are_made_changed_and_forgotten(client: httpx.AsyncClient) -> None:
    made = await send(
        client,
        create=[
            {"user": "ana", "text": "Likes tea", "tags": ["drinks"], "session": "s"},
            {"user": "bob", "text": "Likes tea"},
            {"user": "ana", "text": "likes   TEA."},
            {"user": "ana", "text": "Has a boat"},
        ],
    )
    assert ends(made) == [("create", 0, "created"), ("create", 1, "created"), ("create", 2, "reinforced"),
                          ("create", 3, "created")]  # fmt: skip
    assert made[0]["id"] == made[2]["id"] != made[1]["id"]
    done = await send(
        client,
        update=[
            {"id": made[0]["id"], "text": "Likes green tea", "metadata": {"by": "batch"}},
            {"id": made[1]["id"], "importance": 0.9},
        ],
        delete=[made[3]["id"]],
    )
    assert ends(done) == [("update", 0, "updated"), ("update", 1, "updated"), ("delete", 0, "deleted")]
    assert await texts(client, user="ana") == {"Likes green tea"}
    read = (await client.get(f"/api/v1/memories/{made[0]['id']}")).json()
    assert (read["metadata"], read["tags"], read["session"]) == ({"by": "batch"}, ["drinks"], "s")
    told = (await client.get(f"/api/v1/memories/{made[0]['id']}/history")).json()["events"]
    assert [each["event"] for each in told] == ["created", "reinforced", "edited"]


async def test_what_fails_does_so_alone(client: httpx.AsyncClient) -> None:
    one, two = await send(client, create=[{"user": "ana", "text": "Likes tea"}, {"user": "ana", "text": "Has a boat"}])
    results = await send(
        client,
        create=[{"user": "ana", "text": "Speaks French"}],
        update=[
            {"id": one["id"], "text": "Has a boat"},
            {"id": one["id"]},
            {"id": str(UUID(int=5)), "importance": 1},
            {"id": "nonsense", "importance": 1},
            {"id": one["id"], "text": "Likes coffee"},
        ],
        delete=[two["id"], two["id"]],
    )
    assert [each["done"] for each in results] == [
        "created", "failed", "failed", "failed", "failed", "updated", "deleted", "failed",
    ]  # fmt: skip
    assert [each["error"]["type"] for each in results if each["error"]] == [
        "conflict_error", "invalid_request_error", "not_found_error", "not_found_error", "not_found_error",
    ]  # fmt: skip
    assert await texts(client, user="ana") == {"Speaks French", "Likes coffee"}


@cases(
    "body",
    [
        {},
        {"create": []},
        {"create": [{"text": " "}]},
        {"update": [{"importance": 1}]},
        {"delete": [1]},
        {"delete": ["x"] * 1001},
        {"delete": ["x"] * 600, "update": [{"id": "x", "importance": 1}] * 401},
        {"remove": ["x"]},
        [],
    ],
)
async def test_a_batch_that_is_none_is_refused_whole(client: httpx.AsyncClient, body: Any) -> None:
    answer = await client.post(BATCH, json=body)
    assert answer.status_code == 400
    error_of(answer)
    assert await texts(client) == set()


async def test_once_the_database_is_away_the_rest_is_not_tried(
    client: httpx.AsyncClient, api: WiredApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = Memories.add, list[int]()

    async def away(self: Memories, *arguments: Any) -> Any:
        tries.append(1)
        if len(tries) == 2:
            raise StoreUnavailable
        return await real(self, *arguments)

    monkeypatch.setattr(Memories, "add", away)
    results = await send(client, create=[{"user": "ana", "text": f"Fact {n}"} for n in range(5)])
    assert [each["done"] for each in results] == ["created"] + ["failed"] * 4
    assert {each["error"]["type"] for each in results[1:]} == {"service_unavailable"}
    assert len(tries) == 2


async def test_a_batch_stays_in_its_tenant_and_with_its_user(locked: WiredApi) -> None:
    acme, _ = await locked.tenancy.create_key("acme", "k")
    other, _ = await locked.tenancy.create_key("other", "k")
    bobs, _ = await locked.tenancy.create_key("acme", "k", user="bob")
    async with locked.client(acme) as first, locked.client(other) as second, locked.client(bobs) as bob:
        (made,) = await send(first, create=[{"user": "ana", "text": "Likes tea"}])
        for stranger in (second, bob):
            done = await send(stranger, update=[{"id": made["id"], "text": "x"}], delete=[made["id"]])
            assert {each["error"]["type"] for each in done} == {"not_found_error"}
        (refused,) = await send(bob, create=[{"user": "ana", "text": "Mine"}])
        assert refused["error"]["type"] == "permission_error"
        (own,) = await send(bob, create=[{"text": "Mine"}])
        assert own["done"] == "created"
        assert await texts(first, user="ana") == {"Likes tea"}
        assert await texts(second) == set()


async def test_a_thousand_at_once(client: httpx.AsyncClient) -> None:
    made = await send(client, create=[{"user": "ana", "text": f"Fact number {n}"} for n in range(200)])
    assert {each["done"] for each in made} == {"created"}
    assert len(await texts(client, user="ana", limit=1000)) == 200
    gone = await send(client, delete=[each["id"] for each in made])
    assert {each["done"] for each in gone} == {"deleted"}


# --- tags and metadata -----------------------------------------------------------------------------------------------


async def test_a_search_by_tags_and_metadata_keeps_the_order_and_the_limits(
    client: httpx.AsyncClient, api: WiredApi, admin: asyncpg.Connection[Any]
) -> None:
    made = await send(
        client,
        create=[
            {
                "user": "ana",
                "text": f"Fact {n}",
                "tags": ["odd" if n % 2 else "even", "all"],
                "metadata": {"n": {"is": n}},
            }
            for n in range(6)
        ],
    )
    said = await client.post(
        "/api/v1/sessions/s/messages",
        json={"user": "ana", "messages": [{"role": "user", "content": "hello there", "metadata": {"n": {"is": 3}}}]},
    )
    raw = UUID(said.json()["messages"][0]["id"])
    ((at,),) = [[row["created_at"]] for row in await read_messages(admin, message_id=raw)]
    found = [message(99, "hello there")._replace(id=raw, created_at=at)]
    found += [memory(n, f"Fact {n}")._replace(id=UUID(each["id"])) for n, each in enumerate(made)]
    api.searcher.result = SearchResult(
        [Scored(each, 1 - n / 10, 0.8, ("similarity",), (0.5,)) for n, each in enumerate(found)], 10, {}
    )

    async def search(**body: Any) -> list[str]:
        answer = await client.post("/api/v1/memories/search", json={"user": "ana", "query": "x"} | body)
        assert answer.status_code == 200, answer.text
        return [each["text"] for each in answer.json()["items"]]

    assert len(await search()) == 7
    assert await search(tags=["odd"]) == ["Fact 1", "Fact 3", "Fact 5"]
    assert await search(tags=["odd", "all"], k=2) == ["Fact 1", "Fact 3"]
    assert await search(tags=["odd", "even"]) == []
    assert await search(metadata={"n": {"is": 3}}) == ["hello there", "Fact 3"]
    assert await search(metadata={"n": {"is": 3}}, tags=["all"]) == ["Fact 3"]
    budget = found[2].token_count + found[4].token_count
    assert await search(tags=["odd"], token_budget=budget) == ["Fact 1", "Fact 3"]
    asked = api.searcher.asked[-1]
    assert (asked.k, asked.token_budget) == (None, WIDER * budget)


async def test_memories_are_listed_by_tags_and_metadata(client: httpx.AsyncClient) -> None:
    await send(
        client,
        create=[
            {"user": "ana", "text": "One", "tags": ["a", "b"], "metadata": {"x": 1}},
            {"user": "ana", "text": "Two", "tags": ["a"], "metadata": {"x": 2, "y": []}},
            {"user": "bob", "text": "Three", "tags": ["a"]},
        ],
    )
    assert await texts(client, tag=["a"]) == {"One", "Two", "Three"}
    assert await texts(client, user="ana", tag=["a", "b"]) == {"One"}
    assert await texts(client, user="ana", metadata='{"y": []}') == {"Two"}
    assert await texts(client, tag=["none"]) == set()
