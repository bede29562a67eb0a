"""/api/v1/conflicts: whose contradictions are seen, and what a decision does."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx

from app.features.knowledge.inquiry import ConflictLog
from app.store import ids
from app.store.ids import LOCAL_TENANT
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.cases import cases
from tests.support.lives import put, told
from tests.support.rows import insert_row, read_memory
from tests.support.wired_api import WiredApi, error_of

ANA = ids.user_id(LOCAL_TENANT, "ana")
GAI = "customer:gai_123"
PATH = "/api/v1/conflicts"


async def memory(admin: asyncpg.Connection[Any], api: WiredApi, value: str, **given: Any) -> UUID:
    """A memory of Gai's payment terms."""
    at = api.clock.now()
    return await put(
        admin,
        **{
            "user_id": ANA, "tenant_id": LOCAL_TENANT, "content_text": f"Gai Media's payment terms are {value}",
            "created_at": at, "updated_at": at, "subject_entity_id": GAI, "predicate": "payment_terms",
            "object_value": value, "confidence": 0.7,
        } | given,
    )  # fmt: skip


async def log(
    admin: asyncpg.Connection[Any], api: WiredApi, memories: list[UUID], *, row: str | None = None, **given: Any
) -> UUID:
    """An open contradiction, `memories` against each other or the first against a row."""
    at = given.pop("at", api.clock.now())
    conflict = ids.uuid7(at)
    told = [
        {"memory_id": str(each), "predicate": "payment_terms", "value": f"NET{n}"} for n, each in enumerate(memories)
    ]
    data: dict[str, Any] = {"conflict_type": "memory_vs_memory", "subject": GAI, "memories": told}
    if row is not None:
        source = {
            "domain": "erp", "table": "domain.customers", "field": "payment_terms", "value": row,
            "queried_at": at.isoformat(),
        }  # fmt: skip
        data = {"conflict_type": "memory_vs_db", "memory": told[0], "db_source": source}
    columns = {
        "conflict_data": json.dumps(data),
        "conflict_id": conflict, "user_id": ANA, "tenant_id": LOCAL_TENANT, "conflict_type": data["conflict_type"],
        "memory_ids": memories, "resolution_strategy": "ask_user" if row else "both", "created_at": at, "entity_id": GAI,
    } | given  # fmt: skip
    await insert_row(admin, "memory_conflicts", **columns)
    return conflict


async def test_they_are_listed_and_read(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    now = api.clock.now()
    one = await memory(admin, api, "NET30")
    first = await log(admin, api, [one], row="NET15", at=now - timedelta(days=2))
    other = await log(
        admin, api, [one], row="NET60", at=now - timedelta(days=1), resolved_at=now, entity_id="customer:acme"
    )
    bo = ids.user_id(LOCAL_TENANT, "bo")
    theirs = await log(admin, api, [ids.uuid7(now), ids.uuid7(now)], user_id=bo)

    async def listed(**params: Any) -> list[str]:
        answer = await client.get(PATH, params=params)
        assert answer.status_code == 200, answer.text
        return [each["id"] for each in answer.json()["conflicts"]]

    assert await listed() == [str(theirs), str(other), str(first)]
    assert await listed(user="ana") == [str(other), str(first)]
    assert await listed(user="ana", status="open") == [str(first)]
    assert await listed(status="resolved") == [str(other)]
    assert await listed(type="memory_vs_memory") == [str(theirs)]
    assert await listed(entity="customer:acme") == [str(other)]
    page = (await client.get(PATH, params={"limit": 1})).json()
    rest = (await client.get(PATH, params={"cursor": page["next"]})).json()
    assert [each["id"] for each in rest["conflicts"]] == [str(other), str(first)]
    assert rest["next"] is None
    shown = (await client.get(f"{PATH}/{first}")).json()
    assert (shown["status"], shown["entity"], shown["predicate"]) == ("open", GAI, "payment_terms")
    assert shown["data"]["db_source"]["value"] == "NET15"
    assert (await client.get(f"{PATH}/{first}", params={"user": "bo"})).status_code == 404
    assert (await client.get(f"{PATH}/nonsense")).status_code == 404
    assert (await client.get(PATH, params={"status": "maybe"})).status_code == 400


@cases(
    ("keep", "becomes", "event"),
    [("memory", "active", "confirmed"), ("domain", "invalidated", "invalidated"), ("both", "active", "confirmed")],
)
async def test_a_decision_about_a_row(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any], keep: str, becomes: str, event: str
) -> None:
    one = await memory(admin, api, "NET30", status="aging", details='{"in_conflict": "x"}')
    conflict = await log(admin, api, [one], row="NET15")
    answer = await client.post(f"{PATH}/{conflict}/resolve", json={"keep": keep, "note": "asked them"})
    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["status"], shown["outcome"]["keep"], shown["outcome"]["note"]) == ("resolved", keep, "asked them")
    row = await read_memory(admin, one)
    assert (row["status"], row["details"]) == (becomes, "{}")
    assert await told(admin, one) == [event]
    again = await client.post(f"{PATH}/{conflict}/resolve", json={"keep": keep})
    assert again.status_code == 409
    assert error_of(again)["code"] == "resolved"


