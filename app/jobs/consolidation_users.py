"""`consolidate`: what all the sessions of a user come to. Patterns and procedures from episodes, summaries of entities.

Bounded: the newest episodes, the most important memories, a few summaries in one run; what is left is due again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct
from msgspec.structs import replace

from app.clock import Clock
from app.errors import BadBody
from app.memory.candidate import Provenance
from app.memory.consolidate_entities import (
    CONFIRMS,
    CONFIRMS_UP_TO,
    EACH_RUN,
    ENTITY_TOKENS,
    SUMMARY_CONFIDENCE,
    SUMMARY_IMPORTANCE,
    DueEntity,
    KnownSummary,
    display_name,
    due_entities,
    key_facts,
)
from app.memory.consolidate_episodes import Drawn, patterns, procedures
from app.memory.consolidate_summary import Count, Line, Summary, extractive, with_helper
from app.memory.consolidate_text import sentences
from app.memory.drafts import PROCEDURAL, SEMANTIC
from app.memory.ingest_text import content_hash, normalise
from app.providers.embeddings import Embedder
from app.providers.helper import Helper
from app.store import ids
from app.store.consolidation import CONSOLIDATE, ConsolidationStore, Stale
from app.store.drawing import Drawing, DrawingStore, DrawnMemory, NewDrawn, Text, UserState
from app.store.learning import MAX_SOURCES, MemoryRow
from app.store.queries import Queries

log = logging.getLogger(__name__)

GROWN = 1.5
"""How much more often something must have been seen than its pattern says, until the pattern is written anew."""
TRIES = 3
"""Runs of one job over what changes under its hands; then the schedule comes back to it."""
MAX_DERIVED_FROM = 64
"""Messages named as what a pattern was drawn from, the newest: it counts more than it can quote."""

_GLOBAL = 1


class UserJob(Struct, frozen=True):
    """The payload of `consolidate`. `entities`: asked for by name, whether or not they are due."""

    tenant: UUID
    user: UUID
    id: str
    entities: tuple[str, ...] = ()

    @classmethod
    def parse(cls, payload: bytes) -> UserJob:
        """Raises `BadBody`: what cannot be read now cannot be read later."""
        try:
            fields: dict[str, Any] = orjson.loads(payload)
            wanted = tuple(str(each) for each in fields.get("entities") or ())
            return cls(UUID(fields["tenant"]), UUID(fields["user"]), str(fields["id"]), wanted)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadBody("This job's payload cannot be read.") from error


class Consolidator:
    """Does `consolidate` jobs."""

    def __init__(
        self,
        store: ConsolidationStore,
        drawing: DrawingStore,
        sql: Queries,
        *,
        embedder: Embedder,
        space: int | None,
        count: Count,
        clock: Clock,
        helper: Helper | None = None,
    ) -> None:
        """`space`: the number of the embedder's space. `count`: tokens of o200k. `helper`: None: extractively."""
        self._store = store
        self._drawing = drawing
        self._sql = sql
        self._embedder = embedder
        self._space = space if embedder.dimensions else None
        self._count = count
        self._clock = clock
        self._helper = helper

    def handlers(self) -> dict[str, Callable[[bytes], Awaitable[None]]]:
        """By entrypoint, for the worker."""
        return {CONSOLIDATE: self.consolidate}

    async def consolidate(self, payload: bytes) -> None:
        """Draw together what a user's sessions say. Raises `BadBody`, `HelperError`, `Unavailable`, `StoreUnavailable`."""
        job = UserJob.parse(payload)
        if job.user == ids.nobody(job.tenant):
            return  # sessions of nobody have nothing to do with each other
        for _ in range(TRIES):
            try:
                await self._once(job)
                return
            except Stale:
                log.info("a consolidation is void: something changed meanwhile", extra={"user": str(job.user)})

    async def _once(self, job: UserJob) -> None:
        began = self._clock.now()
        state = await self._drawing.read(job.tenant, job.user, began)
        if state.epoch is None:
            return
        repeated = await asyncio.to_thread(lambda: self._repeated(state, began))
        entities = [
            each
            for each in due_entities(state.episodes, state.facts, _summaries(state.drawn), job.entities)
            if all(state.may_draw(key) for key in each.keys)
        ]
        summarised = [each for due in entities[:EACH_RUN] if (each := await self._entity(job, due, began)) is not None]
        new = await self._embedded([*repeated, *summarised])
        async with self._store.effect(
            job.tenant, job.user, f"{CONSOLIDATE}:{job.id}", alone=job.user, epoch=state.epoch, now=began
        ) as work:
            if work is None:
                return
            drawing = Drawing(work, self._sql, job.tenant, job.user, began)
            await drawing.hold(
                state.version,
                sorted({fact for each in new for fact in each.facts}),
                sorted({message for each in new for message in each.messages}),
            )
            made = set(await drawing.add(new, state.hmac_key, self._space))
            confirmed = sorted({fact for each in new if each.row.memory_id in made for fact in each.confirms})
            await drawing.confirm(confirmed, CONFIRMS, CONFIRMS_UP_TO)
            await drawing.done(began, more=len(entities) > EACH_RUN)
        log.info("a user's memories were drawn together", extra={"user": str(job.user), "new": len(made)})

    def _repeated(self, state: UserState, now: datetime) -> list[NewDrawn]:
        """Patterns and procedures that are new, or were seen much more often than they say."""
        known = {each.key: each for each in state.drawn}
        found: list[NewDrawn] = []
        for kind, drawn in (("pattern", patterns(state.episodes)), ("procedure", procedures(state.episodes))):
            for each in drawn:
                previous = known.get(each.key)
                grown = previous is None or each.count >= GROWN * float(previous.details.get("observed_count", 0))
                if grown and state.may_draw(each.key):
                    found.append(self._pattern(state, kind, each, previous, now))
        return found

    def _pattern(
        self, state: UserState, kind: str, drawn: Drawn, previous: DrawnMemory | None, now: datetime
    ) -> NewDrawn:
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
        return NewDrawn(row, drawn.key, (), messages, previous=(previous.memory_id,) if previous else ())

    async def _entity(self, job: UserJob, due: DueEntity, now: datetime) -> NewDrawn | None:
        texts = await self._drawing.texts(job.tenant, job.user, due.episodes)
        lines = entity_lines(due, texts)
        name = due.name or display_name(due.entity, [each.text for each in lines])
        summary = await self._summary(lines, name)
        if summary is None:
            return None
        facts = [each for each in due.facts if each.memory_id in summary.sources]
        messages = [each for each in texts if each.message_id in summary.sources]
        # What a fact was said in: forgetting that message forgets the fact's part in this, too.
        origin = dict.fromkeys([*(each.message_id for each in messages), *(m for fact in facts for m in fact.messages)])
        # Without their quotations: these may say more than the fact, and something that is forgotten later.
        sources = [{k: v for k, v in source.items() if k != "quote"} for fact in facts for source in fact.sources]
        sources += [_source(each) for each in messages]
        details = {
            "key": due.key,
            "scope_type": "entity",
            "scope_identifier": due.entity,
            "key_facts": key_facts(facts),
            "source_data": {
                "memory_ids": [str(each.memory_id) for each in facts],
                "sessions": due.sessions,
                "episodes": due.episode_count,
                "consolidation_method": summary.method,
            },
        }
        row = self._row(
            "summary", SEMANTIC, f"{name}: {summary.text}", details, tuple(origin), sources[:MAX_SOURCES],
            SUMMARY_CONFIDENCE, SUMMARY_IMPORTANCE, (due.entity, *due.slugs), now,
        )  # fmt: skip
        before = due.previous.facts if due.previous else frozenset()
        ids_of_facts = tuple(each.memory_id for each in facts)
        return NewDrawn(
            row,
            due.key,
            ids_of_facts,
            tuple(origin),
            confirms=tuple(each for each in ids_of_facts if each not in before),
            previous=(due.previous.memory_id,) if due.previous else (),
        )

    async def _summary(self, lines: Sequence[Line], name: str) -> Summary | None:
        if self._helper is not None:
            about = f"Write a profile of {name}: only points that are about it."
            found = await with_helper(self._helper, lines, ENTITY_TOKENS, self._count, about=about)
            if found is not None:
                return found
        return extractive(lines, ENTITY_TOKENS, self._count)

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
            confidence_factors={},
            importance=importance,
            access_count=0,
            reinforcement_count=0,
            created_at=now,
            expires_at=None,
            validated=False,
            token_count=self._count(said),
            valid_from=now,
            stated_at=now,
            vector=None,
            entity_ids=tuple(entities),
            details=dict(details),
        )

    async def _embedded(self, new: Sequence[NewDrawn]) -> list[NewDrawn]:
        if self._space is None or not new:
            return list(new)
        vectors = await self._embedder.embed([each.row.text for each in new])
        return [
            replace(each, row=replace(each.row, vector=vector)) if vector.any() else each
            for each, vector in zip(new, vectors, strict=True)
        ]


