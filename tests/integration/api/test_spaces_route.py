"""Shared spaces over the API: remembered there, listed with who said it, exported, imported, erased; by members alone."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import orjson
import pytest

from app.store import ids
from app.store.erasure import ERASER_ROLE, NOTE, Eraser, own_connection
from app.store.ids import LOCAL_TENANT
from app.store.queries import Queries
from app.store.spaces import MOST_SPACES
from tests.support.rows import count_rows, delete_rows, insert_row, read_memories, read_rows, set_memories
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
    assert await count_rows(admin, "memory_store", "conversation_history") == 0, "nothing is half stored"


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
    assert (
        await count_rows(admin, "spaces", "memory_store", "memory_events", "index_items", "users", user_id=space) == 0
    )
    assert await count_rows(admin, "space_members", "space_sayings") == 0
    assert (await client.get("/api/v1/spaces/ops")).status_code == 404
    # A new one of the same name may learn the same again.
    assert await count_rows(admin, "erased_contents") == 0
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


# --- taken back -----------------------------------------------------------------------------------------------------------


async def take_back(client: httpx.AsyncClient, item: str, user: str | None, space: str = "ops") -> httpx.Response:
    return await client.delete(f"/api/v1/spaces/{space}/items/{item}", params={"user": user} if user else {})


async def ids_in(client: httpx.AsyncClient, name: str) -> dict[str, str]:
    found = (await client.get(f"/api/v1/spaces/{name}/items")).json()["items"]
    return {each["text"]: each["id"] for each in found}


async def test_who_said_something_takes_it_back_and_nobody_else(client: httpx.AsyncClient) -> None:
    await made(client, "ops", "ana", "bob")
    await client.post("/api/v1/import", content=lines({"content": SAID, "space": "ops"}), headers=LINES)
    for user in ("ana", "bob"):
        await client.post("/api/v1/memories", json={"user": user, "text": "A rule.", "space": "ops"})
    known = await ids_in(client, "ops")
    refused = [
        await take_back(client, known[SAID], "bob"),
        await take_back(client, known[SAID], "eve"),
        await take_back(client, known[SAID], "ana", "nowhere"),
        await take_back(client, str(ids.NIL), "ana"),
        await take_back(client, "no-id", "ana"),
    ]
    assert {(each.status_code, error_of(each)["message"]) for each in refused} == {
        (404, "There is nothing of this id that this user said in this space.")
    }
    # What somebody else said, too, is theirs from now on.
    answer = await take_back(client, known["A rule."], "ana")
    assert (answer.status_code, answer.json()["stays"]) == (200, True)
    assert sorted(await items(client, "ops")) == [("fact", "A rule.", ["bob"]), ("message", SAID, ["ana"])]
    answer = await take_back(client, known["A rule."], "bob")
    assert (answer.json()["stays"], answer.json()["taken"]) == (False, [known["A rule."]])
    # Also after they left; once.
    await client.delete("/api/v1/spaces/ops/members/ana")
    assert (await take_back(client, known[SAID], "ana")).json()["taken"] == [known[SAID]]
    assert (await take_back(client, known[SAID], "ana")).status_code == 404
    assert await items(client, "ops") == []
    told = (await client.get("/api/v1/users/ana/export")).content
    assert b"Thursdays" not in told


async def test_who_manages_the_tenant_takes_out_what_anybody_said(locked: WiredApi) -> None:
    root, _ = await locked.tenancy.create_key("acme", "root")
    ana, _ = await locked.tenancy.create_key("acme", "ana", user="ana")
    app, _ = await locked.tenancy.create_key("acme", "app", scopes=["read", "write"])
    async with locked.client(root) as operator, locked.client(ana) as member, locked.client(app) as backend:
        await made(operator, "ops", "ana", "bob")
        for user in ("ana", "bob"):
            await backend.post("/api/v1/memories", json={"user": user, "text": SAID, "space": "ops"})
        (item,) = (await ids_in(operator, "ops")).values()
        assert (await take_back(backend, item, None)).status_code == 403
        assert (await take_back(member, item, "bob")).status_code == 403
        assert (await take_back(operator, item, None)).json()["taken"] == [item]
        assert await items(operator, "ops") == []


async def test_what_was_learned_from_others_words_is_not_taken_back_by_one(
    client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    """A memory that one was part of; who said all of it takes it back, and the message stays."""
    await made(client, "ops", "ana", "bob")
    for user in ("ana", "bob"):
        said = lines({"content": f"{user} deploys.", "space": "ops", "user": user})
        await client.post("/api/v1/import", content=said, headers=LINES)
    known = await ids_in(client, "ops")
    for text, sources in (("Both deploy.", ["ana", "bob"]), ("Ana deploys.", ["ana"])):
        await client.post("/api/v1/memories", json={"user": "ana", "text": text, "space": "ops"})
        sayings = [UUID(known[f"{each} deploys."]) for each in sources]
        await set_memories(admin, await read_memories(admin, content_text=text), source_message_ids=sayings)
    await delete_rows(admin, "space_sayings", item_kind=1)
    learned = await ids_in(client, "ops")
    assert (await take_back(client, learned["Both deploy."], "ana")).status_code == 409
    assert (await take_back(client, learned["Ana deploys."], "bob")).status_code == 404
    assert (await take_back(client, learned["Ana deploys."], "ana")).json()["taken"] == [learned["Ana deploys."]]
    assert sorted(await ids_in(client, "ops")) == ["Both deploy.", "ana deploys.", "bob deploys."]


# --- limits, and what happens at the same moment -------------------------------------------------------------------------


async def test_a_secret_is_not_imported_into_a_space(client: httpx.AsyncClient) -> None:
    """Others would read it: as in a chat, it is not kept there, and nothing of the file is."""
    await made(client, "ops", "ana")
    secret = lines({"content": SAID, "space": "ops"}, {"content": "My password is hunter2-Xy7!", "space": "ops"})
    answer = await client.post("/api/v1/import", content=secret, headers=LINES)
    assert (answer.status_code, [each["line"] for each in answer.json()["errors"]]) == (400, [2])
    assert "secret" in answer.json()["errors"][0]["error"]
    assert await items(client, "ops") == []


async def test_a_user_is_in_no_more_spaces_however_many_ask_at_once(client: httpx.AsyncClient) -> None:
    names = [f"s{n}" for n in range(MOST_SPACES + 4)]
    for n, name in enumerate(names):
        await made(client, name, *(("ana", "bob", "cid") if n < MOST_SPACES - 1 else ()))
    for user in ("ana", "bob", "cid"):
        answers = await asyncio.gather(
            *(client.put(f"/api/v1/spaces/{name}/members/{user}") for name in names[MOST_SPACES - 1 :])
        )
        assert sorted(each.status_code for each in answers) == [200] + [409] * 4
        assert {error_of(each)["code"] for each in answers if each.status_code == 409} == {"too_many_spaces"}
        listed = (await client.get("/api/v1/spaces", params={"user": user})).json()["spaces"]
        assert len(listed) == MOST_SPACES


async def test_a_new_space_has_none_of_the_members_of_an_old_one(
    client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    """Not even one who came while that was being erased: it had the same id."""
    await made(client, "ops", "ana")
    (row,) = await read_rows(admin, "space_members")
    await client.delete("/api/v1/spaces/ops")
    await insert_row(admin, "space_members", **row)
    await made(client, "ops", "bob")
    members = (await client.get("/api/v1/spaces/ops/members")).json()["members"]
    assert [each["user"] for each in members] == ["bob"]


async def test_where_a_space_keeps_what_is_said_is_no_session_of_anybodys(client: httpx.AsyncClient) -> None:
    await made(client, "ops", "ana")
    both = lines({"content": SAID, "space": "ops"}, {"content": "My own."})
    await client.post("/api/v1/import", content=both, headers=LINES)
    sessions = (await client.get("/api/v1/sessions")).json()["sessions"]
    assert [(each["user"], each["external_id"]) for each in sessions] == [("ana", "s")]
