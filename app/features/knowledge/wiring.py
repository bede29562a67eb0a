"""What is true, wired: the tenants' ontologies, the businesses' own databases, and who finds out what a request names."""

from __future__ import annotations

from msgspec import Struct

from app.features import Process
from app.features.knowledge.conflict_log import ConflictLog
from app.features.knowledge.conflicts import against_rows
from app.features.knowledge.domain import Domains
from app.features.knowledge.entities import EntityStore
from app.features.knowledge.graph_traversal import plan
from app.features.knowledge.inquiry import Knower, Sources
from app.features.knowledge.ontologies import Ontologies
from app.features.knowledge.ontology_store import OntologyStore
from app.features.knowledge.resolve import Resolver
from app.settings import Settings
from app.store.pools import Pool
from app.store.resolution import ResolutionStore
from app.store.tenancy import Tenancy


class KnownThings(Struct, frozen=True):
    """What a process knows of things. `resolver`: for whatever no request waits for."""

    ontologies: Ontologies
    domains: Domains
    resolver: Resolver


def open_things(settings: Settings, process: Process) -> KnownThings:
    """Connections to the businesses' own databases are opened when they are needed."""
    pool, queries, clock = process.pool, process.queries, process.clock
    ontologies = Ontologies(OntologyStore(pool, queries, clock))
    tenancy = Tenancy(pool, queries, clock)
    domains = Domains(settings.domains, ontologies, tenancy.tenant, queries, clock, process.metrics)
    return KnownThings(ontologies, domains, resolver(domains, process, pool))


def resolver(domains: Domains, process: Process, pool: Pool) -> Resolver:
    """Finds things by what they are called; `pool`: what it reads with."""
    return Resolver(EntityStore(pool, process.queries, process.clock), domains, process.clock)


def knower(things: KnownThings, process: Process, pool: Pool, domain_deadline_s: float) -> Knower:
    """Finds out what is known of the things that requests name. `pool`: what it reads with."""
    assert process.metrics is not None, "a server's"
    sources = Sources(
        resolver=resolver(things.domains, process, pool),
        ontologies=things.ontologies,
        store=ResolutionStore(pool, process.queries),
        conflicts=ConflictLog(pool, process.queries),
        against=against_rows,
        plan=lambda named, question, span, ontology, widened, rows: plan(
            named, question, span, ontology, widened=widened, rows=rows
        ),
        domains=things.domains,
    )
    return Knower(sources, process.tasks, process.metrics, domain_deadline_s=domain_deadline_s)
