"""What is true of things: a tenant's ontology, what mentions mean, and what the business's own database says of them
(docs/explanation/entities.md, docs/how-to/domain-database.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from app.features import Feature, Finding, Process

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client import CollectorRegistry, Counter

    from app.api.scope import Gate
    from app.features.knowledge.inquiry import Knower, KnownThings
    from app.jobs.learn import Hearing
    from app.jobs.schedule import Tick
    from app.jobs.worker import Handler
    from app.settings import Settings
    from app.store.pools import Pool
    from app.store.queries import Queries

DOMAINS_WAIT_S = 2.0
"""Seconds that a start waits for the businesses' own databases, whose catalogs take some 0.1: none keeps it from starting."""

DOMAIN_DEADLINE_MS = 50
"""Milliseconds that a prompt waits for the business's own database (seed 004: below 50)."""
DOMAIN_DEADLINE_SHARE = 0.1
"""Share of MNEME_RETRIEVAL_DEADLINE_MS that a prompt waits for it where that is longer: 50 ms of the default 500."""


class Knowledge(Feature):
    """Resolves what requests and turns name, tells prompts what is known of it, and holds memories against it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._things: KnownThings | None = None
        self._queries: Counter | None = None

    def own_metrics(self, registry: CollectorRegistry) -> tuple[Counter]:
        from prometheus_client import Counter

        told = "Queries of businesses' own databases, by what came of them."
        self._queries = Counter("mneme_domain_queries", told, ["domain", "result"], registry=registry)
        return (self._queries,)

    def things(self, process: Process) -> KnownThings:
        """What this process knows of things: made once."""
        from app.features.knowledge.inquiry import open_things

        if self._things is None:
            self._things = open_things(self.settings, process, self._queries)
        return self._things

    @asynccontextmanager
    async def opened(self, process: Process) -> AsyncIterator[None]:
        domains = self.things(process).domains
        try:
            if process.metrics is None:
                yield
            else:
                warming = process.tasks.spawn(domains.warm(), "domains")
                await asyncio.wait({warming}, timeout=DOMAINS_WAIT_S)
                yield
                warming.cancel()
        finally:
            await domains.close()

    def knower(self, process: Process, pool: Pool) -> Knower:
        from app.features.knowledge.inquiry import knower

        wait_ms = max(DOMAIN_DEADLINE_MS, DOMAIN_DEADLINE_SHARE * self.settings.retrieval_deadline_ms)
        return knower(self.things(process), process, pool, wait_ms / 1000)

    def hearing(self, process: Process) -> Hearing:
        from app.features.knowledge.jobs import CheckStore, ResolutionHearing

        store, things = CheckStore(process.pool, process.queries), self.things(process)
        return ResolutionHearing(
            store, process.queries, process.clock, ontologies=things.ontologies, resolver=things.resolver
        )

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.api.intake import IntakeCheck
        from app.features.knowledge.entities import EntityStore
        from app.features.knowledge.ontologies import OntologyStore
        from app.features.knowledge.routes import entities_router, ontology_router
        from app.memory.secrets import unwelcome
        from app.store.sessions import SESSION_TTL, Sessions

        pool, sql, clock, settings = process.pool, process.queries, process.clock, self.settings
        things, entities = self.things(process), EntityStore(pool, sql, clock)
        sessions = Sessions(pool, sql, clock, ttl=SESSION_TTL)
        intake_check = IntakeCheck(unwelcome(settings.store_secrets, settings.refuse_pii, settings.refuse_patterns))
        return (
            entities_router(gate, entities, things.resolver, sessions, clock, intake_check, things.ontologies.of),
            ontology_router(gate, OntologyStore(pool, sql, clock)),
        )

    def jobs(self, process: Process) -> Mapping[str, Handler]:
        from app.features.knowledge.jobs import CHECK, Checker, CheckStore
        from app.store.learning import LearningStore

        pool, sql, things = process.pool, process.queries, self.things(process)
        checks = CheckStore(pool, sql)
        checker = Checker(
            LearningStore(pool, sql), checks, sql, process.clock, ontologies=things.ontologies, rows=things.domains
        )
        return {CHECK: checker.check}

    def ticks(self, queries: Queries) -> Sequence[Tick]:
        from app.features.knowledge.jobs import alias_ticks

        return alias_ticks(queries)

    async def findings(self, dsn: str | None) -> list[Finding]:
        from app.features.knowledge.command import findings

        return await findings(self.settings, dsn)


FEATURE = Knowledge
