"""Insights over a real domain: what is put, refused, asked, remembered, replaced, forgotten and taken away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx
import orjson
import pytest

from app.errors import DomainAway
from app.features import Process
from app.features.insights import Insights
from app.features.insights.engine import ENTRYPOINT, Bounds, DomainAsker, Figures, insight_ticks
from app.providers.embeddings import NoEmbedder
from app.settings import Settings
from app.store.pools import Pool
from app.store.queries import Queries
from app.tasks import Supervisor
from tests.support.database import connected
from tests.support.rows import read_jobs, read_memories, take_jobs
from tests.support.sample_domain import SampleDomain
from tests.support.wired_api import WiredApi, build_api, error_of, make_space

Admin = asyncpg.Connection
SQL = Queries.load()
PATH = "/api/v1/insights"
ORDERS = (
    "SELECT c.name AS label, sum(o.total_amount) AS value"
    " FROM domain.sales_orders o JOIN domain.customers c USING (customer_id)"
    " WHERE o.order_date >= $1 AND o.order_date < $2 GROUP BY c.name"
)
BODY = {"domain": "erp", "title": "Orders by customer", "unit": "USD", "sql": ORDERS, "period_days": 7}


class Stage:
    """An API and a worker's job over the sample domain, with orders of this week and of the one before."""

    def __init__(self, api: WiredApi, sample: SampleDomain, pool: Pool, settings: Settings) -> None:
        self.api = api
        self.sample = sample
        feature = Insights(settings)
        none: Any = None
        tasks, count = Supervisor(), lambda text: len(text.split())
        process = Process(api.clock, SQL, pool, none, NoEmbedder(), count, tasks, none, none, none)
        self._do = feature.jobs(process)[ENTRYPOINT]

    async def order(self, customer: str, amount: int, days_ago: int) -> None:
        async with connected(self.sample.owner) as owner:
            await owner.execute(
                "INSERT INTO domain.sales_orders VALUES ($1, $2, NULL, 'new', $3, $4)",
                f"SO-{uuid4()}", customer, amount, self.api.clock.now().date() - timedelta(days=days_ago),
            )  # fmt: skip

    async def run(self, admin: Admin) -> int:
        """Put what is due into the queue, as the schedule does, and do all that waits there; return how many jobs that were."""
        (tick,) = insight_ticks(SQL)
        await tick.work(admin, self.api.clock.now())
        return await self.work(admin)

    async def work(self, admin: Admin) -> int:
        """Do the jobs that wait in the queue; return how many they were."""
        jobs = await take_jobs(admin, ENTRYPOINT)
        for job in jobs:
            await self._do(bytes(job["payload"]))
        return len(jobs)


@pytest.fixture
async def stage(pool: Pool, admin: Admin, database: str, sample: SampleDomain) -> Stage:
    domains = {"erp": {"dsn": sample.dsn, "statement_timeout_ms": 10_000}}
    domains["writer"] = {"dsn": sample.owner, "statement_timeout_ms": 10_000}
    domains["foreign"] = {"dsn": sample.dsn, "tenants": ["acme"]}
    settings = Settings(domains=domains)
    made = Stage(await build_api(pool, await make_space(admin), dsn=database, domains=domains), sample, pool, settings)
    await made.order("gai_123", 300, days_ago=1)
    await made.order("gai_123", 100, days_ago=7)
    await made.order("gai_123", 500, days_ago=8)
    return made


@pytest.fixture
async def client(stage: Stage) -> AsyncIterator[httpx.AsyncClient]:
    async with stage.api.client() as client:
        yield client


async def put(client: httpx.AsyncClient, name: str = "orders", **given: Any) -> dict[str, Any]:
    answer = await client.put(f"{PATH}/{name}", params={"user": "ana"}, json=BODY | given)
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] = answer.json()
    return found


