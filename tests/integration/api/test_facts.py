"""/api/v1/users/{user}/facts and …/profile over real Postgres (seed 003 §6)."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import httpx

from tests.support.cases import cases
from tests.support.rows import find_tables
from tests.support.wired_api import WiredApi, all_pages, error_of

FACTS = "/api/v1/users/ana/facts"


async def put(client: httpx.AsyncClient, key: str, value: Any, **fields: Any) -> dict[str, Any]:
    answer = await client.put(f"{FACTS}/{key}", json={"value": value} | fields)
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_the_seeds_example_is_kept_changed_and_told(client: httpx.AsyncClient) -> None:
    """Seed 003, verification: `role: Python Developer`, then `role: Senior Python Developer`."""
    first = await client.put(f"{FACTS}/role", json={"value": {"title": "Python Developer"}, "category": "professional"})
    assert first.status_code == 201
    assert first.json()["confidence"] == 95
    second = await put(client, "role", {"title": "Senior Python Developer", "years_experience": 5}, confidence=80)

    assert second["id"] == first.json()["id"], "one category has this key: it is meant"
    assert second["category"] == "professional"
    listed = (await client.get(FACTS)).json()
    assert listed == {"facts": [second], "next": None}
    told = (await client.get(f"{FACTS}/role/history")).json()["changes"]
    assert [(each["event"], each["actor"], each["confidence"]) for each in told] == [
        ("created", "api", 95),
        ("changed", "api", 80),
    ]
    assert told[0]["value"] == {"title": "Python Developer"}


async def test_facts_are_found_by_what_their_value_contains(client: httpx.AsyncClient) -> None:
    await put(client, "role", {"title": "Developer", "years": 5})
    await put(client, "lives_in", "Lisbon")

    async def found(value: str) -> list[str]:
        answer = await client.get(FACTS, params={"value": value})
        assert answer.status_code == 200, answer.text
        return [each["key"] for each in answer.json()["facts"]]

    assert await found('{"years": 5}') == ["role"]
    assert await found('"Lisbon"') == ["lives_in"]
    assert await found('{"years": 6}') == []
    refused = await client.get(FACTS, params={"value": "{"})
    assert (refused.status_code, error_of(refused)["param"]) == (400, "value")


async def test_a_rating_changes_nothing_else(client: httpx.AsyncClient) -> None:
    made = await put(client, "lives_in", "Lisbon")
    rated = await client.patch(f"{FACTS}/lives_in", json={"confidence": 40})
    assert rated.status_code == 200
    assert rated.json() | {"last_updated": None} == made | {"confidence": 40, "last_updated": None}
    assert (await client.get(f"{FACTS}/lives_in/history")).json()["changes"][-1]["event"] == "rated"
    assert (await client.patch(f"{FACTS}/none", json={"confidence": 40})).status_code == 404


async def test_a_key_goes_where_it_belongs(client: httpx.AsyncClient) -> None:
    where = {"lives_in": "personal", "wife.occupation": "professional", "likes": "preference", "shoe size": "personal"}
    for key, category in where.items():
        assert (await put(client, key, "x"))["category"] == category


async def test_of_two_with_one_key_one_must_be_named(client: httpx.AsyncClient) -> None:
    await put(client, "name", "Ana")
    await put(client, "name", "Anabela", category="professional")

    for method, body in (("GET", None), ("PUT", {"value": 1}), ("PATCH", {"confidence": 1}), ("DELETE", None)):
        answer = await client.request(method, f"{FACTS}/name", json=body)
        assert answer.status_code == 409, method
        assert error_of(answer)["param"] == "category"
    one = await client.get(f"{FACTS}/name", params={"category": "professional"})
    assert one.json()["value"] == "Anabela"
    profile = (await client.get("/api/v1/users/ana/profile")).json()
    assert profile == {"user": "ana", "profile": {"personal": {"name": "Ana"}, "professional": {"name": "Anabela"}}}


async def test_a_deleted_fact_leaves_no_words(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    await put(client, "lives_in", "Lisbon")
    await put(client, "lives_in", "Porto")
    gone = await client.delete(f"{FACTS}/lives_in")

    assert gone.status_code == 200
    assert (await client.get(f"{FACTS}/lives_in")).status_code == 404
    assert (await client.delete(f"{FACTS}/lives_in")).status_code == 404
    told = (await client.get(f"{FACTS}/lives_in/history")).json()["changes"]
    assert [each["event"] for each in told] == ["created", "changed", "deleted"]
    assert await find_tables(admin, "Lisbon", "Porto") == set()
    assert (await put(client, "lives_in", "Porto"))["value"] == "Porto", "a client may say it again"


async def test_many_at_once_make_one_fact(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.put(f"{FACTS}/lives_in", json={"value": f"Town {n}"}) for n in range(8)))
    assert sorted(each.status_code for each in answers) == [200] * 7 + [201]
    (fact,) = (await client.get(FACTS)).json()["facts"]
    told = (await client.get(f"{FACTS}/lives_in/history")).json()["changes"]
    assert [each["event"] for each in told] == ["created"] + ["changed"] * 7
    assert {each["value"] for each in told} == {f"Town {n}" for n in range(8)}
    assert fact["value"] == told[-1]["value"]


async def test_pages_hold_every_fact_once(client: httpx.AsyncClient) -> None:
    for n in range(7):
        await put(client, f"key{n}", n, category="abc"[n % 3])
    rows = await all_pages(client, FACTS, "facts", limit=2)
    assert [(each["category"], each["key"]) for each in rows] == sorted(("abc"[n % 3], f"key{n}") for n in range(7))
    assert len(await all_pages(client, FACTS, "facts", limit=2, category="a")) == 3
    changes = await all_pages(client, f"{FACTS}/key0/history", "changes", limit=1)
    assert len(changes) == 1


@cases(
    ("key", "body"),
    [
        ("k", {}),
        ("k", {"value": None}),
        ("k", {"value": 1, "confidence": 101}),
        ("k", {"value": 1, "confidence": -1}),
        ("k", {"value": 1, "category": ""}),
        ("k", {"value": 1, "category": "c" * 101}),
        ("k" * 256, {"value": 1}),
        ("k", {"value": "x" * 40_000}),
        ("k", {"value": 1, "unknown": 1}),
    ],
)
async def test_what_is_no_fact_is_refused(client: httpx.AsyncClient, key: str, body: dict[str, Any]) -> None:
    answer = await client.put(f"{FACTS}/{key}", json=body)
    assert answer.status_code == 400
    error_of(answer)
    assert (await client.get(FACTS)).status_code == 404, "not even the user was made"


async def test_a_key_may_hold_a_slash_and_any_letters(client: httpx.AsyncClient) -> None:
    made = await put(client, "a%2Fb%20ć", "x")
    assert made["key"] == "a/b ć"
    assert (await client.get(f"{FACTS}/a%2Fb%20ć")).json()["id"] == made["id"]


async def test_tenants_and_users_have_their_own(locked: WiredApi) -> None:
    a, _ = await locked.tenancy.create_key("acme", "k")
    b, _ = await locked.tenancy.create_key("other", "k")
    own, _ = await locked.tenancy.create_key("acme", "k", user="bob")
    async with locked.client(a) as first, locked.client(b) as second, locked.client(own) as bob:
        made = await put(first, "lives_in", "Lisbon")
        assert (await second.get(FACTS)).status_code == 404
        assert (await second.get(f"{FACTS}/lives_in")).status_code == 404
        assert (await second.patch(f"{FACTS}/lives_in", json={"confidence": 1})).status_code == 404
        assert (await second.delete(f"{FACTS}/lives_in")).status_code == 404
        assert (await second.get(f"{FACTS}/lives_in/history")).status_code == 404
        assert (await second.get("/api/v1/users/ana/profile")).status_code == 404
        theirs = await put(second, "lives_in", "Oslo")
        assert theirs["id"] != made["id"]
        assert (await bob.get(FACTS)).status_code == 403
        assert (await bob.get("/api/v1/users/bob/facts")).status_code == 404
        await bob.post("/api/v1/memories", json={"text": "Likes tea"})
        assert (await bob.get("/api/v1/users/bob/facts")).json() == {"facts": [], "next": None}
        assert (await bob.get("/api/v1/users/bob/profile")).json() == {"user": "bob", "profile": {}}
        assert (await first.get(f"{FACTS}/lives_in")).json() == made
