"""The jobs of consolidation: the end of a session, its compaction, and what all of a user's sessions come to.

    session_end   idle for 5 minutes, or asked for ─> the session's summary ─> consolidate
    compact       more than two context windows, or asked for ─> oldest turns give way to the summary
    consolidate   see `consolidation_users.py`

Each reads, then works on what it read (perhaps for minutes, with a helper LLM) while nothing is held, then writes in one
transaction that notes the job as done. What was forgotten meanwhile makes the result void.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct

from app.clock import Clock
from app.errors import BadBody
from app.jobs.schedule import STATEMENT_S, Connection, Tick
from app.memory.candidate import Provenance
from app.memory.compaction import Entry, Window, choose, needs_compaction, ratio, summary_budget
from app.memory.consolidate_entities import SUMMARY_CONFIDENCE, SUMMARY_IMPORTANCE
from app.memory.consolidate_summary import Count, Line, Summary, extractive, with_helper
from app.memory.drafts import SEMANTIC
from app.memory.ingest_text import content_hash
from app.providers.embeddings import Embedder
from app.providers.helper import Helper
from app.store import ids
from app.store.consolidation import (
    COMPACT,
    SESSION_END,
    Compaction,
    ConsolidationStore,
    Said,
    SessionState,
    Stale,
    Work,
    session_job,
    summary_key,
    user_job,
)
from app.store.drawing import Drawing, NewDrawn
from app.store.learning import MAX_SOURCES, MemoryRow
from app.store.queries import Queries
from app.store.records import Vector

log = logging.getLogger(__name__)

IDLE = timedelta(minutes=5)
"""Silence after which a session counts as ended for now (seed 001 §5.3)."""
LOOK_FOR_IDLE = timedelta(minutes=1)
"""The shortest cadence: a session's summary stands 5 to 6 minutes after its last turn."""
LOOK_FOR_LONG = timedelta(minutes=30)
"""Seed 000 §9.3."""
LOOK_FOR_USERS = timedelta(hours=6)
"""Seed 001 §4.4."""
EACH_USER = 20
"""Sessions of one user that are worked on in one run of a tick: an import of thousands must not keep the others waiting."""
ALL = 500
"""Jobs that one run of a tick puts into the queue."""
MIN_SUMMARY_TOKENS = 300
"""Tokens of a session worth a summary: shorter ones are their own."""
SUMMARY_LABEL = "[Conversation Summary]: "
"""What the synthetic message begins with (seed 000 §7.3, step 4)."""
_GLOBAL = 1