@cases(("body", "kept"), [({"keep": "memory"}, 0), ({"keep": "other"}, 1), ({"memory": 1}, 1)])
async def test_a_decision_between_two_memories(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any], body: dict[str, Any], kept: int
) -> None:
    two = [await memory(admin, api, "NET30"), await memory(admin, api, "NET15")]
    conflict = await log(admin, api, two)
    if "memory" in body:
        body = {"keep": "memory", "memory_id": str(two[body["memory"]])}
    answer = await client.post(f"{PATH}/{conflict}/resolve", json=body)
    assert answer.status_code == 200, answer.text
    assert (await read_memory(admin, two[kept]))["status"] == "active"
    other = await read_memory(admin, two[1 - kept])
    assert (other["status"], other["superseded_by"]) == ("superseded", two[kept])


async def test_what_had_ended_comes_back_when_it_is_kept(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    two = [await memory(admin, api, "NET30"), await memory(admin, api, "NET15", status="invalidated")]
    conflict = await log(admin, api, two)
    assert (await client.post(f"{PATH}/{conflict}/resolve", json={"keep": "other"})).status_code == 200
    assert [(await read_memory(admin, each))["status"] for each in two] == ["superseded", "active"]


@cases(
    "body",
    [
        {},
        {"keep": "nothing"},
        {"keep": "domain"},
        {"keep": "memory", "memory_id": "00000000-0000-0000-0000-000000000001"},
        {"keep": "memory", "further": 1},
    ],
)
async def test_what_is_no_decision_changes_nothing(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any], body: dict[str, Any]
) -> None:
    two = [await memory(admin, api, "NET30"), await memory(admin, api, "NET15")]
    conflict = await log(admin, api, two)
    assert (await client.post(f"{PATH}/{conflict}/resolve", json=body)).status_code == 400
    assert [(await read_memory(admin, each))["status"] for each in two] == ["active", "active"]
    assert (await client.get(f"{PATH}/{conflict}")).json()["status"] == "open"


async def test_a_conflict_with_one_memory_has_no_other(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    conflict = await log(admin, api, [await memory(admin, api, "NET30")], row="NET15")
    assert (await client.post(f"{PATH}/{conflict}/resolve", json={"keep": "other"})).status_code == 400


async def test_a_key_for_one_user_sees_its_own(locked: WiredApi, admin: asyncpg.Connection[Any]) -> None:
    conflict = await log(admin, locked, [await memory(admin, locked, "NET30")], row="NET15")
    bo, _ = await locked.tenancy.create_key("local", "bo", user="bo")
    ana, _ = await locked.tenancy.create_key("local", "ana", user="ana")
    stranger, _ = await locked.tenancy.create_key("elsewhere", "app")
    for key in (bo, stranger):
        async with locked.client(key) as client:
            assert (await client.get(PATH)).json()["conflicts"] == []
            assert (await client.get(f"{PATH}/{conflict}")).status_code == 404
            assert (await client.post(f"{PATH}/{conflict}/resolve", json={"keep": "both"})).status_code == 404
    async with locked.client(ana) as client:
        assert [each["id"] for each in (await client.get(PATH)).json()["conflicts"]] == [str(conflict)]


async def test_the_log_as_a_prompt_is_told_it(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any], pool: Pool
) -> None:
    """Open ones, and those that were resolved since; of the things that are asked for."""
    now = api.clock.now()
    one = await memory(admin, api, "NET30")
    opened = await log(admin, api, [one], row="NET15", at=now - timedelta(days=3))
    await log(admin, api, [one], row="NET20", at=now - timedelta(days=9), resolved_at=now - timedelta(days=8))
    lately = await log(
        admin,
        api,
        [one, ids.uuid7(now)],
        resolved_at=now,
        resolution_outcome='{"action": "supersede_memory", "winner": "x"}',
    )
    await log(admin, api, [one], row="NET15", entity_id="customer:acme")
    await log(admin, api, [one], row="NET15", dedup_scope=ids.uuid7(now))
    log_ = ConflictLog(pool, Queries.load())
    found = await log_.of_entities(LOCAL_TENANT, ANA, [GAI], since=now - timedelta(days=7))
    assert {each.conflict_id for each in found} == {opened, lately}
    by_id = {each.conflict_id: each for each in found}
    row = by_id[opened].row
    assert row is not None
    assert (row.value, by_id[opened].stands, by_id[opened].strategy) == ("NET15", None, "ask_user")
    assert by_id[opened].since == now - timedelta(days=3)
    assert (by_id[lately].memory_value, by_id[lately].other_value, by_id[lately].stands) == ("NET0", "NET1", "memory")
    assert await log_.of_entities(LOCAL_TENANT, ANA, [], since=now) == []
    assert await log_.of_entities(UUID(int=0xB), ANA, [GAI], since=now - timedelta(days=7)) == []
