"""The jobs of consolidation: the end of a session, its compaction, and what all of a user's sessions come to.

    session_end   idle for 5 minutes, or asked for ─> the session's summary ─> consolidate
    compact       more than two context windows, or asked for ─> oldest turns give way to the summary
    consolidate   all sessions of a user: see below

Each reads, then works on what it read (perhaps for minutes, with a helper LLM) while nothing is held, then writes in one
transaction that notes the job as done. What was forgotten meanwhile makes the result void.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.clock import Clock
from app.errors import HelperAnswerError, HelperBudgetError
from app.features import Process, parsed
from app.features.consolidation.patterns import (
    THEME_EPISODES,
    CompactionWindow,
    Pattern,
    choose,
    needs_compaction,
    outcome_patterns,
    pattern_confidence,
    patterns,
    procedures,
    ratio,
    summary_budget,
)
from app.features.consolidation.store import (
    COMPACT,
    CONSOLIDATE,
    SESSION_END,
    CompactionOut,
    Consolidated,
    ConsolidatedMemory,
    ConsolidationStore,
    SessionMessage,
    SessionState,
    Stale,
    Text,
    UserState,
    session_job,
    summary_key,
    user_job,
)
from app.features.consolidation.summaries import (
    EACH_RUN,
    ENTITY_TOKENS,
    SUMMARY_CONFIDENCE,
    SUMMARY_IMPORTANCE,
    Count,
    DueSummary,
    KnownSummary,
    Summary,
    SummaryScope,
    SummarySource,
    display_name,
    due_entities,
    due_topics,
    extractive,
    interaction,
    key_facts,
    names_topic,
    with_helper,
)
from app.jobs.schedule import IDLE, STATEMENT_S, Connection, Tick
from app.jobs.worker import Handler
from app.memory.candidate import Provenance
from app.memory.drafts import PROCEDURAL, SEMANTIC
from app.memory.text import content_hash, normalise, sentences
from app.providers.embeddings import Embedder
from app.providers.helper import Helper
from app.store import ids
from app.store.consolidation import NewConsolidated
from app.store.learning import MAX_SOURCES, MemoryRow
from app.store.queries import Queries
from app.store.records import Vector

log = logging.getLogger(__name__)
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
MIN_HELPER_TOKENS = 4_000
"""Tokens of a session from which the helper LLM writes its summary. `learn_llm` has read the user's messages of a shorter one
in a call or two, and another call for each short session would nearly double the calls."""
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

    @property
    def confined(self) -> bool:
        """Nobody's session: what is said in it stays in it."""
        return self.user == ids.nobody(self.tenant)

    @property
    def alone(self) -> UUID:
        """Jobs that share this do not write at the same time."""
        return self.session if self.confined else self.user


