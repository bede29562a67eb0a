"""What the worker does with a turn, or with a batch of imported messages: index them, and learn from them.

read the messages ─> vectors, where no turn waits for them ─> statements by the rules ─> their vectors
    └── nothing is held meanwhile; then, in one transaction that notes the job as done:
        vectors, words, new memories and what they repeat or replace; where there is a helper LLM, a job for each exchange
        └── such a job: statements by the helper ─> in one transaction that notes it as done: those that the rules did not find
              └── then what the exchange taught is compared with what was known (`app/jobs/compare.py`)

A server does the first job with the turn where the rules find something in it (`app/jobs/inline.py`); the queued one then finds
it done. While the helper is away, what the rules found is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID
from weakref import WeakValueDictionary

import orjson
from msgspec import Struct
from msgspec.structs import replace

from app.clock import Clock
from app.errors import BadBody, Conflict
from app.jobs.answers import Answers, Verdict
from app.jobs.compare import Comparing
from app.jobs.retractions import TakingBack
from app.memory.candidate import Candidate, Exchange, Triple
from app.memory.claims import opposite
from app.memory.compare import CONTRARY, belonging, concerned
from app.memory.drafts import Draft, Place, make_drafts
from app.memory.extract import Earlier, amended, amends
from app.memory.ingest import Ingest
from app.providers.embeddings import Embedder
from app.store import ids
from app.store.learning import MESSAGE, Effect, LearningStore, Setting, SourceMessage
from app.store.records import JobRecord, Vector

log = logging.getLogger(__name__)

Extract = Callable[[Exchange], Awaitable[Sequence[Candidate]]]
"""Finds what is worth remembering in one exchange. Raises `HelperError` when a helper LLM fails: the job is tried again."""

Note = Callable[["LearnJob", Effect, Sequence[SourceMessage], Sequence[Draft]], Awaitable[None]]
"""Told, within a job's effect, of the messages it learned from and of what they say: for what works on many of them."""


class Spoken(Protocol):
    """What a job's exchanges say of things (see `app/jobs/resolution.py`)."""

    def about(self, exchange: Exchange, asked: SourceMessage, found: Sequence[Candidate]) -> Sequence[Candidate]:
        """What was found in an exchange, with the ids of the things that it names."""
        ...

    async def note(self, job: LearnJob, effect: Effect) -> None:
        """Told, within the job's effect, after all else."""
        ...


class Hearing(Protocol):
    """Finds out which things exchanges name, before a job's effect; None: there is nothing to know."""

    async def hear(
        self, job: LearnJob, setting: Setting, exchanges: Sequence[tuple[Exchange, Sequence[SourceMessage]]]
    ) -> Spoken | None: ...


EMBEDDED_ROLES = frozenset({"user", "assistant", "tool", "function"})
"""Roles whose texts get vectors: what was said, not how the application set the scene."""

LEARN = "learn"
IMPORT_INDEX = "import_index"
"""The entrypoints. An imported batch is learned from as a turn is."""


Told = tuple[Exchange, Sequence[SourceMessage]]
"""An exchange, and its messages, the user's own first."""