def entity_lines(due: DueEntity, texts: Sequence[Text]) -> list[Line]:
    """What an entity's summary is made from: facts about it, and the user's sentences that name it."""
    order = {fact.memory_id: n for n, fact in enumerate(sorted(due.facts, key=lambda fact: fact.created_at))}
    lines = [Line(fact.memory_id, fact.text, order[fact.memory_id], None, 0.5 + fact.importance) for fact in due.facts]
    for n, each in enumerate(texts, start=len(lines)):
        called = due.slugs or (due.entity,)
        naming = [one for one in sentences(each.content) if any(_names(one, own) for own in called)]
        if naming:
            lines.append(Line(each.message_id, ". ".join(naming), n, "user"))
    return lines


def _names(sentence: str, entity: str) -> bool:
    return all(word in sentence.casefold() for word in entity.split("-"))


def _summaries(drawn: Sequence[DrawnMemory]) -> dict[str, KnownSummary]:
    found: dict[str, KnownSummary] = {}
    for each in drawn:
        if each.kind == "summary" and each.details.get("scope_type") == "entity":
            data = each.details.get("source_data") or {}
            found[str(each.details["scope_identifier"])] = KnownSummary(
                each.memory_id,
                frozenset(UUID(one) for one in data.get("memory_ids") or ()),
                int(data.get("sessions") or 0),
                int(data.get("episodes") or 0),
            )
    return found


def _source(text: Text) -> dict[str, Any]:
    return {
        "session": text.session_name,
        "session_id": str(text.session_id),
        "message_id": str(text.message_id),
        "turn_index": text.turn_index,
    }
