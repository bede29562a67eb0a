"""Who may come in, and whose data they see."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
from fastapi import FastAPI

from app.api.scope import Gate
from app.features.cards.keeper import TOOL
from app.store.ids import LOCAL_TENANT
from tests.support.rows import delete_rows, find_tables, insert_row, read_rows
from tests.support.wired_api import WiredApi, error_of

PARAMETER = re.compile(r"{\w+}")


def api_routes(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path under /api, with something in place of the parameters."""
    found = []
    for path, item in app.openapi()["paths"].items():
        if path.startswith("/api/"):
            filled = PARAMETER.sub(lambda _: str(uuid4()), path.replace("{job}", "1").replace("{domain}", "erp"))
            found += [(method.upper(), filled) for method in item]
    assert len(found) > 25
    return found


async def test_every_route_asks_the_gate_first(locked: WiredApi) -> None:
    async with locked.client() as client:
        for method, path in api_routes(locked.app):
            # Not even a body that cannot be read is looked at before.
            answer = await client.request(method, path, content=b"{", headers={"Content-Type": "application/json"})
            assert answer.status_code == 401, (method, path)
            assert error_of(answer)["code"] == "missing_api_key"


def test_every_route_declares_the_gate(locked: WiredApi) -> None:
    for path, item in locked.app.openapi()["paths"].items():
        if path.startswith("/api/"):
            for method, operation in item.items():
                assert {"HTTPBearer": []} in operation["security"], (method, path)
                assert any(each["name"] == "X-Mneme-User" for each in operation["parameters"]), (method, path)


def test_routers_are_made_by_the_gate_alone(api: WiredApi) -> None:
    router = Gate(api.authenticator).router("x")
    assert router.prefix == "/api/v1"
    assert len(router.dependencies) == 1


async def test_operations_need_no_key(locked: WiredApi) -> None:
    async with locked.client() as client:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await client.get(path)).status_code == 200


async def test_a_key_opens_its_tenant(locked: WiredApi) -> None:
    key, row = await locked.tenancy.create_key("acme", "laptop")
    assert key.startswith("mneme_")
    assert key.startswith(row.hint)
    async with locked.client() as client:
        for headers in ({"Authorization": f"Bearer {key}"}, {"Authorization": f"bearer  {key} "}, {"X-Mneme-Key": key},
                        {"X-Mneme-Key": key, "Authorization": "Bearer sk-upstream"}):  # fmt: skip
            assert (await client.get("/api/v1/memories", headers=headers)).status_code == 200, headers


async def test_other_keys_do_not(locked: WiredApi) -> None:
    async with locked.client() as client:
        for name, value in (
            ("Authorization", "Bearer sk-something"),
            ("Authorization", "Bearer mneme_short"),
            ("Authorization", "Bearer mneme_" + "A" * 43),
            ("Authorization", "Basic bW5lbWU="),
            ("X-Mneme-Key", ""),
            ("X-Mneme-Key", "mneme_" + "é" * 43),
        ):
            answer = await client.get("/api/v1/memories", headers=[(name.encode(), value.encode())])
            assert answer.status_code == 401, value
            assert error_of(answer)["type"] == "authentication_error"


async def test_a_mneme_key_counts_in_open_mode_too(api: WiredApi) -> None:
    key, row = await api.tenancy.create_key("acme", "laptop")
    assert row.tenant_id != LOCAL_TENANT
    async with api.client(key) as client:
        made = await client.post("/api/v1/memories", json={"user": "ana", "text": "of acme"})
        assert made.status_code == 201
        nameless = await client.post("/api/v1/memories", json={"text": "whose?"})
        assert nameless.status_code == 400, "the local user is for callers without a key"
        assert error_of(nameless)["param"] == "user"
    async with api.client("anything-else") as client:
        assert (await client.get("/api/v1/memories")).json()["memories"] == []
    async with api.client("mneme_" + "A" * 43) as client:
        assert (await client.get("/api/v1/memories")).status_code == 401


async def test_a_revoked_or_expired_key_ends(locked: WiredApi) -> None:
    now = locked.clock.now()
    revoked, row = await locked.tenancy.create_key("acme", "a")
    expiring, _ = await locked.tenancy.create_key("acme", "b", expires_at=now + timedelta(seconds=5))
    async with locked.client(revoked) as one, locked.client(expiring) as two:
        assert (await one.get("/api/v1/users")).status_code == 200
        assert (await two.get("/api/v1/users")).status_code == 200
        assert await locked.tenancy.revoke_key(row.key_id) is True
        assert await locked.tenancy.revoke_key(row.key_id) is False
        locked.clock.move(timedelta(seconds=6))
        # The expiry is known; that it was revoked is noticed within KEY_CACHE_S.
        assert (await two.get("/api/v1/users")).status_code == 401
        assert (await one.get("/api/v1/users")).status_code == 200
        locked.clock.move(timedelta(seconds=5))
        assert (await one.get("/api/v1/users")).status_code == 401


