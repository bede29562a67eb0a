"""The business's own database, asked: seed 004's worked example, names and keys, rows, bounds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from app.context.question import asked_time
from app.context.resolution import Entity, Resolution
from app.errors import DomainAway
from app.features.knowledge.domain import AT_ONCE, PlanResult
from app.features.knowledge.domain_sql import WalkLimits, plan
from app.features.knowledge.ontology import Ontology
from app.features.knowledge.resolution import FoundEntities, FoundRow, RowQuery
from app.memory.episodes import SoughtRows
from app.store.ids import LOCAL_TENANT
from tests.integration.knowledge.conftest import Bench, Benches, source
from tests.support.database import connected
from tests.support.sample_domain import SampleDomain, sample_ontology

NOW = datetime(2024, 10, 15, tzinfo=UTC)
GAI = Entity("customer:gai_123", "customer", "Gai Media Entertainment")
ONTOLOGY = sample_ontology()


async def asked(bench: Bench, question: str, *entities: Entity, limits: WalkLimits | None = None) -> PlanResult:
    found = [Resolution("Gai Media", max(question.find("Gai Media"), 0), each, 0.95) for each in entities or (GAI,)]
    asks = plan(found, question, asked_time(question, NOW), ONTOLOGY, limits or WalkLimits())
    return await bench.domains.ask(LOCAL_TENANT, asks, ONTOLOGY, deadline_s=20)


@pytest.fixture
def bench(benches: Benches, sample: SampleDomain) -> Bench:
    return benches(erp=source(sample.dsn))


async def test_what_did_gai_media_order_last_month(bench: Bench) -> None:
    """Seed 004's worked example: two orders of September 2024, $5,700, three work orders, in three queries."""
    answer = await asked(bench, "What did Gai Media order last month?")
    assert [each.text for each in answer.facts] == [
        "Customer Gai Media Entertainment (customer:gai_123): industry: Entertainment; status: Active; payment_terms: NET15",
        "Sales orders of Gai Media Entertainment, September 2024:"
        " SO-1052 (2024-09-22): status: in_fulfillment, total_amount: 2200 — work orders: 1 in_progress;"
        " SO-1045 (2024-09-15): status: fulfilled, total_amount: 3500 — work orders: 2 done;"
        " 2 in all, total_amount 5700",
    ]
    assert [(each.table, each.result_count) for each in answer.queries] == [
        ("domain.customers", 1), ("domain.sales_orders", 2), ("domain.work_orders", 3),
    ]  # fmt: skip
    orders = next(each for each in answer.queries if each.query_type == "sales_order")
    assert orders.filters == {"customer_id": "gai_123", "date_range": ["2024-09-01", "2024-09-30"]}
    assert (orders.domain, orders.entity, orders.error) == ("erp", "customer:gai_123", None)
    assert answer.related == {
        "sales_order:SO-1045", "sales_order:SO-1052", "work_order:WO-501", "work_order:WO-502", "work_order:WO-503",
    }  # fmt: skip
    assert answer.rows["customer:gai_123"]["payment_terms"].value == "NET15"
    assert answer.rows["work_order:WO-503"]["status"].value == "in_progress"
    assert answer.reason is None
    assert bench.counted("answered") >= 3


async def test_a_habit_s_rows_are_those_that_it_names(bench: Bench) -> None:
    """Seed 004: {"domain_query": "sales_orders", "filter": {"status": "in_fulfillment"}}."""

    async def seen(where: tuple[tuple[str, str], ...]) -> PlanResult:
        found = [Resolution("Gai Media", 7, GAI, 0.95)]
        asks = plan(found, "How is Gai Media doing?", None, ONTOLOGY, rows=[SoughtRows("sales_orders", where)])
        return await bench.domains.ask(LOCAL_TENANT, asks, ONTOLOGY, deadline_s=20)

    answer = await seen((("status", "in_fulfillment"),))
    assert answer.facts[1].text.startswith("Sales orders of Gai Media Entertainment, status in_fulfillment: SO-1052")
    assert "SO-1045" not in answer.facts[1].text
    assert answer.queries[1].filters == {"customer_id": "gai_123", "status": "in_fulfillment"}
    assert (await seen((("status", "x' OR true --"),))).facts[1].text.endswith(": none")
    assert (await seen((("no such column", "1"),))).reason == "domain"


async def test_a_row_that_breaks_a_rule_is_a_finding_and_decides_nothing(bench: Bench) -> None:
    kind = ONTOLOGY.types["customer"]
    rules = {"payment_terms": {"one_of": ["NET30"]}, "industry": {"required": True}}
    strict = replace(ONTOLOGY, types={**ONTOLOGY.types, "customer": replace(kind, rules=rules)})
    found = [Resolution("Gai Media", 0, GAI, 0.95)]
    answer = await bench.domains.ask(LOCAL_TENANT, plan(found, "Gai Media?", None, strict), strict, deadline_s=20)
    assert answer.queries[0].findings == ("customer gai_123: payment_terms is NET15, none of NET30",)
    assert (answer.rows[GAI.id]["payment_terms"].value, answer.rows[GAI.id]["payment_terms"].strategy) == (
        "NET15", "ask_user",
    )  # fmt: skip
    assert {each.strategy for name, each in answer.rows[GAI.id].items() if name != "payment_terms"} <= {
        kind.conflicts.get(name, "trust_db") for name in kind.predicates
    }