async def remembered(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    answer = await client.get("/api/v1/memories", params={"user": "ana"})
    found: list[dict[str, Any]] = answer.json()["memories"]
    return found


async def test_what_the_tables_say_is_remembered_and_replaced(
    stage: Stage, client: httpx.AsyncClient, admin: Admin
) -> None:
    tried = await client.post(f"{PATH}/dry-run", json=BODY)
    assert tried.status_code == 200, tried.text
    assert (tried.json()["kind"], tried.json()["total"], tried.json()["change"]) == ("pattern", 400.0, -0.2)
    assert await remembered(client) == [], "a dry run keeps nothing"
    made = await put(client)
    assert (made["memory"], made["ran_at"], made["every_hours"]) == (None, None, 6)

    assert await stage.run(admin) == 1
    (memory,) = await remembered(client)
    assert memory["text"] == tried.json()["text"]
    assert "400 USD, down 20% from 500 in the 7 days before" in memory["text"]
    assert (memory["kind"], memory["tags"]) == ("pattern", ["insight"])
    whole = (await client.get(f"/api/v1/memories/{memory['id']}", params={"user": "ana"})).json()
    assert whole["expires_at"] is not None
    (row,) = await read_memories(admin, memory_id=UUID(memory["id"]))
    details = orjson.loads(row["details"])
    assert (details["insight"]["name"], details["insight"]["domain"]) == ("orders", "erp")
    assert (await client.get(f"{PATH}/orders", params={"user": "ana"})).json()["memory"] == memory["id"]

    assert await stage.run(admin) == 0, "it is not due yet"
    stage.api.clock.move(timedelta(hours=6))
    await stage.order("gai_123", 1000, days_ago=1)
    assert await stage.run(admin) == 1
    (newer,) = await remembered(client)
    assert newer["id"] != memory["id"]
    assert "USD, up" in newer["text"]

    await client.delete(f"/api/v1/memories/{newer['id']}", params={"user": "ana"})
    stage.api.clock.move(timedelta(days=1))
    assert await stage.run(admin) == 1
    assert await remembered(client) == [], "what was forgotten is not said again"


async def test_an_insight_is_asked_at_once_when_it_is_put(
    stage: Stage, client: httpx.AsyncClient, admin: Admin
) -> None:
    """The schedule, which looks every 15 minutes, does not run in this test."""
    await put(client)
    await put(client, "names", title="Orders by name")
    assert await stage.work(admin) == 2, "each has its own job"
    assert len(await remembered(client)) == 2
    assert await stage.work(admin) == 0

    stage.api.clock.move(timedelta(minutes=1))
    await put(client, title="Revenue")
    await put(client, title="Sales")
    assert await stage.work(admin) == 1, "two changes need one job, which reads the last"
    texts = [memory["text"] for memory in await remembered(client)]
    assert len(texts) == 2
    assert sum(text.startswith("Sales") for text in texts) == 1
    assert not any(text.startswith("Revenue") for text in texts)

    stage.api.clock.move(timedelta(minutes=1))
    await put(client, title="Gone")
    await client.delete(f"{PATH}/orders", params={"user": "ana"})
    await stage.work(admin)
    assert not any(memory["text"].startswith("Gone") for memory in await remembered(client))


async def test_a_refused_insight_leaves_no_job(stage: Stage, client: httpx.AsyncClient, admin: Admin) -> None:
    refused = await client.put(f"{PATH}/x", params={"user": "ana"}, json=BODY | {"sql": "SELEC 1"})
    assert refused.status_code == 400
    tried = await client.post(f"{PATH}/dry-run", json=BODY)
    assert tried.status_code == 200
    assert len(await read_jobs(admin)) == 0


@pytest.mark.parametrize("broken", [False, True])
async def test_an_insight_that_is_changed_while_it_is_asked_is_asked_again(
    stage: Stage, client: httpx.AsyncClient, admin: Admin, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    """The change has a job of its own, and the running job writes nothing for what was changed."""
    ask = DomainAsker.ask
    asked: list[str] = []

    async def change_meanwhile(self: DomainAsker, tenant: UUID, domain: str, source: str, bounds: Bounds) -> Figures:
        asked.append(source)
        if len(asked) == 1:
            stage.api.clock.move(timedelta(seconds=1))
            await put(client, title="Newer")
            if broken:
                raise DomainAway(domain, "unreachable", "gone")
        return await ask(self, tenant, domain, source, bounds)

    await put(client, title="Older")
    monkeypatch.setattr(DomainAsker, "ask", change_meanwhile)
    assert await stage.work(admin) == 1
    assert await remembered(client) == []
    assert await stage.work(admin) == 1
    assert len(asked) == 3, "the change itself asks once, too"
    (memory,) = await remembered(client)
    assert memory["text"].startswith("Newer")
    found = (await client.get(f"{PATH}/orders", params={"user": "ana"})).json()
    assert found["error"] is None
    assert found["due_at"] > found["ran_at"]


async def test_a_change_has_its_own_job_while_the_earlier_one_is_in_the_queue(
    stage: Stage, client: httpx.AsyncClient, admin: Admin
) -> None:
    await put(client, title="Older")
    stage.api.clock.move(timedelta(milliseconds=1))
    await put(client, title="Newer")
    assert len(await read_jobs(admin)) == 2
    assert await stage.run(admin) == 2, "the schedule queues neither of them again"
    (memory,) = await remembered(client)
    assert memory["text"].startswith("Newer")


async def test_an_insight_that_is_dropped_while_it_is_asked_is_not_remembered(
    stage: Stage, client: httpx.AsyncClient, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = DomainAsker.ask

    async def drop_meanwhile(self: DomainAsker, tenant: UUID, domain: str, source: str, bounds: Bounds) -> Figures:
        figures = await ask(self, tenant, domain, source, bounds)
        assert (await client.delete(f"{PATH}/orders", params={"user": "ana"})).status_code == 200
        return figures

    await put(client)
    monkeypatch.setattr(DomainAsker, "ask", drop_meanwhile)
    assert await stage.work(admin) == 1
    assert await remembered(client) == []


async def test_a_domain_that_changed_is_noted_and_asked_again(
    stage: Stage, client: httpx.AsyncClient, admin: Admin
) -> None:
    await put(client)
    async with connected(stage.sample.owner) as owner:
        await owner.execute("ALTER TABLE domain.sales_orders RENAME total_amount TO amount")
    assert await stage.run(admin) == 1
    found = (await client.get(f"{PATH}/orders", params={"user": "ana"})).json()
    assert "total_amount" in found["error"]
    assert await remembered(client) == []
    async with connected(stage.sample.owner) as owner:
        await owner.execute("ALTER TABLE domain.sales_orders RENAME amount TO total_amount")
    stage.api.clock.move(timedelta(hours=6))
    assert await stage.run(admin) == 1
    assert (await client.get(f"{PATH}/orders", params={"user": "ana"})).json()["error"] is None
    assert len(await remembered(client)) == 1


REFUSED = {
    "nonsense": "SELEC 1",
    "no such table": "SELECT count(*) AS value FROM domain.nothing",
    "two statements": "SELECT 1 AS value; DELETE FROM domain.payments",
    "a write": "DELETE FROM domain.payments RETURNING 1 AS value",
    "a write within": "WITH gone AS (DELETE FROM domain.payments RETURNING 1) SELECT count(*) AS value FROM gone",
    "a way out": "SELECT 1 AS value) AS q; COMMIT; DELETE FROM domain.payments; SELECT (1",
    "an end": "SELECT 1 AS value) AS q --",
    "no value": "SELECT 1 AS figure",
    "a text": "SELECT 'x' AS value",
    "more columns": "SELECT 1 AS value, 2 AS other",
    "a write by function": "SELECT nextval('domain.contacts_contact_id_seq') AS value",
    "leave to write": "SELECT set_config('transaction_read_only', 'off', true)::text AS label, 1 AS value",
    "too many rows": "SELECT n AS value FROM generate_series(1, 1001) AS n",
    "too slow": "SELECT 1 AS value FROM pg_sleep(60)",
}


async def test_what_is_no_reading_query_is_refused(
    stage: Stage, admin: Admin, pool: Pool, database: str, sample: SampleDomain
) -> None:
    """By a clear error, with nothing kept, and nothing of the domain changed: also where its role could write."""
    domains = {
        "erp": {"dsn": sample.dsn, "statement_timeout_ms": 500},
        "writer": {"dsn": sample.owner, "statement_timeout_ms": 500, "allow_writer": True},
    }
    api = await build_api(pool, await make_space(admin), dsn=database, domains=domains)
    async with connected(sample.owner) as owner, api.client() as client:
        before = await owner.fetchval("SELECT count(*) FROM domain.payments")
        assert before > 0
        for domain in domains:
            for what, sql in REFUSED.items():
                answer = await client.put(
                    f"{PATH}/x", params={"user": "ana"}, json=BODY | {"domain": domain, "sql": sql}
                )
                assert answer.status_code == 400, (domain, what, answer.text)
                assert error_of(answer)["code"] == "bad_insight", what
        assert await owner.fetchval("SELECT count(*) FROM domain.payments") == before
        assert (await client.get(PATH)).json() == {"insights": [], "next": None}


async def test_a_role_that_could_write_is_not_asked(
    stage: Stage, client: httpx.AsyncClient, sample: SampleDomain
) -> None:
    refused = await client.put(f"{PATH}/x", params={"user": "ana"}, json=BODY | {"domain": "writer"})
    assert (refused.status_code, "superuser" in error_of(refused)["message"]) == (503, True)
    async with connected(sample.owner) as owner:
        await owner.execute("GRANT UPDATE ON domain.sales_orders TO mneme_reader")
    refused = await client.put(f"{PATH}/x", params={"user": "ana"}, json=BODY)
    assert (refused.status_code, "sales_orders" in error_of(refused)["message"]) == (503, True)


async def test_whose_it_is(stage: Stage, client: httpx.AsyncClient) -> None:
    for domain in ("foreign", "nowhere"):
        refused = await client.put(f"{PATH}/x", params={"user": "ana"}, json=BODY | {"domain": domain})
        assert (refused.status_code, error_of(refused)["param"]) == (400, "domain")
    key, _ = await stage.api.tenancy.create_key("local", "one", user="ana")
    async with stage.api.client(key) as confined:
        assert (await confined.get(PATH)).status_code == 403
    for wrong in ({"period_days": 0}, {"every_hours": 0}, {"title": ""}, {"title": "a\nb"}, {"sql": ""}, {"x": 1}):
        assert (await client.put(f"{PATH}/x", params={"user": "ana"}, json=BODY | wrong)).status_code == 400, wrong
    await put(client, "a")
    await put(client, "a", title="Else")
    listed = (await client.get(PATH)).json()["insights"]
    assert [(each["name"], each["user"], each["title"]) for each in listed] == [("a", "ana", "Else")]
    assert (await client.delete(f"{PATH}/a", params={"user": "ana"})).json() == {"name": "a", "deleted": True}
    assert (await client.delete(f"{PATH}/a", params={"user": "ana"})).status_code == 404
