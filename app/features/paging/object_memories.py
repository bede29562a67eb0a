"""The job that makes memories of a session's objects: what the model came back to is known in later sessions (seed 002,
"Cross-Session Memory").

    a session idle for 5 minutes ─> remember_objects: what speaks for its objects ─> their words, their vectors
        └── nothing is held meanwhile; then, in one transaction that notes the job as done:
            new memories, what they replace, what is reinforced, and what the session has shown to be so no more

A memory of an object is a row of `memory_store` like any other: it begins as an episodic one (L2), rises by use, fades, is
found, forgotten and erased as all are. It says what was read, in its own words, and is never an instruction.
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
from app.errors import BadBody, Conflict
from app.features.paging.persistence_store import (
    KnownObject,
    ObjectEvidence,
    Origin,
    PersistenceReads,
    PersistenceState,
    PersistenceWrites,
)
from app.features.paging.persistent_objects import (
    PersistentObject,
    by_tool,
    content_key,
    evidence,
    file_of,
    lasting,
    latest,
    origins_of,
    place_of,
    text_of,
    told_of,
)
from app.features.paging.summaries import steers
from app.features.paging.values import Counter
from app.jobs.schedule import IDLE, STATEMENT_S, Connection, Tick
from app.memory.candidate import Provenance
from app.memory.claims import confirmed, gained
from app.memory.drafts import EPISODIC, L1_CONFIDENCE, SEMANTIC
from app.memory.ingest import GLOBAL, REPEATED
from app.memory.text import content_hash
from app.providers.embeddings import Embedder
from app.store import ids
from app.store.learning import Changes, Effect, HistoryEvent, LearningStore, MemoryRow, Reinforcement, Superseded
from app.store.queries import Queries
from app.store.records import Vector
from app.store.tuning import lives

log = logging.getLogger(__name__)

REMEMBER_OBJECTS = "remember_objects"
"""The entrypoint."""

LOOK_EVERY = timedelta(minutes=1)
"""As for sessions that have ended: a memory stands 5 to 6 minutes after the last turn."""
ALL = 500
"""Jobs that one run of the tick puts into the queue."""

IMPORTANCE = 0.5
"""What is middling: more than a tool's result in passing (0.3), less than what the user says."""
TAG = "object"
"""By which these memories can be listed."""
CHANGED = "what it tells of was read or edited since, and is another"