class SessionJob(Struct, frozen=True):
    """The payload of `session_end` and `compact`. `target`: tokens that may stay, None: the context window."""

    tenant: UUID
    user: UUID
    session: UUID
    id: str
    target: int | None = None

    @classmethod
    def parse(cls, payload: bytes) -> SessionJob:
        """Raises `BadBody`: what cannot be read now cannot be read later."""
        try:
            fields: dict[str, Any] = orjson.loads(payload)
            target = fields.get("target")
            return cls(
                UUID(fields["tenant"]),
                UUID(fields["user"]),
                UUID(fields["session"]),
                str(fields["id"]),
                None if target is None else int(target),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadBody("This job's payload cannot be read.") from error

    @property
    def confined(self) -> bool:
        """Nobody's session: what is said in it stays in it."""
        return self.user == ids.nobody(self.tenant)

    @property
    def alone(self) -> UUID:
        """Jobs that share this do not write at the same time."""
        return self.session if self.confined else self.user


class SessionKeeper:
    """Does `session_end` and `compact` jobs."""

    def __init__(
        self,
        store: ConsolidationStore,
        *,
        embedder: Embedder,
        count: Count,
        clock: Clock,
        helper: Helper | None = None,
    ) -> None:
        """`count`: tokens of o200k. `helper`: None: extractively."""
        self._store = store
        self._embedder = embedder
        self._count = count
        self._clock = clock
        self._helper = helper

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """By entrypoint, for the worker."""
        return {SESSION_END: self.end, COMPACT: self.compact}

    async def end(self, payload: bytes) -> None:
        """Session-end work: the summary of the session, and what follows for its user. Raises `BadBody`, `HelperError`,
        `Unavailable`, `StoreUnavailable`."""
        job, began = SessionJob.parse(payload), self._clock.now()
        state = await self._store.read_session(job.tenant, job.user, job.session)
        if state is None:
            return
        whole = sum(each.token_count for each in state.messages)
        summary = vector = None
        if whole >= MIN_SUMMARY_TOKENS and not state.forgotten:
            summary = await self._summary(state, state.messages, summary_budget(whole))
            vector = await self._vector(summary)
        try:
            async with self._store.effect(
                job.tenant, job.user, f"{SESSION_END}:{job.id}", alone=job.alone, epoch=state.epoch, now=began
            ) as work:
                if work is None:
                    return
                await work.hold_session(job.session, state.version)
                await work.hold_summaries(job.session, state.remembered)
                if summary is not None:
                    await work.summarise(job.session, summary.text, summary.tokens, vector)
                    if not job.confined:  # what is nobody's is found in its own session alone, which has it already
                        await self._remember(work, job, state, remembered(job, state, summary, vector, began))
                await work.end_session(job.session, began, _active(state))
                await work.clear_working(job.session)
                further = []
                if not job.confined:
                    further.append(user_job(job.tenant, job.user))
                if needs_compaction(_active(state), state.context_window):
                    further.append(session_job(COMPACT, job.tenant, job.user, job.session))
                await work.enqueue(further)
        except Stale:
            log.info(
                "a summary is void: something was forgotten, or made, meanwhile", extra={"session": str(job.session)}
            )

    async def _remember(self, work: Work, job: SessionJob, state: SessionState, new: NewDrawn) -> None:
        drawing = Drawing(work, work.sql, job.tenant, job.user, new.row.created_at)
        if await drawing.add([new], state.hmac_key, work.space, scope=job.session):
            await drawing.retire(job.session)

    async def compact(self, payload: bytes) -> None:
        """Compaction (seed 000 §7.3), where it is due or was asked for. Raises as `end`."""
        job, began = SessionJob.parse(payload), self._clock.now()
        state = await self._store.read_session(job.tenant, job.user, job.session)
        if state is None:
            return
        if state.forgotten:  # its turns stay as they are: what does not fit a prompt is left to retrieval
            log.info("a session's summary was forgotten, so there is none to be", extra={"session": str(job.session)})
            return
        window = self._window(state, job.target)
        if window is None:
            log.info("a session needs no compaction", extra={"session": str(job.session)})
            return
        taken = set(window.messages)
        told = [each for each in state.messages if each.compressed or each.message_id in taken]
        summary = await self._summary(state, told, summary_budget(window.tokens))
        if summary is None:
            log.info("nothing in a session can be summarised", extra={"session": str(job.session)})
            return
        text = SUMMARY_LABEL + summary.text
        done = Compaction(
            ids.uuid7(began),
            began,
            window.first_turn,
            window.last_turn,
            len(window.messages),
            window.tokens,
            summary.tokens,
            ratio(window.tokens, summary.tokens),
            summary.method,
        )
        vector = await self._vector(summary)
        messages = [each for each in state.messages if each.message_id in taken]
        try:
            async with self._store.effect(
                job.tenant, job.user, f"{COMPACT}:{job.id}", alone=job.alone, epoch=state.epoch, now=began
            ) as work:
                if work is None:
                    return
                await work.hold_session(job.session, state.version)
                await work.compact(job.session, messages, done, summary.text, text, vector)
        except Stale:
            log.info("a compaction is void: something was forgotten meanwhile", extra={"session": str(job.session)})
            return
        log.info(
            "a session was compacted",
            extra={
                "session": str(job.session),
                "messages": done.messages,
                "removed_tokens": done.removed_tokens,
                "summary_tokens": done.summary_tokens,
                "ratio": round(done.ratio, 2),
                "method": done.method,
            },
        )

    def _window(self, state: SessionState, target: int | None) -> Window | None:
        entries = [
            Entry(each.message_id, each.turn_index, each.role, each.token_count, each.compressed)
            for each in state.messages
        ]
        if target is not None:
            return choose(entries, target, state.shared_turn)
        if not needs_compaction(_active(state), state.context_window):
            return None
        return choose(entries, state.context_window, state.shared_turn)

    async def _summary(self, state: SessionState, told: Sequence[Said], budget: int) -> Summary | None:
        lines = lines_of(state, told)
        if self._helper is not None:
            found = await with_helper(self._helper, lines, budget, self._count)
            if found is not None:
                return found
        # Long sessions have tens of thousands of sentences: other jobs go on meanwhile.
        return await asyncio.to_thread(extractive, lines, budget, self._count)

    async def _vector(self, summary: Summary | None) -> Vector | None:
        if summary is None or not self._embedder.dimensions:
            return None
        (vector,) = await self._embedder.embed([summary.text])
        return vector if vector.any() else None


def lines_of(state: SessionState, told: Sequence[Said]) -> list[Line]:
    """What a summary of these messages may be made from: their own words, and what was learned from them and is in force."""
    quotable = {each.message_id: each for each in told if each.quotable}
    lines = [
        Line(each.message_id, each.content, each.turn_index, each.role)
        for each in quotable.values()
        if each.role in ("user", "assistant")
    ]
    for known in state.statements:
        origin = [quotable[each] for each in known.messages if each in quotable]
        if origin:
            place = min(each.turn_index for each in origin)
            lines.append(Line(known.memory_id, known.text, place, None, 0.5 + known.importance))
    return lines


def remembered(
    job: SessionJob, state: SessionState, summary: Summary, vector: Vector | None, now: datetime
) -> NewDrawn:
    """The summary of a session as a memory of its user: it stands at the time of the session's end, so that a question about
    that time finds it, and takes the place of the one before."""
    at = {each.message_id: each for each in state.messages}
    facts = [each for each in state.statements if each.memory_id in summary.sources]
    named = dict.fromkeys([*summary.sources, *(message for fact in facts for message in fact.messages)])
    messages = sorted((at[each] for each in named if each in at), key=lambda each: (each.turn_index, each.message_id))
    last = state.messages[-1]
    row = MemoryRow(
        memory_id=ids.uuid7(now),
        session_id=job.session,
        tier=SEMANTIC,
        scope=_GLOBAL,
        kind="summary",
        text=summary.text,
        content_hash=content_hash(summary.text),
        provenance_type=Provenance.SYSTEM_INFERRED,
        turn_id=last.message_id,
        turn_index=last.turn_index,
        source_message_ids=[each.message_id for each in messages[:MAX_SOURCES]],
        sources=[
            {
                "session": state.name,
                "session_id": str(job.session),
                "message_id": str(each.message_id),
                "turn_index": each.turn_index,
            }
            for each in messages[:MAX_SOURCES]
        ],
        confidence=SUMMARY_CONFIDENCE,
        confidence_factors={},
        importance=SUMMARY_IMPORTANCE,
        access_count=0,
        reinforcement_count=0,
        created_at=last.created_at,
        expires_at=None,
        validated=False,
        token_count=summary.tokens,
        valid_from=last.created_at,
        stated_at=last.created_at,
        vector=vector,
        details={
            "key": summary_key(job.session),
            "scope_type": "session_window",
            "scope_identifier": state.name,
            "source_data": {
                "memory_ids": [str(each.memory_id) for each in facts],
                "sessions": 1,
                "time_range": {
                    "start": state.messages[0].created_at.isoformat(),
                    "end": last.created_at.isoformat(),
                },
                "consolidation_method": summary.method,
            },
        },
    )
    return NewDrawn(
        row,
        summary_key(job.session),
        tuple(each.memory_id for each in facts),
        tuple(each.message_id for each in messages),
        previous=state.remembered,
    )


def _active(state: SessionState) -> int:
    return sum(each.token_count for each in state.messages if not each.compressed)


def consolidation_ticks(sql: Queries) -> Sequence[Tick]:
    """What the schedule runs beside its own: it only puts into the queue what is due."""

    async def ended(connection: Connection, now: datetime) -> int:
        return await _fetch(connection, sql["consolidation.enqueue_sessions"], SESSION_END, now - IDLE, EACH_USER, ALL)

    async def long(connection: Connection, now: datetime) -> int:
        return await _fetch(connection, sql["consolidation.enqueue_sessions"], COMPACT, now, EACH_USER, ALL)

    async def users(connection: Connection, now: datetime) -> int:
        return await _fetch(connection, sql["consolidation.enqueue_users"], now, ALL)

    return (
        Tick("session_end", LOOK_FOR_IDLE, ended),
        Tick("compaction", LOOK_FOR_LONG, long),
        Tick("consolidation", LOOK_FOR_USERS, users),
    )


async def _fetch(connection: Connection, statement: str, *arguments: object) -> int:
    done: int = await connection.fetchval(statement, *arguments, timeout=STATEMENT_S)
    return done
