"""Shared spaces over the API: remembered there, listed with who said it, exported, imported, erased; by members alone."""

from __future__ import annotations

from typing import Any

import asyncpg
import httpx
import orjson
import pytest

from app.store import ids
from app.store.erasure import ERASER_ROLE, NOTE, Eraser, own_connection
from app.store.ids import LOCAL_TENANT
from app.store.queries import Queries
from tests.support.wired_api import WiredApi, error_of

LINES = {"content-type": "application/x-ndjson"}
SAID = "We deploy the billing service on Thursdays."


async def made(client: httpx.AsyncClient, name: str, *users: str) -> None:
    assert (await client.post("/api/v1/spaces", json={"name": name})).status_code == 201
    for user in users:
        assert (await client.put(f"/api/v1/spaces/{name}/members/{user}")).status_code == 200


async def items(client: httpx.AsyncClient, name: str, **query: Any) -> list[tuple[str, str, list[str]]]:
    answer = await client.get(f"/api/v1/spaces/{name}/items", params=query)
    assert answer.status_code == 200, answer.text
    return [(each["kind"], each["text"], each["users"]) for each in answer.json()["items"]]


def lines(*said: dict[str, Any]) -> bytes:
    return b"".join(orjson.dumps({"session": "s", "role": "user", "user": "ana"} | each) + b"\n" for each in said)


async def test_a_memory_of_a_space_says_whose_it_is(client: httpx.AsyncClient) -> None:
    await made(client, "ops", "ana", "bob")
    said = {"text": SAID, "space": "ops"}
    first = await client.post("/api/v1/memories", json=said | {"user": "ana"})
    assert first.status_code == 201, first.text
    assert (first.json()["user"], first.json()["space"]) == (None, "ops")
    # Who says the same says so, too; a list and a batch go the same way.
    again = await client.post("/api/v1/memories", json=[said | {"user": "bob"}, {"user": "bob", "text": "Mine."}])
    assert [(each["created"], each["space"]) for each in again.json()["memories"]] == [(False, "ops"), (True, None)]
    batch = await client.post(
        "/api/v1/memories/batch", json={"create": [{"user": "bob", "text": "B.", "space": "ops"}]}
    )
    assert batch.json()["failed"] == 0
    # (The clock stands still: the order is that of the ids.)
    assert sorted(await items(client, "ops")) == [("fact", "B.", ["bob"]), ("fact", SAID, ["ana", "bob"])]
    listed = (await client.get("/api/v1/memories", params={"user": "ana"})).json()["memories"]
    assert listed == []
    users = (await client.get("/api/v1/users")).json()["users"]
    assert [each["id"] for each in users] == ["ana", "bob"], "a space is no user"


