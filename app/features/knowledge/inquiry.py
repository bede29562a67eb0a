"""What is known of the things that a request names, found out beside the search of memory, within the request's time.

Resolving is one round trip, before the search, which wants the things' ids. Then the business's own database and the log of
conflicts are asked at once, and waited for only where the prompt is put together. Whatever fails or comes late is left out,
and said so; a tenant of whom nothing is known pays nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Struct, field
from prometheus_client import Counter

from app.context.question import understand
from app.context.resolution import (
    NOTHING_KNOWN,
    Clash,
    EarlierMessage,
    Entity,
    Inquiry,
    Known,
    Resolution,
    RowValue,
    Who,
)
from app.features import Process
from app.features.knowledge.claims import Stands, against_rows
from app.features.knowledge.domain import Domains, PlanResult
from app.features.knowledge.domain_sql import TraversalQuery, plan
from app.features.knowledge.entities import EntityStore
from app.features.knowledge.ontologies import Ontologies, OntologyStore
from app.features.knowledge.ontology import NO_ONTOLOGY, Ontology
from app.features.knowledge.resolve import Resolver
from app.memory.episodes import SoughtRows
from app.metrics import Metrics
from app.settings import Settings
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import LoggedConflict, ResolutionStore
from app.store.tenancy import Tenancy
from app.tasks import FailOpen, Supervisor

# --- contradictions in the log -------------------------------------------------------------------------------------------

MAX_TOLD = 32
"""Contradictions about the things of one request: a prompt has room for few of them."""

_OVER = frozenset({"row_agrees", "row_changed"})
"""Outcomes of which there is nothing to tell: no two sides are left."""


class ConflictLog:
    """Reads them for the things of a request."""

    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def of_entities(self, tenant: UUID, user: UUID, entities: Sequence[str], *, since: datetime) -> list[Clash]:
        """Those that are open, or were resolved since then; the latest first, of at most `MAX_TOLD`."""
        if not entities:
            return []
        async with self._pool.transaction(tenant) as connection:
            asked = (tenant, user, list(entities), since, MAX_TOLD)
            rows = await connection.fetch(self._sql["conflicts.of_entities"], *asked)
        found = (clash_of(LoggedConflict(**dict(row))) for row in rows)
        return [clash for clash in found if clash is not None]


def clash_of(logged: LoggedConflict) -> Clash | None:
    """A contradiction of the log; None: its words were forgotten, or its row does not say so any more."""
    data = logged.conflict_data
    row = data.get("db_source")
    sides = [data["memory"]] if "memory" in data else list(data.get("memories") or ())
    if not sides or logged.entity_id is None or (logged.resolution_outcome or {}).get("action") in _OVER:
        return None
    first, other = sides[0], sides[1] if len(sides) > 1 else {}
    strategy = logged.resolution_strategy or "both"
    return Clash(
        logged.conflict_type,
        logged.entity_id,
        str(data.get("entity_name") or logged.entity_id),
        str(data.get("predicate") or first.get("predicate") or ""),
        _uuid(first.get("memory_id")),
        str(first.get("value") or ""),
        _moment(first.get("created_at") or first.get("stated_at")) or logged.created_at,
        float(first.get("confidence") or 0.0),
        _row(row, strategy) if row else None,
        strategy,
        _stands(logged),
        _uuid(other.get("memory_id")),
        other.get("value"),
        _moment(other.get("stated_at")),
        logged.conflict_id,
        logged.resolved_at or logged.created_at,
    )


def _row(row: Mapping[str, Any], strategy: str) -> RowValue:
    at = _moment(row["queried_at"])
    assert at is not None, "it is written with its time"
    return RowValue(row["domain"], row["table"], row["field"], row["value"], strategy, at)


def _stands(logged: LoggedConflict) -> Stands:
    """Which side stands: the user's word before all, then what the outcome did."""
    outcome = logged.resolution_outcome
    if outcome is None:
        return "both" if logged.resolution_strategy == "both" else None
    action, keep = outcome.get("action"), outcome.get("keep")
    if keep in ("memory", "domain", "other", "both"):
        standing: Stands = keep
        return standing
    if action in ("close_earlier", "keep_both"):
        return "both"
    if action == "keep_memory" or "winner" in outcome:
        return "memory"
    return "domain" if "db_source" in logged.conflict_data else "other"


def _uuid(value: object) -> UUID | None:
    return UUID(str(value)) if value else None


def _moment(value: object) -> datetime | None:
    return datetime.fromisoformat(str(value)) if value else None


# --- inquiries -----------------------------------------------------------------------------------------------------------

log = logging.getLogger("mneme.knowledge")

