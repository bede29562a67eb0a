"""What the tests of knowledge share: the sample domain, and the door to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry

from app.clock import SystemClock
from app.knowledge.domain import Domains
from app.knowledge.ontology import Ontology
from app.metrics import Metrics
from app.settings import DomainSource
from app.store import ids
from app.store.queries import Queries
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
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry)
        self.domains = Domains(
            sources, self.ontologies, self._tenant, Queries.load(), SystemClock(), metrics, now=lambda: self.seconds
        )

    async def _tenant(self, name: str) -> UUID | None:
        return {"local": ids.LOCAL_TENANT, "acme": ACME}.get(name)

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