async def test_pages_of_items_have_each_once(client: httpx.AsyncClient) -> None:
    await made(client, "ops", "ana")
    texts = [f"Rule {n}." for n in range(7)]
    for text in texts:
        await client.post("/api/v1/memories", json={"user": "ana", "text": text, "space": "ops"})
    seen, cursor = list[str](), None
    while True:
        page = (
            await client.get("/api/v1/spaces/ops/items", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))
        ).json()
        seen += [each["text"] for each in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert sorted(seen) == texts


async def test_who_is_no_member_says_reads_and_imports_nothing(
    client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    await made(client, "ops", "ana")
    eve: dict[str, Any] = {"headers": {"X-Mneme-User": "eve"}}
    refused = [
        await client.post("/api/v1/memories", json={"text": SAID, "space": "ops"}, **eve),
        await client.post("/api/v1/memories/search", json={"query": SAID, "space": "ops"}, **eve),
        await client.get("/api/v1/spaces/ops/items", **eve),
        await client.post("/api/v1/memories", json={"user": "ana", "text": SAID, "space": "nowhere"}),
    ]
    assert [(each.status_code, error_of(each)["code"]) for each in refused] == [(404, "space_not_found")] * 4
    both = lines({"content": "hello"}, {"content": SAID, "space": "ops", "user": "eve"})
    answer = await client.post("/api/v1/import", content=both, headers=LINES)
    assert (answer.status_code, [each["line"] for each in answer.json()["errors"]]) == (400, [2])
    counts = (
        "SELECT (SELECT count(*) FROM agent_data.memory_store) + (SELECT count(*) FROM agent_data.conversation_history)"
    )
    assert await admin.fetchval(counts) == 0, "nothing is half stored"


@pytest.mark.parametrize(
    "wrong",
    [{"space": "Ops!"}, {"space": ""}, {"space": "ops", "session": "s"}],
    ids=["no name", "an empty one", "in a session, too"],
)
async def test_a_memory_that_cannot_be_there_is_refused(client: httpx.AsyncClient, wrong: dict[str, str]) -> None:
    await made(client, "ops", "ana")
    answer = await client.post("/api/v1/memories", json={"user": "ana", "text": SAID} | wrong)
    assert answer.status_code == 400, answer.text
    error_of(answer)
    assert await items(client, "ops") == []


async def test_only_a_user_says_something_to_a_space(client: httpx.AsyncClient) -> None:
    await made(client, "ops", "ana")
    answer = await client.post(
        "/api/v1/import", content=lines({"role": "assistant", "content": SAID, "space": "ops"}), headers=LINES
    )
    assert answer.status_code == 400
    assert "role is user" in answer.text


async def test_what_was_said_in_spaces_is_exported_and_imported_again(locked: WiredApi) -> None:
    acme, _ = await locked.tenancy.create_key("acme", "k", scopes=["read", "write", "admin"])
    other, _ = await locked.tenancy.create_key("other", "k", scopes=["read", "write", "admin"])
    async with locked.client(acme) as first, locked.client(other) as second:
        for client in (first, second):
            await made(client, "ops", "ana", "bob")
        said = lines(
            {"content": "hello"},
            {"content": SAID, "space": "ops"},
            {"content": "My own.", "created_at": "2024-01-01T00:00:00Z"},
        )
        assert (await first.post("/api/v1/import", content=said, headers=LINES)).json()["imported"] == 3
        await first.post("/api/v1/memories", json={"user": "ana", "text": "A rule.", "space": "ops"})
        told = [orjson.loads(line) for line in (await first.get("/api/v1/users/ana/export")).content.splitlines()]
        shared = [each["row"] for each in told[1:-1] if each["table"] == "said_in_spaces"]
        assert sorted((each["space"], each["kind"], each["text"]) for each in shared) == [
            ("ops", "fact", "A rule."), ("ops", "message", SAID),
        ]  # fmt: skip
        assert told[-1]["end"]["said_in_spaces"] == 2
        messages = (await first.get("/api/v1/users/ana/export", params={"part": "messages"})).content
        for imported in (3, 0):
            done = await second.post("/api/v1/import", content=messages, headers=LINES)
            assert done.json()["imported"] == imported, done.text
        assert await items(second, "ops") == [("message", SAID, ["ana"])]
        again = (await second.get("/api/v1/users/ana/export", params={"part": "messages"})).content
        assert sorted(again.splitlines()) == sorted(messages.splitlines())


async def test_the_receipt_of_a_space_says_what_went_and_what_stays(
    client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    await made(client, "ops", "ana", "bob")
    await client.post("/api/v1/memories", json={"user": "ana", "text": SAID, "space": "ops"})
    space = ids.space_id(LOCAL_TENANT, "ops")
    receipt = (await client.delete("/api/v1/spaces/ops")).json()
    assert receipt["tables"]["memory_store"] == receipt["tables"]["spaces"] == 1
    assert receipt["rows"] == sum(receipt["tables"].values())
    assert "Captured calls" in receipt["note"]
    assert "MNEME_CAPTURE_DAYS" in receipt["note"]
    for table in ("spaces", "memory_store", "memory_events", "index_items", "users"):
        assert await admin.fetchval(f"SELECT count(*) FROM agent_data.{table} WHERE user_id = $1", space) == 0, table
    for table in ("space_members", "space_sayings"):
        assert await admin.fetchval(f"SELECT count(*) FROM agent_data.{table}") == 0, table
    assert (await client.get("/api/v1/spaces/ops")).status_code == 404
    # The same of a user who said something there; not of one who did not.
    await made(client, "ops", "ana")
    await client.post("/api/v1/memories", json={"user": "ana", "text": "Another rule.", "space": "ops"})
    assert "Captured calls" in (await client.delete("/api/v1/users/ana")).json()["note"]
    assert (await client.delete("/api/v1/users/bob")).json()["note"] == NOTE


@pytest.mark.parametrize("leave", [False, True], ids=["taken along", "left"])
async def test_an_erased_user_takes_along_what_they_said_or_leaves_it(
    client: httpx.AsyncClient, api: WiredApi, database: str, leave: bool
) -> None:
    await made(client, "ops", "ana", "bob")
    await client.post("/api/v1/import", content=lines({"content": SAID, "space": "ops"}), headers=LINES)
    await client.post("/api/v1/memories", json={"user": "ana", "text": "A rule.", "space": "ops"})
    eraser = Eraser(own_connection(database, ERASER_ROLE), Queries.load(), api.clock, leave_to_spaces=leave)
    await eraser.erase(LOCAL_TENANT, ids.user_id(LOCAL_TENANT, "ana"))
    # What stays says no more whose it was.
    left = [("message", SAID, list[str]()), ("fact", "A rule.", list[str]())]
    assert sorted(await items(client, "ops", user="bob")) == (sorted(left) if leave else [])