class SessionKeeper(Struct):
    """Does `session_end` and `compact` jobs. `count`: tokens of o200k. `helper`: None: extractively.
    `min_helper_tokens`: tokens of a session from which the helper LLM writes its summary."""

    store: ConsolidationStore
    embedder: Embedder
    count: Count
    clock: Clock
    helper: Helper | None = None
    min_helper_tokens: int = MIN_HELPER_TOKENS

    async def end(self, payload: bytes) -> None:
        """Session-end work: the summary of the session, and what follows for its user. Raises `BadBody`, `HelperError`,
        `Unavailable`, `StoreUnavailable`."""
        job, began = parsed(payload, SessionJob), self.clock.now()
        state = await self.store.read_session(job.tenant, job.user, job.session)
        if state is None:
            return
        whole = sum(each.token_count for each in state.messages)
        summary = vector = None
        if whole >= MIN_SUMMARY_TOKENS and not state.forgotten:
            helper = self.helper if whole >= self.min_helper_tokens else None
            summary = await _summary(helper, lines_of(state, state.messages), summary_budget(whole), self.count)
            vector = await self._vector(summary)
        try:
            async with self.store.effect(
                job.tenant, job.user, f"{SESSION_END}:{job.id}", alone=job.alone, epoch=state.epoch, now=began
            ) as drawing:
                if drawing is None:
                    return
                work = Consolidated(drawing)
                await work.hold_session(job.session, state.version)
                await work.hold_summaries(job.session, state.remembered)
                if summary is not None:
                    await work.summarise(job.session, summary.text, summary.tokens, vector)
                    if not job.confined:  # what is nobody's is found in its own session alone, which has it already
                        new = remembered(job, state, summary, vector, began)
                        as_of = replace(drawing, now=new.row.created_at)
                        if await as_of.add([new], state.hmac_key, drawing.space, scope=job.session):
                            await work.retire(job.session)
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

    async def compact(self, payload: bytes) -> None:
        """Compaction (seed 000 §7.3), where it is due or was asked for. Raises as `end`."""
        job, began = parsed(payload, SessionJob), self.clock.now()
        state = await self.store.read_session(job.tenant, job.user, job.session)
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
        summary = await _summary(self.helper, lines_of(state, told), summary_budget(window.tokens), self.count)
        if summary is None:
            log.info("nothing in a session can be summarised", extra={"session": str(job.session)})
            return
        text = SUMMARY_LABEL + summary.text
        done = CompactionOut(
            summary_id=ids.uuid7(began),
            at=began,
            first_turn=window.first_turn,
            last_turn=window.last_turn,
            messages=len(window.messages),
            removed_tokens=window.tokens,
            summary_tokens=summary.tokens,
            ratio=ratio(window.tokens, summary.tokens),
            method=summary.method,
        )
        vector = await self._vector(summary)
        messages = [each for each in state.messages if each.message_id in taken]
        try:
            async with self.store.effect(
                job.tenant, job.user, f"{COMPACT}:{job.id}", alone=job.alone, epoch=state.epoch, now=began
            ) as drawing:
                if drawing is None:
                    return
                work = Consolidated(drawing)
                await work.hold_session(job.session, state.version)
                await work.compact(job.session, messages, done, summary.text, text, vector)
        except Stale:
            log.info("a compaction is void: something was forgotten meanwhile", extra={"session": str(job.session)})
            return
        names = ("messages", "removed_tokens", "summary_tokens", "ratio", "method")
        figures = {name: getattr(done, name) for name in names} | {"ratio": round(done.ratio, 2)}
        log.info("a session was compacted", extra={"session": str(job.session)} | figures)

    def _window(self, state: SessionState, target: int | None) -> CompactionWindow | None:
        if target is None and not needs_compaction(_active(state), state.context_window):
            return None
        return choose(state.messages, state.context_window if target is None else target, state.shared_turn)

    async def _vector(self, summary: Summary | None) -> Vector | None:
        if summary is None or not self.embedder.dimensions:
            return None
        (vector,) = await self.embedder.embed([summary.text])
        return vector if vector.any() else None


async def _summary(
    helper: Helper | None, lines: Sequence[SummarySource], budget: int, count: Count, about: str = ""
) -> Summary | None:
    """Summarise, in the helper's words where it answers in the asked shape and has tokens left. Raises `HelperError`."""
    if helper is not None:
        try:
            if (found := await with_helper(helper, lines, budget, count, about=about)) is not None:
                return found
        except (HelperAnswerError, HelperBudgetError) as error:
            log.info("a summary is made without the helper LLM", extra={"error": error.message.partition(": ")[0]})
    # Long sessions have tens of thousands of sentences: other jobs go on meanwhile.
    return await asyncio.to_thread(extractive, lines, budget, count)


def lines_of(state: SessionState, told: Sequence[SessionMessage]) -> list[SummarySource]:
    """What a summary of these messages may be made from: their own words, and what was learned from them and is in force."""
    quotable = {each.message_id: each for each in told if each.quotable}
    lines = [
        SummarySource(each.message_id, each.content, each.turn_index, each.role)
        for each in quotable.values()
        if each.role in ("user", "assistant")
    ]
    for known in state.statements:
        origin = [quotable[each] for each in known.messages if each in quotable]
        if origin:
            place = min(each.turn_index for each in origin)
            lines.append(SummarySource(known.memory_id, known.text, place, None, 0.5 + known.importance))
    return lines


def remembered(
    job: SessionJob, state: SessionState, summary: Summary, vector: Vector | None, now: datetime
) -> NewConsolidated:
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
        sources=[_source(state.name, job.session, each) for each in messages[:MAX_SOURCES]],
        confidence=SUMMARY_CONFIDENCE,
        confidence_factors=drawn_factors(SUMMARY_CONFIDENCE, {}),
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
    return NewConsolidated(
        row,
        summary_key(job.session),
        tuple(each.memory_id for each in facts),
        tuple(each.message_id for each in messages),
        previous=state.remembered,
    )