class RememberJob(Struct, frozen=True):
    """The payload of `remember_objects`."""

    tenant: UUID
    user: UUID
    session: UUID
    id: str

    @classmethod
    def parse(cls, payload: bytes) -> RememberJob:
        """Raises `BadBody`: what cannot be read now cannot be read later."""
        try:
            fields: dict[str, Any] = orjson.loads(payload)
            return cls(UUID(fields["tenant"]), UUID(fields["user"]), UUID(fields["session"]), str(fields["id"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadBody("This job's payload cannot be read.") from error


class WordedObject(Struct, frozen=True):
    """A content that is to be remembered, in its words; `vector` None: there is none."""

    of: PersistentObject
    origin: Origin
    text: str
    content_hash: bytes
    tokens: int
    vector: Vector | None = None


class ObjectRememberer:
    """Does `remember_objects` jobs."""

    def __init__(
        self,
        learning: LearningStore,
        store: PersistenceReads,
        sql: Queries,
        clock: Clock,
        *,
        embedder: Embedder,
        space: int | None,
        count: Counter,
        unwelcome: Callable[[str], bool],
    ) -> None:
        """`space`: the number of the embedder's space, None without vectors. `count`: tokens of o200k. `unwelcome`: says of a
        text that it is not to be remembered (secrets, what says who somebody is)."""
        self._learning = learning
        self._store = store
        self._sql = sql
        self._clock = clock
        self._embedder = embedder
        self._space = space if embedder.dimensions else None
        self._count = count
        self._unwelcome = unwelcome

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """By entrypoint, for the worker."""
        return {REMEMBER_OBJECTS: self.remember}

    async def remember(self, payload: bytes) -> None:
        """Look through a session's objects. Raises `BadBody`, `Unavailable` (of the embedder), `StoreUnavailable`."""
        job = RememberJob.parse(payload)
        while not await self._attempt(job):
            log.info("a session changed while its objects were looked through", extra={"session": str(job.session)})

    async def _attempt(self, job: RememberJob) -> bool:
        """False: something that was read is gone by now, and nothing was written."""
        state = await self._store.read(job.tenant, job.user, job.session)
        if state is None:
            return True
        # What is nobody's is found in its own session alone, which has it already.
        found = [] if job.user == ids.nobody(job.tenant) else lasting(state.readings)
        worded = await self._worded(job, state, found)
        now = self._clock.now()
        try:
            async with self._learning.effect(
                job.tenant,
                job.user,
                f"{REMEMBER_OBJECTS}:{job.id}",
                alone=job.user,
                epoch=state.epoch,
                read=[each.origin.message_id for each in worded],
                now=now,
            ) as effect:
                if effect is not None:
                    writes = PersistenceWrites(effect.connection, self._sql, job.tenant, job.user, state.hmac_key)
                    if await writes.since(job.session) != state.since:
                        raise Conflict("Another job has looked through these objects.")
                    life = (await lives(effect.connection, self._sql))[EPISODIC]
                    await _Taking(job, state, effect, writes, self._space, now, life).take(worded, found)
        except Conflict:
            return False
        return True

    async def _worded(
        self, job: RememberJob, state: PersistenceState, found: Sequence[PersistentObject]
    ) -> list[WordedObject]:
        """Those that may be remembered, each text once."""
        origins = origins_of((each.reading for each in found), state.origins)
        usable = [each for each in found if (at := origins.get(each.reading.object_id)) is not None and at.usable]
        made: dict[bytes, WordedObject] = {}
        for each in usable:  # one at a time: a content may have 10 MB
            reading = each.reading
            content = (await self._store.contents(job.tenant, job.user, [reading.object_id])).get(reading.object_id)
            if content is None:
                continue
            text = await asyncio.to_thread(text_of, reading, content, self._count)
            # What is planted in one session is not carried into the next.
            if text and not steers(text) and not self._unwelcome(text):
                hashed = content_hash(text)
                made.setdefault(hashed, WordedObject(each, origins[reading.object_id], text, hashed, self._count(text)))
        if not made or self._space is None:
            return list(made.values())
        vectors = await self._embedder.embed([each.text for each in made.values()])
        return [
            replace(each, vector=vector if vector.any() else None)
            for each, vector in zip(made.values(), vectors, strict=True)
        ]


class _Taking(Struct, frozen=True):
    """One job's effect, within its transaction."""

    job: RememberJob
    state: PersistenceState
    effect: Effect
    writes: PersistenceWrites
    space: int | None
    now: datetime
    life: timedelta

    async def take(self, worded: Sequence[WordedObject], found: Sequence[PersistentObject]) -> None:
        """Write all of it. `found`: what was looked at, whether or not it may be remembered."""
        places = latest(self.state.readings)
        keys = [content_key(each.of.reading.content_hash) for each in worded]
        known = await self.writes.known([*places, *keys])
        fresh, repeated = await self._sorted(worded, known)
        new = [(each, self._row(each)) for each in fresh]
        heirs = {place: row.memory_id for each, row in new if (place := place_of(each.of.reading)) is not None}
        stale = self._stale(places, known)
        superseded = [Superseded(each.memory_id, heirs[at], "corrected", self.now) for at, each in stale if at in heirs]
        events = [HistoryEvent(row.memory_id, "created", None, {"text": row.text, "kind": row.kind}) for _, row in new]
        events += [
            HistoryEvent(memory.memory_id, "reinforced", None, {"message_id": each.origin.message_id})
            for each, memory in repeated
        ]
        events += [
            HistoryEvent(
                each.memory_id,
                "superseded",
                {"status": "active"},
                {"status": "superseded", "superseded_by": each.heir},
            )
            for each in superseded
        ]
        await self.effect.change(
            ids.NIL,
            self.space,
            Changes(
                new=[row for _, row in new],
                reinforced=[self._reinforcement(each, memory) for each, memory in repeated],
                superseded=superseded,
                events=events,
            ),
        )
        for at, memory in stale:
            if at not in heirs:
                await self.writes.invalidate(memory, self.now, CHANGED)
        await self.writes.name([(row.memory_id, _keys(each)) for each, row in new])
        origins = [(each.origin.message_id, row.memory_id) for each, row in new]
        await self.writes.derive(origins + [(each.origin.message_id, memory.memory_id) for each, memory in repeated])
        told = {reading.object_id: evidence(reading) for each in found for reading in each.readings}
        await self.writes.done(self.job.session, told, self.state.until)

    async def _sorted(
        self, worded: Sequence[WordedObject], known: Mapping[str, Sequence[KnownObject]]
    ) -> tuple[list[WordedObject], list[tuple[WordedObject, KnownObject]]]:
        """What is new, and what is remembered already; without what was forgotten, in these words or its message's."""
        hashes = {each.content_hash for each in worded}
        said = {each.origin.content_hash for each in worded if each.origin.content_hash is not None}
        gone = await self.effect.forgotten(self.state.hmac_key, [*(hashes | said)])
        there = {each.content_hash for each in await self.effect.members(ids.NIL, [*hashes], (), ())}
        fresh: list[WordedObject] = []
        repeated: list[tuple[WordedObject, KnownObject]] = []
        for each in worded:
            memories = known.get(content_key(each.of.reading.content_hash), ())
            active = next((memory for memory in memories if memory.is_active), None)
            if any(memory.forgotten for memory in memories) or gone & {each.content_hash, each.origin.content_hash}:
                continue
            if active is not None:
                repeated.append((each, active))
            elif each.content_hash not in there:
                fresh.append(each)
        return fresh, repeated

    def _stale(
        self, places: Mapping[str, ObjectEvidence], known: Mapping[str, Sequence[KnownObject]]
    ) -> list[tuple[str, KnownObject]]:
        """Memories in force, each with the place by which the session has found it to be another since."""
        seen = {each.content_hash.hex(): each for each in self.state.readings}
        found: dict[UUID, tuple[str, KnownObject]] = {}
        for place, newer in places.items():
            if self.state.since is not None and newer.created_at <= self.state.since:
                continue
            for memory in known.get(place, ()):
                hashed = memory.content_hash or ""
                same = hashed == newer.content_hash.hex() or (
                    hashed in seen and seen[hashed].created_at >= newer.created_at
                )
                if memory.is_active and memory.stated_at < newer.created_at and not same:
                    found.setdefault(memory.memory_id, (place, memory))
        return list(found.values())

    def _row(self, each: WordedObject) -> MemoryRow:
        reading, origin, times = each.of.reading, each.origin, each.of.fresh
        confidence = confirmed(L1_CONFIDENCE, 0, L1_CONFIDENCE, times)
        return MemoryRow(
            memory_id=ids.uuid7(self.now),
            session_id=self.job.session,
            tier=EPISODIC,
            scope=GLOBAL,
            # What a tool gave; what the user brought, or was planned and decided, has happened in the session.
            kind="tool_outcome" if by_tool(reading) else "event",
            text=each.text,
            content_hash=each.content_hash,
            provenance_type=Provenance.TOOL_OUTPUT if by_tool(reading) else Provenance.SYSTEM_INFERRED,
            turn_id=origin.message_id,
            turn_index=origin.turn_index,
            source_message_ids=[origin.message_id],
            sources=[self._source(origin)],
            confidence=confidence,
            confidence_factors=_factors(confidence, times),
            importance=IMPORTANCE,
            access_count=times,
            reinforcement_count=times,
            created_at=origin.created_at,
            expires_at=self.now + self.life,
            validated=False,
            token_count=each.tokens,
            valid_from=origin.created_at,
            stated_at=reading.created_at,
            vector=each.vector,
            tags=(TAG, reading.object_type),
            details={"object": told_of(reading)},
        )

    def _reinforcement(self, each: WordedObject, memory: KnownObject) -> Reinforcement:
        times = each.of.fresh
        confidence = confirmed(memory.confidence, memory.reinforcement_count, L1_CONFIDENCE, times)
        added = [] if each.origin.message_id in memory.source_message_ids else [each.origin]
        return Reinforcement(
            memory_id=memory.memory_id,
            times=times,
            tier=memory.tier,
            scope=memory.scope,
            importance=min(1.0, memory.importance + REPEATED),
            confidence=confidence,
            confidence_factors=_factors(confidence, memory.reinforcement_count + times),
            expires_at=None if memory.tier >= SEMANTIC else self.now + self.life,
            validated=False,
            valid_from=memory.valid_from,
            stated_at=each.of.reading.created_at,
            sources=[self._source(origin) for origin in added],
            source_message_ids=[origin.message_id for origin in added],
        )

    def _source(self, origin: Origin) -> dict[str, Any]:
        return {
            "session": self.state.name,
            "session_id": str(self.job.session),
            "message_id": str(origin.message_id),
            "turn_index": origin.turn_index,
            "quote": "",
            "created_at": origin.created_at,
            "metadata": {},
        }


def _keys(each: WordedObject) -> list[str]:
    reading = each.of.reading
    keys = (content_key(reading.content_hash), place_of(reading), file_of(reading))
    return [key for key in keys if key is not None]


def _factors(confidence: float, times: int) -> dict[str, Any]:
    """Why it is believed as far as it is (seed 004, `confidence_factors`)."""
    return {
        "base_confidence": L1_CONFIDENCE,
        "reinforcement_boost": round(gained(times), 4),
        "reinforcement_count": times,
        "source_type": "object",
        "final_confidence": round(confidence, 4),
    }


def object_ticks(sql: Queries) -> Sequence[Tick]:
    """What the schedule runs beside its own: it only puts into the queue what is due."""

    async def work(connection: Connection, now: datetime) -> int:
        done: int = await connection.fetchval(sql["lasting.enqueue"], now - IDLE, ALL, timeout=STATEMENT_S)
        return done

    return (Tick("objects", LOOK_EVERY, work),)
