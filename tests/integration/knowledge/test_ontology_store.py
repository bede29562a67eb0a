"""Ontologies: loaded whole, kept at hand for a short while, each tenant's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.errors import Conflict, StoreUnavailable
from app.features.knowledge.ontologies import FRESH_S, Ontologies, OntologyRows, OntologyStore, rows_of
from app.features.knowledge.ontology import NO_ONTOLOGY
from app.features.knowledge.ontology_yaml import OntologyDraft, read
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.clock import FakeClock
from tests.support.rows import read_relations
from tests.support.sample_domain import ONTOLOGY_YAML, sample_ontology

ANA, BOB = UUID(int=11), UUID(int=12)


def draft(text: str = ONTOLOGY_YAML) -> OntologyDraft:
    found = read(text).draft
    assert found is not None
    return found


class Bench:
    def __init__(self, pool: Pool) -> None:
        self.clock = FakeClock(datetime(2024, 10, 15, tzinfo=UTC))
        self.store = OntologyStore(pool, Queries.load(), self.clock)
        self.seconds = 0.0
        self.ontologies = Ontologies(self.store, now=lambda: self.seconds)

    async def load(self, tenant: UUID, text: str = ONTOLOGY_YAML) -> int:
        self.clock.move(timedelta(microseconds=1))
        found = draft(text)
        return await self.store.load(tenant, found.domain, text, *rows_of(found))


@pytest.fixture
def bench(pool: Pool) -> Bench:
    return Bench(pool)


async def test_what_is_loaded_comes_back_the_same(bench: Bench, admin: asyncpg.Connection[Any]) -> None:
    assert await bench.load(ANA) == 1
    found = await bench.ontologies.of(ANA)
    assert dict(found.types) == dict(sample_ontology().types)
    assert tuple(found.relations) == tuple(sample_ontology().relations)
    (row,) = await read_relations(admin, relation_type="creates")
    assert (row["from_entity_type"], row["to_entity_type"], row["cardinality"]) == (
        "sales_order",
        "work_order",
        "one_to_many",
    )
    assert '"join_on": "domain.sales_orders.so_id = domain.work_orders.so_id"' in row["join_spec"]


async def test_a_load_takes_the_place_of_the_last_one(bench: Bench) -> None:
    await bench.load(ANA)
    first = await bench.ontologies.of(ANA)
    small = "domain: erp\ntypes: {customer: {table: customers, key: id}}\n"
    assert await bench.load(ANA, small) == 2
    assert await bench.ontologies.of(ANA) is first, "not asked again so soon"
    bench.seconds += FRESH_S
    second = await bench.ontologies.of(ANA)
    assert (set(second.types), len(second.relations)) == ({"customer"}, 0)
    assert second.version != first.version
    bench.seconds += FRESH_S
    assert await bench.ontologies.of(ANA) is second
    ((domain, version, source, _),) = await bench.store.sources(ANA)
    assert (domain, version, source) == ("erp", 2, small)


async def test_two_domains_are_one_ontology_and_share_no_type(bench: Bench) -> None:
    await bench.load(ANA)
    crm = "domain: crm\ntypes: {lead: {table: leads, key: id}}\n"
    await bench.load(ANA, crm)
    assert {"lead", "customer"} <= set((await bench.ontologies.of(ANA)).types)
    with pytest.raises(Conflict, match="erp has a type customer"):
        await bench.load(ANA, crm.replace("lead:", "customer:"))
    assert {each.domain for each in await bench.store.sources(ANA)} == {"crm", "erp"}
    assert [each["name"] for each in (await bench.store.read(ANA)).types if each["domain"] == "crm"] == ["lead"]
    assert await bench.store.remove(ANA, "erp")
    assert not await bench.store.remove(ANA, "erp")
    bench.seconds += FRESH_S
    assert set((await bench.ontologies.of(ANA)).types) == {"lead"}


async def test_a_tenant_sees_its_own_alone(bench: Bench) -> None:
    await bench.load(ANA)
    assert await bench.ontologies.of(BOB) is NO_ONTOLOGY
    assert await bench.store.sources(BOB) == []
    assert not await bench.store.remove(BOB, "erp")
    assert await bench.load(BOB, "domain: erp\ntypes: {customer: {table: theirs, key: id}}\n") == 1
    assert (await bench.ontologies.of(ANA)).types["customer"].table == "domain.customers"


class Away(OntologyStore):
    """A store that is there, until it is not."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0

    async def version(self, tenant: UUID) -> int:
        self.asked += 1
        if self.away:
            raise StoreUnavailable
        return 1

    async def read(self, tenant: UUID) -> OntologyRows:
        types, relations = rows_of(draft())
        return OntologyRows(1, types, relations)


async def test_while_the_database_is_away_the_last_one_counts() -> None:
    store, seconds = Away(), [0.0]
    ontologies = Ontologies(store, now=lambda: seconds[0])
    known = await ontologies.of(ANA)
    store.away = True
    seconds[0] += FRESH_S
    assert await ontologies.of(ANA) is known
    with pytest.raises(StoreUnavailable):
        await ontologies.of(BOB)


async def test_not_more_than_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    few = 3
    monkeypatch.setattr("app.features.knowledge.ontologies.TENANTS", few)
    store = Away()
    ontologies = Ontologies(store, now=lambda: 0.0)
    for n in range(few + 1):
        await ontologies.of(UUID(int=n))
    asked = store.asked
    await ontologies.of(UUID(int=few))
    assert store.asked == asked
    await ontologies.of(UUID(int=0))
    assert store.asked == asked + 1
