"""What the tests of knowledge share: the sample domain and the way to it; the labelled business, and two users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from app.clock import SystemClock
from app.context.resolution import Who
from app.features.knowledge import Knowledge
from app.features.knowledge.domain import Domains
from app.features.knowledge.entities import EntityStore
from app.features.knowledge.ontologies import Ontologies
from app.features.knowledge.ontology import Ontology
from app.features.knowledge.resolve import Resolver
from app.settings import Settings
from app.sources import DomainSource
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.clock import FakeClock
from tests.support.entities import add_business, add_user
from tests.support.labelled_mentions import Rows
from tests.support.sample_domain import SampleDomain, sample_domain, sample_ontology

ACME = UUID(int=77)


class Held:
    """Ontologies by tenant, as they are held here."""

    def __init__(self) -> None:
        self.held: dict[UUID, Ontology] = {ids.LOCAL_TENANT: sample_ontology()}

    async def of(self, tenant: UUID) -> Ontology:
        return self.held.get(tenant, Ontology())


class Bench:
    """Domains with a clock that is moved by hand, and what they counted."""

    def __init__(self, **sources: DomainSource) -> None:
        self.seconds = 0.0
        self.ontologies = Held()
        self.tenants = {"local": ids.LOCAL_TENANT, "acme": ACME}
        self.registry = CollectorRegistry()
        (asked,) = Knowledge(Settings()).own_metrics(self.registry)
        self.domains = Domains(
            sources,
            cast("Ontologies", self.ontologies),
            self._tenant,
            Queries.load(),
            SystemClock(),
            asked,
            now=lambda: self.seconds,
        )

    async def _tenant(self, name: str) -> UUID | None:
        return self.tenants.get(name)

    def counted(self, result: str, domain: str = "erp") -> float:
        return self.registry.get_sample_value("mneme_domain_queries_total", {"domain": domain, "result": result}) or 0.0


Benches = Callable[..., Bench]


def source(dsn: str, **given: object) -> DomainSource:
    """A domain with time enough for a busy machine."""
    return DomainSource.model_validate({"dsn": dsn, "statement_timeout_ms": 10_000} | given)


@pytest.fixture
async def sample(postgres_server: str) -> AsyncIterator[SampleDomain]:
    async with sample_domain(postgres_server) as found:
        yield found


@pytest.fixture
async def benches() -> AsyncIterator[Benches]:
    """Makes benches, which are closed at the end."""
    async with AsyncExitStack() as stack:

        def make(**sources: DomainSource) -> Bench:
            bench = Bench(**sources)
            stack.push_async_callback(bench.domains.close)
            return bench

        yield make


ANA = Who(ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, "ana"))
BEN = Who(ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, "ben"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime.now(UTC))


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def entities(pool: Pool, clock: FakeClock) -> EntityStore:
    return EntityStore(pool, Queries.load(), clock)


@pytest.fixture
async def ana(admin: asyncpg.Connection[Any]) -> Who:
    await add_user(admin, ANA, "ana")
    await add_business(admin, ANA)
    return ANA


@pytest.fixture
async def ben(admin: asyncpg.Connection[Any]) -> Who:
    await add_user(admin, BEN, "ben")
    return BEN


@pytest.fixture
def resolver(entities: EntityStore, rows: Rows, clock: FakeClock) -> Resolver:
    return Resolver(entities, rows, clock)
