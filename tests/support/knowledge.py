"""A small business that is known: Gai Media and Gail Industries, in a database that answers, hangs or fails as it is
told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from prometheus_client import CollectorRegistry

from app.context.resolution import (
    Alternative,
    Clash,
    DomainFact,
    DomainQuery,
    EarlierMessage,
    Entity,
    Resolution,
    RowValue,
    Who,
)
from app.features.knowledge.inquiry import Knower, Sources
from app.features.knowledge.ontology import NO_ONTOLOGY, EntityType, Ontology
from app.features.knowledge.resolve import ResolvedText
from app.metrics import Metrics
from app.store.records import Claim
from app.tasks import Supervisor

GAI = Entity("customer:gai_123", "customer", "Gai Media Entertainment")
GAIL = Entity("customer:gail_7", "customer", "Gail Industries")
READ = datetime(2024, 10, 15, 10, tzinfo=UTC)
ONTOLOGY = Ontology({"customer": EntityType("customer", "erp", "domain.customers", "customer_id", "name", "{name}")})

RESOLVED = Resolution("Gai Media", 14, GAI, 0.95, "known_alias")
UNCLEAR = Resolution(
    "Gai", 14, None, alternatives=(Alternative(GAI, 0.8), Alternative(GAIL, 0.75)), requires_disambiguation=True
)


def terms(value: str = "NET15", strategy: str = "trust_db") -> RowValue:
    return RowValue("erp", "domain.customers", "payment_terms", value, strategy, READ)


def fact(
    text: str = "Customer Gai Media Entertainment: payment terms NET15", subject: str = "erp/customer:gai_123"
) -> DomainFact:
    return DomainFact(subject, GAI.id, "customer", text)


def query(error: str | None = None) -> DomainQuery:
    return DomainQuery("erp", "customer", GAI.id, "domain.customers", {"customer_id": "gai_123"}, 1, 3.5, error)


def clash(number: int = 5, **given: Any) -> Clash:
    """Seed 004, table 9: a memory says NET30, the database NET15."""
    plain: dict[str, Any] = {
        "conflict_type": "memory_vs_db",
        "entity_id": GAI.id,
        "entity_name": GAI.name,
        "predicate": "payment_terms",
        "memory_id": UUID(int=number),
        "memory_value": "NET30",
        "memory_at": datetime(2024, 8, 1, tzinfo=UTC),
        "memory_confidence": 0.8,
        "row": terms(),
        "strategy": "trust_db",
        "stands": "domain",
    }
    return Clash(**plain | given)


@dataclass
class Answer:
    queries: tuple[DomainQuery, ...] = ()
    facts: tuple[DomainFact, ...] = ()
    related: frozenset[str] = frozenset()
    rows: Mapping[str, Mapping[str, RowValue]] = field(default_factory=dict)
    reason: str | None = None


@dataclass
class Business:
    """All that a Knower asks. `hangs`: which of its parts never answer; `fails`: which raise."""

    names: dict[str, Resolution] = field(default_factory=lambda: {"Gai Media": RESOLVED})
    answer: Answer = field(
        default_factory=lambda: Answer((query(),), (fact(),), rows={GAI.id: {"payment_terms": terms()}})
    )
    logged: list[Clash] = field(default_factory=list)
    claimed: list[Claim] = field(default_factory=list)
    store: Any = None
    """Whose claims are read, where they stand in a database."""
    ontology: Ontology = ONTOLOGY
    things: bool = True
    hangs: set[str] = field(default_factory=set)
    fails: dict[str, Exception] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    heard: list[tuple[Who, tuple[EarlierMessage, ...]]] = field(default_factory=list)
    widened: Sequence[str] = ()
    away: bool = False
    """Whether names that nobody knows cannot be looked for."""
    ended: int = 0
    """Queries of the domain that came to an end, one way or another."""

    async def _step(self, name: str) -> None:
        self.asked.append(name)
        if name in self.fails:
            raise self.fails[name]
        if name in self.hangs:
            await asyncio.Event().wait()

    async def of(self, tenant: UUID) -> Ontology:
        await self._step("ontology")
        return self.ontology

    async def has_things(self, tenant: UUID, user: UUID | None) -> bool:
        await self._step("things")
        return self.things

    async def study(
        self,
        who: Who,
        text: str,
        recent: Sequence[EarlierMessage],
        ontology: Ontology,
        *,
        now: datetime,
        until: float | None = None,
    ) -> ResolvedText:
        self.heard.append((who, tuple(recent)))
        await self._step("resolve")
        found = [each for name, each in self.names.items() if name in text]
        return ResolvedText(tuple(found[:1]), away=self.away)

    def plan(
        self,
        resolutions: Sequence[Resolution],
        question: str,
        span: Any,
        ontology: Ontology,
        widened: Sequence[str],
        rows: Sequence[Any],
    ) -> Sequence[Any]:
        self.widened = widened
        return [each.entity for each in resolutions if each.entity is not None]

    async def ask(self, tenant: UUID, plan: Any, ontology: Ontology, *, deadline_s: float) -> Answer:
        try:
            await self._step("domain")
        finally:
            self.ended += 1
        return self.answer

    async def of_entities(self, tenant: UUID, user: UUID, entities: Sequence[str], *, since: datetime) -> list[Clash]:
        await self._step("log")
        return list(self.logged)

    async def claims(self, tenant: UUID, user: UUID, memories: Sequence[UUID]) -> list[Claim]:
        await self._step("claims")
        if self.store is not None:
            found: list[Claim] = await self.store.claims(tenant, user, memories)
            return found
        return [each for each in self.claimed if each.memory_id in memories]

    def knower(self, tasks: Supervisor, domain_deadline_s: float = 5.0) -> Knower:
        parts = cast(Any, self)
        return Knower(
            Sources(parts, parts, parts, parts, parts, self.plan),
            tasks,
            Metrics(CollectorRegistry()),
            domain_deadline_s=domain_deadline_s,
        )


def nobody() -> Business:
    """A tenant of whom nothing is known."""
    return Business(ontology=NO_ONTOLOGY, things=False)