RESOLVING_SHARE = 0.5
"""Of a request's time that resolving may take: the rest is for the database that is asked for what was resolved."""
DISCOVERING_SHARE = 0.4
"""Of it, until when names that nobody knows are looked for in the business's own database: a tenth is left to use what is known
without it."""
ASKING_SHARE = 0.8
"""Of the time that is left for the domain, what its queries may take: the rest is for calling off those that are late, and
for telling what the others brought."""
AGAINST_S = 0.005
"""Seconds of a request's time that are left to look up what memories claim, when the domain has answered: it takes 1 to 2
ms."""
TOLD_AGAIN = timedelta(days=7)
"""A conflict that was resolved is told for so long: as long as nobody is asked about a memory again (seed 004, validation)."""
NOTHING_FOR_S = 5.0
"""Seconds for which it is believed that there is nothing to know: a new ontology, and a first thing, are used after that."""
MOST_KEPT = 10_000
"""Users of whom that is remembered."""

T = TypeVar("T")


class Sources(Struct, frozen=True):
    """Whom a Knower asks. `domains` None: no domain is configured."""

    resolver: Resolver
    ontologies: Ontologies
    store: ResolutionStore
    conflicts: ConflictLog
    domains: Domains | None = None
    plan: Callable[..., Sequence[TraversalQuery]] = plan


class Knower(Struct, eq=False):
    """Begins inquiries: a `Knows`. `domain_deadline_s`: most seconds that the business's own database may take, whatever time
    the request has."""

    sources: Sources
    tasks: Supervisor
    metrics: Metrics
    domain_deadline_s: float
    _nothing: dict[Who, float] = field(default_factory=dict)

    def idle(self, who: Who) -> bool:
        """Whether it is known that there is nothing to know: then nobody need be asked."""
        return self._nothing.get(who, 0.0) > time.monotonic()

    async def warm(self) -> None:
        """Ask what questions ask, of nobody, so that it is planned: that takes longer than a request waits. Raises
        StoreUnavailable."""
        sources, nobody, now = self.sources, UUID(int=0), datetime.now(UTC)
        await sources.resolver.study(Who(nobody, nobody), "Warm Works", (), NO_ONTOLOGY, now=now)
        await sources.store.claims(nobody, nobody, [nobody])
        await sources.conflicts.of_entities(nobody, nobody, ["warm"], since=now)

    def inquiring(
        self, who: Who, text: str, recent: Sequence[EarlierMessage], now: datetime, deadline_s: float | None = None
    ) -> asyncio.Task[Inquiry | None]:
        """`inquire` beside other work; whoever begins it waits for it, or cancels it."""
        return self.tasks.spawn(self.inquire(who, text, recent, now, deadline_s), "inquire")

    async def inquire(
        self, who: Who, text: str, recent: Sequence[EarlierMessage], now: datetime, deadline_s: float | None = None
    ) -> Inquiry | None:
        """What the mentions of `text` mean, and on request more; None: nothing is known of anything. `deadline_s`: seconds for
        all of it; None: as long as the domain may take, and for resolving as long again. Raises nothing."""
        if self.idle(who):
            return None
        began = time.monotonic()
        deadline_s = self.domain_deadline_s / RESOLVING_SHARE if deadline_s is None else deadline_s
        until = began + deadline_s
        with FailOpen(log.warning, "mentions were not resolved"):
            async with asyncio.timeout(RESOLVING_SHARE * deadline_s):
                ontology = await self.sources.ontologies.of(who.tenant)
                if not ontology and not await self.sources.store.has_things(who.tenant, who.user):
                    self._note_nothing(who)
                    return None
                study = await self.sources.resolver.study(
                    who, text, recent, ontology, now=now, until=began + DISCOVERING_SHARE * deadline_s
                )
            self.metrics.stage("resolve", time.monotonic() - began)
            reason = "domain" if study.away else None
            return _Inquiry(self, who, text, now, until, ontology, study.resolutions, reason)
        return _Inquiry(self, who, text, now, until, NO_ONTOLOGY, (), "entities")

    def _note_nothing(self, who: Who) -> None:
        if len(self._nothing) >= MOST_KEPT:
            self._nothing.clear()
        self._nothing[who] = time.monotonic() + NOTHING_FOR_S


