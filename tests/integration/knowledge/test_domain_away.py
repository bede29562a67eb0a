"""Domains that are away, slow, changed, not ours, or open to writing."""

from __future__ import annotations

import asyncio
import logging
import time

import asyncpg
import pytest
from msgspec.structs import replace

from app.context.resolution import Entity, Resolution
from app.errors import DomainAway
from app.features.knowledge.domain import FAILURES, OPEN_S, DomainPool, PlanResult
from app.features.knowledge.domain_sql import SelectStatement, plan
from app.features.knowledge.ontology import Ontology
from app.features.knowledge.resolution import FoundEntities, RowQuery
from app.sources import DomainSource
from app.store.ids import LOCAL_TENANT
from app.store.queries import Queries
from tests.integration.knowledge.conftest import ACME, Bench, Benches, source
from tests.support.database import connected
from tests.support.sample_domain import SampleDomain, sample_domain, sample_ontology

GAI = Entity("customer:gai_123", "customer", "Gai Media Entertainment")
ONTOLOGY = sample_ontology()
QUESTION = "What did Gai Media order?"
SECRET = "se-cret-word"
NOBODY = f"postgresql://mneme_reader:{SECRET}@127.0.0.1:1/erp"


async def asked(
    bench: Bench, ontology: Ontology = ONTOLOGY, deadline_s: float = 20, tenant: object = LOCAL_TENANT
) -> PlanResult:
    asks = plan([Resolution("Gai Media", 9, GAI)], QUESTION, None, ontology)
    return await bench.domains.ask(tenant, asks, ontology, deadline_s=deadline_s)  # type: ignore[arg-type]


def errors(answer: PlanResult) -> set[str]:
    return {(each.error or "").split(" ")[0] for each in answer.queries}


