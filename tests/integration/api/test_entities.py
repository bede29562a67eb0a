"""/api/v1/entities over real Postgres: things by hand, their aliases, and what a mention means (seed 004)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from app.features.knowledge.routes import MAX_PROPERTY_BYTES
from app.store.pools import Pool
from tests.support.cases import cases
from tests.support.labelled_mentions import ONTOLOGY, Rows
from tests.support.wired_api import WiredApi, all_pages, build_api, error_of, make_space

ENTITIES = "/api/v1/entities"


@pytest.fixture
async def knowing(pool: Pool, admin: asyncpg.Connection[Any], database: str) -> WiredApi:
    """The API, in open mode, with a database of the business's own."""
    return await build_api(pool, await make_space(admin), dsn=database, finder=Rows(), ontology=ONTOLOGY)


@pytest.fixture
async def business(knowing: WiredApi) -> AsyncIterator[httpx.AsyncClient]:
    async with knowing.client() as client:
        yield client


async def make(client: httpx.AsyncClient, name: str, kind: str = "customer", **fields: Any) -> dict[str, Any]:
    answer = await client.post(ENTITIES, json={"type": kind, "name": name} | fields)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def resolve(client: httpx.AsyncClient, mention: str, **fields: Any) -> dict[str, Any]:
    answer = await client.post(f"{ENTITIES}/resolve", json={"mention": mention} | fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_thing_is_made_read_changed_and_taken_away(client: httpx.AsyncClient) -> None:
    made = await make(client, "Gai Media Entertainment", key="gai_123", properties={"industry": "media"})
    assert (made["id"], made["type"], made["user"], made["external_ref"]) == ("customer:gai_123", "customer", None, {})
    one = f"{ENTITIES}/customer:gai_123"
    assert (await client.get(one)).json() == made

    changed = (await client.patch(one, json={"name": "Gai Media"})).json()
    assert (changed["name"], changed["properties"]) == ("Gai Media", {"industry": "media"})
    assert (await resolve(client, "gai media"))["canonical_entity_id"] == "customer:gai_123"
    assert (await resolve(client, "Gai Media Entertainment"))["canonical_entity_id"] is None

    await client.post(f"{one}/aliases", json={"alias": "GM"})
    assert (await client.delete(one)).json() == {"id": "customer:gai_123", "deleted": True}
    for method in ("GET", "DELETE"):
        assert (await client.request(method, one)).status_code == 404
    assert (await client.patch(one, json={"name": "x"})).status_code == 404
    assert (await resolve(client, "GM"))["canonical_entity_id"] is None


async def test_an_id_is_made_of_the_name_and_is_there_once(client: httpx.AsyncClient) -> None:
    assert (await make(client, "Kai & Brothers"))["id"] == "customer:kai_brothers"
    answer = await client.post(ENTITIES, json={"type": "customer", "name": "kai brothers"})
    assert answer.status_code == 409
    assert error_of(answer)["param"] == "id"
    assert (await make(client, "Kai Brothers", user="ana"))["user"] == "ana", "a user's own stands beside the tenant's"


async def test_they_are_listed_by_type_and_words_page_by_page(client: httpx.AsyncClient) -> None:
    for n in range(5):
        await make(client, f"Delta {n}")
    await make(client, "Anvil", kind="product")
    await make(client, "Delta of Ana", user="ana")
    await make(client, "Anvil!", kind="product", user="ana", key="anvil")

    tenants = await all_pages(client, ENTITIES, "entities", limit=2)
    assert [each["id"] for each in tenants] == [*(f"customer:delta_{n}" for n in range(5)), "product:anvil"]
    own = await all_pages(client, ENTITIES, "entities", limit=3, user="ana")
    assert len(own) == 7
    assert {each["id"]: each["name"] for each in own}["product:anvil"] == "Anvil!", "her own in place of the tenant's"
    products = await all_pages(client, ENTITIES, "entities", type="product")
    assert [each["id"] for each in products] == ["product:anvil"]
    assert len(await all_pages(client, ENTITIES, "entities", query="DELTA", limit=2)) == 5
    assert await all_pages(client, ENTITIES, "entities", query="%") == tenants, "without a letter it says nothing"
    assert await all_pages(client, ENTITIES, "entities", query="d_lta") == []


async def test_aliases_of_the_tenant_and_of_a_user(client: httpx.AsyncClient) -> None:
    await make(client, "Acme Corporation", key="acme")
    one = f"{ENTITIES}/customer:acme/aliases"
    everybodys = (await client.post(one, json={"alias": "ACME"})).json()
    own = (await client.post(one, json={"alias": "the big one", "user": "ana"})).json()
    assert (everybodys["user"], own["user"], own["source"]) == (None, "ana", "user_stated")
    assert own["confidence"] == pytest.approx(0.95)

    assert [each["alias"] for each in await all_pages(client, one, "aliases", limit=1)] == ["ACME"]
    listed = await all_pages(client, one, "aliases", limit=1, user="ana")
    assert [each["alias"] for each in listed] == ["ACME", "the big one"]
    assert (await resolve(client, "The Big One", user="ana"))["resolution_method"] == "known_alias"
    assert (await resolve(client, "The Big One", user="ben"))["canonical_entity_id"] is None

    gone = await client.delete(f"{one}/{own['id']}", params={"user": "ana"})
    assert gone.json() == {"id": own["id"], "deleted": True}
    for alias in (own["id"], "nonsense"):
        assert (await client.delete(f"{one}/{alias}", params={"user": "ana"})).status_code == 404
    assert (await client.delete(f"{one}/{everybodys['id']}", params={"user": "ben"})).status_code == 200
    for method in ("GET", "POST"):
        answer = await client.request(method, f"{ENTITIES}/customer:none/aliases", json={"alias": "x"})
        assert answer.status_code == 404


async def test_the_seeds_key_resolves(business: httpx.AsyncClient) -> None:
    """Seed 004: resolve("SO-1001") → order:so_1001, 0.95."""
    found = await resolve(business, "SO-1001", user="ana")
    assert found == {
        "canonical_entity_id": "sales_order:so_1001",
        "canonical_name": "Sales Order SO-1001",
        "confidence": 0.95,
        "resolution_method": "domain_db",
        "alternatives": [],
        "requires_disambiguation": False,
    }
    assert (await resolve(business, "so-1001", user="ben"))["resolution_method"] == "known_alias"
    stored = (await business.get(f"{ENTITIES}/sales_order:so_1001")).json()
    assert stored["external_ref"] == {"domain": "erp", "table": "sales_orders", "column": "id", "key": "SO-1001"}


async def test_what_nobody_knows(business: httpx.AsyncClient) -> None:
    for mention in ("Blorb", "SO-9999", "%%%", "'; --", "\x00"):
        found = await resolve(business, mention)
        assert (found["canonical_entity_id"], found["confidence"], found["alternatives"]) == (None, 0.0, [])


async def test_a_choice_settles_what_is_ambiguous(business: httpx.AsyncClient) -> None:
    found = await resolve(business, "Orion", user="ana")
    assert found["requires_disambiguation"]
    assert [each["canonical_name"] for each in found["alternatives"]] == ["Orion Shipping", "Orion Textiles"]
    chosen = await business.post(
        f"{ENTITIES}/choose", json={"mention": "Orion", "user": "ana", "entity": "customer:orion_2"}
    )
    assert chosen.status_code == 200, chosen.text
    assert (chosen.json()["source"], chosen.json()["user"]) == ("user_stated", "ana")
    assert (await resolve(business, "Orion", user="ana"))["canonical_entity_id"] == "customer:orion_2"
    assert (await resolve(business, "Orion", user="ben"))["requires_disambiguation"]
    none = await business.post(f"{ENTITIES}/choose", json={"mention": "Orion", "entity": "customer:none"})
    assert none.status_code == 404
    assert error_of(none)["param"] == "entity"


async def test_a_session_says_who_they_are(business: httpx.AsyncClient) -> None:
    await make(business, "Gai Media")
    said = [{"role": "user", "content": "Gai Media called."}, {"role": "assistant", "content": "About what?"}]
    await business.post("/api/v1/sessions/s/messages", json={"user": "ana", "messages": said})
    found = await resolve(business, "they", user="ana", session="s")
    assert (found["canonical_entity_id"], found["resolution_method"]) == ("customer:gai_media", "coreference")
    assert found["confidence"] == pytest.approx(0.60 * 0.60653, rel=1e-4), "two messages ago"
    with_text = await resolve(business, "they", user="ana", text="Gai Media is late. Do they know?")
    assert with_text["confidence"] == pytest.approx(0.60)
    for user, session in (("ben", "s"), ("ana", "none")):
        answer = await business.post(f"{ENTITIES}/resolve", json={"mention": "they", "user": user, "session": session})
        assert answer.status_code == 404, (user, session)


async def test_a_key_of_one_user_changes_only_what_is_theirs(locked: WiredApi) -> None:
    whole, _ = await locked.tenancy.create_key("acme", "all")
    own, _ = await locked.tenancy.create_key("acme", "one", user="ana")
    other, _ = await locked.tenancy.create_key("other", "all")
    async with locked.client(whole) as client:
        await make(client, "Gai Media", key="gai")
        alias = (await client.post(f"{ENTITIES}/customer:gai/aliases", json={"alias": "GM"})).json()
        await make(client, "Bens", user="ben", key="bens")
        answer = await client.post(f"{ENTITIES}/resolve", json={"mention": "GM"})
        assert answer.status_code == 400, "whose?"
    async with locked.client(own) as client:
        made = await make(client, "Mine", key="mine")
        assert made["user"] == "ana"
        assert [each["id"] for each in await all_pages(client, ENTITIES, "entities")] == [
            "customer:gai",
            "customer:mine",
        ]
        for method, path, body in (
            ("PATCH", "customer:gai", {"name": "x"}),
            ("DELETE", "customer:gai", None),
            ("DELETE", f"customer:gai/aliases/{alias['id']}", None),
        ):
            refused = await client.request(method, f"{ENTITIES}/{path}", json=body)
            assert refused.status_code == 403, path
            assert error_of(refused)["type"] == "permission_error"
        assert (await client.post(ENTITIES, json={"type": "x", "name": "y", "user": "ben"})).status_code == 403
        assert (await client.get(f"{ENTITIES}/customer:bens")).status_code == 404
        own_alias = (await client.post(f"{ENTITIES}/customer:gai/aliases", json={"alias": "my gai"})).json()
        assert own_alias["user"] == "ana"
        assert (await client.patch(f"{ENTITIES}/customer:mine", json={"name": "Ours"})).json()["name"] == "Ours"
        assert (await client.delete(f"{ENTITIES}/customer:mine")).status_code == 200
    async with locked.client(other) as client:
        assert (await client.get(ENTITIES)).json() == {"entities": [], "next": None}
        assert (await client.get(f"{ENTITIES}/customer:gai")).status_code == 404
        assert (await resolve(client, "Gai Media", user="ana"))["canonical_entity_id"] is None


@cases(
    "body",
    [
        {"type": "Customer", "name": "x"},
        {"type": "customer", "name": ""},
        {"type": "customer", "name": "%%"},
        {"type": "customer", "name": "x" * 121},
        {"type": "customer", "name": "x", "key": "a b"},
        {"type": "customer", "name": "x", "key": "a\nb"},
        {"type": "customer", "name": "x", "key": ""},
        {"type": "customer", "name": "x", "properties": {"a": "y" * MAX_PROPERTY_BYTES}},
        {"type": "customer", "name": "my password is hunter2hunter2"},
        {"type": "customer"},
        {"type": "customer", "name": "x", "more": 1},
    ],
)
async def test_bad_things_are_refused(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    answer = await client.post(ENTITIES, json=body)
    assert answer.status_code == 400, answer.text
    error_of(answer)
    assert (await client.get(ENTITIES)).json()["entities"] == []


async def test_a_key_may_hold_a_slash(client: httpx.AsyncClient) -> None:
    made = await make(client, "Odd", key="a/b?c#d%")
    path = f"{ENTITIES}/customer:a%2Fb%3Fc%23d%25"
    assert (await client.get(path)).json() == made
    assert (await client.delete(path)).status_code == 200
