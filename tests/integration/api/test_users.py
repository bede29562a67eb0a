"""/api/v1/users over real Postgres."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import httpx

from app.store import ids
from app.store.ids import LOCAL_TENANT
from app.store.queries import Queries
from tests.integration.api.test_sessions import append
from tests.support.rows import read_rows, read_users, update_rows
from tests.support.wired_api import all_pages, error_of


async def test_a_user_is_made_read_and_changed(client: httpx.AsyncClient) -> None:
    body = {"id": "ana", "name": "Ana", "email": "Ana@Example.org", "metadata": {"plan": "pro"}}
    made = await client.post("/api/v1/users", json=body)

    assert made.status_code == 201
    assert made.json()["email"] == "ana@example.org"
    read = (await client.get("/api/v1/users/ana")).json()
    assert made.json() == read | {"created": True}
    changed = await client.patch("/api/v1/users/ana", json={"name": "Ana Maria"})
    assert changed.json() == read | {"name": "Ana Maria"}
    again = await client.post("/api/v1/users", json={"id": "ana", "metadata": {}})
    assert again.status_code == 200
    assert again.json() == read | {"name": "Ana Maria", "metadata": {}, "created": False}


async def test_a_user_without_an_id_gets_one(client: httpx.AsyncClient) -> None:
    made = (await client.post("/api/v1/users", json={"name": "Bob"})).json()
    assert (await client.get(f"/api/v1/users/{made['id']}")).json()["name"] == "Bob"


async def test_users_appear_on_first_sight(client: httpx.AsyncClient) -> None:
    await client.post("/api/v1/memories", json={"user": "cleo", "text": "x"})
    assert (await client.get("/api/v1/users/cleo")).status_code == 200
    assert (await client.get("/api/v1/users/dora")).status_code == 404
    assert (await client.patch("/api/v1/users/dora", json={"name": "D"})).status_code == 404


async def test_a_turn_moves_when_a_user_was_last_active(
    client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    async def active() -> str:
        return str((await client.get("/api/v1/users/ana")).json()["last_active"])

    await append(client, "s", [{"role": "user", "content": "hi"}], user="ana")
    first = await active()
    await append(client, "s", [{"role": "user", "content": "hi again"}], user="ana")
    assert await active() == first, "to the minute"
    (row,) = await read_users(admin)
    await update_rows(admin, "users", {}, last_active=row["last_active"] - timedelta(hours=1))
    hour_ago = await active()
    await append(client, "s", [{"role": "user", "content": "then", "created_at": "2024-05-01T10:00:00Z"}], user="ana")
    moved = await active()
    assert hour_ago < moved
    await append(
        client, "t", [{"role": "user", "content": "long ago", "created_at": "2024-05-01T10:00:00Z"}], user="ana"
    )
    assert await active() == moved, "what was said long ago moves nothing"


async def test_an_email_belongs_to_one_user(client: httpx.AsyncClient) -> None:
    await client.post("/api/v1/users", json={"id": "ana", "email": "a@x.org"})
    taken = await client.post("/api/v1/users", json={"id": "bob", "email": "A@x.org"})
    assert taken.status_code == 409
    assert error_of(taken)["param"] == "email"
    assert (await client.get("/api/v1/users/bob")).status_code == 404, "nothing is stored half"

    await client.patch("/api/v1/users/ana", json={"email": "ana@x.org"})
    assert (await client.post("/api/v1/users", json={"id": "bob", "email": "a@x.org"})).status_code == 201


async def test_pages_hold_every_user_once(client: httpx.AsyncClient) -> None:
    names = sorted(["ana", "bob", "Zoë", "a b", "z/z", "ünal", "1"])
    for name in names:
        await client.post("/api/v1/users", json={"id": name})
    rows = await all_pages(client, "/api/v1/users", "users", limit=2)
    assert sorted(each["id"] for each in rows) == names


async def test_erasing_leaves_a_receipt_and_no_user(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    await client.post("/api/v1/users", json={"id": "ana/1", "email": "ana@x.org"})
    await client.post("/api/v1/users", json={"id": "ben"})
    erased = await client.delete("/api/v1/users/ana%2F1")
    assert erased.status_code == 200
    receipt = erased.json()
    assert receipt["tables"] == {"users": 1, "user_emails": 1}
    assert (receipt["rows"], receipt["tombstones"], "Backups" in receipt["note"]) == (2, True, True)
    assert "ana" not in erased.text
    assert (await client.get("/api/v1/users/ana%2F1")).status_code == 404
    assert (await client.get("/api/v1/users/ben")).status_code == 200
    again = await client.delete("/api/v1/users/ana%2F1")
    assert (again.status_code, error_of(again)["type"]) == (404, "not_found_error")
    assert [row["finished_at"] is not None for row in await read_rows(admin, "erasures")] == [True, True]


async def test_two_erasures_at_once_do_not_meet(client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    user = ids.user_id(LOCAL_TENANT, "ana")
    assert await admin.fetchval(Queries.load()["erasure.alone"], user)
    refused = await client.delete("/api/v1/users/ana")
    assert (refused.status_code, error_of(refused)["type"]) == (409, "conflict_error")