def _active(state: SessionState) -> int:
    return sum(each.token_count for each in state.messages if not each.compressed)


def consolidation_jobs(process: Process) -> dict[str, Handler]:
    """By entrypoint, for the worker; without a helper extractively."""
    store = ConsolidationStore(process.pool, process.queries, space=process.space)
    embedder, count, clock, helper = process.embedder, process.count, process.clock, process.helper
    keeper = SessionKeeper(store, embedder=embedder, count=count, clock=clock, helper=helper)
    space = process.space if embedder.dimensions else None
    users = Consolidator(store, embedder=embedder, space=space, count=count, clock=clock, helper=helper)
    return {SESSION_END: keeper.end, COMPACT: keeper.compact, CONSOLIDATE: users.consolidate}


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


# --- `consolidate`: what all the sessions of a user come to --------------------------------------------------------------
#
# Patterns and procedures from episodes, summaries of entities and topics. Bounded: the newest episodes, the most important
# memories, a few summaries in one run; what is left is due again.

GROWN = 1.5
"""How much more often something must have been seen than its pattern says, until the pattern is written anew."""
TRIES = 3
"""Runs of one job over what changes under its hands; then the schedule comes back to it."""
MAX_DERIVED_FROM = 64
"""Messages named as what a pattern was drawn from, the newest: it counts more than it can quote."""


class UserJob(Struct, frozen=True):
    """The payload of `consolidate`. `entities`: asked for by name, whether or not they are due."""

    tenant: UUID
    user: UUID
    id: str
    entities: tuple[str, ...] = ()