async def test_a_key_that_was_unknown_works_soon_after_it_is_made(
    locked: WiredApi, admin: asyncpg.Connection[Any]
) -> None:
    key, _ = await locked.tenancy.create_key("acme", "a")
    (saved,) = await read_rows(admin, "api_keys")
    await delete_rows(admin, "api_keys")
    async with locked.client(key) as client:
        assert (await client.get("/api/v1/users")).status_code == 401
        await insert_row(admin, "api_keys", **saved)
        locked.clock.move(timedelta(seconds=3))
        assert (await client.get("/api/v1/users")).status_code == 200


async def test_a_key_of_one_user_is_confined_to_them(locked: WiredApi) -> None:
    whole, _ = await locked.tenancy.create_key("acme", "all")
    own, _ = await locked.tenancy.create_key("acme", "one", user="ana")
    async with locked.client(whole) as client:
        bobs = (await client.post("/api/v1/memories", json={"user": "bob", "text": "of bob"})).json()
        await client.post(
            "/api/v1/sessions/bobs/messages", json={"user": "bob", "messages": [{"role": "user", "content": "x"}]}
        )
    async with locked.client(own) as client:
        made = await client.post("/api/v1/memories", json={"text": "of ana"})
        assert made.json()["user"] == "ana"
        assert [each["text"] for each in (await client.get("/api/v1/memories")).json()["memories"]] == ["of ana"]
        assert (await client.get("/api/v1/users")).json()["users"][0]["id"] == "ana"
        for answer in (
            await client.post("/api/v1/memories", json={"user": "bob", "text": "x"}),
            await client.get("/api/v1/memories", params={"user": "bob"}),
            await client.get("/api/v1/memories", headers={"X-Mneme-User": "bob"}),
            await client.get(f"/api/v1/memories/{bobs['id']}", params={"user": "bob"}),
            await client.get("/api/v1/users/bob"),
            await client.patch("/api/v1/users/bob", json={"name": "B"}),
            await client.post("/api/v1/users", json={"id": "bob"}),
            await client.get("/api/v1/sessions", params={"user": "bob"}),
            await client.post("/api/v1/memories/search", json={"user": "bob", "query": "x"}),
            await client.post("/api/v1/context", json={"user": "bob", "query": "x"}),
            await client.get("/api/v1/calls", params={"user": "bob"}),
            await client.get("/api/v1/queue/dead"),
            await client.post("/api/v1/queue/dead/1/retry"),
        ):
            assert answer.status_code == 403, answer.request.url
            assert error_of(answer)["type"] == "permission_error"
        assert (await client.get(f"/api/v1/memories/{bobs['id']}")).status_code == 404
        assert (await client.get("/api/v1/sessions/bobs/history")).status_code == 404
        line = b'{"session": "s", "user": "bob", "role": "user", "content": "x"}'
        answer = await client.post("/api/v1/import", content=line, headers={"Content-Type": "application/x-ndjson"})
        assert answer.status_code == 400
        assert answer.json()["errors"][0]["line"] == 1


async def test_a_user_who_is_named_twice_is_nobody(api: WiredApi) -> None:
    """The first and the last of such headers may be of two people: a client's, and that of the gateway before Mneme."""
    async with api.client() as client:
        answer = await client.get("/api/v1/memories", headers=[("X-Mneme-User", "ana"), ("X-Mneme-User", "bob")])
        assert (answer.status_code, error_of(answer)["param"]) == (400, "x-mneme-user")
        same = await client.get("/api/v1/memories", headers=[("X-Mneme-User", "ana"), ("X-Mneme-User", "ana")])
        assert same.status_code == 200


async def test_a_user_whom_the_query_names_twice_is_a_mistake(api: WiredApi) -> None:
    async with api.client() as client:
        answer = await client.get("/api/v1/memories?user=ana&user=ben")
        assert answer.status_code == 400
        assert error_of(answer)["param"] == "user"
        assert (await client.get("/api/v1/memories?user=ana&user=ana")).status_code == 200


async def test_scopes_of_a_key(locked: WiredApi) -> None:
    reader, _ = await locked.tenancy.create_key("acme", "r", scopes=["read"])
    writer, _ = await locked.tenancy.create_key("acme", "w", scopes=["write"])
    async with locked.client(reader) as client:
        assert (await client.get("/api/v1/memories")).status_code == 200
        assert (await client.post("/api/v1/memories/search", json={"user": "a", "query": "x"})).status_code == 200
        refused = await client.post("/api/v1/memories", json={"user": "a", "text": "x"})
        assert refused.status_code == 403
        assert error_of(refused)["code"] == "missing_scope"
        # Only a POST to a search reads: a user may be called anything.
        assert (await client.patch("/api/v1/users/search", json={"name": "x"})).status_code == 403
    async with locked.client(writer) as client:
        assert (await client.post("/api/v1/memories", json={"user": "a", "text": "x"})).status_code == 201
        assert (await client.get("/api/v1/memories")).status_code == 403


