"""The job that makes memories of a session's objects: what the model came back to is known in later sessions (seed 002,
"Cross-Session Memory").

    a session idle for 5 minutes ─> remember_objects: what speaks for its objects ─> their words, their vectors
        └── nothing is held meanwhile; then, in one transaction that notes the job as done (`LearningStore.effect`):
            new memories, what they replace, what is reinforced, and what the session has shown to be so no more

A memory of an object is a row of `memory_store` like any other: it begins as an episodic one (L2), rises by use, fades, is
found, forgotten and erased as all are. It says what was read, in its own words, and is never an instruction.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.clock import Clock
from app.errors import Conflict
from app.features.paging.keys import Family, base_key
from app.features.paging.outline import fitting
from app.features.paging.quotes import AnswerSource, answer
from app.features.paging.segment import PASTED, SAID
from app.features.paging.shrink import shrink
from app.features.paging.summaries import ShrinkJob, steers
from app.features.paging.values import ContentKind, Counter
from app.jobs.schedule import IDLE, STATEMENT_S, Connection, Tick
from app.memory.candidate import Provenance
from app.memory.claims import confirmed, gained
from app.memory.drafts import EPISODIC, L1_CONFIDENCE, SEMANTIC
from app.memory.ingest import GLOBAL, REPEATED
from app.memory.text import content_hash, normalise
from app.providers.embeddings import Embedder
from app.store import ids
from app.store.consolidation import key_hmac
from app.store.ids import mark_of
from app.store.learning import Changes, Effect, HistoryEvent, LearningStore, MemoryRow, Reinforcement, Superseded
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import Vector
from app.store.sessions import SessionRef, line_of
from app.store.tuning import lives

# --- what there is to remember -------------------------------------------------------------------------------------------

QUESTIONS = 2
"""Questions about an object whose answers its memory quotes, the latest."""


class ObjectEvidence(Struct, frozen=True):
    """An object of a session, without its content, and what speaks for it. `marks`: of the messages that it stands in
    (`segment.marks`). `fault_count`: times that it was asked back. `asked_turns`: turns in which it was asked about. `again`:
    another conversation had the same before. `remembered`: evidence that has become memory."""

    object_id: UUID
    object_type: str
    kind: str
    source_tool: str | None
    source_key: str | None
    family: str
    content_hash: bytes
    stub: str
    marks: tuple[bytes, ...]
    tokens_l0: int
    created_at: datetime
    fault_count: int
    asked_turns: int
    pinned: bool
    again: bool
    remembered: int


class Origin(NamedTuple):
    """A message of the session's conversation; `usable`: something may be learned from it."""

    message_id: UUID
    session_id: UUID
    turn_index: int
    created_at: datetime
    message_hash: bytes
    content_hash: bytes | None
    usable: bool


class PersistenceState(Struct, frozen=True):
    """A session as its objects are looked through. `until`: what is seen of it; `since`: what was seen before. `epoch`: its
    user's erasure epoch, None: there is no such user. `hmac_key`: of this database's keyed hashes."""

    epoch: int | None
    hmac_key: bytes
    name: str
    since: datetime | None
    until: datetime
    readings: tuple[ObjectEvidence, ...]
    origins: tuple[Origin, ...]


class Content(NamedTuple):
    """`questions`: about the object, the latest first."""

    text: str
    compact: str | None
    questions: tuple[str, ...]


class KnownObject(Struct, frozen=True):
    """A memory of an object. `forgotten`: its user had it forgotten."""

    memory_id: UUID
    is_active: bool
    content_hash: str | None
    memory_tier: int
    memory_scope: int
    confidence: float
    importance: float
    reinforcement_count: int
    expires_at: datetime | None
    valid_from: datetime
    stated_at: datetime
    status: str
    source_message_ids: list[UUID]
    forgotten: bool


def _reading(row: Any) -> ObjectEvidence:
    fields = dict(row)
    marks = tuple(bytes.fromhex(mark) for mark, _, _ in fields.pop("parts"))
    return ObjectEvidence(**fields | {"family": row["family"] or "", "marks": marks})


# --- which objects outlast their session ---------------------------------------------------------------------------------
#
# An object lasts when something speaks for it: the model asked it back, or asked about it in several turns, somebody pinned
# it, or it was read again, the same, in a later conversation. It does not when the same key was read since with another
# content, or its file was edited: it is not so any more.