class Consolidator(Struct):
    """`space`: the number of the embedder's space. `count`: tokens of o200k. `helper`: None: extractively."""

    store: ConsolidationStore
    embedder: Embedder
    space: int | None
    count: Count
    clock: Clock
    helper: Helper | None = None

    async def consolidate(self, payload: bytes) -> None:
        """Draw together what a user's sessions say. Raises `BadBody`, `HelperError`, `Unavailable`, `StoreUnavailable`."""
        job = parsed(payload, UserJob)
        if job.user == ids.nobody(job.tenant):
            return  # sessions of nobody have nothing to do with each other
        for _ in range(TRIES):
            try:
                await self._once(job)
                return
            except Stale:
                log.info("a consolidation is void: something changed meanwhile", extra={"user": str(job.user)})

    async def _once(self, job: UserJob) -> None:
        began = self.clock.now()
        state = await self.store.read(job.tenant, job.user, began)
        if state.epoch is None:
            return
        repeated = await asyncio.to_thread(lambda: self._repeated(state, began))
        of_entities, of_topics = _summaries(state.drawn, "entity"), _summaries(state.drawn, "topic")
        entities = due_entities(state.episodes, state.facts, of_entities, job.entities, state.triggers)
        named = [*of_entities, *(slug for each in entities for slug in (each.of, *each.slugs))]
        topics = due_topics(state.episodes, state.facts, of_topics, named, state.triggers)
        due_now = [each for each in (*entities, *topics) if all(state.may_draw(key) for key in each.keys)]
        summarised = [
            each
            for due in due_now[:EACH_RUN]
            if (each := await self._profile(job, due, of_topics.get(due.topic), began)) is not None
        ]
        new = await self._embedded([*repeated, *summarised])
        async with self.store.effect(
            job.tenant, job.user, f"{CONSOLIDATE}:{job.id}", alone=job.user, epoch=state.epoch, now=began
        ) as drawing:
            if drawing is None:
                return
            work = Consolidated(drawing)
            await work.hold(
                state.version,
                sorted({fact for each in new for fact in each.facts}),
                sorted({message for each in new for message in each.messages}),
            )
            made = set(await drawing.add(new, state.hmac_key, self.space))
            confirmed = sorted({fact for each in new if each.row.memory_id in made for fact in each.confirms})
            await work.confirm(confirmed, state.triggers.gain, state.triggers.most)
            await work.done(began, more=len(due_now) > EACH_RUN)
        log.info("a user's memories were drawn together", extra={"user": str(job.user), "new": len(made)})

    def _repeated(self, state: UserState, now: datetime) -> list[NewConsolidated]:
        """Patterns and procedures that are new, or were seen much more often than they say."""
        known = {each.key: each for each in state.drawn}
        found: list[NewConsolidated] = []
        drawn_of = (
            ("pattern", patterns(state.episodes)),
            ("pattern", outcome_patterns(state.episodes, state.worth)),
            ("procedure", procedures(state.episodes)),
        )
        for kind, drawn in drawn_of:
            for each in drawn:
                previous = known.get(each.key)
                grown = (
                    previous is None
                    or each.count >= GROWN * float(previous.details.get("observed_count", 0))
                    or each.details.get("worth") != previous.details.get("worth")  # good before, and bad by now
                )
                if grown and state.may_draw(each.key):
                    found.append(self._pattern(state, kind, each, previous, now))
        return found

    def _pattern(
        self, state: UserState, kind: str, drawn: Pattern, previous: ConsolidatedMemory | None, now: datetime
    ) -> NewConsolidated:
        messages = drawn.sources[-MAX_DERIVED_FROM:]
        where = {each.message_id: each.session_id for each in state.episodes}
        sources = [
            {"session": str(where[each]), "session_id": str(where[each]), "message_id": str(each)}
            for each in messages[-MAX_SOURCES:]
        ]
        tier = PROCEDURAL if kind == "procedure" else SEMANTIC
        details = {**drawn.details, "key": drawn.key, "observed_count": drawn.count}
        row = self._row(
            kind, tier, drawn.text, details, messages, sources, drawn.confidence, drawn.importance, drawn.entities, now
        )
        return NewConsolidated(row, drawn.key, (), messages, previous=(previous.memory_id,) if previous else ())

    async def _profile(
        self, job: UserJob, due: DueSummary, topic: KnownSummary | None, now: datetime
    ) -> NewConsolidated | None:
        """`topic`: the summary of it as a topic, whose place it takes: an entity may have been one before."""
        texts = await self.store.texts(job.tenant, job.user, due.episodes)
        lines = profile_lines(due, texts)
        name = due.name or display_name(due.of, [each.text for each in lines])
        about = f"Write a profile of {name}: only points that are about it."
        summary = await _summary(self.helper, lines, ENTITY_TOKENS, self.count, about)
        if summary is None:
            return None
        facts = [each for each in due.facts if each.memory_id in summary.sources]
        messages = [each for each in texts if each.message_id in summary.sources]
        # What a fact was said in: forgetting that message forgets the fact's part in this, too.
        patterns = interaction(due, {each.message_id for each in texts})
        origin = dict.fromkeys([*(each.message_id for each in messages), *(m for fact in facts for m in fact.messages)])
        origin |= dict.fromkeys(patterns.messages)
        # Without their quotations: these may say more than the fact, and something that is forgotten later.
        sources = [{k: v for k, v in source.items() if k != "quote"} for fact in facts for source in fact.sources]
        sources += [_source(each.session_name, each.session_id, each) for each in messages]
        details = {
            "key": due.key,
            "scope_type": due.scope,
            "scope_identifier": due.of,
            "key_facts": key_facts(due, facts, name, patterns),
            "source_data": {
                "memory_ids": [str(each.memory_id) for each in facts],
                "session_ids": sorted({str(each.session_id) for each in texts}),
                "sessions": due.sessions,
                "episodes": due.episode_count,
                "time_range": _range([*(each.at for each in due.episodes), *(each.created_at for each in facts)]),
                "consolidation_method": summary.method,
            },
        }
        row = self._row(
            "summary", SEMANTIC, f"{name}: {summary.text}", details, tuple(origin), sources[:MAX_SOURCES],
            SUMMARY_CONFIDENCE, SUMMARY_IMPORTANCE, (due.of, *due.slugs) if due.scope == "entity" else (), now,
        )  # fmt: skip
        before = due.previous.facts if due.previous else frozenset()
        ids_of_facts = tuple(each.memory_id for each in facts)
        return NewConsolidated(
            row,
            due.key,
            ids_of_facts,
            tuple(origin),
            confirms=tuple(each for each in ids_of_facts if each not in before),
            previous=tuple({each.memory_id: None for each in (due.previous, topic) if each is not None}),
        )

    def _row(
        self,
        kind: str,
        tier: int,
        text: str,
        details: Mapping[str, Any],
        messages: Sequence[UUID],
        sources: Sequence[Mapping[str, Any]],
        confidence: float,
        importance: float,
        entities: Sequence[str],
        now: datetime,
    ) -> MemoryRow:
        said = normalise(text)
        memory = ids.uuid7(now)
        return MemoryRow(
            memory_id=memory,
            session_id=None,
            tier=tier,
            scope=_GLOBAL,
            kind=kind,
            text=said,
            content_hash=content_hash(said),
            provenance_type=Provenance.SYSTEM_INFERRED,
            turn_id=messages[-1] if messages else memory,
            turn_index=0,
            source_message_ids=list(messages[-MAX_SOURCES:]),
            sources=[dict(each) for each in sources],
            confidence=confidence,
            confidence_factors=drawn_factors(confidence, details),
            importance=importance,
            access_count=0,
            reinforcement_count=0,
            created_at=now,
            expires_at=None,
            validated=False,
            token_count=self.count(said),
            valid_from=now,
            stated_at=now,
            vector=None,
            entity_ids=tuple(entities),
            details=dict(details),
        )

    async def _embedded(self, new: Sequence[NewConsolidated]) -> list[NewConsolidated]:
        if self.space is None or not new:
            return list(new)
        vectors = await self.embedder.embed([each.row.text for each in new])
        return [
            replace(each, row=replace(each.row, vector=vector)) if vector.any() else each
            for each, vector in zip(new, vectors, strict=True)
        ]


