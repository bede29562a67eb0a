"""The `learn` job: what is done with a turn, or with a batch of imported messages: index them, and learn from them.

read the messages ─> vectors, where no turn waits for them ─> statements by the rules ─> their vectors
    └── nothing is held meanwhile; then, in one transaction that notes the job as done:
        vectors, words, new memories and what they repeat or replace; where there is a helper LLM, a job for each exchange
        (`app/jobs/learn_llm.py`)

A server does the job with the turn where the rules find something in it (`Inline`); the queued one then finds it done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from itertools import takewhile
from typing import Any, Literal, NamedTuple, Protocol
from uuid import UUID
from weakref import WeakValueDictionary

import orjson
from msgspec import Struct, field
from msgspec.json import decode
from msgspec.structs import replace

from app.clock import Clock
from app.context.question import zone_of
from app.context.working import asks_to_go_on, working_of
from app.errors import BadBody, Conflict
from app.jobs.changes import MemoryReviser, strip_taken_back
from app.memory.candidate import MemoryCandidate, Provenance, SourceExchange, Triple
from app.memory.changes import has_change_sign
from app.memory.claims import AskedMemory, Reply, Trust, may_answer, opposite, puts, reply_to
from app.memory.compare import CONTRARY, belonging, concerned
from app.memory.denials import find_denied
from app.memory.drafts import EPISODIC, SESSION, Draft, StatementPlace, make_drafts
from app.memory.episodes import episode_of, tool_names
from app.memory.extract import Earlier, amended, amends, extract
from app.memory.extract_clauses import own_word
from app.memory.ingest import Ingest
from app.memory.role_play import is_play_end, is_play_start
from app.memory.speakers import (
    PREFIX_CHARS,
    SessionSpeakers,
    attribute_to_speaker,
    find_own_triple,
    find_prefix,
    read_prefixes,
    strip_prefix,
)
from app.memory.statements import is_own_throughout, is_role_play_start
from app.metrics import Metrics
from app.providers.embeddings import UNMEASURED_THRESHOLD, Embedder
from app.store import ids
from app.store.consolidation import Working, keep_working, more_tools, note_episodes, read_recent, read_working
from app.store.item_columns import MESSAGE_KIND
from app.store.kinds import BEHAVIOUR
from app.store.learning import Effect, LearningStore, Setting, SourceMessage
from app.store.memories import MemoryText
from app.store.pools import Pool, UserRows
from app.store.queries import Queries
from app.store.records import JobRecord, Vector
from app.store.validation import PendingValidation, Validation, ValidationAnswer
from app.tasks import FailOpen

log = logging.getLogger(__name__)

Extract = Callable[[SourceExchange], Awaitable[Sequence[MemoryCandidate]]]
"""Finds what is worth remembering in one exchange."""

_EMBEDDED_ROLES = frozenset({"user", "assistant", "tool", "function"})
"""Roles whose texts get vectors: what was said, not how the application set the scene."""

_LEARN = "learn"
_IMPORT_INDEX = "import_index"
"""The entrypoints. An imported batch is learned from as a turn is."""

_INLINE_CHARS = 600
"""Characters of a message that the rules read with the turn: 0.1 ms for a question, some 1 ms for five sentences.
Longer ones are left to the job."""

_INLINE_WITHIN_S = 1.0
"""Seconds that an answer's end waits for it at most. A server's first, with connections to
open, takes some 200 ms."""

_INLINE_LATER_S = 3.0
"""Seconds after which the queued job comes: long enough that no worker does it at the same time."""

_MOST_LEARNED_AGAIN = 200
"""Messages of a session, the latest, that are learned from again when it shows that it is a group chat."""

Told = tuple[SourceExchange, Sequence[SourceMessage]]
"""An exchange, and its messages, the user's own first."""


