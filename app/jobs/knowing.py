"""What the worker does about the things that a turn names: their ids go with what is learned, what the turn teaches about
names is kept, and what is remembered of them is held against their rows.

    learn ── resolve, nothing written ──> triples, episodes with things ── within its effect ──> a `know` job
    know  ── resolve and teach (aliases, choices, new things), noted as done
          ── for each thing with a row: ask its domain, holding nothing; then, in one transaction that notes it as done:
             log what differs, end or doubt or confirm memories
             └── the domain is away: the job again, after a minute, five, …; then when the thing is spoken of next
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import orjson

from app.clock import Clock
from app.context.known import Entity, Resolution, RowValue
from app.errors import BadBody, Unavailable
from app.jobs.tasks import LearnJob
from app.knowledge.claims import about_things
from app.knowledge.conflicts import Claim, against_rows, agreeing, logged_data, logged_outcome
from app.knowledge.ontology import Ontology
from app.memory.candidate import Candidate, Exchange
from app.memory.same_value import same_value
from app.store import ids
from app.store.checking import Checking, CheckStore, RowClash, StoredClaim
from app.store.learning import Effect, LearningStore, Setting, SourceMessage
from app.store.queries import Queries
from app.store.records import JobRecord

log = logging.getLogger(__name__)

KNOW = "know"
"""The entrypoint."""

RECENT = 10
"""Messages before a turn that "they" may refer to (seed 004, stage 4)."""

ASK_S = 5.0
"""Seconds that a domain has to answer: nobody waits for a job, but it holds one of the worker's places."""

LATER_S = (60.0, 300.0, 1800.0, 7200.0, 21600.0)
"""Seconds until a check is tried again while its domain is away: some eight hours in all, a night's maintenance."""


# --- what others build ------------------------------------------------------------------------------------------------


class Who(NamedTuple):
    """Whose names count; `user` None: nobody's, only what the whole tenant knows."""

    tenant: UUID
    user: UUID | None


class Said(NamedTuple):
    """A message before the one that is looked at."""

    role: str
    text: str


class Resolving(Protocol):
    """Finds the things that a text names; `teach`: and keeps what it teaches about names."""

    async def resolve_text(
        self, who: Who, text: str, recent: Sequence[Said], ontology: Ontology, *, now: datetime, teach: bool = False
    ) -> tuple[Resolution, ...]: ...


class OntologySource(Protocol):
    """The ontology of a tenant."""

    async def of(self, tenant: UUID) -> Ontology: ...


class Rows(Protocol):
    """What a thing's row says, by predicate. Raises `Unavailable` where its domain is away."""

    async def rows(self, tenant: UUID, entity: Entity, ontology: Ontology) -> Mapping[str, RowValue]: ...


# --- hearing: while a turn is learned from ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """The things that a job's exchanges name, by the id of the user's message."""

    store: CheckStore
    sql: Queries
    clock: Clock
    ontology: Ontology
    epoch: int | None
    named: Mapping[UUID, tuple[Resolution, ...]]
    day_of: Mapping[str, str]

    def about(self, exchange: Exchange, asked: SourceMessage, found: Sequence[Candidate]) -> Sequence[Candidate]:
        """See `app/knowledge/claims.py`."""
        resolutions = self.named.get(asked.message_id, ())
        return about_things(exchange.user_text, exchange.now, found, resolutions, self.ontology, self.day_of)

    async def note(self, job: LearnJob, effect: Effect) -> None:
        """Episodes name their things, and a job of its own sees to the rest."""
        checking = _checking(effect, self.sql, job.tenant, job.user, _scope(job), self.clock.now())
        await checking.name_things([_named(message, found) for message, found in self.named.items() if _ids(found)])
        told = [
            KnowJob(job.tenant, job.user, job.session, message, job.since, job.until, self.epoch, job.confined).record(
                0.0
            )
            for message, found in self.named.items()
            if found
        ]
        if told:
            await effect.enqueue(told)


class Hearing:
    """The learner's `hearing`."""

    def __init__(
        self, store: CheckStore, sql: Queries, clock: Clock, *, ontologies: OntologySource, resolver: Resolving
    ) -> None:
        self._store = store
        self._sql = sql
        self._clock = clock
        self._ontologies = ontologies
        self._resolver = resolver

    async def hear(
        self, job: LearnJob, setting: Setting, exchanges: Sequence[tuple[Exchange, Sequence[SourceMessage]]]
    ) -> Heard | None:
        """Which things the exchanges name; None for a tenant without an ontology and without things."""
        ontology = await self._ontologies.of(job.tenant)
        if not ontology and not await self._store.things_known(job.tenant, job.user):
            return None
        first = exchanges[0][1][0]
        recent = await recent_of(self._store, job.tenant, job.user, job.session, first.turn_index)
        named: dict[UUID, tuple[Resolution, ...]] = {}
        for exchange, own in exchanges:
            named[own[0].message_id] = await self._resolver.resolve_text(
                _who(job), exchange.user_text, recent[-RECENT:], ontology, now=exchange.now
            )
            recent += [Said(each.role, each.content) for each in own if each.content]
        things = {each for found in named.values() for each in _ids(found)}
        days = await self._store.preferred_days(job.tenant, job.user, _scope(job), things)
        return Heard(self._store, self._sql, self._clock, ontology, setting.epoch, named, days)


async def recent_of(store: CheckStore, tenant: UUID, user: UUID, session: UUID, turn: int) -> list[Said]:
    """The last messages before a turn."""
    return [Said(*each) for each in await store.said_before(tenant, user, session, turn, RECENT)]


def _who(job: LearnJob | KnowJob) -> Who:
    return Who(job.tenant, None if job.confined else job.user)


def _scope(job: LearnJob | KnowJob) -> UUID:
    return job.session if job.confined else ids.NIL


