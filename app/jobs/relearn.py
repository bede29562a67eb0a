"""Learns again from a user's stored history, with its own dates and today's rules (`mneme relearn`).

in one transaction, in which no other job learns about the user:
    a savepoint ─> the learning job runs for each turn in the order of time, in a scope of its own; its memories are read
                └── rolled back
    these memories are compared with the stored ones (`app/memory/relearning.py`) ─> only the differences are written
A dry run rolls the differences back as well. Each user who is done is noted, so that a stopped run goes on with the next one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID, uuid4

from asyncpg.transaction import Transaction
from msgspec import Struct, field
from msgspec.structs import replace

from app.clock import Clock
from app.jobs.learn import Learner, LearnJob, Told
from app.jobs.learn_llm import ENTRYPOINT as LLM_ENTRYPOINT
from app.jobs.learn_llm import plan_reading
from app.memory.relearning import RelearnPlan, ReviewedMemory, Settlement, plan_relearning
from app.providers.embeddings import UNMEASURED_THRESHOLD
from app.store import ids
from app.store.history import LEARN_BATCH
from app.store.item_columns import MEMORY_KIND
from app.store.kinds import LEARNED
from app.store.learning import Effect, HistoryEvent, LearningStore, OpenTransaction
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import ROLES, JobRecord

SAME_TURN = timedelta(seconds=1)
"""Messages of a session that are no further apart came with one request: with the first one of a session, its history."""
RELEARNED = LEARNED - {"tool_outcome"}
"""Kinds that are learned from the user's own words."""
REASON = "relearned"
"""The reason in the history of what changed."""

RelearnChange = Literal["added", "changed", "retired"]


class RelearnLine(Struct, frozen=True):
    """One change of a memory. `before`: the words, or else the status, that the memory had."""

    change: RelearnChange
    text: str
    kind: str
    status: str
    said_at: datetime
    before: str | None = None


class RelearnReport(Struct):
    """The outcome for one user. `unread`: messages that a helper LLM is to read."""

    user: str
    tenant: str
    messages: int = 0
    unchanged: int = 0
    unread: int = 0
    lines: list[RelearnLine] = field(default_factory=list)


class ReplayJob(LearnJob, frozen=True):
    """A turn to learn from again, whose memories are held in a scope of their own."""

    replay: UUID = ids.NIL

    @property
    def key(self) -> str:
        return f"relearn:{self.replay}:{self.messages[0]}"

    @property
    def scope(self) -> UUID:
        return self.replay


class _TurnClock(Struct):
    """A clock that shows the time of the turn that is learned from."""

    time: datetime

    def now(self) -> datetime:
        return self.time