def profile_lines(due: DueSummary, texts: Sequence[Text]) -> list[SummarySource]:
    """What a summary of an entity or a topic is made from: facts about it, and the user's sentences that name it."""
    order = {fact.memory_id: n for n, fact in enumerate(sorted(due.facts, key=lambda fact: fact.created_at))}
    lines = [
        SummarySource(fact.memory_id, fact.text, order[fact.memory_id], None, 0.5 + fact.importance)
        for fact in due.facts
    ]
    for n, each in enumerate(texts, start=len(lines)):
        naming = [one for one in sentences(each.content) if _speaks_of(one, due)]
        if naming:
            lines.append(SummarySource(each.message_id, ". ".join(naming), n, "user"))
    return lines


def drawn_factors(confidence: float, details: Mapping[str, Any]) -> dict[str, Any]:
    """Why a drawn memory is believed as far as it is, as `app.memory.drafts.factors` tells it of a statement: a pattern gains
    by each observation (`observed_count`) beyond those that made it; a summary has one confidence."""
    observed = details.get("observed_count")
    base = min(confidence, pattern_confidence(THEME_EPISODES)) if observed is not None else confidence
    return {
        "base_confidence": base,
        "reinforcement_boost": round(confidence - base, 4),
        "reinforcement_count": max(0, int(observed) - THEME_EPISODES) if observed is not None else 0,
        "source_type": "consolidation",
        "final_confidence": confidence,
    }


def _range(times: Sequence[datetime]) -> dict[str, str] | None:
    return {"start": min(times).isoformat(), "end": max(times).isoformat()} if times else None


def _speaks_of(sentence: str, due: DueSummary) -> bool:
    if due.scope == "topic":
        return names_topic(due.of, sentence)
    return any(all(word in sentence.casefold() for word in own.split("-")) for own in due.slugs or (due.of,))


def _summaries(drawn: Sequence[ConsolidatedMemory], scope: SummaryScope) -> dict[str, KnownSummary]:
    found: dict[str, KnownSummary] = {}
    for each in drawn:
        if each.kind == "summary" and each.details.get("scope_type") == scope:
            data = each.details.get("source_data") or {}
            found[str(each.details["scope_identifier"])] = KnownSummary(
                each.memory_id,
                frozenset(UUID(one) for one in data.get("memory_ids") or ()),
                int(data.get("sessions") or 0),
                int(data.get("episodes") or 0),
            )
    return found


def _source(name: str, session: UUID, said: SessionMessage | Text) -> dict[str, Any]:
    return {
        "session": name,
        "session_id": str(session),
        "message_id": str(said.message_id),
        "turn_index": said.turn_index,
    }