def _ids(found: Sequence[Resolution]) -> list[str]:
    return list(dict.fromkeys(each.entity.id for each in found if each.entity is not None))


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


def _checking(effect: Effect, sql: Queries, tenant: UUID, user: UUID, scope: UUID, now: datetime) -> Checking:
    return Checking(effect.connection, sql, tenant, user, scope, now)


# --- knowing: after it was learned from -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnowJob:
    """The payload of `know`: a message of the user's, said between `since` and `until`. `epoch`: the user's erasure epoch when
    it was learned from. `tries`: how often a domain was away."""

    tenant: UUID
    user: UUID
    session: UUID
    message: UUID
    since: datetime
    until: datetime
    epoch: int | None
    confined: bool = False
    tries: int = 0

    @classmethod
    def parse(cls, payload: bytes) -> KnowJob:
        """Raises `BadBody`: what cannot be read now cannot be read later."""
        try:
            fields: dict[str, Any] = orjson.loads(payload)
            return cls(
                UUID(fields["tenant"]),
                UUID(fields["user"]),
                UUID(fields["session"]),
                UUID(fields["message"]),
                datetime.fromisoformat(fields["since"]),
                datetime.fromisoformat(fields["until"]),
                fields["epoch"],
                bool(fields["confined"]),
                int(fields["tries"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadBody("This job's payload cannot be read.") from error

    def record(self, delay_s: float) -> JobRecord:
        """As it is enqueued."""
        payload = {name: getattr(self, name) for name in KnowJob.__slots__}
        return JobRecord(KNOW, orjson.dumps(payload, default=str), f"know:{self.message}:{self.tries}", delay_s)


class Knower:
    """Does `know` jobs."""

    def __init__(
        self,
        learning: LearningStore,
        store: CheckStore,
        sql: Queries,
        clock: Clock,
        *,
        ontologies: OntologySource,
        resolver: Resolving,
        rows: Rows,
        ask_s: float = ASK_S,
    ) -> None:
        """`ask_s`: seconds that a domain has to answer."""
        self._learning = learning
        self._store = store
        self._sql = sql
        self._clock = clock
        self._ontologies = ontologies
        self._resolver = resolver
        self._rows = rows
        self._ask_s = ask_s

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """By entrypoint, for the worker."""
        return {KNOW: self.know}

    async def know(self, payload: bytes) -> None:
        """Teach and check. Raises `BadBody`, `StoreUnavailable`; a domain that is away is asked again later."""
        job = KnowJob.parse(payload)
        message = await self._store.message(job.tenant, job.user, job.message, job.since, job.until)
        if message is None:
            return
        ontology = await self._ontologies.of(job.tenant)
        recent = await recent_of(self._store, job.tenant, job.user, job.session, message.turn_index)
        taught = f"taught:{job.message}"
        fresh = not await self._store.claimed(job.tenant, job.user, taught)
        found = await self._resolver.resolve_text(
            _who(job), message.text, recent, ontology, now=message.said_at, teach=fresh
        )
        if fresh:
            async with self._effect(job, taught) as effect:
                if effect is None:
                    return  # the user is gone
                checking = self._checking(effect, job)
                await checking.tie(_names(found))
        away = [each for each in things_of(found) if not await self._check(job, each, ontology)]
        if away:
            await self._later(job, away)

    async def _check(self, job: KnowJob, entity: Entity, ontology: Ontology) -> bool:
        """Hold what is remembered of a thing against its row. False: its domain is away."""
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
        async with self._effect(job, key) as effect:
            if effect is None:
                return True
            settled = await self._checking(effect, job).settle(
                entity.id, job.message, job.session, *self._judged(entity, claims, row), same_value
            )
        if settled.logged:
            log.info("memories and a row differ", extra={"domain": kind.domain} | settled._asdict())
        return True

    def _judged(
        self, entity: Entity, claims: Sequence[StoredClaim], row: Mapping[str, RowValue]
    ) -> tuple[list[RowClash], list[StoredClaim]]:
        rows = {entity.id: row}
        stored = {each.memory_id: each for each in claims}
        said = [Claim(*each) for each in claims]
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
            for clash in against_rows(said, rows, {entity.id: entity.name})
            if clash.memory_id is not None and clash.row is not None
        ]
        return clashes, [stored[each.memory_id] for each in agreeing(said, rows)]

    async def _later(self, job: KnowJob, away: Sequence[Entity]) -> None:
        if job.tries >= len(LATER_S):
            log.error(
                "a domain stayed away: what is remembered is checked when its thing is spoken of again",
                extra={"things": len(away)},
            )
            return
        again = replace(job, tries=job.tries + 1)
        await self._store.enqueue(job.tenant, [again.record(LATER_S[job.tries])])

    def _effect(self, job: KnowJob, key: str) -> Any:
        return self._learning.effect(
            job.tenant,
            job.user,
            key,
            alone=job.session if job.confined else job.user,
            epoch=job.epoch,
            read=[],
            now=self._clock.now(),
        )

    def _checking(self, effect: Effect, job: KnowJob) -> Checking:
        return _checking(effect, self._sql, job.tenant, job.user, _scope(job), self._clock.now())


def things_of(found: Sequence[Resolution]) -> list[Entity]:
    """Each thing once."""
    return list({each.entity.id: each.entity for each in found if each.entity is not None}.values())


def _names(found: Sequence[Resolution]) -> dict[str, str]:
    """How a thing was called before anybody knew it, as subjects of triples are written."""
    return {
        name.lower(): each.entity.id
        for each in found
        if each.entity is not None and each.method != "coreference"
        for name in (each.mention, each.entity.name)
        if name.lower() != "user"  # who speaks is no thing, whatever things are called
    }