class Relearner(Struct, frozen=True):
    """Learns again. `learner`: that of the worker. `has_helper`: a helper LLM reads what rules have read."""

    learner: Learner
    pool: Pool
    sql: Queries
    clock: Clock
    has_helper: bool = False

    async def relearn(
        self, tenant: UUID, user: UUID, report: RelearnReport, *, run: str | None, dry: bool
    ) -> RelearnReport | None:
        """Learn again about a user. Raises StoreUnavailable.

        Args:
            tenant, user: Whose history is read.
            report: The report to complete.
            run: The run's name, or None for a run of a single user, which is always done.
            dry: Write nothing.

        Returns:
            The completed report, or None where this run was done with the user before, or the user is gone.
        """
        now = self.clock.now()
        async with self.pool.transaction(tenant) as connection:
            effect = Effect(connection, self.sql, tenant, user, now)
            await connection.execute(self.sql["learning.lock"], user)
            is_known = await connection.fetchval(self.sql["learning.epoch"], user) is not None
            if not is_known or (run is not None and not await effect.claim(f"relearn:{run}")):
                return None
            attempt: Transaction = connection.transaction()
            await attempt.start()
            await self._relearn(effect, report)
            await (attempt.rollback() if dry else attempt.commit())
        return report

    async def _relearn(self, effect: Effect, report: RelearnReport) -> None:
        replay: Transaction = effect.connection.transaction()
        await replay.start()
        scope = uuid4()
        played: list[UUID] = []
        read, unread = await self._replay(effect, scope, played)
        found = [memory for memory in await self._read_memories(effect, scope) if memory.kind in RELEARNED]
        role_plays = await effect.rows("relearning.role_plays")
        await replay.rollback()
        stored = await self._read_memories(effect, ids.NIL)
        active_hashes = {memory.content_hash for memory in stored if memory.is_active}
        near = await self._find_near(effect, [memory for memory in found if memory.content_hash not in active_hashes])
        plan = plan_relearning(stored, found, read, near, effect.now)
        await self._apply(effect, plan)
        await effect.hide_play(played)
        playing = [row["session_id"] for row in role_plays if row["is_playing"]]
        await effect.run("relearning.set_role_plays", [row["session_id"] for row in role_plays], playing)
        await effect.enqueue(unread)
        report.messages, report.unchanged, report.unread = len(read), plan.unchanged, len(unread)
        report.lines = sorted(_describe_changes(plan), key=lambda line: (line.change, line.said_at, line.text))

    async def _replay(self, effect: Effect, scope: UUID, played: list[UUID]) -> tuple[set[UUID], list[JobRecord]]:
        """Learn from all turns; return the user's messages, and the jobs in which a helper LLM reads what it has not read.

        `played` gets the messages of role plays.
        """
        await effect.run("relearning.clear_role_play")
        await effect.run("relearning.uncover")
        llm_rows = await effect.rows("relearning.read_by_llm", f"{LLM_ENTRYPOINT}:") if self.has_helper else []
        read_by_llm = {row["message_id"] for row in llm_rows}
        unread: list[JobRecord] = []

        def note_unread(job: LearnJob, exchanges: Sequence[Told]) -> list[JobRecord]:
            turn = LearnJob(**{name: getattr(job, name) for name in LearnJob.__struct_fields__})
            rest = [entry for entry in exchanges if entry[1][0].message_id not in read_by_llm]
            unread.extend(plan_reading(turn, rest))
            return []

        clock = _TurnClock(effect.now)
        learner = replace(
            self.learner,
            store=LearningStore(OpenTransaction(effect.connection), self.sql),
            clock=clock,
            note=None,
            answers=None,
            note_play=played.extend,
            further_jobs=note_unread if self.has_helper else None,
        )
        read: set[UUID] = set()
        async for job, own_messages in self._read_turns(effect, scope):
            clock.time = job.until
            read |= own_messages
            await learner.learn_from(job)
        return read, unread

    async def _read_turns(self, effect: Effect, scope: UUID) -> AsyncIterator[tuple[ReplayJob, set[UUID]]]:
        """Yield a job for each of the user's turns in the order of time, with the ids of the user's own messages. A cursor in
        Postgres keeps the place, so that memory holds one turn only."""
        turn: list[Any] = []
        async for row in effect.connection.cursor(self.sql["relearning.messages"], effect.tenant, effect.user):
            begins = row["role"] == ROLES["user"] and turn and row["created_at"] - turn[-1]["created_at"] > SAME_TURN
            if turn and (begins or row["session_id"] != turn[-1]["session_id"] or len(turn) == LEARN_BATCH):
                yield _build_job(effect, scope, turn)
                turn = []
            turn.append(row)
        if turn:
            yield _build_job(effect, scope, turn)

    async def _read_memories(self, effect: Effect, scope: UUID) -> list[ReviewedMemory]:
        rows = await effect.rows("relearning.memories", scope, effect.now)
        return [ReviewedMemory(**dict(row)) for row in rows]

    async def _find_near(self, effect: Effect, found: Sequence[ReviewedMemory]) -> set[tuple[UUID, UUID]]:
        """Return (found, stored) ids of memories with near vectors."""
        if self.learner.space is None or not found:
            return set()
        embedder, store = self.learner.embedder, LearningStore(OpenTransaction(effect.connection), self.sql)
        setting, _ = await store.read(effect.tenant, effect.user, [], effect.now, effect.now)
        least = setting.dedup_threshold or embedder.duplicate_threshold or UNMEASURED_THRESHOLD
        vectors = await embedder.embed([memory.content_text for memory in found])
        rows = await effect.near(ids.NIL, self.learner.space, list(vectors), least)
        return {(found[place].memory_id, memory) for place, memory, _ in rows}

    async def _apply(self, effect: Effect, plan: RelearnPlan) -> None:
        """Write the differences. What goes out of force comes first, because a text may have only one memory in force."""
        if plan.retired:
            retired = [memory.columns for memory in plan.retired]
            await effect.run("relearning.retire", [memory.memory_id for memory in plan.retired], effect.now)
            await effect.run("relearning.give_sources", retired)
        ended = [memory for memory in plan.added if not memory.is_active]
        await self._add(effect, [memory.columns | {"status": "active", "superseded_how": None} for memory in ended])
        closing = [entry for entry in plan.settled if entry.status != "active"]
        await self._settle(effect, closing + [plan.settle_as(memory, memory) for memory in ended])
        reworded = [entry.found.columns | {"memory_id": entry.stored.columns["memory_id"]} for entry in plan.reworded]
        if reworded:
            await effect.run("relearning.reword", reworded, effect.now)
            await effect.run("relearning.give_claims", reworded)
            await effect.run("memories.drop_vectors", [entry.stored.memory_id for entry in plan.reworded])
            await self._add_vectors(effect, reworded)
        await self._settle(effect, [entry for entry in plan.settled if entry.status == "active"])
        await self._add(effect, [memory.columns for memory in plan.added if memory.is_active])
        events = [event._asdict() for event in _list_events(plan)]
        if events:
            await effect.run("learning.tell", events, effect.now)

    async def _add(self, effect: Effect, memories: Sequence[dict[str, Any]]) -> None:
        if memories:
            await effect.run("relearning.add", list(memories), effect.now)
            await effect.run("learning.route", [UUID(memory["memory_id"]) for memory in memories])
            await self._add_vectors(effect, memories)

    async def _settle(self, effect: Effect, settled: Sequence[Settlement]) -> None:
        if settled:
            rows = [entry._asdict() | {"memory_id": entry.memory.memory_id, "memory": None} for entry in settled]
            await effect.run("relearning.settle", rows, effect.now)

    async def _add_vectors(self, effect: Effect, memories: Sequence[dict[str, Any]]) -> None:
        if self.learner.space is None:
            return
        vectors = await self.learner.embedder.embed([memory["content_text"] for memory in memories])
        rows = [
            (UUID(memory["memory_id"]), datetime.fromisoformat(memory["created_at"]), vector)
            for memory, vector in zip(memories, vectors, strict=True)
            if vector.any()
        ]
        if rows:
            await effect.add_vectors(self.learner.space, MEMORY_KIND, *zip(*rows, strict=True))


