"""What the worker does about the things that a turn names: their ids go with what is learned, what the turn teaches about
names is kept, and what is remembered of them is held against their rows.

    learn ── the things that the turn names, nothing held ──> triples with their ids
          ── within its effect: aliases, choices and new things; episodes name their things; a `check` job
    check ── for each thing that has a row: ask its domain, holding nothing; then, in one transaction that notes it as done:
             log what differs, end or doubt or confirm memories
             └── the domain is away: the job again, after a minute, five, …; then when the thing is spoken of next
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct
from msgspec.structs import replace

from app.clock import Clock
from app.context.knower import RECENT, EarlierMessage, Who
from app.context.resolution import Entity, Resolution, RowValue
from app.errors import BadBody, Unavailable
from app.features.knowledge.check_store import Checking, CheckStore, RowClash
from app.features.knowledge.claims import about_things
from app.features.knowledge.conflicts import against_rows, agreeing, logged_data, logged_outcome
from app.features.knowledge.domain import Domains
from app.features.knowledge.ontologies import Ontologies
from app.features.knowledge.ontology import Ontology
from app.features.knowledge.resolution import ALIAS_DECAY
from app.features.knowledge.resolve import ResolvedText, Resolver
from app.jobs.learn import LearnJob
from app.jobs.schedule import REMOVAL_EVERY, Connection, Tick, in_batches
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.claims import same_value
from app.store import ids
from app.store.learning import Effect, LearningStore, Setting, SourceMessage
from app.store.queries import Queries
from app.store.records import JobRecord
from app.store.resolution import Claim

log = logging.getLogger(__name__)

CHECK = "check"
"""The entrypoint."""

ASK_S = 5.0
"""Seconds that a domain has to answer: nobody waits for a job, but it holds one of the worker's places."""

LATER_S = (60.0, 300.0, 1800.0, 7200.0, 21600.0)
"""Seconds until a check is tried again while its domain is away: some eight hours in all, a night's maintenance."""

ALIAS_IDLE = timedelta(days=90)
"""An alias that was used within this time stays: as long as what is remembered waits before it is in doubt (seed 004)."""
ALIAS_FLOOR = 0.3
"""Faded confidence below which an idle alias goes: one of 0.85 after 105 days, one of 0.98 after 119."""


# --- while a turn is learned from -------------------------------------------------------------------------------------


class NamedThings(Struct, frozen=True):
    """What a job's exchanges name and teach, by the id of the user's message."""

    resolver: Resolver
    sql: Queries
    clock: Clock
    ontology: Ontology
    epoch: int | None
    studies: Mapping[UUID, ResolvedText]
    day_of: Mapping[str, str]

    def about(
        self, exchange: SourceExchange, asked: SourceMessage, found: Sequence[MemoryCandidate]
    ) -> Sequence[MemoryCandidate]:
        """See `app/features/knowledge/claims.py`."""
        study = self.studies.get(asked.message_id)
        named = study.resolutions if study is not None else ()
        return about_things(exchange.user_text, exchange.now, found, named, self.ontology, self.day_of)

    async def note(self, job: LearnJob, effect: Effect) -> None:
        """Keep what was taught, let episodes name their things, and have these checked."""
        now = self.clock.now()
        for study in self.studies.values():
            await self.resolver.teach(effect.connection, _who(job), study.lessons, now, job.session)
        checking = Checking(effect.connection, self.sql, job.tenant, job.user, _scope(job), now)
        named = {message: each.resolutions for message, each in self.studies.items() if things_of(each.resolutions)}
        if not named:
            return
        await checking.name_things([_named(message, found) for message, found in named.items()])
        await checking.tie(_names([each for found in named.values() for each in found]))
        last = {each: message for message, found in named.items() for each in things_of(found)}
        rowed: dict[UUID, list[Entity]] = {}
        for each, message in last.items():
            if _has_row(each, self.ontology):
                rowed.setdefault(message, []).append(each)
        jobs = [
            CheckJob(job.tenant, job.user, job.session, message, tuple(things), self.epoch, job.confined)
            for message, things in rowed.items()
        ]
        await effect.enqueue([each.record(0.0) for each in jobs])


