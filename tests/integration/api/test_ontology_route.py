"""/api/v1/ontology over real Postgres."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.sample_domain import ONTOLOGY_YAML
from tests.support.wired_api import WiredApi, error_of

PATH = "/api/v1/ontology"
ERP = f"{PATH}/erp"


async def test_an_ontology_is_put_read_and_taken_away(client: httpx.AsyncClient) -> None:
    assert (await client.get(PATH)).json() == {"domains": []}
    answer = await client.put(ERP, json={"source": ONTOLOGY_YAML})
    assert answer.json() == {"domain": "erp", "version": 1, "types": 7, "relations": 7, "findings": []}
    (domain,) = (await client.get(PATH)).json()["domains"]
    assert (domain["domain"], domain["version"], domain["source"]) == ("erp", 1, ONTOLOGY_YAML)
    order = next(each for each in domain["types"] if each["name"] == "sales_order")
    assert (order["table"], order["key"], order["time"]) == ("domain.sales_orders", "so_id", "order_date")
    assert domain["relations"][0] == {
        "from_entity_type": "customer",
        "relation_type": "has",
        "to_entity_type": "sales_order",
        "cardinality": "one_to_many",
        "relation_semantics": "Customer places orders",
        "join_spec": {
            "from_table": "domain.customers",
            "to_table": "domain.sales_orders",
            "join_on": "domain.customers.customer_id = domain.sales_orders.customer_id",
            "columns": [["customer_id", "customer_id"]],
        },
        "constraints": {"business_rule": "customer.status='Active' required for new orders"},
    }
    assert (await client.put(ERP, json={"source": ONTOLOGY_YAML})).json()["version"] == 2
    assert (await client.delete(ERP)).json() == {"domain": "erp", "removed": True}
    assert (await client.delete(ERP)).status_code == 404
    assert (await client.get(PATH)).json() == {"domains": []}


async def test_what_is_doubtful_is_taken_and_said(client: httpx.AsyncClient) -> None:
    text = "domain: erp\ntypes:\n  a: {table: a, key: id, identifier: '[a-z]+'}\n"
    (finding,) = (await client.put(ERP, json={"source": text})).json()["findings"]
    assert (finding["level"], finding["line"]) == ("warning", 3)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            ONTOLOGY_YAML.replace("key: so_id", "kee: so_id"),
            "line 34, column 5: types.sales_order has no key 'kee' (is key meant?)",
        ),
        (ONTOLOGY_YAML.replace("domain: erp", "domain: crm"), "is of the domain crm, not of erp"),
        ("a: &x [*x]", "line 1"),
        ("[" * 50_000, "nested deeper"),
        ("x" * (256 * 1024 + 1), "source"),
    ],
)
async def test_a_file_that_is_wrong_is_refused_with_its_line(client: httpx.AsyncClient, source: str, told: str) -> None:
    await client.put(ERP, json={"source": ONTOLOGY_YAML})
    answer = await client.put(ERP, json={"source": source})
    assert answer.status_code == 400
    error = error_of(answer)
    assert told in error["message"] + str(error["param"])
    (domain,) = (await client.get(PATH)).json()["domains"]
    assert domain["version"] == 1, "nothing of it was stored"


async def test_what_is_no_ontology_is_refused(client: httpx.AsyncClient) -> None:
    bodies: list[Any] = [{}, {"source": 1}, {"source": ""}, {"source": "x", "more": 1}, []]
    for body in bodies:
        assert (await client.put(ERP, json=body)).status_code == 400
    for name in ("Erp", "a b", "x" * 64, "1"):
        assert (await client.put(f"{PATH}/{name}", json={"source": ONTOLOGY_YAML})).status_code == 400


async def test_types_of_another_domain_are_a_conflict(client: httpx.AsyncClient) -> None:
    await client.put(ERP, json={"source": ONTOLOGY_YAML})
    answer = await client.put(f"{PATH}/crm", json={"source": ONTOLOGY_YAML.replace("domain: erp", "domain: crm")})
    assert answer.status_code == 409
    assert "has a type contact already" in error_of(answer)["message"]


async def test_only_who_manages_the_tenant_changes_it_and_only_its_own(locked: WiredApi) -> None:
    managing, _ = await locked.tenancy.create_key("acme", "k")
    writing, _ = await locked.tenancy.create_key("acme", "k", scopes=["read", "write"])
    bobs, _ = await locked.tenancy.create_key("acme", "k", user="bob")
    strange, _ = await locked.tenancy.create_key("other", "k")
    async with locked.client(managing) as client:
        assert (await client.put(ERP, json={"source": ONTOLOGY_YAML})).status_code == 200
    async with locked.client(writing) as client:
        assert (await client.put(ERP, json={"source": ONTOLOGY_YAML})).status_code == 403
        assert (await client.delete(ERP)).status_code == 403
        assert len((await client.get(PATH)).json()["domains"]) == 1
    async with locked.client(bobs) as client:
        for answer in (await client.get(PATH), await client.put(ERP, json={"source": "x"}), await client.delete(ERP)):
            assert answer.status_code == 403
    async with locked.client(strange) as client:
        assert (await client.get(PATH)).json() == {"domains": []}
        assert (await client.delete(ERP)).status_code == 404