class LearnJob(Struct, frozen=True):
    """The payload of `learn`. `messages`: those that the turn added, in order, said between `since` and `until`.

    `confined`: nobody's session.
    """

    tenant: UUID
    user: UUID
    session: UUID
    session_name: str | None
    messages: tuple[UUID, ...]
    since: datetime
    until: datetime
    confined: bool = False

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
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadBody("This job's payload cannot be read.") from error
        if not job.messages:
            raise BadBody("This job names no messages.")
        return job

    @property
    def key(self) -> str:
        """What its effect is noted under."""
        return f"learn:{self.messages[0]}"

    @property
    def alone(self) -> UUID:
        """Jobs that share this must not learn at the same time."""
        return self.session if self.confined else self.user

    @property
    def scope(self) -> UUID:
        """The scope of the job's memories: the session of a job without a user, else the nil id."""
        return self.session if self.confined else ids.NIL


class LinkedExchanges(Protocol):
    """A job's exchanges with the things that they name (see `app/features/knowledge/jobs.py`)."""

    def about(
        self, exchange: SourceExchange, asked: SourceMessage, found: Sequence[MemoryCandidate]
    ) -> Sequence[MemoryCandidate]:
        """Return what was found in an exchange, with the ids of the things that it names."""

    async def note(self, job: LearnJob, effect: Effect) -> None:
        """Write the links within the job's effect, after all else."""


class Hearing(Protocol):
    """Finds out which things exchanges name, before a job's effect; None: there is nothing to know."""

    async def hear(self, job: LearnJob, setting: Setting, exchanges: Sequence[Told]) -> LinkedExchanges | None: ...


FurtherJobs = Callable[[LearnJob, Sequence[Told]], Sequence[JobRecord]]
"""Returns the jobs that follow one whose rules have read these exchanges."""


class Noting(Protocol):
    """Notes more of a turn than the core does."""

    async def note(self, job: LearnJob, effect: Effect, messages: Sequence[SourceMessage]) -> None:
        """Within the job's effect: it comes to be with it, once."""


WishWithdrawal = Callable[[LearnJob, Effect, Sequence[Told], Sequence[Draft]], Awaitable[None]]
"""Ends the standing wishes that a job's messages take back: told within its effect, after what they state is taken in."""


