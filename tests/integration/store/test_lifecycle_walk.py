"""A walk through the life of memories: whatever happens in whatever order, the SQL does what the pure functions say.

Real Postgres, a fake clock. Each rule that sweeps first asks tests/support/lifecycle.py what should become of every memory, and
then compares all of them with what has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace

from app.context.score import effective_confidence
from app.store.memories import MemoryText
from app.store.pools import open_pool
from app.store.queries import Queries
from app.store.validation import Validation
from tests.support import lifecycle
from tests.support.clock import FakeClock
from tests.support.lifecycle import EPISODIC, EXPIRED, POLICY, SEMANTIC, Life
from tests.support.lives import DAY, NOW, TENANT, USER, lives, put

pytestmark = pytest.mark.heavy

SQL = Queries.load()
T = TypeVar("T")
EDGE = 1e-6
"""Formulas in numeric and in binary differ in the last digits: so near a border either side is right."""

KINDS = st.sampled_from(
    ["fact", "preference", "instruction", "correction", "event", "episode", "pattern", "summary", "tool_outcome"]
)

BORN = st.fixed_dictionaries(
    {
        "kind": KINDS,
        "memory_tier": st.integers(1, 4),
        "confidence": st.floats(0.125, 0.9375, width=32),
        "importance": st.floats(0.0, 1.0, width=32),
        "reinforcement_count": st.integers(0, 2),
        "vouched": st.sampled_from([None, "user", "system", "domain_row"]),
        "sources": st.integers(1, 3),
        "asked": st.booleans(),
        "by_hand": st.booleans(),
        "days": st.one_of(st.integers(0, 12), st.integers(0, 200)),
        "used": st.one_of(st.integers(0, 4), st.integers(8, 30)),
        "score": st.floats(0.0, 1.5, width=32),
        "idle": st.floats(0.0, 1.0),
    }
)


class Walk(RuleBasedStateMachine):
    """The life of a few memories of one user."""

    dsn = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.clock = FakeClock(NOW)
        self.events = 0

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize(born=st.lists(BORN, min_size=5, max_size=20))
    def begin(self, born: list[dict[str, Any]]) -> None:
        self.connection = self.do(asyncpg.connect(self.dsn))
        self.pool = self.do(
            open_pool(
                self.dsn, size=1, timeout_ms=5000, statement_timeout_ms=30_000, statement_cache_size=100,
                role="mneme_app", application_name="walk",
            )
        )  # fmt: skip
        self.do(self.connection.execute("DELETE FROM agent_data.memory_store; DELETE FROM agent_data.memory_events"))
        self.validation = Validation(self.pool, SQL, self.clock, space=None)
        self.learn(born)

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            self.do(self.pool.close())
            self.do(self.connection.close())
        self.runner.close()

    # --- what happens to memories -------------------------------------------------------------------------------------

    @rule(born=st.lists(BORN, min_size=1, max_size=8))
    def learn(self, born: list[dict[str, Any]]) -> None:
        for each in born:
            self.do(put(self.connection, **self.columns(**each)))

    def columns(
        self, *, vouched: str | None, sources: int, asked: bool, by_hand: bool, days: int, used: int, score: float,
        idle: float, **given: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """A memory that has lived for some days, and was last used after a part of them."""
        now = self.clock.now()
        born = now - days * DAY
        # What is born too old for its tier is found and expired by the sweep.
        ttl = {1: DAY, 2: 90 * DAY}.get(given["memory_tier"])
        return given | {
            "validated_by": vouched,
            "is_validated": vouched is not None,
            "last_validated_at": born if vouched == "user" else None,
            "source_message_ids": [UUID(int=n) for n in range(sources)],
            "provenance_type": 0 if asked else 4,
            "provenance_turn_id": None if by_hand else UUID(int=1),
            "access_count": used,
            "relevance_accumulator": used * score,
            "last_accessed_at": now - days * idle * DAY if used else None,
            "created_at": born,
            "updated_at": born,
            "expires_at": now + ttl if ttl else None,
        }

    @rule(hours=st.integers(1, 400), days=st.integers(0, 40))
    def time_passes(self, hours: int, days: int) -> None:
        self.clock.move(timedelta(hours=hours, days=days))

    @rule(choice=st.integers(0, 50), times=st.integers(1, 12), score=st.floats(0.0, 1.5, width=32))
    def use(self, choice: int, times: int, score: float) -> None:
        memory = self.pick(choice)
        if memory is not None:
            self.do(
                self.connection.execute(
                    "UPDATE agent_data.memory_store SET access_count = access_count + $2,"
                    " relevance_accumulator = relevance_accumulator + $3, last_accessed_at = $4 WHERE memory_id = $1",
                    memory, times, score * times, self.clock.now(),
                )
            )  # fmt: skip

    @rule(choice=st.integers(0, 50))
    def say_again(self, choice: int) -> None:
        """As learning does."""
        memory = self.pick(choice)
        if memory is not None:
            self.do(
                self.connection.execute(
                    "UPDATE agent_data.memory_store SET reinforcement_count = reinforcement_count + 1,"
                    " validated_by = 'user', is_validated = true, last_validated_at = $2 WHERE memory_id = $1",
                    memory, self.clock.now(),
                )
            )  # fmt: skip

    # --- the sweeps, against the pure functions -------------------------------------------------------------------------

    @rule()
    def promotion(self) -> None:
        def after(life: Life, now: datetime) -> Life:
            tier = lifecycle.promotes(life, now)
            if tier is None:
                return life
            return replace(
                life,
                tier=tier,
                validated_by=life.validated_by or "system",
                expires_at=now + POLICY.l2_ttl if tier == EPISODIC else None,
            )

        self.compare(after, lambda now: self.connection.fetchval(SQL["lifecycle.promote"], now, 1000))

    @rule()
    def demotion(self) -> None:
        def after(life: Life, now: datetime) -> Life:
            tier = lifecycle.demotes(life, now)
            if tier is None:
                return life
            if tier == EXPIRED:
                return replace(life, status="expired")
            return replace(life, tier=tier, expires_at=now + POLICY.l2_ttl)

        self.compare(after, lambda now: self.walk("demote", now))

    @rule()
    def aging(self) -> None:
        def after(life: Life, now: datetime) -> Life:
            if lifecycle.ages(life, now):
                return replace(life, status="aging")
            return replace(life, status="active") if lifecycle.settles(life, now) else life

        self.compare(after, lambda now: self.connection.fetchval(SQL["lifecycle.age"], now, 1000))

    @rule()
    def decay(self) -> None:
        def after(life: Life, now: datetime) -> Life:
            if not lifecycle.decay_due(life, now):
                return life
            return replace(life, importance=lifecycle.decayed_importance(life, now))

        self.compare(after, lambda now: self.walk("decay", now))

    @rule()
    def prune(self) -> None:
        def after(life: Life, now: datetime) -> Life:
            return replace(life, status="expired") if lifecycle.prunes(life, now) else life

        self.compare(after, lambda now: self.walk("prune", now))

    @rule()
    def expiry(self) -> None:
        def after(life: Life, now: datetime) -> Life:
            over = life.status in lifecycle.IN_FORCE and not life.in_force(now)
            return replace(life, status="expired") if over else life

        self.compare(after, lambda now: self.connection.fetchval(SQL["schedule.expire_memories"], now, 1000))

    # --- what the user says ----------------------------------------------------------------------------------------------

    @rule()
    def only_what_is_in_doubt_is_asked_about(self) -> None:
        now = self.clock.now()
        due = {each.memory_id for each in self.do(self.validation.due(TENANT, USER, limit=1000))}
        for memory, life in self.all().items():
            doubted = life.in_force(now) and (life.status == "aging" or lifecycle.ages(life, now))
            assert (memory in due) == doubted or self.near_a_border(life, now)

    @precondition(lambda self: bool(self.in_force()))
    @rule(choice=st.integers(0, 50), answer=st.sampled_from(["yes", "no", "other"]))
    def answer(self, choice: int, answer: str) -> None:
        known = self.in_force()
        memory = sorted(known)[choice % len(known)]
        before, now = known[memory], self.clock.now()
        if answer == "yes":
            self.do(self.validation.confirm(TENANT, USER, memory))
            life = self.all()[memory]
            assert (life.status, life.validated_by, life.last_validated_at) == ("active", "user", now)
            assert life.confidence == pytest.approx(lifecycle.confirmed_confidence(before.confidence), abs=EDGE)
            assert life.tier == lifecycle.confirmed_tier(before)
            assert not lifecycle.ages(life, now)
            assert lifecycle.demotes(life, now) is None
        elif answer == "no":
            self.do(self.validation.deny(TENANT, USER, memory))
            assert (self.all()[memory].status, self.all()[memory].confidence) == ("invalidated", 0.0)
        else:
            mark = self.events.to_bytes(4, "big")
            said = MemoryText(f"It is {self.events}", mark, 3, None)
            heir = self.do(self.validation.correct(TENANT, USER, memory, said))
            found = self.all()
            assert found[memory].status == "superseded"
            assert found[heir].status == "active"
            assert found[heir].confidence == pytest.approx(0.85)
            assert found[heir].tier == lifecycle.confirmed_tier(before)

    # --- what always holds -------------------------------------------------------------------------------------------------

    @invariant()
    def every_state_is_one_of_the_diagram(self) -> None:
        if not hasattr(self, "pool"):
            return
        for life in self.all().values():
            assert life.status in {"active", "aging", "superseded", "invalidated", "expired"}
            assert 0.0 <= life.importance <= 1.0
            assert 0.0 <= life.confidence <= 1.0
            if life.status == "invalidated":
                assert life.confidence == 0.0
            if life.tier >= SEMANTIC:
                assert life.expires_at is None
        count = self.do(self.connection.fetchval("SELECT count(*) FROM agent_data.memory_events"))
        assert count >= self.events, "history is only added to"
        self.events = count

    # --- how ---------------------------------------------------------------------------------------------------------------

    def all(self) -> dict[UUID, Life]:
        return self.do(lives(self.connection))

    def in_force(self) -> dict[UUID, Life]:
        return {key: life for key, life in self.all().items() if life.in_force(self.clock.now())}

    def pick(self, choice: int) -> UUID | None:
        known = sorted(self.in_force())
        return known[choice % len(known)] if known else None

    async def walk(self, name: str, now: datetime) -> int:
        """In batches of two, so that there are several."""
        total = 0
        user: UUID | None = UUID(int=0)
        memory: UUID | None = UUID(int=0)
        while user is not None:
            row = await self.connection.fetchrow(SQL[f"lifecycle.{name}"], now, 2, user, memory)
            assert row is not None
            user, memory, total = row["p_user"], row["p_memory"], total + row["changed"]
        return total

    def compare(self, after: Callable[[Life, datetime], Life], sweep: Callable[[datetime], Awaitable[int]]) -> None:
        """Sweep; every memory must be as `after` says, each change told, and a second sweep find nothing to do."""
        now, before = self.clock.now(), self.all()

        async def run() -> int:
            return await sweep(now)

        changed = self.do(run())
        found = self.all()
        assert set(found) == set(before)
        expected = {key: after(life, now) for key, life in before.items()}
        clear = {key for key, life in before.items() if not self.near_a_border(life, now)}
        for key in clear:
            self.assert_alike(found[key], expected[key])
        if len(clear) == len(before):
            assert changed == sum(expected[key] != before[key] for key in before)
        told = self.do(self.connection.fetchval("SELECT count(*) FROM agent_data.memory_events"))
        assert told == self.events + changed
        if sweep_again := self.do(run()):
            # What rises to L2 may be used enough to rise further; nothing else changes twice.
            assert any(expected[key].tier == EPISODIC != before[key].tier for key in before), sweep_again

    def assert_alike(self, found: Life, expected: Life) -> None:
        same = {"importance", "importance_at"}
        assert replace(found, importance=0, importance_at=None) == replace(
            expected, importance=0, importance_at=None
        ), same
        assert found.importance == pytest.approx(expected.importance, abs=EDGE)

    def near_a_border(self, life: Life, now: datetime) -> bool:
        """So near to a threshold that rounding decides."""
        age, idle = lifecycle.hours(life.created_at, now), lifecycle.hours(life.used_at, now)
        active = lifecycle.activity(life.access_count, idle)
        left = lifecycle.decayed_importance(life, now)
        validated = life.last_validated_at or life.created_at
        pairs = [(active, floor.per_hour) for floor in POLICY.floors.values()]
        pairs += [
            (lifecycle.utility(life.relevance, life.access_count, age, step.discount), step.threshold)
            for step in POLICY.promotions.values()
        ]
        pairs += [
            (left, POLICY.prune_below),
            (life.importance, POLICY.prune_below),
            (life.importance - left, POLICY.importance_step - lifecycle.SLACK),
            (effective_confidence(life.confidence, validated, now), POLICY.aging_below),
        ]
        return any(abs(one - other) < EDGE / 10 for one, other in pairs)


def _walk(dsn: str, examples: int, steps: int) -> None:
    class Here(Walk):
        pass

    Here.dsn = dsn
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_long_walks(database: str) -> None:
    _walk(database, 150, 50)
