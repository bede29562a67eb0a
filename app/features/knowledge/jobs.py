"""What the worker does about the things that a turn names: their ids go with what is learned, what the turn teaches about names
is kept, and what is remembered of them is held against their rows.

    learn ── the things that the turn names, nothing held ──> triples with their ids
          ── within its effect: aliases, choices and new things; episodes name their things; a `check` job
    check ── for each thing that has a row: ask its domain, holding nothing; then, in one transaction that notes it as done:
             log what differs, end or doubt or confirm memories
             └── the domain is away: the job again, after a minute, five, …; then when the thing is spoken of next
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy
from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from app.clock import Clock
from app.context.resolution import RECENT, Clash, EarlierMessage, Entity, Resolution, RowValue, Who
from app.errors import BadBody, Unavailable
from app.features.knowledge.claims import about_things, against_rows, agreeing, logged_data, logged_outcome
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
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import ROLE_NAMES, Claim, JobRecord


class RowClash(Struct, frozen=True):
    """A memory that a row contradicts, ready for the log."""

    conflict_id: UUID
    claim: Claim
    row: RowValue
    clash: Clash


class CheckStore:
    """Reads what there is to tie and to check."""

    def __init__(self, pool: Pool, sql: Queries) -> None:
        self._pool = pool
        self._sql = sql

    async def things_known(self, tenant: UUID, user: UUID) -> bool:
        """Whether the tenant, or this user, has spoken of things at all."""
        async with self._pool.transaction(tenant) as connection:
            return bool(await connection.fetchval(self._sql["checking.things_known"], tenant, user))

    async def said_before(
        self, tenant: UUID, user: UUID, session: UUID, turn: int, limit: int
    ) -> list[tuple[str, str]]:
        """(role, text) of the last messages of the session before a turn, oldest first."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["checking.said_before"], user, session, turn, limit)
        return [(ROLE_NAMES[row["role"]], row["content"]) for row in rows]

    async def preferred_days(self, tenant: UUID, user: UUID, scope: UUID, things: Collection[str]) -> dict[str, str]:
        """By thing, the predicate of its preferred day, where one alone is known."""
        if not things:
            return {}
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["checking.preferred_days"], user, scope, list(things))
        found = [row["thing"] for row in rows]
        return {row["thing"]: row["predicate"] for row in rows if found.count(row["thing"]) == 1}

    async def claimed(self, tenant: UUID, user: UUID, job_key: str) -> bool:
        async with self._pool.transaction(tenant) as connection:
            return bool(await connection.fetchval(self._sql["checking.claimed"], user, job_key))

    async def claims(
        self, tenant: UUID, user: UUID, scope: UUID, thing: str, predicates: Collection[str], now: datetime
    ) -> list[Claim]:
        """What is in force and says one of these of the thing, whenever it was learned."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["checking.claims"], user, scope, thing, list(predicates), now)
        return [Claim(**dict(row)) for row in rows]

    async def enqueue(self, tenant: UUID, user: UUID, epoch: int | None, jobs: Sequence[JobRecord]) -> None:
        """Jobs for later; none of a user who was erased meanwhile."""
        async with self._pool.transaction(tenant) as connection:
            if epoch is not None and await connection.fetchval(self._sql["learning.epoch"], user) == epoch:
                await connection.execute(self._sql["queue.enqueue"], list(jobs))


class Checking(Struct, frozen=True):
    """What is written of it, within a job's effect."""

    connection: PoolConnectionProxy[Any]
    sql: Queries
    tenant: UUID
    user: UUID
    scope: UUID
    now: datetime

    async def name_things(self, named: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> None:
        """Episodes name their things: [{message_id, ids, things}]; memories whose subject is one of `names` (lower case) get
        the thing of that name for it."""
        await self._run("checking.name_things", list(named))
        await self._run("checking.tie", list(names), list(names.values()), self.now, self.scope)

    async def settle(
        self,
        thing: str,
        message: UUID,
        session: UUID,
        clashes: Sequence[RowClash],
        agreeing: Sequence[Claim],
        same: Callable[[str, str], bool],
    ) -> dict[str, int]:
        """Log what a row contradicts and do what follows; confirm what it agrees with; what had lost to a memory that the row
        ends, and says what the row says (`same`), comes back. Twice is as good as once. How
        many memories had which end."""
        held = await self._held([each.claim for each in clashes] + list(agreeing))
        counts = dict.fromkeys(("logged", "invalidated", "doubted", "confirmed", "revived"), 0)
        for each in clashes:
            memory = each.claim.memory_id
            status = held.get(memory)
            told = (thing, memory, each.claim.value, each.row.field, each.row.value)
            if status is None or (await self._run("checking.known_clash", *told))[0][0]:
                continue
            await self._run("checking.end_clashes", thing, memory, self.now, {"action": "row_changed"})
            await self._log(thing, message, session, each)
            counts["logged"] += 1
            if each.clash.stands == "domain":
                await self._run("checking.invalidate", memory, self.now)
                after = {"status": "invalidated", "reason": "domain", "conflict": each.conflict_id}
                await self._tell(memory, "invalidated", {"status": status}, after)
                counts["invalidated"] += 1
                counts["revived"] += await self._revive(each, same)
            elif each.clash.stands is None:
                await self._run("checking.doubt", memory, each.conflict_id, self.now)
                await self._tell(memory, "aging", {"status": status}, {"status": "aging"})
                counts["doubted"] += 1
        for claim in agreeing:
            if claim.memory_id in held:
                await self._agree(thing, claim)
                counts["confirmed"] += 1
        return counts

    async def _held(self, claims: Sequence[Claim]) -> dict[UUID, str]:
        memories, values = [each.memory_id for each in claims], [each.value for each in claims]
        rows = await self._run("checking.hold_claims", memories, values)
        return {row["memory_id"]: row["status"] for row in rows}

    async def _log(self, thing: str, message: UUID, session: UUID, clash: RowClash) -> None:
        row = {
            "conflict_id": clash.conflict_id,
            "detected_at_message": message,
            "conflict_type": "memory_vs_db",
            "conflict_data": logged_data(clash.clash),
            "resolution_strategy": clash.clash.strategy,
            "resolution_outcome": logged_outcome(clash.clash),
            "memory_ids": [clash.claim.memory_id],
            "session_id": session,
            "entity_id": thing,
        }
        await self._run("learning.log_conflicts", [row], self.scope, self.now)

    async def _revive(self, clash: RowClash, same: Callable[[str, str], bool]) -> int:
        rows = await self._run("checking.beaten", clash.claim.memory_id)
        memory = next((row["memory_id"] for row in rows if same(row["value"], clash.row.value)), None)
        if memory is None:
            return 0
        await self._run("memories.set_status", memory, "active", None, self.now)
        await self._run("checking.agree", memory, self.now)
        await self._tell(memory, "restored", {"status": "superseded"}, {"status": "active", "reason": "domain"})
        return 1

    async def _agree(self, thing: str, claim: Claim) -> None:
        await self._run("checking.end_clashes", thing, claim.memory_id, self.now, {"action": "row_agrees"})
        for row in await self._run("checking.agree", claim.memory_id, self.now):
            if row["status"] == "active" and row["validated_by"] == "domain":
                continue
            before = {"status": row["status"], "validated_by": row["validated_by"]}
            await self._tell(claim.memory_id, "confirmed", before, {"status": "active", "validated_by": "domain"})

    async def _tell(self, memory: UUID, event: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        await self._run("memories.event", memory, self.now, event, before, after, "system")

    async def _run(self, name: str, *arguments: object) -> Sequence[Any]:
        rows: Sequence[Any] = await self.connection.fetch(self.sql[name], self.tenant, self.user, *arguments)
        return rows


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


# --- while a turn is learned from ----------------------------------------------------------------------------------------


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
        study = self.studies.get(asked.message_id)
        named = study.resolutions if study is not None else ()
        return about_things(exchange.user_text, exchange.now, found, named, self.ontology, self.day_of)

    async def note(self, job: LearnJob, effect: Effect) -> None:
        """Keep what was taught, let episodes name their things, and have these checked."""
        now = self.clock.now()
        for study in self.studies.values():
            await self.resolver.teach(effect.connection, _who(job), study.lessons, now, job.session)
        checking = Checking(effect.connection, self.sql, job.tenant, job.user, job.scope, now)
        named = {message: each.resolutions for message, each in self.studies.items() if things_of(each.resolutions)}
        if not named:
            return
        names = _names([each for found in named.values() for each in found])
        await checking.name_things([_named(message, found) for message, found in named.items()], names)
        last = {each: message for message, found in named.items() for each in things_of(found)}
        rowed: dict[UUID, list[Entity]] = {}
        for each, message in last.items():
            kind = self.ontology.types.get(each.type)
            if kind is not None and kind.predicates:
                rowed.setdefault(message, []).append(each)
        jobs = [
            CheckJob(job.tenant, job.user, job.session, message, tuple(things), self.epoch, job.confined)
            for message, things in rowed.items()
        ]
        await effect.enqueue([each.record(0.0) for each in jobs])


class ResolutionHearing(Struct, frozen=True):
    """The learner's `hearing`."""

    store: CheckStore
    sql: Queries
    clock: Clock
    ontologies: Ontologies
    resolver: Resolver

    async def hear(
        self, job: LearnJob, setting: Setting, exchanges: Sequence[tuple[SourceExchange, Sequence[SourceMessage]]]
    ) -> NamedThings | None:
        """What the exchanges name; None for a tenant without an ontology and without things. Raises StoreUnavailable."""
        ontology = await self.ontologies.of(job.tenant)
        if not ontology and not await self.store.things_known(job.tenant, job.user):
            return None
        turn = exchanges[0][1][0].turn_index
        before = await self.store.said_before(job.tenant, job.user, job.session, turn, RECENT)
        recent = [EarlierMessage(*each) for each in before]
        studies: dict[UUID, ResolvedText] = {}
        for exchange, own in exchanges:
            studies[own[0].message_id] = await self.resolver.study(
                _who(job), exchange.user_text, recent[-RECENT:], ontology, now=exchange.now
            )
            recent += [EarlierMessage(each.role, each.content) for each in own if each.content]
        named = {each.id for study in studies.values() for each in things_of(study.resolutions)}
        days = await self.store.preferred_days(job.tenant, job.user, _scope(job), named)
        return NamedThings(self.resolver, self.sql, self.clock, ontology, setting.epoch, studies, days)


def _who(job: LearnJob) -> Who:
    return Who(job.tenant, None if job.confined else job.user)


def _scope(job: LearnJob | CheckJob) -> UUID:
    return job.session if job.confined else ids.NIL


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


# --- after it was learned from -------------------------------------------------------------------------------------------


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
            return decode(payload, type=CheckJob)
        except (MsgspecError, ValueError) as error:
            raise BadBody("This job's payload cannot be read.") from error

    def record(self, delay_s: float) -> JobRecord:
        return JobRecord(CHECK, encode(self), f"check:{self.message}:{self.tries}", delay_s)


class Checker(Struct, frozen=True):
    """Does `check` jobs. `ask_s`: seconds that a domain has to answer."""

    learning: LearningStore
    store: CheckStore
    sql: Queries
    clock: Clock
    ontologies: Ontologies
    rows: Domains
    ask_s: float = ASK_S

    async def check(self, payload: bytes) -> None:
        """Hold what is remembered of things against their rows. Raises `BadBody`, `StoreUnavailable`; a domain that is away is
        asked again later."""
        job = CheckJob.parse(payload)
        ontology = await self.ontologies.of(job.tenant)
        away = tuple([each for each in job.things if not await self._checked(job, each, ontology)])
        if not away:
            return
        if job.tries < len(LATER_S):
            again = replace(job, things=away, tries=job.tries + 1)
            await self.store.enqueue(job.tenant, job.user, job.epoch, [again.record(LATER_S[job.tries])])
        else:
            log.error(
                "a domain stayed away: what is remembered is checked when its thing is spoken of again",
                extra={"things": len(away)},
            )

    async def _checked(self, job: CheckJob, entity: Entity, ontology: Ontology) -> bool:
        """Whether it is done; False: its domain is away."""
        kind = ontology.types.get(entity.type)
        key = f"checked:{job.message}:{entity.id}"
        if kind is None or not kind.predicates or await self.store.claimed(job.tenant, job.user, key):
            return True
        asked = (job.tenant, job.user, _scope(job), entity.id, list(kind.predicates), self.clock.now())
        claims = await self.store.claims(*asked)
        if not claims:
            return True
        try:
            async with asyncio.timeout(self.ask_s):
                row = await self.rows.rows(job.tenant, entity, ontology)
        except (TimeoutError, Unavailable) as error:
            log.warning(
                "a domain is away: what is remembered is checked later",
                extra={"domain": kind.domain, "error": type(error).__name__, "tries": job.tries},
            )
            return False
        alone, now = job.session if job.confined else job.user, self.clock.now()
        async with self.learning.effect(
            job.tenant, job.user, key, alone=alone, epoch=job.epoch, read=[], now=now
        ) as effect:
            if effect is None:
                return True
            checking = Checking(effect.connection, self.sql, job.tenant, job.user, _scope(job), self.clock.now())
            clashes, confirmed = self._judged(entity, claims, row)
            settled = await checking.settle(entity.id, job.message, job.session, clashes, confirmed, same_value)
        if settled["logged"]:
            log.info("memories and a row differ", extra={"domain": kind.domain, **settled})
        return True

    def _judged(
        self, entity: Entity, claims: Sequence[Claim], row: Mapping[str, RowValue]
    ) -> tuple[list[RowClash], list[Claim]]:
        rows = {entity.id: row}
        stored = {each.memory_id: each for each in claims}
        now = self.clock.now()
        clashes = [
            RowClash(ids.uuid7(now), stored[clash.memory_id], clash.row, clash)
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