async def test_two_hops_lead_to_what_is_asked_for(bench: Bench) -> None:
    answer = await asked(bench, "Has Gai Media paid?")
    assert [each.query_type for each in answer.facts] == ["customer", "payment"]
    assert answer.facts[1].text == (
        "Payments of Gai Media Entertainment: 1 (2024-07-18 14:30 UTC): amount: 1205, method: transfer; 1 in all"
    )


async def test_a_relation_is_walked_from_its_other_end(bench: Bench) -> None:
    order = Entity("sales_order:SO-1060", "sales_order", "Sales Order SO-1060")
    answer = await asked(bench, "Which customer and which product is it?", order)
    assert [each.text for each in answer.facts] == [
        "Sales Order SO-1060 (sales_order:SO-1060): status: fulfilled; total_amount: 241; order_date: 2024-09-18",
        "Product of Sales Order SO-1060: Flight Crate L: price: 120.50",
        "Customer of Sales Order SO-1060: Gail Industries: industry: Manufacturing, status: Active, payment_terms: NET30",
    ]


async def test_a_month_without_orders_has_none_and_says_so(bench: Bench) -> None:
    answer = await asked(bench, "What did Gai Media order in May 2023?")
    assert answer.facts[1].text == "Sales orders of Gai Media Entertainment, May 2023: none"


async def test_rows_are_bounded_and_what_is_missing_is_said(benches: Benches, sample: SampleDomain) -> None:
    async with connected(sample.owner) as owner:
        await owner.execute(
            "INSERT INTO domain.sales_orders SELECT 'SO-' || n, 'gai_123', NULL, 'new', 1, '2024-09-30'"
            " FROM generate_series(20000, 21500) n"
        )
    bench = benches(erp=source(sample.dsn, rows=3))
    answer = await asked(bench, "What did Gai Media order last month?")
    assert answer.facts[1].text.endswith("SO-20002 (2024-09-30): status: new, total_amount: 1; and more than 997 more")
    assert len([each for each in answer.related if each.startswith("sales_order")]) == 3


async def test_a_thing_without_a_row_is_told_nothing_of(bench: Bench) -> None:
    gone = Entity("customer:x'); DROP TABLE domain.customers; --", "customer", "X")
    answer = await asked(bench, "Tell me about Gai Media", gone)
    assert [each.result_count for each in answer.queries] == [0, 0, 0, 0]
    assert [each for each in answer.facts if each.query_type == "customer"] == []
    assert answer.reason is None


def ids_of(found: Sequence[FoundRow]) -> list[tuple[str, str, bool]]:
    return sorted((each.mention, each.entity.id, each.exact) for each in found)


async def test_things_are_found_by_key_and_by_name(bench: Bench) -> None:
    found, _ = await bench.domains.find(
        LOCAL_TENANT,
        [
            RowQuery("so-1045", ("sales_order",)), RowQuery("SO-9999", ("sales_order",)),
            RowQuery("gai media  ENTERTAINMENT", ()), RowQuery("Gai", ()), RowQuery("LED-PANEL", ()), RowQuery("priya", ()),
        ],
    )  # fmt: skip
    assert ids_of(found) == [
        ("Gai", "customer:gai_123", False),
        ("Gai", "customer:gail_456", False),
        ("LED-PANEL", "product:LED-PANEL", True),
        ("gai media  ENTERTAINMENT", "customer:gai_123", False),
        ("priya", "contact:1", False),
        ("so-1045", "sales_order:SO-1045", True),
    ]
    order = next(each for each in found if each.mention == "so-1045")
    assert (order.entity.name, order.table, order.column, order.key, order.domain) == (
        "Sales Order SO-1045", "domain.sales_orders", "so_id", "SO-1045", "erp",
    )  # fmt: skip
    assert order.properties == {"status": "fulfilled", "total_amount": "3500"}


@pytest.mark.parametrize(
    "mention",
    [
        "%",
        "___",
        "%%%%%%%%",
        "\\",
        "%' OR 1=1 --",
        "'; DROP TABLE domain.customers; --",
        "a\0b",
        "\ud800x",
        "",
        "   ",
        "x" * 10_000,
        "$1",
        "ai",
    ],
)
async def test_hostile_mentions_find_nothing_and_break_nothing(bench: Bench, mention: str) -> None:
    wanted = [RowQuery(mention, ()), RowQuery(mention, ("customer", "contact", "payment"))]
    assert await bench.domains.find(LOCAL_TENANT, wanted) == FoundEntities()
    assert bench.counted("changed") + bench.counted("unreachable") + bench.counted("refused") == 0
    assert len((await bench.domains.find(LOCAL_TENANT, [RowQuery("Delta Logistics", ())])).found) == 1