def _build_job(effect: Effect, scope: UUID, turn: Sequence[Any]) -> tuple[ReplayJob, set[UUID]]:
    own_messages = {row["message_id"] for row in turn if row["role"] == ROLES["user"]}
    job = ReplayJob(
        effect.tenant,
        effect.user,
        turn[0]["session_id"],
        turn[0]["session_name"],
        tuple(row["message_id"] for row in turn),
        turn[0]["created_at"],
        turn[-1]["created_at"],
        replay=scope,
    )
    return job, own_messages


def _describe_changes(plan: RelearnPlan) -> Iterable[RelearnLine]:
    """Yield a line for each change that a reader of the list of memories would see."""
    for memory in plan.added:
        if not memory.is_variant:
            yield RelearnLine("added", memory.content_text, memory.kind, memory.status, memory.stated_at)
    for old, found in plan.reworded:
        yield RelearnLine("changed", found.content_text, found.kind, old.status, old.stated_at, old.content_text)
    for entry in plan.settled:
        old = entry.memory
        yield RelearnLine("changed", old.content_text, old.kind, entry.status, old.stated_at, old.status)
    for memory in plan.retired:
        yield RelearnLine("retired", memory.content_text, memory.kind, "invalidated", memory.stated_at)


_EVENTS = {"active": "restored", "aging": "aging", "superseded": "superseded", "invalidated": "invalidated"}


def _list_events(plan: RelearnPlan) -> Iterable[HistoryEvent]:
    for memory in plan.added:
        state = {
            "text": memory.content_text,
            "tier": memory.columns["memory_tier"],
            "kind": memory.kind,
            "reason": REASON,
        }
        yield HistoryEvent(memory.memory_id, "created", None, state)
    for old, found in plan.reworded:
        before = {"text": old.content_text, "content_hash": old.content_hash.hex()}
        yield HistoryEvent(old.memory_id, "edited", before, {"text": found.content_text, "reason": REASON})
    for entry in plan.settled:
        after = {"status": entry.status, "superseded_by": entry.superseded_by, "reason": REASON}
        yield HistoryEvent(entry.memory.memory_id, _EVENTS[entry.status], {"status": entry.memory.status}, after)
    for memory in plan.retired:
        state = {"status": "invalidated", "reason": REASON}
        yield HistoryEvent(memory.memory_id, "invalidated", {"status": memory.status}, state)