async def test_a_domain_that_is_not_there_is_left_alone_for_a_while(
    benches: Benches, sample: SampleDomain, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bench = benches(erp=source(NOBODY))
    answer = await asked(bench)
    assert (answer.facts, answer.related, answer.reason) == ((), frozenset(), "domain")
    assert errors(answer) == {"unreachable"}
    wanted = [RowQuery("Gai", ()), RowQuery("SO-1045", ("sales_order",))]
    assert await bench.domains.find(LOCAL_TENANT, wanted) == FoundEntities((), away=True)
    tried = bench.counted("unreachable")
    assert tried >= FAILURES
    began = time.monotonic()
    assert errors(await asked(bench)) == {"suspended"}
    with pytest.raises(DomainAway, match="suspended"):
        await bench.domains.rows(LOCAL_TENANT, GAI, ONTOLOGY)
    assert time.monotonic() - began < 1
    assert bench.counted("unreachable") == tried
    bench.seconds += OPEN_S
    assert "unreachable" in errors(await asked(bench))
    assert bench.counted("unreachable") == tried + 1, "one is let through to see"
    told = caplog.text + repr([record.__dict__ for record in caplog.records]) + repr(answer)
    assert "a domain gives no answer" in told
    assert SECRET not in told


async def test_one_question_that_fails_is_one_failure(benches: Benches) -> None:
    """A first connection may take longer than a prompt waits: the next question finds it open."""
    bench = benches(erp=source(NOBODY))
    for n in range(1, FAILURES + 1):
        assert errors(await asked(bench)) == {"unreachable"}
        assert bench.counted("unreachable") == 2 * n, "its own row and its orders"
    assert errors(await asked(bench)) == {"suspended"}


async def test_a_domain_that_comes_back_is_found_again(benches: Benches, sample: SampleDomain) -> None:
    bench = benches(erp=source(sample.dsn))
    assert (await asked(bench)).reason is None
    async with connected(sample.owner) as owner:
        cut = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert await owner.fetchval(cut) > 0
    for _ in range(3):
        bench.seconds += OPEN_S
        answer = await asked(bench)
    assert answer.reason is None
    assert len(answer.facts) == 2


async def test_a_wrong_password_is_not_told(benches: Benches, sample: SampleDomain) -> None:
    dsn = sample.dsn.replace("change-me", SECRET).replace("mneme_reader", "nobody_here")
    with pytest.raises(DomainAway) as away:
        await benches(erp=source(dsn)).domains.rows(LOCAL_TENANT, GAI, ONTOLOGY)
    assert away.value.reason == "refused"
    assert SECRET not in repr(away.value.__dict__) + str(away.value)
    assert away.value.__cause__ is None
    assert SECRET not in repr(source(dsn))


async def test_a_table_that_is_locked_costs_its_time_and_no_more(benches: Benches, sample: SampleDomain) -> None:
    bench = benches(erp=source(sample.dsn))
    await asked(bench)  # connects, and knows the tables
    async with connected(sample.owner) as owner, owner.transaction():
        await owner.execute("LOCK TABLE domain.sales_orders IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        answer = await asked(bench, deadline_s=0.5)
        assert time.monotonic() - began < 5
    assert [each.query_type for each in answer.facts] == ["customer"], "what came in time is told"
    late = next(each for each in answer.queries if each.query_type == "sales_order")
    assert (late.error or "").startswith("timeout")
    assert answer.reason == "domain"


async def test_names_that_are_not_looked_for_in_time_are_not_waited_for(
    benches: Benches, sample: SampleDomain, caplog: pytest.LogCaptureFixture
) -> None:
    """That a name is slow to find keeps nobody from reading rows; and of what was called off no error is logged."""
    bench = benches(erp=source(sample.dsn, statement_timeout_ms=700))
    await asked(bench)
    async with connected(sample.owner) as owner, owner.transaction():
        await owner.execute("LOCK TABLE domain.products IN ACCESS EXCLUSIVE MODE")
        for _ in range(FAILURES):
            began = time.monotonic()
            found, away = await bench.domains.find(LOCAL_TENANT, [RowQuery("Delta Logistics", ())])
            assert time.monotonic() - began < 5
            assert [each.key for each in found] == ["del_789"]
            assert away
        assert (await asked(bench)).reason is None
    assert not (await bench.domains.find(LOCAL_TENANT, [RowQuery("Delta Logistics", ())])).away
    assert [each for each in caplog.records if each.name == "asyncio"] == []


async def test_a_slow_view_is_ended_by_the_server(benches: Benches, sample: SampleDomain) -> None:
    async with connected(sample.owner) as owner:
        await owner.execute(
            "CREATE VIEW domain.slow AS SELECT customer_id, name, industry, status, payment_terms FROM domain.customers,"
            " pg_sleep(60); GRANT SELECT ON domain.slow TO mneme_reader"
        )
    slow = replace(ONTOLOGY.types["customer"], table="domain.slow")
    bench = benches(erp=source(sample.dsn, statement_timeout_ms=300))
    answer = await asked(bench, Ontology({"customer": slow}, (), 1))
    assert errors(answer) == {"timeout"}
    async with connected(sample.owner) as owner:
        running = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE query LIKE '%slow%' AND state = 'active' AND pid <> pg_backend_pid()"
        )
        async with asyncio.timeout(10):
            while await owner.fetchval(running):  # noqa: ASYNC110 - another server's state
                await asyncio.sleep(0.01)


async def test_a_row_without_a_key_that_can_be_told_is_no_row(benches: Benches, sample: SampleDomain) -> None:
    async with connected(sample.owner) as owner:
        await owner.execute(
            "CREATE VIEW domain.odd AS SELECT k AS customer_id, 'Odd ' || n AS name, '' AS industry, '' AS status,"
            " '' AS payment_terms FROM (VALUES (1, NULL), (2, ''), (3, E'a\nb'), (4, repeat('x', 1000000)), (5, 'odd_005'))"
            " AS x (n, k)"
        )
        await owner.execute("GRANT SELECT ON domain.odd TO mneme_reader")
    bench = benches(erp=source(sample.dsn))
    odd = replace(ONTOLOGY.types["customer"], table="domain.odd")
    bench.ontologies.held[LOCAL_TENANT] = Ontology({"customer": odd}, (), 1)
    found, away = await bench.domains.find(LOCAL_TENANT, [RowQuery("Odd", ())])
    assert ([each.key for each in found], away) == (["odd_005"], False)


async def test_a_deadline_that_has_passed_asks_nothing(benches: Benches, sample: SampleDomain) -> None:
    bench = benches(erp=source(sample.dsn))
    answer = await asked(bench, deadline_s=0)
    assert (answer.facts, answer.reason) == ((), "domain")
    assert bench.counted("answered") == 0


async def test_a_column_that_is_gone_leaves_the_rest(benches: Benches, sample: SampleDomain) -> None:
    bench = benches(erp=source(sample.dsn))
    assert (await asked(bench)).reason is None
    async with connected(sample.owner) as owner:
        await owner.execute("ALTER TABLE domain.customers DROP COLUMN payment_terms")
    first = await asked(bench)
    assert "changed" in errors(first), "the catalog was believed, and the query says otherwise"
    answer = await asked(bench)
    assert answer.facts[0].text.endswith("industry: Entertainment; status: Active")
    assert len(answer.facts) == 2
    told = next(each for each in answer.queries if each.query_type == "customer")
    assert told.error == "changed (domain.customers has no column payment_terms)"
    assert answer.reason == "domain"


async def test_a_table_that_is_gone_is_said_and_the_rest_is_told(benches: Benches, sample: SampleDomain) -> None:
    async with connected(sample.owner) as owner:
        await owner.execute("ALTER TABLE domain.sales_orders RENAME TO orders")
    answer = await asked(benches(erp=source(sample.dsn)))
    assert [each.query_type for each in answer.facts] == ["customer"]
    told = next(each for each in answer.queries if each.query_type == "sales_order")
    assert told.error == "changed (there is no table domain.sales_orders that its role may read)"


async def test_a_role_that_could_write_is_not_used(benches: Benches, sample: SampleDomain) -> None:
    bench = benches(erp=source(sample.owner))
    assert errors(await asked(bench)) == {"writer"}
    assert await bench.domains.find(LOCAL_TENANT, [RowQuery("Delta Logistics", ())]) == FoundEntities((), away=True)
    assert (await asked(benches(erp=source(sample.owner, allow_writer=True)))).reason is None
    async with connected(sample.owner) as owner:
        await owner.execute("GRANT UPDATE (industry) ON domain.customers TO mneme_reader")
    granted = benches(erp=source(sample.dsn))
    with pytest.raises(DomainAway) as away:
        await granted.domains.rows(LOCAL_TENANT, GAI, ONTOLOGY)
    assert away.value.reason == "writer"
    order = Entity("sales_order:SO-1045", "sales_order", "Sales Order SO-1045")
    with pytest.raises(DomainAway):  # nor for its other tables
        await benches(erp=source(sample.dsn)).domains.rows(LOCAL_TENANT, order, ONTOLOGY)


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM domain.customers", "UPDATE domain.customers SET name = 'x'", "CREATE TABLE domain.x ()",
     "DROP TABLE domain.payments", "INSERT INTO domain.payments (invoice_id, amount, paid_at) VALUES ('INV-2001', 1, now())",
     "TRUNCATE domain.payments"],
)  # fmt: skip
@pytest.mark.parametrize("superuser", [False, True], ids=["reader", "superuser"])
async def test_nothing_can_be_written(sample: SampleDomain, statement: str, superuser: bool) -> None:
    """Tried with the connector itself: the reader may not, and even a superuser's transaction is read-only."""
    pool = DomainPool("erp", source(sample.owner if superuser else sample.dsn, allow_writer=True), Queries.load())
    try:
        with pytest.raises(DomainAway):
            await pool.read(SelectStatement(statement, (), ()), 20)
    finally:
        await pool.close()
    async with connected(sample.dsn) as reader:
        with pytest.raises(asyncpg.PostgresError):
            await reader.execute(statement)
        assert await reader.fetchval("SELECT count(*) FROM domain.customers WHERE name <> 'x'") == 3