class _Inquiry(Struct, eq=False):
    """`_until`: when its time is over, by the monotonic clock."""

    _knower: Knower
    _who: Who
    _text: str
    _now: datetime
    _until: float
    _ontology: Ontology
    resolutions: tuple[Resolution, ...]
    _reason: str | None
    _domain: asyncio.Task[PlanResult | None] | None = None
    _log: asyncio.Task[list[Clash]] | None = None
    _closed: bool = False
    _domain_until: float = 0.0
    _known: Known = NOTHING_KNOWN

    @property
    def entities(self) -> Mapping[str, Entity]:
        """The things that the request names, by their ids."""
        return {each.entity.id: each.entity for each in self.resolutions if each.entity is not None}

    @property
    def related(self) -> frozenset[str]:
        answer = _result(self._domain)
        return answer.related if answer is not None else frozenset()

    def begin(self, widened: Sequence[str] = (), rows: Sequence[SoughtRows] = ()) -> None:
        if self._closed or self._log is not None or not self.entities:
            return
        domains, tasks = self._knower.sources.domains, self._knower.tasks
        self._domain_until = min(time.monotonic() + self._knower.domain_deadline_s, self._until - AGAINST_S)
        if domains is not None and self._ontology:
            self._domain = tasks.spawn(self._ask(domains, widened, rows), "domain")
        self._log = tasks.spawn(self._logged(), "conflicts")

    @property
    def _waits_s(self) -> float:
        return max(0.0, self._domain_until - time.monotonic())

    async def _ask(self, domains: Domains, widened: Sequence[str], rows: Sequence[SoughtRows]) -> PlanResult | None:
        knower, began = self._knower, time.monotonic()
        span = understand(self._text, self._now).span
        plan = knower.sources.plan(self.resolutions, self._text, span, self._ontology, widened=widened, rows=rows)
        if not plan:
            return None
        try:
            asking_s = ASKING_SHARE * self._waits_s
            return await domains.ask(self._who.tenant, plan, self._ontology, deadline_s=asking_s)
        finally:
            knower.metrics.stage("domain", time.monotonic() - began)

    async def _logged(self) -> list[Clash]:
        who = self._who
        if who.user is None:
            return []
        since = self._now - TOLD_AGAIN
        things = self.entities
        found = await self._knower.sources.conflicts.of_entities(who.tenant, who.user, list(things), since=since)
        return [each._replace(entity_name=things[each.entity_id].name) for each in found]  # a log knows ids alone

    async def known(self) -> Known:
        waiting = {each for each in (self._domain, self._log) if each is not None and not each.done()}
        if waiting and not self._closed:
            await asyncio.wait(waiting, timeout=self._waits_s)
        self.close()
        answer, clashes, reason = _result(self._domain), tuple(_result(self._log) or ()), self._reason
        if _failed(self._domain) or _failed(self._log) or (answer is not None and answer.reason is not None):
            reason = reason or "domain"
        told = (answer.related, answer.rows, answer.facts, answer.queries) if answer is not None else ()
        self._known = Known(self.resolutions, *told)._replace(clashes=clashes, reason=reason)
        return self._known

    async def against(self, user: UUID, memories: Sequence[UUID]) -> Sequence[Clash]:
        rows = self._known.rows
        if not rows or not memories:
            return ()
        names = {each: thing.name for each, thing in self.entities.items()}
        with FailOpen(log.warning, "memories were not compared with rows"):
            async with asyncio.timeout(max(AGAINST_S, self._until - time.monotonic())):
                claims = await self._knower.sources.store.claims(self._who.tenant, user, memories)
            return against_rows(claims, rows, names)
        return ()

    def close(self) -> None:
        self._closed = True
        for each in (self._domain, self._log):
            if each is not None and not each.done():
                each.cancel()


def _result(task: asyncio.Task[T] | None) -> T | None:
    """What came of it, if anything did."""
    return None if task is None or _failed(task) else task.result()


def _failed(task: asyncio.Task[Any] | None) -> bool:
    """Whether it was begun and brought nothing in time."""
    return task is not None and (not task.done() or task.cancelled() or task.exception() is not None)


# --- what a process knows of things --------------------------------------------------------------------------------------


class KnownThings(Struct, frozen=True):
    """What a process knows of things. `resolver`: for whatever no request waits for."""

    ontologies: Ontologies
    domains: Domains
    resolver: Resolver


def open_things(settings: Settings, process: Process, asked: Counter | None) -> KnownThings:
    """Connections to the businesses' own databases are opened when they are needed. `asked`: counts what they are asked."""
    pool, queries, clock = process.pool, process.queries, process.clock
    ontologies = Ontologies(OntologyStore(pool, queries, clock))
    tenancy = Tenancy(pool, queries, clock)
    domains = Domains(settings.domains, ontologies, tenancy.tenant, queries, clock, asked)
    return KnownThings(ontologies, domains, resolver(domains, process, pool))


def resolver(domains: Domains, process: Process, pool: Pool) -> Resolver:
    """Finds things by what they are called; `pool`: what it reads with."""
    return Resolver(EntityStore(pool, process.queries, process.clock), domains, process.clock)


def knower(things: KnownThings, process: Process, pool: Pool, domain_deadline_s: float) -> Knower:
    """Finds out what is known of the things that requests name. `pool`: what it reads with."""
    assert process.metrics is not None, "a server's"
    store, conflicts = ResolutionStore(pool, process.queries), ConflictLog(pool, process.queries)
    names = resolver(things.domains, process, pool)
    sources = Sources(names, things.ontologies, store, conflicts, things.domains)
    return Knower(sources, process.tasks, process.metrics, domain_deadline_s=domain_deadline_s)
