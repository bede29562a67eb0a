"""Entities and conflicts on the page, over real Postgres: what things are called, what a mention means, what stands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app.store import ids
from app.store.pools import Pool
from tests.support.cases import cases
from tests.support.labelled_mentions import ONTOLOGY, Rows
from tests.support.lives import put
from tests.support.rows import insert_row
from tests.support.sample_domain import ONTOLOGY_YAML
from tests.support.talk_pages import Form, Shown, Visitor, visiting
from tests.support.wired_api import WiredApi, build_api, make_space

HOSTILE = '"><script>alert(1)</script>' + "long" * 40
ANA = ids.user_id(ids.LOCAL_TENANT, "ana")
GAI = "customer:gai_123"


@pytest.fixture
async def wired(pool: Pool, admin: asyncpg.Connection[Any], database: str) -> WiredApi:
    return await build_api(pool, await make_space(admin), dsn=database, finder=Rows(), ontology=ONTOLOGY)


@pytest.fixture
async def api(wired: WiredApi) -> AsyncIterator[httpx.AsyncClient]:
    async with wired.client() as client:
        yield client


@pytest.fixture
async def visitor(wired: WiredApi) -> AsyncIterator[Visitor]:
    async with visiting(wired) as visitor:
        yield visitor


def with_button(page: Shown, button: str) -> Form:
    return next(each for each in page.forms if button in each.buttons)


async def make(api: httpx.AsyncClient, name: str, kind: str = "customer", **fields: Any) -> str:
    answer = await api.post("/api/v1/entities", json={"type": kind, "name": name} | fields)
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["id"]
    return made


# --- entities ----------------------------------------------------------------------------------------------------------------


async def test_things_are_listed_made_and_called_otherwise(visitor: Visitor, api: httpx.AsyncClient) -> None:
    empty = await visitor.look("entities")
    assert "No things yet" in empty.text
    new = with_button(empty, "Make it")
    made = await visitor.press(new, "Make it", name="Gai Media", type="customer", key="gai_123", user="")
    assert "Gai Media is known now." in made.text
    assert "Only its name, so far" in made.text
    assert "is known" not in (await visitor.look(f"entities/{GAI}")).text, "said once"
    await make(api, "Casa da Música", "venue")
    await make(api, "Ana's own", "venue", user="ana")

    assert set((await visitor.look("entities?type=venue")).links) & {"Gai Media", "Casa da Música"} == {
        "Casa da Música"
    }
    assert "Ana's own" in (await visitor.look("entities?user=ana")).links
    assert "Ana's own" not in (await visitor.look("entities")).links
    assert "Nothing is called that" in (await visitor.look("entities?query=zeppelin")).text
    assert "A type is one word in lower case" in (await visitor.look("entities?type=No+Type", status=400)).text

    called = await visitor.press(with_button(made, "Add alias"), "Add alias", alias="Gai", user="ana")
    assert "“Gai” means it from now on." in called.text
    for said in ("Gai", "ana", "said, or chosen", "%"):
        assert said in called.text
    assert "Only its name, so far" in (await visitor.look(f"entities/{GAI}")).text, "it is ana's alias"
    gone = await visitor.press(with_button(called, "Remove alias"), "Remove alias")
    assert "It is not called that any more." in gone.text
    assert "Only its name, so far" in gone.text
    deleted = await visitor.press(with_button(gone, "Delete it"), "Delete it")
    assert "are gone" in deleted.text
    assert "Gai Media" not in deleted.links
    assert "There is no such thing" in (await visitor.look(f"entities/{GAI}", status=404)).text


async def test_what_a_mention_means(visitor: Visitor, api: httpx.AsyncClient) -> None:
    await make(api, "Orion Lights", key="one")
    await make(api, "Orion Sound", key="two")
    page = await visitor.look("entities/resolve?user=ana")
    form = with_button(page, "Resolve")
    assert form.fields["user"] == "ana"
    exact = await visitor.press(form, "Resolve", mention="orion lights", user="ana")
    assert exact.links["Orion Lights"] == "/ui/entities/customer%3Aone?user=ana"
    assert "100 % sure" in exact.text
    assert "Exact name : found here (1.0) Known alias : not needed (rank of the alias, at most 0.95)" in exact.text

    unclear = await visitor.press(form, "Resolve", mention="Orion", user="ana")
    assert "ambiguous" in unclear.text
    assert {"Orion Lights", "Orion Sound"} <= set(unclear.links)
    wanted = next(each for each in unclear.forms if each.fields.get("entity") == "customer:two")
    chosen = await visitor.press(wanted, "This one is meant")
    assert "“Orion” means this to ana from now on." in chosen.text
    again = await visitor.press(form, "Resolve", mention="Orion", user="ana")
    assert again.links["Orion Sound"]
    assert "Exact name : nothing (1.0) Known alias : found here" in again.text

    nothing = await visitor.press(form, "Resolve", mention="Zeppelin", user="ana")
    assert "Nothing that is known" in nothing.text
    assert (
        "There is no such session"
        in (await visitor.press(form, "Resolve", mention="they", session="none", user="ana", status=400)).text
    )


async def test_the_ontology_is_shown(visitor: Visitor, api: httpx.AsyncClient) -> None:
    assert "No database of the business’s own is described" in (await visitor.look("entities/ontology")).text
    loaded = await api.put("/api/v1/ontology/erp", json={"source": ONTOLOGY_YAML})
    assert loaded.status_code == 200, loaded.text
    page = await visitor.look("entities/ontology")
    for said in ("erp", "version 1", "domain.customers", "customer_id", "one to many", "domain: erp"):
        assert said in page.text


# --- conflicts ---------------------------------------------------------------------------------------------------------------


async def memory(admin: asyncpg.Connection[Any], wired: WiredApi, value: str, **given: Any) -> UUID:
    at = wired.clock.now()
    return await put(
        admin,
        **{
            "user_id": ANA, "tenant_id": ids.LOCAL_TENANT, "content_text": f"Gai Media's payment terms are {value}",
            "created_at": at, "updated_at": at, "subject_entity_id": GAI, "predicate": "payment_terms",
            "object_value": value, "confidence": 0.7,
        } | given,
    )  # fmt: skip


async def log(
    admin: asyncpg.Connection[Any], wired: WiredApi, values: list[str], *, row: str | None = None, **given: Any
) -> tuple[UUID, list[UUID]]:
    """An open contradiction of memories with these values, or of the one with a row."""
    at = wired.clock.now()
    memories = [await memory(admin, wired, value) for value in values]
    told = [
        {
            "memory_id": str(each),
            "predicate": "payment_terms",
            "value": value,
            "confidence": 0.7,
            "stated_at": at.isoformat(),
        }
        for each, value in zip(memories, values, strict=True)
    ]
    kind = "memory_vs_memory" if row is None else "memory_vs_db"
    data: dict[str, Any] = {"conflict_type": kind, "subject": GAI, "memories": told}
    if row is not None:
        source = {"domain": "erp", "table": "domain.customers", "field": "payment_terms", "value": row}
        data = {"conflict_type": kind, "memory": told[0], "db_source": source | {"queried_at": at.isoformat()}}
    conflict = ids.uuid7(at)
    await insert_row(
        admin, "memory_conflicts", conflict_data=json.dumps(data), conflict_id=conflict, user_id=ANA,
        tenant_id=ids.LOCAL_TENANT, conflict_type=kind, memory_ids=memories, created_at=at,
        resolution_strategy="ask_user" if row else "both", entity_id=given.get("entity", GAI),
    )  # fmt: skip
    return conflict, memories


async def test_conflicts_are_listed_by_status_type_and_thing(
    visitor: Visitor, wired: WiredApi, admin: asyncpg.Connection[Any]
) -> None:
    assert "Nothing contradicts" in (await visitor.look("conflicts")).text
    one, _ = await log(admin, wired, ["NET30"], row="NET15")
    two, _ = await log(admin, wired, [HOSTILE, "NET60"], entity="customer:acme")

    async def listed(query: str) -> set[str]:
        page = await visitor.look(f"conflicts?{query}")
        assert "<script>alert" not in page.html
        return {each for each in (str(one), str(two)) if f"/ui/conflicts/{each}" in page.html}

    assert await listed("") == await listed("status=all") == await listed("user=ana") == {str(one), str(two)}
    assert await listed("status=resolved") == await listed("user=bo") == set()
    assert await listed("type=memory_vs_db") == await listed(f"entity={GAI}") == {str(one)}
    assert "“NET30” memory “NET15” row" in (await visitor.look("conflicts?type=memory_vs_db")).text
    await visitor.look("conflicts?type=odd", status=400)


async def test_a_conflict_with_a_row_is_decided(
    visitor: Visitor, api: httpx.AsyncClient, wired: WiredApi, admin: asyncpg.Connection[Any]
) -> None:
    await api.post("/api/v1/users", json={"id": "ana"})
    conflict, [memory] = await log(admin, wired, ["NET30"], row="NET15")
    page = await visitor.look(f"conflicts/{conflict}")
    for said in (
        "customer:gai_123: payment terms",
        "NET30",
        "NET15",
        "domain.customers.payment_terms",
        "The user is asked",
    ):
        assert said in page.text
    assert page.links["Gai Media's payment terms are NET30"] == f"/ui/memories/{memory}?user=ana"
    assert not [each for each in page.forms if each.action.endswith("/resolve")], "asked before it is done"
    assert set(page.links) >= {"The memory: NET30", "The business's row: NET15", "Both"}
    asking = await visitor.look(page.links["The business's row: NET15"].partition("#")[0])
    assert "The business's row: NET15 stands? The memory is invalidated" in asking.text
    done = await visitor.press(with_button(asking, "Resolve"), "Resolve", note="they changed it <b>in May</b>")
    for said in (
        "Decided. The business's row stands",
        "gave way",
        "stands",
        "they changed it <b>in May</b>",
        "by hand",
    ):
        assert said in done.text
    assert "What stands?" not in done.text
    assert (await api.get(f"/api/v1/memories/{memory}", params={"user": "ana"})).json()["status"] == "invalidated"
    late = await visitor.press(with_button(asking, "Resolve"), "Resolve", status=409)
    assert "resolved already" in late.text
    assert "There is no such conflict" in (await visitor.look(f"conflicts/{memory}", status=404)).text


@cases(
    ("way", "kept"),
    [
        ("The first memory: NET30", ["active", "superseded"]),
        ("The second memory: NET15", ["superseded", "active"]),
        ("Both", ["active"] * 2),
    ],
)
async def test_a_conflict_of_two_memories_is_decided(
    visitor: Visitor, api: httpx.AsyncClient, wired: WiredApi, admin: asyncpg.Connection[Any], way: str, kept: list[str]
) -> None:
    conflict, memories = await log(admin, wired, ["NET30", "NET15"])
    page = await visitor.look(f"conflicts/{conflict}")
    asking = await visitor.look(page.links[way].partition("#")[0])
    done = await visitor.press(with_button(asking, "Resolve"), "Resolve")
    assert "Decided." in done.text
    found = [(await api.get(f"/api/v1/memories/{each}", params={"user": "ana"})).json()["status"] for each in memories]
    assert found == kept