ASKED_TURNS = 2
"""Turns with questions about an object that speak for it: one question may be a whim."""
MOST = 50
"""Objects of one session that become memories at a time, those first for which most speaks."""
MEMORY_TOKENS = 300
"""Most tokens of a memory of an object: as much as an answer to a question about it (`quotes.ANSWER_TOKENS`)."""
QUOTED_TOKENS = 100
"""Of it for each question: a passage of some ten lines."""

_WRITES = frozenset({Family.EDIT.value, Family.WRITE.value})


class PersistentObject(NamedTuple):
    """A content that is to be remembered. `reading`: its last one; `evidence`: what speaks for it, over all `readings` of it in
    the session; `fresh`: as much of it as is no memory yet."""

    reading: ObjectEvidence
    readings: tuple[ObjectEvidence, ...]
    evidence: int
    fresh: int


def evidence(reading: ObjectEvidence) -> int:
    """How much speaks for an object: each restoration, each turn in which it was asked about (two at least), a pin that comes
    from neither, and that it was read before."""
    asked = reading.asked_turns if reading.asked_turns >= ASKED_TURNS else 0
    pin = reading.pinned and not reading.fault_count and not asked
    return reading.fault_count + asked + pin + reading.again


def place_of(reading: ObjectEvidence) -> str | None:
    """What a content is known by beside itself: two that share it are readings of the same. None: it has no key, or is the note
    of an edit, which says what was done and not what is so."""
    return (
        None
        if reading.source_key is None or reading.family in _WRITES
        else f"object:{reading.family}:{reading.source_key}"
    )


def file_of(reading: ObjectEvidence) -> str | None:
    """The file that was read, all of it or some lines, or edited."""
    if reading.source_key is None or reading.family not in (Family.READ.value, *_WRITES):
        return None
    return f"object:file:{base_key(reading.source_key)}"


def by_tool(reading: ObjectEvidence) -> bool:
    """Whether a tool gave it, rather than that the user brought it, or the assistant said it."""
    return reading.source_tool is not None and reading.source_tool not in (PASTED.tool, SAID.tool)


def content_key(content_hash: bytes) -> str:
    """What a content is known by, whatever it is a reading of."""
    return f"object:{content_hash.hex()}"


def latest(readings: Iterable[ObjectEvidence]) -> dict[str, ObjectEvidence]:
    """The last reading of each place, and the last edit of each file. `readings`: in their order."""
    found: dict[str, ObjectEvidence] = {}
    for each in readings:
        key = file_of(each) if each.family in _WRITES else place_of(each)
        if key is not None:
            found[key] = each
    return found


def lasting(readings: Sequence[ObjectEvidence]) -> list[PersistentObject]:
    """Contents for which more speaks than is known yet, those first for which most does; at most `MOST`."""
    last, order = latest(readings), {each.object_id: n for n, each in enumerate(readings)}
    alike: dict[tuple[str | None, bytes], list[ObjectEvidence]] = {}
    for each in readings:
        alike.setdefault((place_of(each), each.content_hash), []).append(each)
    found: list[PersistentObject] = []
    for (place, content), same in alike.items():
        edit = last.get(file_of(same[-1]) or "")
        edited = edit is not None and order[edit.object_id] > order[same[-1].object_id]
        if same[-1].family in _WRITES or edited or (place is not None and last[place].content_hash != content):
            continue
        speaks, fresh = sum(map(evidence, same)), sum(max(0, evidence(each) - each.remembered) for each in same)
        if fresh:
            found.append(PersistentObject(same[-1], tuple(same), speaks, fresh))
    return sorted(found, key=lambda each: -each.evidence)[:MOST]


def origins_of(readings: Iterable[ObjectEvidence], origins: Sequence[Origin]) -> dict[UUID, Origin]:
    """The message that each object stands in, the first of several; none for one that is not stored.

    `origins`: all of the conversation, in their order: messages that say the same are told by how many there were before.
    """
    seen: Tally[bytes] = Tally()
    at: dict[bytes, Origin] = {}
    for each in origins:
        at.setdefault(mark_of(each.message_hash, seen[each.message_hash]), each)
        seen[each.message_hash] += 1
    return {each.object_id: at[each.marks[0]] for each in readings if each.marks and each.marks[0] in at}