async def fill(client: httpx.AsyncClient) -> dict[str, str]:
    """One of everything that the API can make; the ids to ask for it."""
    memory = (await client.post("/api/v1/memories", json={"user": "ana", "text": "a canary"})).json()["id"]
    body = {"user": "ana", "messages": [{"role": "user", "content": "a canary"}]}
    session = (await client.post("/api/v1/sessions/secret/messages", json=body)).json()["session_id"]
    await client.put("/api/v1/users/ana/facts/canary", json={"value": "a canary"})
    await client.put("/api/v1/tenant/instructions", json={"instructions": "a canary"})
    return {"memory_id": memory, "session_id": session, "user": "ana"}


async def test_a_tenant_sees_nothing_of_another(locked: WiredApi) -> None:
    key_a, row_a = await locked.tenancy.create_key("a", "a")
    key_b, row_b = await locked.tenancy.create_key("b", "b")
    async with locked.client(key_a) as client:
        of_a = await fill(client)
        own = await client.get("/api/v1/memories")
        assert "a canary" in own.text
    bodies: dict[str, Any] = {"PATCH": {"text": "taken over"}}
    async with locked.client(key_b) as client:
        tried = 0
        for path, item in locked.app.openapi()["paths"].items():
            if not path.startswith("/api/"):
                continue
            for method in item:
                filled = path
                for name, value in {**of_a, "call_id": str(uuid4()), "job": "1", "key": str(row_a.key_id)}.items():
                    filled = filled.replace(f"{{{name}}}", value)
                if "{" in path and not path.endswith("/messages"):
                    for query in ({}, {"user": "ana"}):
                        answer = await client.request(
                            method.upper(), filled, json=bodies.get(method.upper()), params=query
                        )
                        assert answer.status_code in (404, 400), (method, path, answer.text)
                        assert "canary" not in answer.text
                        tried += 1
                elif method == "get":
                    answer = await client.get(filled)
                    assert "canary" not in answer.text
                    if path == "/api/v1/storage":
                        assert answer.status_code == 403, "of all tenants together: the operator's"
                        continue
                    if path in ("/api/v1/memories/due", "/api/v1/cards", "/api/v1/objects"):
                        assert answer.status_code == 400, "one asks a person, not a tenant"
                        continue
                    assert answer.status_code == 200
                    if path == "/api/v1/me":
                        assert answer.json()["tenant"] == str(row_b.tenant_id), "the one that asks"
                        continue
                    if path == "/api/v1/overview":
                        assert answer.json()["totals"]["calls"] == 0
                        continue
                    if path == "/api/v1/cards/tool":
                        assert answer.json() == TOOL, "the same for everybody"
                        continue
                    if path == "/api/v1/cassettes":
                        assert answer.json() == {"end": {"calls": 0}}
                        continue
                    shown = next(iter(answer.json().values()))
                    if path.endswith("/keys"):
                        assert [each["name"] for each in shown] == ["b"], "the one that asks"
                    else:
                        assert shown in ([], 0, None), (path, answer.text)
                    tried += 1
        assert tried > 25
        # The same names are other things here.
        body = {"user": "ana", "messages": [{"role": "user", "content": "mine"}]}
        mine = (await client.post(f"/api/v1/sessions/{of_a['session_id']}/messages", json=body)).json()
        assert mine["session_id"] != of_a["session_id"]
        assert mine["messages"][0]["turn_index"] == 1
    async with locked.client(key_a) as client:
        assert (await client.get("/api/v1/memories")).json() == own.json()
        rows = (await client.get("/api/v1/sessions/secret/history")).json()["messages"]
        assert [each["content"] for each in rows] == ["a canary"]
        assert (await client.get("/api/v1/queue")).json() == {"queued": 1, "running": 0, "dead": 0}


async def test_keys_are_listed_without_themselves(locked: WiredApi, admin: asyncpg.Connection[Any]) -> None:
    key, row = await locked.tenancy.create_key("acme", "laptop", user="ana", scopes=["read", "read"])
    await locked.tenancy.create_key("other", "x")
    assert await locked.tenancy.list_keys("acme") == [row]
    assert len(await locked.tenancy.list_keys()) == 2
    assert row.scopes == ["read"]
    assert await find_tables(admin, key) == set()
