"""What is true, wired: the tenants' ontologies, the businesses' own databases, and who finds out what a request names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct

from app.context.question import Span
from app.context.resolution import Resolution
from app.knowledge.conflict_log import ConflictLog
from app.knowledge.conflicts import against_rows
from app.knowledge.domain import Domains
from app.knowledge.graph_traversal import Ask, plan
from app.knowledge.inquiry import Knower, Sources
from app.knowledge.ontologies import Ontologies
from app.knowledge.ontology import Ontology
from app.knowledge.resolve import Resolver
from app.metrics import Metrics
from app.server.core import Core
from app.store.conflicts import ConflictStore
from app.store.entities import EntityStore
from app.store.ontology import OntologyStore
from app.store.pools import Pool
from app.store.resolution import KnowingStore
from app.store.tenancy import Tenancy


class Knowledge(Struct, frozen=True):
    """What a process knows of things. `resolver` reads with the pool that it was opened with."""

    ontologies: Ontologies
    domains: Domains
    resolver: Resolver


@asynccontextmanager
async def open_knowledge(core: Core, pool: Pool, metrics: Metrics | None = None) -> AsyncIterator[Knowledge]:
    """Read with `pool`; connections to the businesses' own databases are opened when they are needed."""
    ontologies = Ontologies(OntologyStore(pool, core.queries, core.clock))
    tenancy = Tenancy(pool, core.queries, core.clock)
    domains = Domains(core.settings.domains, ontologies, tenancy.tenant, core.queries, core.clock, metrics)
    try:
        yield Knowledge(ontologies, domains, resolver(core, domains, pool))
    finally:
        await domains.close()


def resolver(core: Core, domains: Domains, pool: Pool) -> Resolver:
    """Finds things by what they are called; `pool`: what it reads with."""
    return Resolver(EntityStore(pool, core.queries, core.clock), domains, core.clock)


def knower(core: Core, knowledge: Knowledge, pool: Pool, metrics: Metrics) -> Knower:
    """Finds out what is known of the things that requests name. `pool`: what it reads with."""
    sources = Sources(
        resolver=resolver(core, knowledge.domains, pool),
        ontologies=knowledge.ontologies,
        store=KnowingStore(pool, core.queries),
        conflicts=ConflictLog(ConflictStore(pool, core.queries, core.clock)),
        against=against_rows,
        plan=_plan,
        domains=knowledge.domains,
    )
    return Knower(sources, core.tasks, metrics, domain_deadline_s=core.settings.domain_deadline_ms / 1000)


def _plan(
    named: Sequence[Resolution], question: str, span: Span | None, ontology: Ontology, widened: Sequence[str]
) -> Sequence[Ask]:
    return plan(named, question, span, ontology, widened=widened)