async def test_ten_thousand_names_cost_as_much_as_a_few(bench: Bench) -> None:
    flood = [RowQuery(f"name {n}", ()) for n in range(10_000)]
    assert await bench.domains.find(LOCAL_TENANT, flood) == FoundEntities()
    # Three tables are searched by whole names, then in part: and their catalog is read once for each.
    assert bench.counted("answered") <= 3 * 4


async def test_a_row_says_what_memories_are_compared_with(bench: Bench) -> None:
    rows = await bench.domains.rows(LOCAL_TENANT, GAI, ONTOLOGY)
    assert {name: each.value for name, each in rows.items()} == {
        "industry": "Entertainment", "status": "Active", "payment_terms": "NET15",
    }  # fmt: skip
    terms = rows["payment_terms"]
    assert (terms.domain, terms.table, terms.field, terms.strategy) == (
        "erp",
        "domain.customers",
        "payment_terms",
        "trust_db",
    )
    assert dict(await bench.domains.rows(LOCAL_TENANT, Entity("customer:nobody", "customer", ""), ONTOLOGY)) == {}
    assert dict(await bench.domains.rows(LOCAL_TENANT, Entity("person:ana", "person", "Ana"), ONTOLOGY)) == {}


async def test_a_tenant_that_was_just_made_has_its_domain_at_once(benches: Benches, sample: SampleDomain) -> None:
    bench = benches(erp=source(sample.dsn, tenants=["new"]))
    with pytest.raises(DomainAway):
        await bench.domains.rows(LOCAL_TENANT, GAI, ONTOLOGY)
    bench.tenants["new"] = LOCAL_TENANT
    assert (await bench.domains.rows(LOCAL_TENANT, GAI, ONTOLOGY))["payment_terms"].value == "NET15"


async def test_what_was_warmed_is_answered_at_once(bench: Bench) -> None:
    """Connections and catalog are there before the first question."""
    await bench.domains.warm()
    warmed = bench.counted("answered")
    assert warmed == 1 + AT_ONCE * len(ONTOLOGY.types) + 2, (
        "who may write; a row of each type; the catalog's tables and columns"
    )
    await bench.domains.rows(LOCAL_TENANT, GAI, ONTOLOGY)
    assert bench.counted("answered") == warmed + 1


async def test_a_domain_that_is_away_is_not_warmed_and_nothing_breaks(benches: Benches) -> None:
    bench = benches(erp=source("postgresql://nobody@127.0.0.1:1/erp"))
    await bench.domains.warm()
    assert bench.counted("unreachable") == 1


async def test_a_row_says_when_it_was_changed(bench: Bench) -> None:
    kind = replace(ONTOLOGY.types["customer"], changed="created_at")
    rows = await bench.domains.rows(LOCAL_TENANT, GAI, Ontology({"customer": kind}))
    assert rows["payment_terms"].changed_at == datetime(2023, 2, 1, 9, 1, tzinfo=UTC), (
        "at the latest: read to the minute"
    )


async def test_values_of_every_kind_are_read(benches: Benches, sample: SampleDomain) -> None:
    async with connected(sample.owner) as owner:
        await owner.execute("CREATE TYPE domain.mood AS ENUM ('good')")
        kinds = (
            "jsonb",
            "text[]",
            "domain.mood",
            "timestamptz",
            "bytea",
            "interval",
            "numeric",
            "bool",
            "inet",
            "date",
            "timestamp",
        )
        await owner.execute(
            "ALTER TABLE domain.products "
            + ", ".join(f"ADD {a} {b}" for a, b in zip("abcdefghijk", kinds, strict=True))
        )
        await owner.execute(
            "UPDATE domain.products SET a = '{\"x\": [1, null]}', b = '{p,NULL,\"q r\"}', c = 'good', d = 'infinity',"
            " e = '\\x00ff', f = '1 day', g = 'NaN', h = true, i = '::1', j = '2024-01-02', k = '2024-01-02 03:04',"
            " name = E'two\\nlines\\x01 ' || repeat('z', 1000) WHERE sku = 'PA-SET'"
        )
    kind = ONTOLOGY.types["product"]
    shown = tuple("abcdefghijk")
    wide = Ontology({"product": replace(kind, show=shown)}, (), 2)
    bench = benches(erp=source(sample.dsn))
    found = Entity("product:PA-SET", "product", "")
    asks = plan([Resolution("it", 0, found)], "it", None, wide)
    (fact,) = (await bench.domains.ask(LOCAL_TENANT, asks, wide, deadline_s=20)).facts
    said = dict(each.split(": ", 1) for each in fact.text.partition("(product:PA-SET): ")[2].split("; "))
    assert said == {
        "a": '{"x": [1, null]}', "b": "p, null, q r", "c": "good", "e": "\\x00ff", "f": "1 day", "g": "NaN", "h": "true",
        "i": "::1/128", "j": "2024-01-02", "k": "2024-01-02 03:04",
    }  # fmt: skip
    assert fact.text.startswith("Product two lines zzz")
    assert fact.text.isprintable()