def text_of(reading: ObjectEvidence, content: Content, count: Counter) -> str:
    """What is remembered of an object, on one line: its stub, the passages that its last questions were answered with, and as
    much of L2 as there is room for. Nothing in other words than its own."""
    kind = ContentKind(reading.kind)
    told = [reading.stub]
    for question in content.questions:
        source = AnswerSource(reading.object_id, "", kind, content.text, key=reading.source_key)
        for best in answer(question, [source], count, QUOTED_TOKENS).quotes[:1]:
            told += [_flat(best.text)] if _flat(best.text) not in told else []
    compact = content.compact or shrink(content.text, kind, count, reading.source_key, reading.tokens_l0).compact.text
    told.append(_flat(compact))
    return normalise(fitting(" – ".join(told), MEMORY_TOKENS, count))


def told_of(reading: ObjectEvidence) -> Mapping[str, object]:
    """What a memory tells of the object that it was (`details.object`)."""
    return {
        "id": str(reading.object_id),
        "type": reading.object_type,
        "tool": reading.source_tool,
        "key": reading.source_key,
        "hash": reading.content_hash.hex(),
        "tokens": reading.tokens_l0,
    }


def _flat(text: str) -> str:
    return " ".join(text.split())


# --- the job -------------------------------------------------------------------------------------------------------------

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


class RememberJob(ShrinkJob, frozen=True):
    """The payload of `remember_objects`."""

    id: str


class WordedObject(Struct, frozen=True):
    """A content that is to be remembered, in its words; `vector` None: there is none."""

    of: PersistentObject
    origin: Origin
    text: str
    content_hash: bytes
    tokens: int
    vector: Vector | None = None


class ObjectRememberer(Struct, frozen=True):
    """`space`: the number of the embedder's space, None without vectors. `count`: tokens of o200k. `unwelcome`: says of a text
    that it is not to be remembered (secrets, what says who somebody is)."""

    learning: LearningStore
    pool: Pool
    sql: Queries
    clock: Clock
    embedder: Embedder
    space: int | None
    count: Counter
    unwelcome: Callable[[str], bool]

    @property
    def _space(self) -> int | None:
        return self.space if self.embedder.dimensions else None

    async def remember(self, payload: bytes) -> None:
        """Look through a session's objects. Raises `BadBody`, `Unavailable` (of the embedder), `StoreUnavailable`."""
        job = RememberJob.parse(payload)
        while not await self._attempt(job):
            log.info("a session changed while its objects were looked through", extra={"session": str(job.session)})

    async def _attempt(self, job: RememberJob) -> bool:
        """False: something that was read is gone by now, and nothing was written."""
        state = await self._read(job.tenant, job.user, job.session)
        if state is None:
            return True
        # What is nobody's is found in its own session alone, which has it already.
        found = [] if job.user == ids.nobody(job.tenant) else lasting(state.readings)
        worded = await self._worded(job, state, found)
        now = self.clock.now()
        try:
            key, read = f"{REMEMBER_OBJECTS}:{job.id}", [each.origin.message_id for each in worded]
            async with self.learning.effect(
                job.tenant, job.user, key, alone=job.user, epoch=state.epoch, read=read, now=now
            ) as effect:
                if effect is not None:
                    life = (await lives(effect.connection, self.sql))[EPISODIC]
                    await _Taking(job, state, effect, self.sql, self._space, now, life).take(worded, found)
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
            content = await self._content(job.tenant, job.user, reading.object_id)
            if content is None:
                continue
            text = await asyncio.to_thread(text_of, reading, content, self.count)
            # What is planted in one session is not carried into the next.
            if text and not steers(text) and not self.unwelcome(text):
                hashed = content_hash(text)
                made.setdefault(hashed, WordedObject(each, origins[reading.object_id], text, hashed, self.count(text)))
        if not made or self._space is None:
            return list(made.values())
        vectors = await self.embedder.embed([each.text for each in made.values()])
        return [
            replace(each, vector=vector if vector.any() else None)
            for each, vector in zip(made.values(), vectors, strict=True)
        ]

    async def _read(self, tenant: UUID, user: UUID, session: UUID) -> PersistenceState | None:
        """None: there is no such session, or it has no objects."""
        sql = self.sql
        async with self.pool.transaction(tenant) as connection:
            owner = await connection.fetchrow(sql["consolidation.user"], user)
            assert owner is not None, "a query without FROM has one row"
            row = await connection.fetchrow(sql["lasting.session"], tenant, user, session)
            if row is None:
                return None
            key = bytes.fromhex(await connection.fetchval(sql["memories.secret"]))
            readings = await connection.fetch(sql["lasting.readings"], tenant, user, session)
            line = await line_of(connection, sql, tenant, SessionRef(user, session)) if readings else None
            origins = await connection.fetch(sql["lasting.messages"], tenant, user, *line) if line else []
        return PersistenceState(
            owner["epoch"],
            key,
            row["external_id"] or str(session),
            row["remembered_at"],
            row["updated_at"],
            tuple(_reading(each) for each in readings),
            tuple(Origin(*each) for each in origins),
        )

    async def _content(self, tenant: UUID, user: UUID, object_id: UUID) -> Content | None:
        async with self.pool.transaction(tenant) as connection:
            row = await connection.fetchrow(self.sql["lasting.contents"], tenant, user, [object_id], QUESTIONS)
        return Content(row["content_full"], row["summary_compact"], tuple(row["questions"])) if row else None