class ResolutionHearing:
    """The learner's `hearing`."""

    def __init__(
        self, store: CheckStore, sql: Queries, clock: Clock, *, ontologies: Ontologies, resolver: Resolver
    ) -> None:
        self._store = store
        self._sql = sql
        self._clock = clock
        self._ontologies = ontologies
        self._resolver = resolver

    async def hear(
        self, job: LearnJob, setting: Setting, exchanges: Sequence[tuple[SourceExchange, Sequence[SourceMessage]]]
    ) -> NamedThings | None:
        """What the exchanges name; None for a tenant without an ontology and without things. Raises StoreUnavailable."""
        ontology = await self._ontologies.of(job.tenant)
        if not ontology and not await self._store.things_known(job.tenant, job.user):
            return None
        turn = exchanges[0][1][0].turn_index
        before = await self._store.said_before(job.tenant, job.user, job.session, turn, RECENT)
        recent = [EarlierMessage(*each) for each in before]
        studies: dict[UUID, ResolvedText] = {}
        for exchange, own in exchanges:
            studies[own[0].message_id] = await self._resolver.study(
                _who(job), exchange.user_text, recent[-RECENT:], ontology, now=exchange.now
            )
            recent += [EarlierMessage(each.role, each.content) for each in own if each.content]
        named = {each.id for study in studies.values() for each in things_of(study.resolutions)}
        days = await self._store.preferred_days(job.tenant, job.user, _scope(job), named)
        return NamedThings(self._resolver, self._sql, self._clock, ontology, setting.epoch, studies, days)


def _who(job: LearnJob) -> Who:
    return Who(job.tenant, None if job.confined else job.user)


def _scope(job: LearnJob | CheckJob) -> UUID:
    return job.session if job.confined else ids.NIL


def _has_row(entity: Entity, ontology: Ontology) -> bool:
    kind = ontology.types.get(entity.type)
    return kind is not None and bool(kind.predicates)


def things_of(found: Sequence[Resolution]) -> list[Entity]:
    """Each thing once."""
    return list({each.entity.id: each.entity for each in found if each.entity is not None}.values())


def _named(message: UUID, found: Sequence[Resolution]) -> dict[str, Any]:
    """Seed 004, table 4: `entities` of an episode."""
    things: dict[str, dict[str, Any]] = {}
    for each in found:
        if each.entity is None:
            continue
        entity = each.entity
        told = {"canonical_id": entity.id, "canonical_name": entity.name, "type": entity.type, "mentions": []}
        things.setdefault(entity.id, told)["mentions"].append(
            {
                "text": each.mention,
                "position": each.start,
                "confidence": round(each.confidence, 4),
                "is_coreference": each.method == "coreference",
            }
        )
    return {"message_id": message, "ids": list(things), "things": list(things.values())}


def _names(found: Sequence[Resolution]) -> dict[str, str]:
    """How a thing was called before anybody knew it, as subjects of triples are written."""
    return {
        name.lower(): each.entity.id
        for each in found
        if each.entity is not None and each.method != "coreference"
        for name in (each.mention, each.entity.name)
        if name.lower() != "user"  # who speaks is no thing, whatever things are called
    }


# --- after it was learned from ----------------------------------------------------------------------------------------


