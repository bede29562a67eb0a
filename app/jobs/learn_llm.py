"""The `learn_llm` job: the helper LLM reads what the rules have read, in the background.

an exchange's job ─> those of the same user that wait as well are taken with it, up to a limit
    └── memories in force that belong to them ─> one call, nothing is held
          └── one transaction that notes all of these jobs as done: what is new, what replaces or ends what was known, and
              the withdrawal of what rules took from these messages and the LLM did not find

What rules learned is there all the while. An LLM that is away is asked again, later each time; messages that it never reads are
counted (`HelperUsage`) and logged, and no job is held as a dead letter for its sake.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from uuid import UUID
from weakref import WeakValueDictionary

import orjson
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from app.errors import Conflict, HelperAnswerError, HelperBudgetError, HelperError
from app.jobs.learn import Hearing, Learner, LearnJob, Told, split_exchanges
from app.memory.drafts import Draft
from app.memory.llm_reading import (
    LlmReading,
    ReadingRequest,
    ReadStatement,
    Replacement,
    plan_replacements,
    select_related,
)
from app.store import ids
from app.store.helper_usage import HelperUsage, UnreadReason
from app.store.learning import Effect, Setting
from app.store.records import JobRecord

log = logging.getLogger(__name__)

ENTRYPOINT = "learn_llm"
CALLS_AT_ONCE = 4
"""Jobs of this kind that run at once, in all workers: half of those of one, so that rules never wait for an LLM that hangs."""

FIRST_READ_S, NEXT_READ_S = 10.0, 60.0
"""Seconds until the first exchange of a conversation is read, and until later ones are: these are in the prompt anyway, and
what is said within a minute is read by one call."""

MAX_EXCHANGES = 12
"""Exchanges of one call: their answer, at 400 tokens entry, is within what small models write without losing the thread."""
MAX_CHARS = 24_000
"""Characters of the messages of one call, some 6,000 tokens, unless a single one is longer."""

LATER_S = (15.0, 60.0, 240.0, 600.0, 1800.0, 3600.0, 10_800.0, 21_600.0)
"""Seconds until an LLM that is away is asked again, try by try: a restart is bridged, and so is a night (10.5 h)."""
SILENT_S = LATER_S[0]
"""Seconds in which no further job asks an LLM that was just away: until the job that found it away asks again."""
SHAPE_TRIES = 2
"""Answers of another shape to one question, after which its messages are left to the rules."""
HELD_BACK_S = 900.0
"""Seconds for which jobs whose messages are being read with another's wait: longer than a call may take. They are dropped when
that call is done; if its process dies, they run by themselves."""
MAX_RULE_CHANGES = 20
"""Most memories ended or doubted by rules that the LLM sees, half as many as those in force. The others stay as the rules left
them."""
NEAR = 0.15
"""Cosine above which a memory counts as near a message: by the static vectors, a fifth of unrelated texts are above it."""

Read = Callable[[ReadingRequest], Awaitable[LlmReading]]
"""Asks the helper LLM. Raises `HelperError`."""


class LlmJob(LearnJob, frozen=True):
    """The payload of `learn_llm`: one exchange.

    Attributes:
        tries: How often the LLM was away.
        in_role_play: A role play was noticed in the session before the exchange. The session's own mark says what holds when
            the LLM reads, a minute later.
    """

    tries: int = 0
    in_role_play: bool = False

    @classmethod
    def parse(cls, payload: bytes) -> LlmJob:
        """Raises `BadBody`."""
        job = LearnJob.parse(payload)
        fields = orjson.loads(payload)
        tries = fields.get("tries", 0)
        return cls(
            **asdict(job),
            tries=tries if isinstance(tries, int) else 0,
            in_role_play=bool(fields.get("in_role_play", False)),
        )

    @property
    def key(self) -> str:
        return f"{ENTRYPOINT}:{self.messages[0]}"

    @property
    def queue_key(self) -> str:
        """The key under which it waits: another one for each try, since the last still runs."""
        return f"{self.key}:{self.tries}"

    def to_record(self, delay_s: float) -> JobRecord:
        """Return the job as the queue keeps it."""
        fields = asdict(self)
        payload = fields | {"from": fields.pop("since"), "to": fields.pop("until")}
        return JobRecord(ENTRYPOINT, orjson.dumps(payload, default=str), self.queue_key, delay_s)


def plan_reading(job: LearnJob, exchanges: Sequence[Told]) -> list[JobRecord]:
    """Return a job for each exchange that rules have read."""
    records = []
    for exchange, messages in exchanges:
        delay_s = FIRST_READ_S if messages[0].turn_index <= 1 else NEXT_READ_S
        fields = {name: value for name, value in asdict(job).items() if name != "messages"}
        message_ids = tuple(entry.message_id for entry in messages)
        llm_job = LlmJob(**fields, messages=message_ids, in_role_play=exchange.in_role_play)
        records.append(llm_job.to_record(delay_s))
    return records


class ExchangeToRead(Struct, frozen=True):
    """A job with what it names, as it stands now."""

    job: LlmJob
    setting: Setting
    told: Told


class LlmLearner(Struct):
    """Does `learn_llm` jobs. `learner`: takes statements in, as those of the rules. `read`: asks the LLM."""

    learner: Learner
    read: Read
    usage: HelperUsage
    hearing: Hearing | None = None
    reading: WeakValueDictionary[UUID, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    begun: dict[UUID, list[LlmJob]] = field(default_factory=dict)
    silent_until: float = 0.0

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """Return the handler by its entrypoint, for the worker."""
        return {ENTRYPOINT: self.learn}

    async def learn(self, payload: bytes) -> None:
        """Read the exchange of a job, and those that wait beside it. Raises `BadBody`, `Unavailable`, `StoreUnavailable`."""
        job = LlmJob.parse(payload)
        begun = self.begun.setdefault(job.alone, [])
        begun.append(job)
        try:
            async with self.reading.setdefault(job.alone, asyncio.Lock()):
                # What this process has begun meanwhile comes along: those jobs find themselves done.
                while not await self._attempt(job, [begun_job for begun_job in begun if begun_job.key != job.key]):
                    log.info("a message was deleted while it was read", extra={"job_key": job.key})
        finally:
            begun.remove(job)
            if not begun:
                self.begun.pop(job.alone, None)

    async def _attempt(self, job: LlmJob, begun: Sequence[LlmJob]) -> bool:
        """False: something that was read is gone by now, and nothing was written."""
        batch = await self._gather(job, begun)
        if not batch or batch[0].job.key != job.key:
            return True  # it is done, or its user is gone
        if time.monotonic() < self.silent_until:
            await self._postpone([batch[0].job], SILENT_S, failed=False)
            return True
        keys = [entry.job.queue_key for entry in batch[1:]]
        store = self.learner.store
        await store.hold_back(job.tenant, keys, HELD_BACK_S)
        request = await self._build_request(batch)
        try:
            reading = await self._ask(request)
        except HelperBudgetError as error:
            return await self._give_up(batch, "budget", error)
        except HelperAnswerError as error:
            return await self._give_up(batch, "shape", error)
        except HelperError as error:
            self.silent_until = time.monotonic() + SILENT_S
            log.warning("the helper LLM is away", extra={"job_key": job.key, "error": error.message.partition(": ")[0]})
            hopeless = [entry for entry in batch if entry.job.tries >= len(LATER_S)]
            await self._postpone([entry.job for entry in batch if entry not in hopeless], None, failed=True)
            return await self._give_up(hopeless, "away", error) if hopeless else True
        if not await self._write(batch, request, reading):
            return False
        await store.drop_waiting(job.tenant, keys)
        return True

    async def _gather(self, job: LlmJob, begun: Sequence[LlmJob]) -> list[ExchangeToRead]:
        """Return this job and those of the same user that wait, as far as they are not done and one call has room."""
        name = "session" if job.confined else "user"
        waiting = await self.learner.store.read_waiting(job.tenant, ENTRYPOINT, name, getattr(job, name), MAX_EXCHANGES)
        jobs = {entry.key: entry for entry in (job, *begun, *map(LlmJob.parse, waiting))}
        batch: list[ExchangeToRead] = []
        room = MAX_CHARS
        for entry in list(jobs.values())[:MAX_EXCHANGES]:
            setting, messages = await self.learner.store.read(
                entry.tenant,
                entry.user,
                entry.messages,
                entry.since,
                entry.until,
                job_key=entry.key,
                session=entry.session,
            )
            exchanges = [] if setting.done else split_exchanges(messages, setting.instructions, setting.time_zone)
            if setting.epoch is None or not exchanges:
                continue
            exchange, _ = exchanges[0]
            room -= len(exchange.user_text) + len(exchange.assistant_text)
            if batch and room < 0:
                break
            told = (replace(exchange, in_role_play=entry.in_role_play), exchanges[0][1])
            batch.append(ExchangeToRead(entry, setting, told))
        return batch

    async def _build_request(self, batch: Sequence[ExchangeToRead]) -> ReadingRequest:
        """Return the exchanges, oldest first, with the memories that belong to them."""
        exchanges = [entry.told[0] for entry in batch]
        texts = [f"{exchange.user_text[:MAX_CHARS]}" for exchange in exchanges]
        learner, job = self.learner, batch[0].job
        vectors = []
        if learner.space is not None:
            vectors = [vector for vector in await learner.embedder.embed(texts) if vector.any()]
        memories, near = await learner.store.read_related(job.tenant, job.user, job.scope, learner.space, vectors, NEAR)
        message_ids = [entry.told[1][0].message_id for entry in batch]
        rule_changes = await learner.store.read_rule_changes(
            job.tenant, job.user, job.scope, message_ids, _find_beginning(batch)
        )
        changed = {change.memory.memory_id for change in rule_changes}
        memories = [memory for memory in memories if memory.memory_id not in changed]
        read = [message.message_id for entry in batch for message in entry.told[1]]
        return replace(
            select_related(memories, texts, near, read),
            exchanges=tuple(exchanges),
            rule_changes=tuple(rule_changes[:MAX_RULE_CHANGES]),
            message_ids=tuple(message_ids),
        )

    async def _ask(self, request: ReadingRequest) -> LlmReading:
        """Ask, once more for an answer of another shape. Raises `HelperError`."""
        for tries in range(1, SHAPE_TRIES + 1):
            try:
                return await self.read(request)
            except HelperAnswerError as error:
                if tries == SHAPE_TRIES:
                    raise
                log.info("the helper LLM is asked again", extra={"error": error.message.partition(": ")[0]})
        raise AssertionError("the loop returns or raises")

    async def _write(self, batch: Sequence[ExchangeToRead], request: ReadingRequest, reading: LlmReading) -> bool:
        """Write what was read, once; False: a message is gone by now."""
        job, setting = batch[0].job, batch[0].setting
        drafts = [await self._build_drafts(place, entry, reading) for place, entry in enumerate(batch)]
        read = [message.message_id for entry in batch for message in entry.told[1]]
        learner = self.learner
        try:
            async with (
                learner.lock_of(job),
                learner.store.effect(
                    job.tenant, job.user, job.key, alone=job.alone, epoch=setting.epoch, read=read,
                    now=learner.clock.now(),
                ) as effect,
            ):  # fmt: skip
                if effect is None:
                    log.info("a job has no effect: it had it before, or its user is gone", extra={"job_key": job.key})
                    return True
                claimed = [entry is batch[0] or await effect.claim(entry.job.key) for entry in batch]
                for entry, entry_drafts, is_mine in zip(batch, drafts, claimed, strict=True):
                    if entry_drafts and is_mine:
                        await learner.take_in(entry.job, entry.setting, effect, entry_drafts)
                await self._change(batch, request, reading, effect, drafts, claimed)
        except Conflict:
            return False
        figures: dict[str, object] = {
            "messages": len(batch),
            "statements": len(reading.statements),
            "refused": reading.refused,
        }
        log.info("the helper LLM has read", extra=figures | {"job_key": job.key})
        await self.usage.count_read(len(batch))
        return True

    async def _build_drafts(self, place: int, entry: ExchangeToRead, reading: LlmReading) -> list[Draft]:
        exchange, messages = entry.told
        found = [statement.candidate for statement in reading.statements if statement.exchange == place]
        if self.hearing is not None and found:
            things = await self.hearing.hear(entry.job, entry.setting, [entry.told])
            found = list(things.about(exchange, messages[0], found)) if things is not None else found
        return await self.learner.make_drafts([(candidate, messages[0]) for candidate in found])

    async def _change(
        self,
        batch: Sequence[ExchangeToRead],
        request: ReadingRequest,
        reading: LlmReading,
        effect: Effect,
        drafts: Sequence[Sequence[Draft]],
        claimed: Sequence[bool],
    ) -> None:
        """Close, doubt and withdraw what the LLM says, after its statements were taken in."""
        scope, now = batch[0].job.scope, effect.now
        members = await effect.members(
            scope, [draft.content_hash for batch_drafts in drafts for draft in batch_drafts], (), ()
        )
        roots = {member.content_hash: member.root for member in members}
        heirs = {
            (draft.message.message_id, draft.candidate.quote, draft.text): draft.content_hash
            for batch_drafts in drafts
            for draft in batch_drafts
        }

        def heir_of(statement: ReadStatement) -> UUID | None:
            candidate = statement.candidate
            message = batch[statement.exchange].told[1][0].message_id
            return roots.get(heirs.get((message, candidate.quote, candidate.content), b""))

        rule_changes = {change.memory.memory_id: change for change in request.rule_changes}
        if all(claimed):
            unconfirmed = [change for memory, change in rule_changes.items() if memory not in reading.changed]
            restored = await effect.undo_rule_changes(scope, unconfirmed, _find_beginning(batch))
            if restored:
                log.info("changes by rules were undone", extra={"memories": restored})
        targets = {statement.replaces for statement in reading.statements if statement.replaces is not None}
        in_force = await effect.known(scope, targets | request.learned_here)
        memory_by_id = {memory.memory_id: memory for memory in in_force}
        shown_memories = [*request.related, *(change.memory for change in request.rule_changes)]
        text_by_id = {memory.memory_id: memory.content_text for memory in shown_memories}
        replacements = [
            Replacement(
                memory_by_id[statement.replaces], heir, statement, batch[statement.exchange].told[1][0],
                batch[statement.exchange].job.session,
            )
            for statement in reading.statements
            if claimed[statement.exchange] and statement.replaces in memory_by_id
            and memory_by_id[statement.replaces].content_text == text_by_id[statement.replaces]
            and (heir := heir_of(statement)) is not None
        ]  # fmt: skip
        concerned = {memory for entry in replacements for memory in (entry.memory.memory_id, entry.heir)}
        logged = await effect.logged(concerned) if concerned else []
        await effect.change(scope, self.learner.space, plan_replacements(replacements, logged, lambda: ids.uuid7(now)))
        heirs_of_ended = {
            statement.replaces: heir
            for statement in reading.statements
            if statement.replaces in rule_changes and not statement.over and claimed[statement.exchange]
            and (heir := heir_of(statement)) is not None
        }  # fmt: skip
        await effect.replace_ended(heirs_of_ended)
        if not all(claimed):
            return  # another process has read some of these messages, and withdraws what it does not find
        answered = {*roots.values(), *reading.kept, *targets}
        withdrawn = [
            memory.memory_id
            for memory in in_force
            if memory.memory_id in request.learned_here - answered and memory.reinforcement_count == 0
        ]
        await effect.withdraw(withdrawn)
        if withdrawn:
            log.info("statements of rules were withdrawn", extra={"memories": len(withdrawn)})

    async def _postpone(self, jobs: Sequence[LlmJob], delay_s: float | None, *, failed: bool) -> None:
        """Put jobs back into the queue; a failed one with one more try behind it, later each time (`delay_s` None)."""
        if not jobs:
            return
        again = [replace(job, tries=job.tries + failed) for job in jobs]
        # A job that runs holds its key until it ends: without a failure it comes back under another one.
        records = [job.to_record(LATER_S[job.tries - 1] if delay_s is None else delay_s) for job in again]
        if not failed:
            records = [
                record._replace(dedupe_key=f"{record.dedupe_key}:{ids.uuid7(self.learner.clock.now())}")
                for record in records
            ]
        await self.learner.store.enqueue(jobs[0].tenant, records)
        await self.learner.store.drop_waiting(jobs[0].tenant, [job.queue_key for job in jobs])

    async def _give_up(self, batch: Sequence[ExchangeToRead], reason: UnreadReason, error: HelperError) -> bool:
        """Leave messages to the rules, and count and log it."""
        job = batch[0].job
        log.warning(
            "messages are left to the rules",
            extra={"reason": reason, "messages": len(batch), "error": error.message.partition(": ")[0]},
        )
        await self.learner.store.drop_waiting(job.tenant, [entry.job.queue_key for entry in batch])
        await self.usage.count_unread(len(batch), reason)
        return True


def _find_beginning(batch: Sequence[ExchangeToRead]) -> datetime:
    """Return the time of the first message."""
    return min(entry.told[0].now for entry in batch)