class _Taking(Struct, frozen=True):
    """One job's effect, within its transaction."""

    job: RememberJob
    state: PersistenceState
    effect: Effect
    sql: Queries
    space: int | None
    now: datetime
    life: timedelta

    async def take(self, worded: Sequence[WordedObject], found: Sequence[PersistentObject]) -> None:
        """Write all of it. `found`: what was looked at, whether or not it may be remembered. Raises Conflict."""
        rows = await self._run("lasting.session", self.job.session)
        if (rows[0]["remembered_at"] if rows else None) != self.state.since:
            raise Conflict("Another job has looked through these objects.")
        places = latest(self.state.readings)
        keys = [content_key(each.of.reading.content_hash) for each in worded]
        known = await self._known([*places, *keys])
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
                await self._invalidate(memory)
        hashed = [(key_hmac(self.state.hmac_key, key), row.memory_id) for each, row in new for key in _keys(each)]
        await self._run("consolidation.name_keys", *_columns(hashed))
        # What must not surface takes along the memories that were derived from it.
        origins = [(each.origin.message_id, row.memory_id) for each, row in new]
        origins += [(each.origin.message_id, memory.memory_id) for each, memory in repeated]
        await self._run("consolidation.derive", *_columns(origins))
        told = {reading.object_id: evidence(reading) for each in found for reading in each.readings}
        await self._run("lasting.done", self.job.session, list(told), list(told.values()), self.state.until)

    async def _known(self, keys: Sequence[str]) -> dict[str, list[KnownObject]]:
        """The memories by these keys, held until the end of the transaction."""
        named = {key_hmac(self.state.hmac_key, each): each for each in keys}
        found: dict[str, list[KnownObject]] = {}
        for row in await self._run("lasting.known", list(named)):
            fields = dict(row)
            found.setdefault(named[fields.pop("key_hmac")], []).append(KnownObject(**fields))
        return found

    async def _invalidate(self, memory: KnownObject) -> None:
        """It was so, and is not so any more."""
        await self._run("memories.set_status", memory.memory_id, "invalidated", self.now, self.now)
        before, after = {"status": memory.status}, {"status": "invalidated", "reason": CHANGED}
        await self._run("memories.event", memory.memory_id, self.now, "invalidated", before, after, "system")

    async def _run(self, name: str, *arguments: object) -> Sequence[Any]:
        rows: Sequence[Any] = await self.effect.connection.fetch(
            self.sql[name], self.job.tenant, self.job.user, *arguments
        )
        return rows

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
            tier=memory.memory_tier,
            scope=memory.memory_scope,
            importance=min(1.0, memory.importance + REPEATED),
            confidence=confidence,
            confidence_factors=_factors(confidence, memory.reinforcement_count + times),
            expires_at=None if memory.memory_tier >= SEMANTIC else self.now + self.life,
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


def _columns(pairs: Sequence[tuple[object, UUID]]) -> tuple[list[object], list[UUID]]:
    return [one for one, _ in pairs], [other for _, other in pairs]


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
