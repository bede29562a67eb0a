"""GET /api/v1/users/{user}/export over real Postgres: complete, whole or visibly not, and importable again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import orjson
import pytest

from app.features.transfer.commands import Exported
from app.features.transfer.store import LEFT_OUT, CassetteStore, Export
from app.jobs.learn import Learner
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.calls import CapturedCall, body_of, capture
from tests.support.learning import Talk, taught
from tests.support.rows import count_rows
from tests.support.wired_api import WiredApi, error_of

PATH = "/api/v1/users/ana/export"
NDJSON = {"content-type": "application/x-ndjson"}
LOCAL = ids.LOCAL_TENANT
ANA = ids.user_id(LOCAL, "ana")


async def lines(client: httpx.AsyncClient, path: str = PATH, **params: str) -> list[dict[str, Any]]:
    answer = await client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [orjson.loads(line) for line in answer.content.splitlines()]


async def user_tables(admin: asyncpg.Connection[Any]) -> list[str]:
    return [row["name"] for row in await admin.fetch(Queries.load()["export.tables"])]


async def live(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, learn: Learner, pool: Pool, user: str = "ana"
) -> None:
    """Something in as many tables as the API reaches."""
    talk = Talk(user, tenant=LOCAL)
    await taught(learn, pool, talk, "I live in Lisbon", "I'm allergic to peanuts")
    await client.put(f"/api/v1/users/{user}/facts/shoe%20size", json={"value": 38})
    await client.patch(f"/api/v1/users/{user}", json={"email": f"{user}@example.org"})
    made = await client.post("/api/v1/memories", json={"user": user, "text": f"{user} has a boat"})
    await client.delete(f"/api/v1/memories/{made.json()['id']}")
    _, recipe = body_of([b'{"role":"user","content":"hi"}'])
    audit = {"v": 2, "live_blocks": 0, "items": {"id": [], "source": [], "reason": [], "score": []}}
    call = await capture(
        turns, CapturedCall(api.clock.now(), user=user, received=recipe, answer=b"\x00\xff data", audit=audit)
    )
    rated = await client.post("/api/v1/outcomes", json={"call": call, "outcome": "positive"})
    assert rated.status_code == 201


async def test_every_row_of_every_table_is_there(
    client: httpx.AsyncClient,
    api: WiredApi,
    turns: TurnStore,
    learn: Learner,
    pool: Pool,
    admin: asyncpg.Connection[Any],
) -> None:
    await live(client, api, turns, learn, pool)
    await live(client, api, turns, learn, pool, user="bob")
    found = await lines(client)

    head, end = found[0]["export"], found[-1]["end"]
    assert (head["version"], head["user"], head["left_out"]) == (1, "ana", LEFT_OUT)
    rows: dict[str, list[dict[str, Any]]] = {}
    for each in found[1:-1]:
        rows.setdefault(each["table"], []).append(each["row"])
    assert {table: len(each) for table, each in rows.items()} == end
    for table in head["tables"]:
        assert end.get(table, 0) == await count_rows(admin, table, user_id=ANA), table
    assert len(end) >= 14, sorted(end)
    assert {each["user_id"] for own in rows.values() for each in own} == {str(ANA)}
    assert {each["content"] for each in rows["conversation_history"]} == {"I live in Lisbon", "I'm allergic to peanuts"}
    assert rows["streams"][0]["body"] == "\\x00ff2064617461"
    assert rows["user_emails"][0]["email"] == "ana@example.org"
    assert not any("content_tsv" in each for own in rows.values() for each in own)


async def test_every_table_of_users_is_exported_or_left_out_with_a_reason(
    client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    """A new table is exported by itself, as it is erased by itself; one that is left out says why."""
    tables = await user_tables(admin)
    assert set(LEFT_OUT) <= set(tables), "what is left out is there"
    assert all(len(reason) > 20 for reason in LEFT_OUT.values())
    said = [{"user": "ana", "session": "s", "role": "user", "content": f"Number {n}"} for n in range(1200)]
    await client.post("/api/v1/import", content=b"\n".join(map(orjson.dumps, said)), headers=NDJSON)
    found = await lines(client)
    exported = found[0]["export"]["tables"]
    assert sorted(exported) == sorted(set(tables) - set(LEFT_OUT))
    assert exported[:2] == ["users", "sessions"]
    assert found[-1]["end"]["conversation_history"] == 1200
    messages = [each["row"] for each in found if each.get("table") == "conversation_history"]
    assert {each["content"] for each in messages} == {each["content"] for each in said}


async def test_pages_are_bounded_by_bytes_and_lose_nothing(
    client: httpx.AsyncClient,
    api: WiredApi,
    turns: TurnStore,
    learn: Learner,
    pool: Pool,
    admin: asyncpg.Connection[Any],
) -> None:
    await live(client, api, turns, learn, pool)
    await taught(learn, pool, Talk("ana", tenant=LOCAL), *(f"I like flavour number {n}" for n in range(20)))
    whole = await lines(client)
    small = Export(pool, Queries.load(), page_bytes=1)
    tables = await small.tables(LOCAL)
    pages = [page async for page in small.lines(LOCAL, ANA, tables)]
    assert len(pages) == sum(whole[-1]["end"].values()) + 1, "a row a page"
    assert [orjson.loads(line) for line in b"".join(pages).splitlines()] == whole[1:]


async def test_messages_can_be_imported_again(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    calls = [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    given = {
        "one": [
            {"role": "system", "content": "Be kind"},
            {"role": "user", "content": "hello", "name": "Ana", "metadata": {"a": [1]}},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "content": "42", "tool_call_id": "t"},
        ],
        "two": [{"role": "user", "content": parts}],
    }  # fmt: skip
    for session, messages in given.items():
        answer = await client.post(f"/api/v1/sessions/{session}/messages", json={"user": "ana", "messages": messages})
        assert answer.status_code in (200, 201), answer.text
    told = await lines(client, part="messages")
    assert len(told) == 5
    body = b"".join(orjson.dumps(each | {"user": "copy"}) + b"\n" for each in told)
    done = await client.post("/api/v1/import", content=body, headers=NDJSON)
    assert done.status_code == 200, done.text
    assert done.json()["imported"] == 5
    again = await lines(client, "/api/v1/users/copy/export", part="messages")
    # The parts of a name that only tell two users' sessions apart.
    assert sorted(map(str, again)) == sorted(str(each | {"user": "copy"}) for each in told)
    shown = (await client.get("/api/v1/sessions/one/history", params={"user": "ana"})).json()["messages"]
    (forgotten,) = [each["id"] for each in shown if each["content"] == "hello"]
    await client.delete(f"/api/v1/sessions/one/messages/{forgotten}", params={"user": "ana"})
    assert len(await lines(client, part="messages")) == 4


async def test_nobody_exports_who_is_not_theirs(locked: WiredApi) -> None:
    acme, _ = await locked.tenancy.create_key("acme", "k")
    other, _ = await locked.tenancy.create_key("other", "k")
    bobs, _ = await locked.tenancy.create_key("acme", "k", user="bob")
    async with locked.client(acme) as first, locked.client(other) as second, locked.client(bobs) as bob:
        await first.post("/api/v1/memories", json={"user": "ana", "text": "Likes tea"})
        assert (await second.get(PATH)).status_code == 404
        error_of(await second.get(PATH))
        assert (await bob.get(PATH)).status_code == 403
        assert (await first.get("/api/v1/users/nobody/export")).status_code == 404
        await second.post("/api/v1/memories", json={"user": "ana", "text": "Likes coffee"})
        theirs = await lines(second)
        assert "Likes tea" not in str(theirs)
        assert "Likes coffee" in str(theirs)
        assert (await first.get(PATH, params={"part": "some"})).status_code == 400


MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
DATE_LIKE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


async def test_roles_have_names_and_times_one_form(
    client: httpx.AsyncClient, api: WiredApi, turns: TurnStore, learn: Learner, pool: Pool
) -> None:
    await live(client, api, turns, learn, pool)
    told = await lines(client)
    rows = [each["row"] for each in told[1:-1]]
    roles = {each["row"]["role"] for each in told[1:-1] if each["table"] == "conversation_history"}
    assert roles == {"user"}
    times = [told[0]["export"]["at"]] + [
        value for row in rows for value in row.values() if isinstance(value, str) and DATE_LIKE.match(value)
    ]
    times += [each["created_at"] for each in await lines(client, part="messages")]
    assert len(times) > 20
    assert [each for each in times if not MOMENT.fullmatch(each)] == []


async def test_head_says_of_what_type_it_is_and_reads_nothing(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(*given: Any) -> Any:
        pytest.fail("it is run")

    monkeypatch.setattr(Export, "tables", read)
    monkeypatch.setattr(CassetteStore, "ids", read)
    await client.post("/api/v1/users", json={"id": "ana"})
    for path in (PATH, "/api/v1/cassettes"):
        answer = await client.head(path)
        assert (answer.status_code, answer.content) == (200, b""), path
        assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert (await client.head("/api/v1/users/nobody/export")).status_code == 404


async def test_a_whole_export_is_read_back(locked: WiredApi, tmp_path: Path) -> None:
    """As `mneme import` does it: what another Mneme then has of the user's conversations is the same."""
    calls = [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    given: dict[str, list[dict[str, Any]]] = {
        "zeta": [{"role": "user", "content": f"{n}"} for n in range(12)],
        "alpha": [
            {"role": "system", "content": "Be kind"},
            {"role": "user", "content": "hello", "name": "Ana", "metadata": {"a": [1]}},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "content": "42", "tool_call_id": "t"},
            {"role": "user", "content": parts},
        ],
    }
    acme, _ = await locked.tenancy.create_key("acme", "k")
    other, _ = await locked.tenancy.create_key("other", "k")
    async with locked.client(acme) as first, locked.client(other) as second:
        for session, messages in given.items():
            answer = await first.post(
                f"/api/v1/sessions/{session}/messages", json={"user": "ana", "messages": messages}
            )
            assert answer.status_code in (200, 201), answer.text
        (tmp_path / "ana.jsonl").write_bytes((await first.get(PATH)).content)
        assert Exported.is_one(tmp_path / "ana.jsonl")
        exported = Exported(tmp_path / "ana.jsonl")
        assert len(exported) == 17
        assert exported.left_out["sessions"] == 2
        for times in (1, 2):
            done = await second.post("/api/v1/import", content=b"".join(exported.lines()), headers=NDJSON)
            assert done.status_code == 200, done.text
            assert done.json()["imported"] == (17 if times == 1 else 0)
        was, now = [await lines(each, part="messages") for each in (first, second)]
        assert sorted(map(str, now)) == sorted(map(str, was))
        for session in given:
            said = [each["content"] for each in now if each["session"] == session]
            assert said == [each["content"] for each in given[session]]