class CheckJob(Struct, frozen=True):
    """The payload of `check`: the things that a message of the user's named. `epoch`: the user's erasure epoch when it was
    learned from. `tries`: how often a domain was away."""

    tenant: UUID
    user: UUID
    session: UUID
    message: UUID
    things: tuple[Entity, ...]
    epoch: int | None
    confined: bool = False
    tries: int = 0

    @classmethod
    def parse(cls, payload: bytes) -> CheckJob:
        """Raises `BadBody`: what cannot be read now cannot be read later."""
        try:
            fields: dict[str, Any] = orjson.loads(payload)
            return cls(
                UUID(fields["tenant"]),
                UUID(fields["user"]),
                UUID(fields["session"]),
                UUID(fields["message"]),
                tuple(Entity(*map(str, each)) for each in fields["things"]),
                fields["epoch"],
                bool(fields["confined"]),
                int(fields["tries"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadBody("This job's payload cannot be read.") from error

    def record(self, delay_s: float) -> JobRecord:
        """As it is enqueued."""
        payload = {name: getattr(self, name) for name in CheckJob.__struct_fields__}
        data = orjson.dumps(payload | {"things": [list(each) for each in self.things]}, default=str)
        return JobRecord(CHECK, data, f"check:{self.message}:{self.tries}", delay_s)


class Checker:
    """Does `check` jobs."""

    def __init__(
        self,
        learning: LearningStore,
        store: CheckStore,
        sql: Queries,
        clock: Clock,
        *,
        ontologies: Ontologies,
        rows: Domains,
        ask_s: float = ASK_S,
    ) -> None:
        """`ask_s`: seconds that a domain has to answer."""
        self._learning = learning
        self._store = store
        self._sql = sql
        self._clock = clock
        self._ontologies = ontologies
        self._rows = rows
        self._ask_s = ask_s

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """By entrypoint, for the worker."""
        return {CHECK: self.check}

    async def check(self, payload: bytes) -> None:
        """Hold what is remembered of things against their rows. Raises `BadBody`, `StoreUnavailable`; a domain that is away is
        asked again later."""
        job = CheckJob.parse(payload)
        ontology = await self._ontologies.of(job.tenant)
        away = tuple([each for each in job.things if not await self._checked(job, each, ontology)])
        if not away:
            return
        if job.tries < len(LATER_S):
            again = replace(job, things=away, tries=job.tries + 1)
            await self._store.enqueue(job.tenant, job.user, job.epoch, [again.record(LATER_S[job.tries])])
        else:
            log.error(
                "a domain stayed away: what is remembered is checked when its thing is spoken of again",
                extra={"things": len(away)},
            )

    async def _checked(self, job: CheckJob, entity: Entity, ontology: Ontology) -> bool:
        """Whether it is done; False: its domain is away."""
        kind = ontology.types.get(entity.type)
        key = f"checked:{job.message}:{entity.id}"
        if kind is None or not kind.predicates or await self._store.claimed(job.tenant, job.user, key):
            return True
        asked = (job.tenant, job.user, _scope(job), entity.id, list(kind.predicates), self._clock.now())
        claims = await self._store.claims(*asked)
        if not claims:
            return True
        try:
            async with asyncio.timeout(self._ask_s):
                row = await self._rows.rows(job.tenant, entity, ontology)
        except (TimeoutError, Unavailable) as error:
            log.warning(
                "a domain is away: what is remembered is checked later",
                extra={"domain": kind.domain, "error": type(error).__name__, "tries": job.tries},
            )
            return False
        async with self._learning.effect(
            job.tenant,
            job.user,
            key,
            alone=job.session if job.confined else job.user,
            epoch=job.epoch,
            read=[],
            now=self._clock.now(),
        ) as effect:
            if effect is None:
                return True
            checking = Checking(effect.connection, self._sql, job.tenant, job.user, _scope(job), self._clock.now())
            clashes, confirmed = self._judged(entity, claims, row)
            settled = await checking.settle(entity.id, job.message, job.session, clashes, confirmed, same_value)
        if settled.logged:
            log.info("memories and a row differ", extra={"domain": kind.domain} | settled._asdict())
        return True

    def _judged(
        self, entity: Entity, claims: Sequence[Claim], row: Mapping[str, RowValue]
    ) -> tuple[list[RowClash], list[Claim]]:
        rows = {entity.id: row}
        stored = {each.memory_id: each for each in claims}
        now = self._clock.now()
        clashes = [
            RowClash(
                ids.uuid7(now),
                stored[clash.memory_id],
                clash.row.field,
                clash.row.value,
                logged_data(clash),
                clash.strategy,
                clash.stands,
                logged_outcome(clash),
            )
            for clash in against_rows(claims, rows, {entity.id: entity.name})
            if clash.memory_id is not None and clash.row is not None
        ]
        return clashes, [stored[each.memory_id] for each in agreeing(claims, rows)]


# --- again and again -----------------------------------------------------------------------------------------------------


def alias_ticks(sql: Queries) -> Sequence[Tick]:
    """What things were called once, and are not any more (docs/explanation/entities.md)."""

    async def work(connection: Connection, now: datetime) -> int:
        statement = sql["entities.forget_aliases"]
        return await in_batches(connection, statement, now, ALIAS_IDLE, ALIAS_DECAY, ALIAS_FLOOR)

    return (Tick("aliases", REMOVAL_EVERY, work),)