class LearnJob(Struct, frozen=True):
    """The payload of `learn`. `messages`: those that the turn added, in order, said between `since` and `until`.

    `confined`: nobody's session. `indexed`: the rules have learned from them; the helper LLM is to add what they did not find.
    """

    tenant: UUID
    user: UUID
    session: UUID
    session_name: str | None
    messages: tuple[UUID, ...]
    since: datetime
    until: datetime
    confined: bool = False
    indexed: bool = False

    @classmethod
    def parse(cls, payload: bytes) -> LearnJob:
        """Raises `BadBody`: what cannot be read now cannot be read later."""
        try:
            fields: dict[str, Any] = orjson.loads(payload)
            job = cls(
                tenant=UUID(fields["tenant"]),
                user=UUID(fields["user"]),
                session=UUID(fields["session"]),
                session_name=fields.get("session_name"),
                messages=tuple(UUID(each) for each in fields["messages"]),
                since=datetime.fromisoformat(fields["from"]),
                until=datetime.fromisoformat(fields["to"]),
                confined=bool(fields.get("confined", False)),
                indexed=bool(fields.get("indexed", False)),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadBody("This job's payload cannot be read.") from error
        if not job.messages:
            raise BadBody("This job names no messages.")
        return job

    @property
    def key(self) -> str:
        """What its effect is noted under."""
        return f"{'extract' if self.indexed else 'learn'}:{self.messages[0]}"

    @property
    def alone(self) -> UUID:
        """Jobs that share this must not learn at the same time."""
        return self.session if self.confined else self.user

    def part(self, messages: Sequence[SourceMessage]) -> JobRecord:
        """The job in which the helper adds to what the rules found in one of its exchanges, which is indexed."""
        payload = {
            "tenant": self.tenant,
            "user": self.user,
            "session": self.session,
            "session_name": self.session_name,
            "messages": [each.message_id for each in messages],
            "from": self.since,
            "to": self.until,
            "confined": self.confined,
            "indexed": True,
        }
        return JobRecord(LEARN, orjson.dumps(payload, default=str), f"extract:{messages[0].message_id}", 0.0)


class Learner:
    """Does `learn` jobs."""

    def __init__(
        self,
        store: LearningStore,
        *,
        embedder: Embedder,
        space: int | None,
        extract: Extract,
        count: Callable[[str], int],
        clock: Clock,
        store_secrets: bool = False,
        refuses: Callable[[str], bool] = lambda _: False,
        helper: Extract | None = None,
        comparing: Comparing | None = None,
        note: Note | None = None,
        answers: Answers | None = None,
        hearing: Hearing | None = None,
        taking_back: TakingBack | None = None,
    ) -> None:
        """`space`: the number of the embedder's space, None without vectors. `count`: tokens of o200k. `refuses`: says of a
        text that it must not be kept. `extract`: the rules. `helper`: adds to them, in a job for each exchange, since
        each costs a call of an LLM; None: nothing does. `comparing`: asks in these jobs what contradicts what."""
        self._store = store
        self._embedder = embedder
        self._space = space if embedder.dimensions else None
        self._extract = extract
        self._count = count
        self._clock = clock
        self._store_secrets = store_secrets
        self._refuses = refuses
        self._helper = helper
        self._comparing = comparing
        self._note = note
        self._answers = answers
        self._hearing = hearing
        self._taking_back = taking_back
        self._turns: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """By entrypoint, for the worker."""
        return {LEARN: self.learn, IMPORT_INDEX: self.learn}

    async def learn(self, payload: bytes) -> None:
        """Index the messages of a job and learn from them. Raises `BadBody` for a payload that is none, `HelperError`,
        `Unavailable` and `StoreUnavailable` for what may work later."""
        job = LearnJob.parse(payload)
        while not await self._attempt(job):
            log.info("a message was deleted while it was learned from", extra={"job_key": job.key})
        # After the effect, with one of its own: a helper that fails here is asked again, and what it found before stays.
        if job.indexed and self._comparing is not None:
            await self._comparing.compare(job, self._alone(job))

    async def _attempt(self, job: LearnJob) -> bool:
        """Read, find and write. False: something that was read is gone by now, and nothing was written."""
        if job.indexed and self._helper is None:
            return True  # it was to add to the rules, and is configured no more
        setting, messages = await self._store.read(
            job.tenant, job.user, job.messages, job.since, job.until, job_key=job.key
        )
        if setting.done:
            return True
        found = [] if self._embedder.local or job.indexed else await self._message_vectors(messages)
        exchanges = await self._told(job, exchanges_of(messages, setting.instructions))
        spoken = await self._hearing.hear(job, setting, exchanges) if self._hearing and exchanges else None
        statements = await self._statements(job, exchanges, spoken)
        verdicts: list[Verdict] = []
        if self._answers is not None and exchanges and not job.indexed:
            verdicts = await self._answers.read(job.tenant, job.user, job.session, exchanges[0][1][0])
        # Waiting here holds no connection; other workers are waited for in Postgres.
        try:
            async with (
                self._alone(job),
                self._store.effect(
                    job.tenant,
                    job.user,
                    job.key,
                    alone=job.alone,
                    epoch=setting.epoch,
                    read=[each.message_id for each in messages],
                    now=self._clock.now(),
                ) as effect,
            ):
                if effect is None:
                    log.info("a job has no effect: it had it before, or its user is gone", extra={"job_key": job.key})
                    return True
                await self._index(effect, found)
                if statements:
                    await self._take_in(job, setting, effect, statements)
                if self._taking_back is not None and exchanges and not job.indexed:
                    await self._taking_back.act(job, effect, exchanges, statements)
                if self._answers is not None and verdicts:
                    await self._answers.act(effect, job.tenant, job.user, verdicts, statements)
                if not job.indexed:
                    if self._note is not None:
                        await self._note(job, effect, messages, statements)
                    if spoken is not None:
                        await spoken.note(job, effect)
                    if exchanges and self._helper is not None:
                        await effect.enqueue([job.part(own) for _, own in exchanges])
        except Conflict:
            return False
        return True

    async def _told(self, job: LearnJob, exchanges: Sequence[Told]) -> Sequence[Told]:
        """Without what is only said again: what came with the first turn of a session may be another one's history. (Of
        nobody's sessions none is another's.)"""
        if job.confined or len(exchanges) < 2:
            return exchanges
        asked = [own[0].message_id for _, own in exchanges]
        again = await self._store.restated(job.tenant, job.user, asked, job.since, job.until)
        return [each for each in exchanges if each[1][0].message_id not in again]

    def _alone(self, job: LearnJob) -> asyncio.Lock:
        return self._turns.setdefault(job.alone, asyncio.Lock())

    async def _message_vectors(self, messages: Sequence[SourceMessage]) -> list[tuple[SourceMessage, Vector]]:
        wanted = [each for each in messages if each.role in EMBEDDED_ROLES and each.content.strip()]
        if not wanted or self._space is None:
            return []
        vectors = await self._embedder.embed([each.content for each in wanted])
        return [(each, vector) for each, vector in zip(wanted, vectors, strict=True) if vector.any()]

    async def _index(self, effect: Effect, found: Sequence[tuple[SourceMessage, Vector]]) -> None:
        if found and self._space is not None:
            items, vectors = zip(*found, strict=True)
            await effect.add_vectors(
                self._space, MESSAGE, [each.message_id for each in items], [each.created_at for each in items], vectors
            )

    async def _meant(
        self,
        job: LearnJob,
        candidate: Candidate,
        exchange: Exchange,
        asked: SourceMessage,
        found: Sequence[tuple[Candidate, SourceMessage]],
    ) -> Candidate | None:
        """What "no, I meant …" corrects: of this job's statements, else of the session's last ones."""
        earlier = [Earlier(each.quote, each.triple) for each, _ in reversed(found) if each.triple is not None]
        for quote, *triple in await self._store.recent(job.tenant, job.user, job.session, asked.turn_index):
            earlier.append(Earlier(quote, Triple(*triple)))
        return amended(candidate, exchange, earlier)

    async def _statements(
        self,
        job: LearnJob,
        exchanges: Sequence[Told],
        spoken: Spoken | None,
    ) -> list[Draft]:
        """What the exchanges say that is worth keeping, with vectors."""
        found: list[tuple[Candidate, SourceMessage]] = []
        extract = self._helper if job.indexed and self._helper is not None else self._extract
        for exchange, own in exchanges:
            said = await extract(exchange)
            for each in said if spoken is None else spoken.about(exchange, own[0], said):
                meant = await self._meant(job, each, exchange, own[0], found) if amends(each) else each
                if meant is not None:
                    found.append((meant, _source_of(meant, own)))
        made = make_drafts(found, self._count, store_secrets=self._store_secrets, refuses=self._refuses)
        if not made or self._space is None:
            return made
        vectors = await self._embedder.embed([each.text for each in made])
        return [
            replace(each, vector=vector) if vector.any() else each for each, vector in zip(made, vectors, strict=True)
        ]

    async def _take_in(
        self, job: LearnJob, setting: Setting, effect: Effect, statements: Sequence[Draft]
    ) -> list[UUID]:
        """Ingest statements; the memories that are new, and in force."""
        now = self._clock.now()
        scope = job.session if job.confined else ids.NIL
        # A space that was measured has its own; the others are alike enough for one, which an operator may set.
        own = self._embedder.duplicate_threshold
        threshold = own if own is not None else setting.dedup_threshold
        near = await self._near(effect, scope, statements, min(threshold, CONTRARY))
        claims = {pair for each in statements for pair in _claims(each)}
        hashes = [each.content_hash for each in statements]
        claims |= {("user", name) for each in statements for name in each.candidate.doubts}
        claims |= {pair for each in statements for pair in belonging(each)}
        ended = {each.subject for draft in statements for each in draft.candidate.ends}
        close = {each for found in near.values() for each in found}
        members = await effect.members(scope, hashes, claims, close, ended)
        known = await effect.known(scope, concerned(statements, members, near, threshold))
        # "Remember that ..." takes back what was forgotten in a chat.
        await effect.lift(setting.hmac_key, [each.content_hash for each in statements if each.candidate.explicit])
        # Asked for last: whoever forgets one of these memories has done so by now, or waits.
        forgotten = await effect.forgotten(setting.hmac_key, hashes)
        ingest = Ingest(
            Place(job.session, job.session_name or str(job.session), job.confined),
            known,
            members,
            near,
            threshold=threshold,
            now=now,
            l1_ttl=setting.l1_ttl,
            new_id=lambda: ids.uuid7(now),
        )
        changes = ingest.take_all(statements, without=forgotten)
        await effect.change(scope, self._space, changes)
        return [each.memory_id for each in changes.new if each.superseded_by is None]

    async def _near(
        self, effect: Effect, scope: UUID, statements: Sequence[Draft], threshold: float
    ) -> dict[int, dict[UUID, float]]:
        """By the place of a statement, the memories above a cosine of it, and that cosine."""
        found = [(n, each.vector) for n, each in enumerate(statements) if each.vector is not None]
        near: dict[int, dict[UUID, float]] = {}
        if self._space is not None and found:
            vectors = [vector for _, vector in found]
            for place, memory, cosine in await effect.near(scope, self._space, vectors, threshold):
                near.setdefault(found[place][0], {})[memory] = cosine
        return near


def _claims(draft: Draft) -> list[tuple[str, str]]:
    """The (subject, predicate) pairs that what it says may repeat or contradict."""
    triple = draft.candidate.triple
    return [] if triple is None else [(triple.subject, triple.predicate), (triple.subject, opposite(triple.predicate))]


def exchanges_of(messages: Sequence[SourceMessage], instructions: str = "") -> list[Told]:
    """Each message of the user with what followed it up to the next one, and the messages that this is, the user's own
    first. `instructions`: the tenant's."""
    cut: list[list[SourceMessage]] = []
    for message in messages:
        if message.role == "user":
            cut.append([message])
        elif cut:
            cut[-1].append(message)
    return [(_exchange(own, instructions), own) for own in cut]


def _source_of(candidate: Candidate, own: Sequence[SourceMessage]) -> SourceMessage:
    """The message that says so: the user's, but for what was done with a tool the answer that called it."""
    if candidate.kind == "tool_outcome":
        for message in own:
            if any(str((call.get("function") or {}).get("name")) in candidate.content for call in message.tool_calls):
                return message
    return own[0]


def _exchange(own: Sequence[SourceMessage], instructions: str) -> Exchange:
    asked, *followed = own
    calls: list[Mapping[str, Any]] = [call for each in followed if each.role == "assistant" for call in each.tool_calls]
    said = "\n".join(each.content for each in followed if each.role == "assistant" and each.content)
    return Exchange(asked.content, asked.created_at, calls, said, instructions)
