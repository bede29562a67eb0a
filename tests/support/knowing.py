"""What tests of knowledge in jobs share: a resolver of given names, an ontology, and rows that may be away."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, cast
from uuid import UUID

import asyncpg
from asyncpg.pool import PoolConnectionProxy
from msgspec.structs import replace

from app.context.resolution import EarlierMessage, Entity, Method, Resolution, RowValue, Who
from app.errors import Unavailable
from app.features.knowledge.jobs import CHECK, Checker, CheckStore, ResolutionHearing
from app.features.knowledge.ontology import NO_ONTOLOGY, EntityType, Ontology, Strategy
from app.jobs.learn import Learner, Notes, ValidationAnswers
from app.providers.embeddings import Embedder
from app.store.learning import LearningStore
from app.store.pools import Pool
from app.store.validation import Validation
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, by_rules
from tests.support.rows import count_alias, delete_job, read_jobs

GAI = Entity("customer:gai_123", "customer", "Gai Media Entertainment")
CUSTOMER = EntityType(
    "customer",
    "erp",
    "domain.customers",
    "customer_id",
    "name",
    "Customer {name}",
    predicates={"payment_terms": "payment_terms", "industry": "industry", "credit_limit": "credit_limit"},
)
ONTOLOGY = Ontology({"customer": CUSTOMER}, version=1)


class Study(NamedTuple):
    """What a text names, and (its own words) what it teaches."""

    resolutions: tuple[Resolution, ...]
    lessons: str


@dataclass
class Names:
    """A resolver that knows names by tenant, and writes down what it was taught."""

    known: dict[UUID, dict[str, Entity]]
    asked: list[tuple[Who, tuple[EarlierMessage, ...]]] = field(default_factory=list)

    async def study(
        self, who: Who, text: str, recent: Sequence[EarlierMessage], ontology: Ontology, *, now: datetime
    ) -> Study:
        self.asked.append((who, tuple(recent)))
        names = self.known.get(who.tenant, {})
        spelled = "|".join(rf"\b{re.escape(each)}\b" for each in sorted(names, key=len, reverse=True))
        found = [self._found(match, names) for match in re.finditer(spelled, text)] if names else []
        return Study(tuple(found), text)

    async def teach(
        self, connection: PoolConnectionProxy[Any], who: Who, lessons: str, now: datetime, session: UUID | None = None
    ) -> None:
        """As rows that come and go with the transaction: aliases of nothing in particular."""
        await count_alias(connection, who.tenant, lessons, {"session": str(session)})

    def _found(self, match: re.Match[str], names: Mapping[str, Entity]) -> Resolution:
        method: Method = "coreference" if match[0].islower() else "known_alias"
        return Resolution(match[0], match.start(), names[match[0]], 0.95, method)


@dataclass
class Ontologies:
    """By tenant."""

    known: dict[UUID, Ontology]

    async def of(self, tenant: UUID) -> Ontology:
        return self.known.get(tenant, NO_ONTOLOGY)


@dataclass
class Table:
    """The rows of a business, by thing and predicate; `away`: its database does not answer."""

    values: dict[str, dict[str, str]]
    strategy: Strategy = "trust_db"
    away: bool = False
    asked: list[tuple[UUID, str]] = field(default_factory=list)

    async def rows(self, tenant: UUID, entity: Entity, ontology: Ontology) -> dict[str, RowValue]:
        self.asked.append((tenant, entity.id))
        if self.away:
            raise Unavailable("the domain does not answer")
        return {
            predicate: RowValue("erp", "domain.customers", predicate, value, self.strategy, NOW)
            for predicate, value in self.values.get(entity.id, {}).items()
        }


@dataclass
class Knowing:
    """A learner that knows things, and what it does later."""

    learner: Learner
    checker: Checker
    names: Names
    table: Table
    ontologies: Ontologies
    clock: FakeClock
    admin: asyncpg.Connection[Any]

    async def learn(self, payload: bytes) -> None:
        await self.learner.learn(payload)

    async def waiting(self) -> list[dict[str, Any]]:
        """The `check` jobs in the queue."""
        jobs = await read_jobs(self.admin, entrypoint=CHECK)
        return [job | {"delay": job["execute_after"] - job["created"]} for job in jobs]

    async def check(self) -> int:
        """Do them all, and what they leave; how many."""
        done = 0
        while jobs := await self.waiting():
            for job in jobs:
                await delete_job(self.admin, job["id"])
                await self.checker.check(job["payload"])
                done += 1
        return done


def knowing(
    pool: Pool, admin: asyncpg.Connection[Any], embedder: Embedder, space: int, *, ask_s: float = 5.0
) -> Knowing:
    """For `TENANT`, whose one customer is Gai Media Entertainment."""
    clock = FakeClock(NOW)
    named = dict.fromkeys(("Gai Media Entertainment", "Gai Media", "Gai", "their", "They", "they"), GAI)
    names, ontologies = Names({TENANT: named}), Ontologies({TENANT: ONTOLOGY})
    table = Table({GAI.id: {"payment_terms": "NET15", "industry": "Entertainment"}})
    store, learning = CheckStore(pool, SQL), LearningStore(pool, SQL)
    learner = Learner(
        learning,
        embedder=embedder,
        space=space,
        extract=by_rules,
        count=lambda text: len(text.split()),
        clock=clock,
        note=Notes(clock),
        answers=ValidationAnswers(
            Validation(pool, SQL, clock, space=space, actor="user"),
            embedder=embedder,
            count=lambda text: len(text.split()),
        ),
        hearing=ResolutionHearing(store, SQL, clock, ontologies=cast(Any, ontologies), resolver=cast(Any, names)),
    )
    checker = Checker(learning, store, SQL, clock, ontologies=cast(Any, ontologies), rows=cast(Any, table), ask_s=ask_s)
    return Knowing(learner, checker, names, table, ontologies, clock, admin)


def with_strategy(knowing: Knowing, strategy: Strategy) -> None:
    """What is done where memory and row differ."""
    knowing.table.strategy = strategy
    of_all = dict.fromkeys(CUSTOMER.predicates, strategy)
    knowing.ontologies.known[TENANT] = Ontology({"customer": replace(CUSTOMER, conflicts=of_all)}, version=2)