async def test_no_tenants_question_reaches_anothers_domain(
    benches: Benches, postgres_server: str, sample: SampleDomain
) -> None:
    """Two tenants, two databases, the same types: each has its own rows, and the other's pool was never even opened."""
    async with sample_domain(postgres_server) as other:
        async with connected(other.owner) as owner:
            await owner.execute("UPDATE domain.customers SET industry = 'Secret' WHERE customer_id = 'gai_123'")
        bench = benches(erp=source(sample.dsn), crm=source(other.dsn, tenants=["acme"]))
        types = {name: replace(each, domain="crm") for name, each in ONTOLOGY.types.items()}
        theirs = Ontology(types, tuple(replace(each, domain="crm") for each in ONTOLOGY.relations), 1)
        bench.ontologies.held[ACME] = theirs

        mine = await asked(bench)
        assert "Entertainment;" in mine.facts[0].text
        assert bench.counted("answered", "crm") == 0
        assert "Secret" in (await asked(bench, theirs, tenant=ACME)).facts[0].text
        before = bench.counted("answered", "crm")

        stolen = await asked(bench, theirs)  # an ontology of ours that names their domain
        assert (stolen.facts, errors(stolen), stolen.reason) == ((), {"refused"}, "domain")
        with pytest.raises(DomainAway, match="no domain of this tenant's"):
            await bench.domains.rows(LOCAL_TENANT, GAI, theirs)
        bench.ontologies.held[LOCAL_TENANT] = theirs
        wanted = [RowQuery("Delta Logistics", ()), RowQuery("SO-1045", ("sales_order",))]
        assert await bench.domains.find(LOCAL_TENANT, wanted) == FoundEntities()
        assert bench.counted("answered", "crm") == before


async def test_a_tenant_without_an_ontology_asks_nothing(benches: Benches) -> None:
    bench = benches(erp=source(NOBODY))
    assert await bench.domains.find(ACME, [RowQuery("Gai", ())]) == FoundEntities()
    assert await bench.domains.ask(ACME, (), Ontology(), deadline_s=1) == PlanResult()
    assert bench.counted("unreachable") == 0


def test_a_domain_without_a_readable_dsn_is_refused() -> None:
    with pytest.raises(ValueError, match="must begin with postgresql"):
        DomainSource.model_validate({"dsn": "mysql://x"})