class Learner(Struct):
    """Does `learn` jobs. `space`: the number of the embedder's space, None without vectors. `count`: tokens of o200k.
    `refuses`: says of a text that it must not be kept. `extract`: the rules. `further_jobs`: those in which a helper LLM reads
    what the rules have read; None: there is none. `note_play`: is told the messages of a role play."""

    store: LearningStore
    embedder: Embedder
    space: int | None
    extract: Extract
    count: Callable[[str], int]
    clock: Clock
    store_secrets: bool = False
    refuses: Callable[[str], bool] = lambda _: False
    further_jobs: FurtherJobs | None = None
    note: Notes | None = None
    answers: ValidationAnswers | None = None
    hearing: Hearing | None = None
    taking_back: WishWithdrawal | None = None
    reviser: MemoryReviser | None = None
    note_play: Callable[[Sequence[UUID]], None] = lambda _: None
    turns: WeakValueDictionary[UUID, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def __post_init__(self) -> None:
        if not self.embedder.dimensions:
            self.space = None

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """By entrypoint, for the worker."""
        return {_LEARN: self.learn, _IMPORT_INDEX: self.learn}

    async def learn(self, payload: bytes) -> None:
        """Index the messages of a job and learn from them. Raises `BadBody` for a payload that is none, `HelperError`,
        `Unavailable` and `StoreUnavailable` for what may work later."""
        await self.learn_from(LearnJob.parse(payload))

    async def learn_from(self, job: LearnJob) -> None:
        """Do a job. Raises the errors of `learn`, but no `BadBody`."""
        while not await self._attempt(job):
            log.info("a message was deleted while it was learned from", extra={"job_key": job.key})

    async def _attempt(self, job: LearnJob) -> bool:
        """Read, find and write. False: something that was read is gone by now, and nothing was written."""
        setting, messages = await self.store.read(
            job.tenant, job.user, job.messages, job.since, job.until, job_key=job.key, session=job.session
        )
        if setting.done:
            return True
        found = [] if self.embedder.local else await self._message_vectors(messages)
        exchanges = split_exchanges(messages, setting.instructions, setting.time_zone)
        stored_role_play = RolePlay(setting.in_role_play, setting.is_playing)
        begun = RolePlay(True, True) if setting.branches_in_play else stored_role_play
        # What is only said again may begin a role play all the same: it is marked before it is left out.
        restated = await self._find_restated(job, exchanges)
        exchanges, played, role_play = mark_role_play(exchanges, begun)
        exchanges = [entry for entry in exchanges if entry[1][0].message_id not in restated]
        exchanges, misattributed_memories = await self._attribute_exchanges(job, setting, exchanges)
        own_exchanges = [entry for entry in exchanges if entry[0].speaker is None]
        linked_exchanges = await self.hearing.hear(job, setting, exchanges) if self.hearing and exchanges else None
        statements = await self._find_statements(job, exchanges, linked_exchanges)
        verdicts: list[tuple[PendingValidation, ValidationAnswer]] = []
        if self.answers is not None and own_exchanges:
            verdicts = await self.answers.read(job.tenant, job.user, job.session, own_exchanges[0][1][0])
        # Waiting here holds no connection; other workers are waited for in Postgres.
        try:
            async with (
                self.lock_of(job),
                self.store.effect(
                    job.tenant,
                    job.user,
                    job.key,
                    alone=job.alone,
                    epoch=setting.epoch,
                    read=[each.message_id for each in messages],
                    now=self.clock.now(),
                ) as effect,
            ):
                if effect is None:
                    log.info("a job has no effect: it had it before, or its user is gone", extra={"job_key": job.key})
                    return True
                await self._index(effect, found)
                if role_play != stored_role_play:
                    await effect.note_role_play(
                        job.session, in_role_play=role_play.noticed, is_playing=role_play.is_playing
                    )
                if played:
                    await effect.hide_play(played)
                    self.note_play(played)
                for memory in reversed(
                    misattributed_memories
                ):  # one that it had replaced comes back, and goes in its turn
                    await effect.withdraw([memory], "another_speaker")
                if statements:
                    await self.take_in(job, setting, effect, statements)
                if own_exchanges:
                    own_statements = [draft for draft in statements if draft.candidate.speaker is None]
                    await self._revise(job, setting, effect, own_exchanges, own_statements)
                if self.taking_back is not None and own_exchanges:
                    await self.taking_back(job, effect, own_exchanges, statements)
                if self.answers is not None and verdicts:
                    await self.answers.act(effect, verdicts, statements)
                if self.note is not None:
                    await self.note(job, effect, messages, statements)
                if linked_exchanges is not None:
                    await linked_exchanges.note(job, effect)
                if own_exchanges and self.further_jobs is not None:
                    await effect.enqueue(self.further_jobs(job, own_exchanges))
        except Conflict:
            return False
        return True

    async def _attribute_exchanges(
        self, job: LearnJob, setting: Setting, exchanges: Sequence[Told]
    ) -> tuple[list[Told], list[UUID]]:
        """Give each exchange its speaker, where the session's messages have names, and leave out what bots say.

        Returns:
            The exchanges, and the memories that were learned as the user's before another speaker came. Their exchanges are
            among the first, to be learned from again.
        """
        if not any(messages[0].name for _, messages in exchanges):
            return await self._attribute_by_prefixes(job, setting, exchanges)
        first_messages, own_names = await self.store.read_speakers(job.tenant, job.user, job.session)
        labels = SessionSpeakers(tuple(first_messages), own_names).find_other_speakers()
        misattributed_memories: list[UUID] = []
        if labels and not set(first_messages.values()).isdisjoint(job.messages):  # somebody speaks for the first time
            misattributed_memories, messages = await self.store.read_misattributed(
                job.tenant, job.user, job.session, list(labels), job.messages
            )
            exchanges = [*split_exchanges(messages, setting.instructions, setting.time_zone), *exchanges]
        return [
            (replace(exchange, speaker=labels.get(messages[0].name or "")), messages)
            for exchange, messages in exchanges
            if labels.get(messages[0].name or "", "") is not None
        ], misattributed_memories

    async def _attribute_by_prefixes(
        self, job: LearnJob, setting: Setting, exchanges: Sequence[Told]
    ) -> tuple[list[Told], list[UUID]]:
        """Give each exchange its speaker, where the session is a group chat whose messages begin with names.

        Returns:
            What `_attribute_exchanges` returns. That the session is a group chat shows only when somebody speaks again.
        """
        if not exchanges or any(find_prefix(exchange.user_text) is None for exchange, _ in exchanges):
            return list(exchanges), []
        beginnings = await self.store.read_user_beginnings(job.tenant, job.user, job.session, PREFIX_CHARS)
        names = read_prefixes([beginning.text for beginning in beginnings])
        if names is None:
            return list(exchanges), []
        own_names = (await self.store.read_speakers(job.tenant, job.user, job.session))[1]
        labels = SessionSpeakers(names, own_names).find_other_speakers()
        earlier = list(takewhile(lambda beginning: beginning.message_id not in job.messages, beginnings))
        misattributed_memories: list[UUID] = []
        earlier_exchanges: list[Told] = []
        if earlier and read_prefixes([beginning.text for beginning in earlier]) is None:
            learned, earlier_messages = await self.store.read_learned_as_own(
                job.tenant, job.user, job.session, earlier[-_MOST_LEARNED_AGAIN:]
            )
            others_messages = {
                message.message_id for message in earlier_messages if find_prefix(message.content) in labels
            }
            misattributed_memories = [memory for memory, message in learned if message in others_messages]
            unlearned = {message.message_id for message in earlier_messages} - {message for _, message in learned}
            again = [message for message in earlier_messages if message.message_id in others_messages | unlearned]
            earlier_exchanges = split_exchanges(again, setting.instructions, setting.time_zone)
        attributed_exchanges: list[Told] = []
        for exchange, messages in [*earlier_exchanges, *exchanges]:
            name = find_prefix(exchange.user_text) or ""
            if labels.get(name, "") is not None:
                text = strip_prefix(exchange.user_text)
                attributed_exchanges.append((replace(exchange, user_text=text, speaker=labels.get(name)), messages))
        return attributed_exchanges, misattributed_memories

    async def _find_restated(self, job: LearnJob, exchanges: Sequence[Told]) -> set[UUID]:
        """Return the messages that are only said again: what came with the first turn of a session may be another one's
        history. (Of nobody's sessions none is another's.)"""
        if job.confined or len(exchanges) < 2:
            return set()
        asked = [own[0].message_id for _, own in exchanges]
        return await self.store.restated(job.tenant, job.user, asked, job.since, job.until)

    def lock_of(self, job: LearnJob) -> asyncio.Lock:
        """Return what effects of the same user wait for in this process, while they hold no connection."""
        return self.turns.setdefault(job.alone, asyncio.Lock())

    async def _message_vectors(self, messages: Sequence[SourceMessage]) -> list[tuple[SourceMessage, Vector]]:
        wanted = [each for each in messages if each.role in _EMBEDDED_ROLES and each.content.strip()]
        if not wanted or self.space is None:
            return []
        vectors = await self.embedder.embed([each.content for each in wanted])
        return [(each, vector) for each, vector in zip(wanted, vectors, strict=True) if vector.any()]

    async def _index(self, effect: Effect, found: Sequence[tuple[SourceMessage, Vector]]) -> None:
        if found and self.space is not None:
            rows = [(each.message_id, each.created_at, vector) for each, vector in found]
            await effect.add_vectors(self.space, MESSAGE_KIND, *zip(*rows, strict=True))

    async def _find_statements(
        self, job: LearnJob, exchanges: Sequence[Told], linked_exchanges: LinkedExchanges | None
    ) -> list[Draft]:
        """Return what the exchanges say that is worth keeping, with vectors."""
        candidate_sources: list[tuple[MemoryCandidate, SourceMessage]] = []
        for exchange, messages in exchanges:
            candidates: Sequence[MemoryCandidate] = await self.extract(strip_taken_back(exchange))
            if linked_exchanges is not None:
                candidates = linked_exchanges.about(exchange, messages[0], candidates)
            for candidate in candidates:
                corrected: MemoryCandidate | None = candidate
                if amends(candidate):  # "no, I meant …": one of this job's statements, else of the session's last ones
                    earlier = [
                        Earlier(old.quote, old.triple)
                        for old, _ in reversed(candidate_sources)
                        if old.triple is not None
                    ]
                    turn = messages[0].turn_index
                    recent = await self.store.recent(job.tenant, job.user, job.scope, job.session, turn)
                    earlier += [Earlier(quote, Triple(*triple)) for quote, *triple in recent]
                    corrected = amended(candidate, exchange, _select_speaker_statements(earlier, exchange.speaker))
                if corrected is not None:
                    statements = [_shift_span(corrected, len(messages[0].content) - len(exchange.user_text))]
                    if exchange.speaker is not None:
                        statements = attribute_to_speaker(statements, exchange.speaker)
                    candidate_sources += [(statement, _source_of(statement, messages)) for statement in statements]
        return await self.make_drafts(candidate_sources)

    async def make_drafts(self, found: Sequence[tuple[MemoryCandidate, SourceMessage]]) -> list[Draft]:
        """Return candidates in their stored form, with vectors; without those that may not be kept."""
        drafts = make_drafts(found, self.count, store_secrets=self.store_secrets, refuses=self.refuses)
        return await self._add_vectors(drafts)

    async def _add_vectors(self, drafts: list[Draft]) -> list[Draft]:
        if not drafts or self.space is None:
            return drafts
        vectors = await self.embedder.embed([draft.text for draft in drafts])
        return [
            replace(draft, vector=vector) if vector.any() else draft
            for draft, vector in zip(drafts, vectors, strict=True)
        ]

    async def _revise(
        self, job: LearnJob, setting: Setting, effect: Effect, exchanges: Sequence[Told], statements: Sequence[Draft]
    ) -> None:
        """Apply what the exchanges, and later messages, end or take back; take in what they state anew."""
        if self.reviser is None:
            return
        revising = [(exchange, messages[0]) for exchange, messages in exchanges if may_revise(exchange)]
        stated = await self.reviser.revise(effect, job.scope, job.session, revising)
        confined = job.session if job.confined else None
        later = await self.reviser.read_later(effect, confined, statements, job.until)
        stated += await self.reviser.end(effect, job.scope, later)
        drafts = make_drafts(stated, self.count, store_secrets=self.store_secrets, refuses=self.refuses)
        if self.embedder.local:  # a transaction waits for no remote embedder
            drafts = await self._add_vectors(drafts)
        if drafts:
            await self.take_in(job, setting, effect, drafts)

    async def take_in(self, job: LearnJob, setting: Setting, effect: Effect, statements: Sequence[Draft]) -> None:
        """Ingest statements within a job's effect."""
        now = self.clock.now()
        scope = job.scope
        own = self.embedder.duplicate_threshold
        threshold = setting.dedup_threshold or (own if own is not None else UNMEASURED_THRESHOLD)
        near = await self._near(effect, scope, statements, min(threshold, CONTRARY))
        claims = {pair for each in statements for pair in _claims(each)}
        hashes = [each.content_hash for each in statements]
        claims |= {("user", name) for each in statements for name in each.candidate.doubts}
        claims |= {pair for each in statements for pair in belonging(each)}
        ended = {each.subject for draft in statements for each in draft.candidate.ends}
        close = {each for found in near.values() for each in found}
        members = await effect.members(scope, hashes, claims, close, ended)
        known = await effect.known(scope, concerned(statements, members, near, threshold))
        # Asked for last: whoever forgets one of these memories has done so by now, or waits.
        stated_at = [draft.stated_at for draft in statements]
        # A run over old messages has a scope of its own, in which nothing was forgotten.
        forgotten_in = job.session if job.confined else ids.NIL
        marks, denied = await effect.find_refused(scope, forgotten_in, setting.hmac_key, hashes, stated_at)
        refused = marks | find_denied(statements, denied, members)
        ingest = Ingest(
            StatementPlace(job.session, job.session_name or str(job.session), job.confined),
            known,
            members,
            near,
            threshold=threshold,
            now=now,
            ttl={SESSION: setting.l1_ttl, EPISODIC: setting.l2_ttl},
            new_id=lambda: ids.uuid7(now),
            trust=decode(setting.trust, type=Trust),
        )
        await effect.change(scope, self.space, ingest.take_all(statements, without=refused))

    async def _near(
        self, effect: Effect, scope: UUID, statements: Sequence[Draft], threshold: float
    ) -> dict[int, dict[UUID, float]]:
        """By the place of a statement, the memories above a cosine of it, and that cosine."""
        found = [(n, each.vector) for n, each in enumerate(statements) if each.vector is not None]
        near: dict[int, dict[UUID, float]] = {}
        if self.space is not None and found:
            vectors = [vector for _, vector in found]
            for place, memory, cosine in await effect.near(scope, self.space, vectors, threshold):
                near.setdefault(found[place][0], {})[memory] = cosine
        return near


def _shift_span(candidate: MemoryCandidate, prefix_chars: int) -> MemoryCandidate:
    """Return a candidate whose place counts the speaker's name that its message begins with."""
    start, end = candidate.span
    return replace(candidate, span=(start + prefix_chars, end + prefix_chars)) if prefix_chars and end else candidate


def _select_speaker_statements(earlier: Sequence[Earlier], speaker: str | None) -> list[Earlier]:
    """Return the earlier statements that a speaker may set right, as the speaker would say them."""
    triples = [(statement, find_own_triple(statement.triple, speaker)) for statement in earlier]
    return [Earlier(statement.quote, triple) for statement, triple in triples if triple is not None]


def _claims(draft: Draft) -> list[tuple[str, str]]:
    """The (subject, predicate) pairs that what it says may repeat or contradict."""
    triple = draft.candidate.triple
    return [] if triple is None else [(triple.subject, triple.predicate), (triple.subject, opposite(triple.predicate))]


class RolePlay(NamedTuple):
    """The state of a session. `noticed`: a role play or a story began; `is_playing`: the user has a role in it still."""

    noticed: bool = False
    is_playing: bool = False


def mark_role_play(exchanges: Sequence[Told], begun: RolePlay) -> tuple[list[Told], list[UUID], RolePlay]:
    """Separate what the user says from what the user's role says.

    Args:
        exchanges: The exchanges of a job, in order.
        begun: The session's state before them.

    Returns:
        The user's own exchanges, each marked if a role play was noticed before it; the messages of the other exchanges; the
        session's state after them.
    """
    noticed, is_playing = begun
    own_exchanges: list[Told] = []
    played: list[UUID] = []
    for exchange, messages in exchanges:
        if (noticed or is_playing) and is_play_end(exchange.user_text):
            noticed = is_playing = False
        is_playing = is_playing or is_play_start(exchange.user_text)
        marked = replace(exchange, in_role_play=noticed)
        if is_playing:
            played += [message.message_id for message in messages]
        else:
            own_exchanges.append((marked, messages))
        noticed = noticed or is_playing or is_role_play_start(marked)
    return own_exchanges, played, RolePlay(noticed, is_playing)


def may_revise(exchange: SourceExchange) -> bool:
    """Return whether an exchange ends or takes back something in the user's own words; within a role play none does."""
    if exchange.in_role_play or not has_change_sign(exchange.user_text):
        return False
    return (own_word(exchange.user_text) or is_own_throughout(exchange.user_text)) and not is_role_play_start(exchange)


def split_exchanges(
    messages: Sequence[SourceMessage], instructions: str = "", time_zone: str | None = None
) -> list[Told]:
    """Return each message of the user with what followed it up to the next one, and the messages that this is, the user's own
    first. `instructions`: the tenant's. `time_zone`: the user's, in which days are counted."""
    zone = zone_of(time_zone) if time_zone else None
    cut: list[list[SourceMessage]] = []
    for message in messages:
        if message.role == "user":
            cut.append([message])
        elif cut:
            cut[-1].append(message)
    return [(_build_exchange(group, instructions, zone), group) for group in cut]


def _source_of(candidate: MemoryCandidate, own: Sequence[SourceMessage]) -> SourceMessage:
    """The message that says so: the user's, but for what was done with a tool the answer that called it."""
    if candidate.kind == "tool_outcome":
        for message in own:
            if any(str((call.get("function") or {}).get("name")) in candidate.content for call in message.tool_calls):
                return message
    return own[0]


def _build_exchange(messages: Sequence[SourceMessage], instructions: str, zone: tzinfo | None) -> SourceExchange:
    question, *others = messages
    answers = [message for message in others if message.role == "assistant"]
    calls: list[Mapping[str, Any]] = [call for answer in answers for call in answer.tool_calls]
    answer_text = "\n".join(answer.content for answer in answers if answer.content)
    now = question.created_at.astimezone(zone) if zone is not None else question.created_at
    return SourceExchange(question.content, now, calls, answer_text, instructions, question.turn_index // 2)


# --- answers to what was asked -------------------------------------------------------------------------------------------


class ValidationAnswers(Struct, frozen=True):
    """The user's answers to "is that still right?", read before a job's effect; within it, what they say is done. `count`,
    `refuses`: as in `Learner`."""

    validation: Validation
    embedder: Embedder
    count: Callable[[str], int]
    store_secrets: bool = False
    refuses: Callable[[str], bool] = lambda _: False

    async def read(
        self, tenant: UUID, user: UUID, session: UUID, asked: SourceMessage
    ) -> list[tuple[PendingValidation, ValidationAnswer]]:
        """What the message says of the notes that the assistant asked about just before. Most messages cost a look at their
        first words. Raises StoreUnavailable, Unavailable."""
        if not may_answer(asked.content):
            return []
        found: list[tuple[PendingValidation, ValidationAnswer]] = []
        for each in await self.validation.pending(tenant, user, session, asked.turn_index):
            note = AskedMemory(each.content_text, each.object_value, each.predicate)
            reply = reply_to(note, asked.content) if puts(each.said, note) else None
            if reply is not None:
                text = await self._text(reply, asked)
                found.append((each, ValidationAnswer(reply.verdict == "yes", text, reply.value)))
        return found

    async def act(
        self,
        effect: Effect,
        answered: Sequence[tuple[PendingValidation, ValidationAnswer]],
        statements: Sequence[Draft],
    ) -> None:
        """Do it, after what the message states was taken in: what it says in full comes first."""
        triples = [(draft.candidate.triple, draft.content_hash) for draft in statements]
        for pending, answer in answered:
            about = (pending.subject_entity_id, pending.predicate)
            said = [hashed for each, hashed in triples if each is not None and (each.subject, each.predicate) == about]
            await self.validation.settle(effect, pending.memory_id, replace(answer, said=said))

    async def _text(self, reply: Reply, asked: SourceMessage) -> MemoryText | None:
        """What is right instead, made ready to be kept; None where it may not be."""
        if reply.text is None:
            return None
        said = MemoryCandidate(
            reply.text, "correction", Provenance.CORRECTION, asked.content, (0, len(asked.content)), 1.0, 0.0
        )
        drafts = make_drafts([(said, asked)], self.count, store_secrets=self.store_secrets, refuses=self.refuses)
        if not drafts:
            return None
        (draft,) = drafts
        vector = None
        if self.embedder.dimensions:
            (vector,) = await self.embedder.embed([draft.text])
        usable = vector if vector is not None and vector.any() else None
        return MemoryText(draft.text, draft.content_hash, draft.token_count, usable)


# --- what is noted beside: episodes, working memory ----------------------------------------------------------------------


class Notes:
    """What the job notes beside what it learns: an episode for each answered exchange, that the session went on, its working
    memory, and what features note."""

    def __init__(self, clock: Clock, noting: Noting | None = None) -> None:
        """`noting`: see `Feature`."""
        self._clock = clock
        self._noting = noting

    async def __call__(
        self, job: LearnJob, effect: Effect, messages: Sequence[SourceMessage], statements: Sequence[Draft]
    ) -> None:
        """Write within the job's effect: it comes to be with it, once."""
        episodes = []
        for exchange, group in split_exchanges(messages):
            message_ids = {message.message_id for message in group}
            candidates = [draft.candidate for draft in statements if draft.message.message_id in message_ids]
            episode = episode_of(exchange, candidates, message_id=group[0].message_id, session_id=job.session)
            if episode is not None:
                episodes.append(episode)
        before = takewhile(lambda each: each.role != "user", messages)
        tools = tool_names(call for each in before if each.role == "assistant" for call in each.tool_calls)
        if tools:
            await more_tools(effect, job.session, tools)
        await note_episodes(
            effect,
            job.session,
            episodes=episodes,
            messages=[each.message_id for each in messages],
            since=job.since,
            until=job.until,
            now=self._clock.now(),
            pooled=not job.confined,
        )
        fills = any(
            each.role in ("tool", "function") or (each.role == "assistant" and asks_to_go_on(each.content))
            for each in messages
        )
        # Most turns put nothing into working memory, and making it costs as much as learning.
        if fills or any(each.candidate.kind in BEHAVIOUR for each in statements):
            await _refresh_working(effect, job.session, self._clock.now())
        else:  # it is not so any more; whoever asks has it made
            await effect.run("consolidation.clear_working", job.session)
        if self._noting is not None:
            await self._noting.note(job, effect, messages)


async def _refresh_working(rows: UserRows, session: UUID, now: datetime) -> Working:
    """Make it from the session as it stands, and keep it."""
    working = working_of(*await read_recent(rows, session, now))
    await keep_working(rows, session, working, now)
    return working


class WorkingMemory(Struct, frozen=True):
    """Reads working memory: made from the history by the learner's job, and again by whoever asks for what was lost."""

    pool: Pool
    sql: Queries
    clock: Clock

    async def get(self, tenant: UUID, user: UUID, session: UUID) -> tuple[Working, datetime]:
        """That of a session, and when it was made; made now where it is lost (a crash of Postgres empties its table)."""
        async with self.pool.transaction(tenant) as connection:
            rows = UserRows(connection, self.sql, tenant, user)
            kept = await read_working(rows, session)
            if kept is not None:
                return kept
            now = self.clock.now()
            return await _refresh_working(rows, session, now), now


# --- with the turn -------------------------------------------------------------------------------------------------------


class Inline:
    """Does `learn` jobs with their turns: where the rules find something in what the user says, the job is done before the
    turn's end is acknowledged, so that the next request knows it, on any server.

    The job is queued with the turn all the same, and comes `later_s` after it: it finds itself done, or does what was not.
    """

    later_s = _INLINE_LATER_S

    def __init__(self, learn: Callable[[bytes], Awaitable[None]], clock: Clock, metrics: Metrics) -> None:
        """`learn`: `Learner.learn`."""
        self._learn = learn
        self._clock = clock
        self._metrics = metrics

    def finds(self, text: str) -> bool:
        """Return whether the rules find something in a message of the user's, or it ends or takes back something.

        A message of any length that begins or ends a role play is learned from with its turn, so that the next turn is read
        with it.
        """
        if is_play_start(text) or is_play_end(text):
            return True
        if len(text) > _INLINE_CHARS:
            return False
        return bool(extract(SourceExchange(text, self._clock.now()))) or has_change_sign(text)

    async def learn(self, payload: bytes) -> None:
        """Do a job within `_INLINE_WITHIN_S`; what fails, or is late, is left to the queue."""
        began = time.perf_counter()
        outcome: Literal["done", "late", "failed"] = "failed"
        with FailOpen(log.warning, "a turn is learned from by the worker"):
            try:
                async with asyncio.timeout(_INLINE_WITHIN_S):
                    await self._learn(payload)
                outcome = "done"
            except TimeoutError:
                outcome = "late"
        self._metrics.learned_inline(outcome, time.perf_counter() - began)
