"""sql/schema/004_lifecycle.sql: each sweep changes what is due and nothing else, tells of it, and comes to an end."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import numpy as np
import pytest

from app.jobs.schedule import LOCK_CLASS, Schedule, life_ticks
from app.jobs.worker import connector
from app.store import ids
from app.store.pools import Pool, halfvec
from app.store.queries import Queries
from tests.support import lifecycle
from tests.support.cases import cases
from tests.support.clock import FakeClock
from tests.support.database import connected
from tests.support.lifecycle import POLICY
from tests.support.lives import DAY, NOW, TENANT, USER, lives, one, put, told

SQL = Queries.load()
Admin = asyncpg.Connection


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def schedule(database: str, clock: FakeClock) -> Schedule:
    connect = connector(database, role="mneme_owner", name="mneme schedule")
    return Schedule(connect, SQL, clock, further=life_ticks(SQL))


async def test_the_numbers_are_the_same_on_both_sides(admin: Admin) -> None:
    row = await admin.fetchrow("SELECT (agent_data.life_policy()).*")
    assert row is not None
    steps = [POLICY.promotions[pair] for pair in ((1, 2), (2, 3), (2, 4))]
    assert row["discounts"] == [each.discount for each in steps]
    assert row["thresholds"] == [each.threshold for each in steps]
    assert row["min_access"] == [each.min_access for each in steps]
    assert row["floors"] == pytest.approx([POLICY.floors[tier].per_hour for tier in (2, 3, 4)])
    same = (
        "promotion_sources", "l2_ttl", "demotion_grace", "confidence_decay", "validation_after", "aging_below",
        "aging_statements", "confirmed_gain", "confidence_cap", "correction_confidence", "ask_again", "importance_decay",
        "decay_after", "importance_step", "prune_below", "prune_idle", "remove_after",
    )  # fmt: skip
    assert {name: row[name] for name in same} == {name: getattr(POLICY, name) for name in same}
    assert row["decay_hours"] == POLICY.decay_period / timedelta(hours=1)
    left = set(row.keys()) - set(same) - {"discounts", "thresholds", "min_access", "floors", "decay_hours"}
    assert not left, "a number that nothing compares"


BORDERS = (0.0, 1.0, 6.9, 7.0, 7.3, 29.9, 30.0, 31.0, 44.0, 46.0, 89.0, 90.0, 90.1, 91.0, 107.0, 150.0, 210.0)
"""Days around which something changes."""
DECISIONS = """
SELECT m.memory_id, agent_data.promotes(m, $1, p) AS promotes, agent_data.demotes(m, $1, p) AS demotes,
       agent_data.ages(m, $1, p) AS ages, agent_data.settles(m, $1, p) AS settles, agent_data.prunes(m, $1, p) AS prunes,
       agent_data.decay_due(m, $1, p) AS decay_due, agent_data.decayed_importance(m, $1, p) AS importance
FROM agent_data.memory_store m, agent_data.life_policy() p
"""


def _anything(dice: Random) -> dict[str, Any]:
    """A memory with what decides its life chosen near the borders."""
    born = NOW - timedelta(days=dice.choice(BORDERS), hours=dice.choice((0, 0, 1, 30)))
    used = dice.choice((0, 2, 3, 4, 9, 10, 11, 25))
    vouched = dice.choice((None, "user", "system", "domain_row"))
    lived = NOW - born
    return {
        "memory_id": ids.uuid7(
            dice.choice((born, born, NOW - lived * dice.random()))
        ),  # imported later than it was said
        "memory_tier": dice.randint(1, 4),
        "kind": dice.choice(
            ("fact", "preference", "instruction", "correction", "event", "episode", "pattern", "summary")
        ),
        "status": dice.choice(("active", "active", "active", "aging", "superseded", "expired")),
        "provenance_type": dice.choice((0, 3, 4, 5)),
        "provenance_turn_id": dice.choice((None, UUID(int=1))),
        "source_message_ids": dice.choice(([], [UUID(int=1)], [UUID(int=1)] * 2, [UUID(int=1), UUID(int=2)])),
        "confidence": dice.choice((0.5, 0.85, 0.95)),
        "importance": dice.choice((0.0, 0.0995, 0.1, 0.101, 0.3, 0.5, 0.9)),
        "access_count": used,
        "relevance_accumulator": used * dice.choice((0.1, 0.15, 0.3, 0.7, 1.2)),
        "reinforcement_count": dice.choice((0, 0, 1, 2)),
        "validated_by": vouched,
        "last_validated_at": NOW - lived * dice.random() if vouched == "user" and dice.random() < 0.5 else None,
        "last_accessed_at": NOW - lived * dice.choice((0.0, 0.2, 0.5, 1.0)) if used else None,
        "importance_at": NOW - lived * dice.random() if dice.random() < 0.3 else None,
        "expires_at": dice.choice((None, None, NOW, NOW + DAY)),
        "created_at": born,
    }


@cases("seed", range(3))
async def test_every_decision_is_the_same_on_both_sides(admin: Admin, seed: int) -> None:
    dice = Random(seed)
    for _ in range(1000):
        await put(admin, **_anything(dice))
    known = await lives(admin)
    made = dict.fromkeys(("promotes", "demotes", "ages", "settles", "prunes", "decay_due"), 0)
    for row in await admin.fetch(DECISIONS, NOW):
        life = known[row["memory_id"]]
        for name in made:
            decided = getattr(lifecycle, name)(life, NOW)
            assert row[name] == decided, (name, life)
            made[name] += bool(decided) or (decided == 0 and decided is not False)
        assert row["importance"] == pytest.approx(lifecycle.decayed_importance(life, NOW), abs=1e-6), life
    assert min(made.values()) >= 5, made


async def test_an_operator_may_change_them(admin: Admin, schedule: Schedule) -> None:
    memory = await put(admin, memory_tier=1, access_count=3, relevance_accumulator=2.0, last_accessed_at=NOW)
    await admin.execute(
        "UPDATE agent_data.system_config SET value = value || '{\"threshold\": 99}' WHERE key = 'promotion_l1_l2'"
    )
    assert await schedule.sweep("promotion") == 0
    await admin.execute(
        "UPDATE agent_data.system_config SET value = value || '{\"threshold\": 0.3}' WHERE key = 'promotion_l1_l2'"
    )
    assert await schedule.sweep("promotion") == 1
    assert (await one(admin, memory)).tier == 2


async def test_promotion(admin: Admin, schedule: Schedule) -> None:
    used = {"access_count": 10, "relevance_accumulator": 9.0, "last_accessed_at": NOW}
    session = await put(admin, memory_tier=1, memory_scope=0, expires_at=NOW + DAY, **used)
    single = await put(admin, memory_tier=2, expires_at=NOW + DAY, validated_by="system", **used)
    double = await put(admin, memory_tier=2, source_message_ids=[UUID(int=1), UUID(int=2)], **used)
    habit = await put(admin, memory_tier=2, kind="preference", validated_by="user", **used)
    assert await schedule.sweep("promotion") == 3
    found = await lives(admin)
    assert {key: found[key].tier for key in found} == {session: 2, single: 2, double: 3, habit: 4}
    assert (found[session].expires_at, found[session].validated_by) == (NOW + 90 * DAY, "system")
    assert (found[double].expires_at, found[habit].validated_by) == (None, "user")
    scopes = await admin.fetch(
        "SELECT memory_scope, is_validated FROM agent_data.memory_store WHERE memory_id = $1", session
    )
    assert [tuple(row) for row in scopes] == [(1, True)]
    assert await told(admin, session) == ["promoted"]
    # Each is judged anew: the first is L2 now, and said by one message.
    assert await schedule.sweep("promotion") == 0


async def test_nobodys_memories_stay_in_their_session(admin: Admin, schedule: Schedule) -> None:
    memory = await put(
        admin, memory_tier=1, memory_scope=0, session_id=UUID(int=9), dedup_scope=UUID(int=9), access_count=3,
        relevance_accumulator=3.0, last_accessed_at=NOW,
    )  # fmt: skip
    assert await schedule.sweep("promotion") == 1
    assert await admin.fetchval("SELECT memory_scope FROM agent_data.memory_store WHERE memory_id = $1", memory) == 0


async def test_demotion(admin: Admin, schedule: Schedule, clock: FakeClock) -> None:
    top = await put(admin, memory_tier=4, validated_by="system", access_count=10, last_accessed_at=NOW)
    low = await put(admin, memory_tier=2, validated_by="system", access_count=3, last_accessed_at=NOW)
    doubted = await put(admin, validated_by="user", status="aging")
    stated = await put(admin, validated_by="user")
    asked = await put(admin, validated_by="user", status="aging", provenance_type=0)
    clock.move(91 * DAY)
    assert await schedule.sweep("demotion") == 3
    found = await lives(admin)
    assert {key: (found[key].tier, found[key].status) for key in found} == {
        top: (2, "active"), low: (2, "expired"), doubted: (2, "aging"), stated: (3, "active"), asked: (3, "aging")
    }  # fmt: skip
    assert found[top].expires_at == found[doubted].expires_at == clock.now() + 90 * DAY
    assert (await told(admin, top), await told(admin, low)) == (["demoted"], ["expired"])
    assert await schedule.sweep("demotion") == 0
    assert await schedule.sweep("promotion") == 0
    clock.move(90 * DAY)
    assert await schedule.sweep("expiry") == 2


async def test_aging_and_back(admin: Admin, schedule: Schedule, clock: FakeClock) -> None:
    memory = await put(admin, validated_by="user", confidence=0.9, last_validated_at=NOW)
    twice = await put(admin, validated_by="user", confidence=0.9, last_validated_at=NOW, reinforcement_count=1)
    clock.move(90 * DAY)
    assert await schedule.sweep("aging") == 0
    clock.move(DAY)
    assert await schedule.sweep("aging") == 1
    assert await schedule.sweep("aging") == 0
    assert ((await one(admin, memory)).status, (await one(admin, twice)).status) == ("aging", "active")
    await admin.execute("UPDATE agent_data.memory_store SET last_validated_at = $1", clock.now())
    assert await schedule.sweep("aging") == 1
    assert (await one(admin, memory)).status == "active"
    assert await told(admin, memory) == ["aging", "confirmed"]


async def test_decay_is_the_same_however_often_it_runs(admin: Admin, schedule: Schedule, clock: FakeClock) -> None:
    often = await put(admin, importance=0.8)
    for _ in range(60):
        clock.move(timedelta(hours=13))
        await schedule.sweep("decay")
    by_steps = await one(admin, often)
    once = await put(admin, importance=0.8)
    assert await schedule.sweep("decay") == 1
    assert await schedule.sweep("decay") == 0
    at_once = await one(admin, once)
    now = clock.now()
    assert at_once.importance == pytest.approx(lifecycle.decayed_importance(at_once, now), abs=1e-6)
    assert lifecycle.decayed_importance(by_steps, now) == pytest.approx(at_once.importance, abs=1e-6)
    assert len(await told(admin, often)) < 5, "four changes a day are not worth writing"


async def test_prune(admin: Admin, schedule: Schedule, clock: FakeClock) -> None:
    noise = await put(admin, importance=0.5, validated_by="system")
    stated = await put(admin, importance=0.5, validated_by="user", last_validated_at=NOW)
    used = await put(admin, importance=0.5, last_accessed_at=NOW + 90 * DAY)
    clock.move(109 * DAY)
    assert await schedule.sweep("prune") == 1
    found = await lives(admin)
    assert {key: found[key].status for key in found} == {noise: "expired", stated: "active", used: "active"}
    event = await admin.fetchrow(
        "SELECT at, before, after, actor FROM agent_data.memory_events WHERE memory_id = $1", noise
    )
    assert event is not None
    assert (event["at"], event["actor"]) == (clock.now(), "system")
    assert json.loads(event["before"]) == {"status": "active"}
    assert json.loads(event["after"]) == {"status": "expired", "reason": "importance"}


async def test_what_is_imported_starts_its_life_with_the_import(
    admin: Admin, schedule: Schedule, clock: FakeClock
) -> None:
    old = {
        "created_at": NOW - 700 * DAY,
        "last_validated_at": NOW - 700 * DAY,
        "validated_by": "user",
        "confidence": 0.9,
    }
    imported = await put(admin, **old, memory_id=ids.uuid7(NOW))
    ours = await put(admin, **old)
    for _ in range(3):
        for sweep in ("aging", "demotion", "decay", "prune"):
            await schedule.sweep(sweep)
    found = await lives(admin)
    assert (found[imported].status, found[imported].tier) == ("aging", 3), "it may be asked for, and is in force"
    assert found[ours].status == "expired"
    clock.move(timedelta(days=6.9))
    assert await schedule.sweep("demotion") == 0
    clock.move(timedelta(days=0.2))
    assert await schedule.sweep("demotion") == 1
    assert (await one(admin, imported)).tier == 2


@cases("at", [datetime(1970, 1, 1, tzinfo=UTC), NOW, datetime(2199, 12, 31, 23, 59, 59, 999000, UTC)])
async def test_an_id_tells_when_it_was_made(admin: Admin, at: datetime) -> None:
    assert await admin.fetchval("SELECT agent_data.made_at($1)", ids.uuid7(at)) == at
    assert await admin.fetchval("SELECT agent_data.made_at($1)", uuid4()) is None


async def test_the_summary_of_a_session_stands_however_long_nobody_asks(
    admin: Admin, schedule: Schedule, clock: FakeClock
) -> None:
    summary = await put(
        admin, kind="summary", session_id=UUID(int=5), created_at=NOW - 900 * DAY, validated_by="system"
    )
    entity = await put(admin, kind="summary", created_at=NOW - 900 * DAY)
    for _ in range(3):
        clock.move(DAY)
        for name in ("demotion", "decay", "prune"):
            await schedule.sweep(name)
    assert ((await one(admin, summary)).status, (await one(admin, summary)).tier) == ("active", 3)
    assert (await one(admin, entity)).status == "expired"


async def test_removal(admin: Admin, schedule: Schedule, clock: FakeClock, pool: Pool) -> None:
    """With all that led to it; what others lead to stays, and so does what may still be restored."""
    await admin.execute("SELECT agent_data.ensure_embedding_space('test', 8)")
    over = {"status": "expired", "updated_at": NOW}
    gone = await put(admin, content_text="Looked up kites", **over)
    link = await put(admin, content_text="Likes tea", **over)
    old = await put(admin, content_text="Likes coffee", status="superseded", superseded_by=link, updated_at=NOW)
    fresh = await put(admin, content_text="Looked up tides", status="expired", updated_at=NOW + DAY)
    kept = await put(admin, content_text="Looked around")
    everything = [gone, link, old, fresh, kept]
    async with pool.transaction(TENANT) as connection:
        await connection.execute(SQL["memories.route"], TENANT, USER, everything)
        vectors = [halfvec(np.ones(8, np.float32))] * 5
        await connection.execute(SQL["history.add_vectors"], TENANT, USER, 1, 1, everything, [NOW] * 5, vectors)
        await connection.execute(
            SQL["memories.event"], TENANT, USER, gone, NOW, "created", None, {"text": "x"}, "system"
        )
    clock.move(90 * DAY)
    assert await schedule.sweep("removal") == 1
    assert await schedule.sweep("removal") == 0
    assert set(await lives(admin)) == {link, old, fresh, kept}
    assert await told(admin, gone) == []
    assert await admin.fetchval("SELECT count(*) FROM agent_data.routes WHERE id = $1", gone) == 0
    assert await admin.fetchval("SELECT count(*) FROM agent_data.embeddings WHERE item_id = $1", gone) == 0


# --- batches, locks, several at once ----------------------------------------------------------------------------------


async def _crowd(admin: Admin, n: int) -> None:
    for number in range(n):
        await put(admin, user_id=UUID(int=number % 7 + 1), importance=0.5, validated_by="system")


@cases("limit", [1, 3, 1000])
async def test_a_walk_looks_at_all_of_them_once(admin: Admin, limit: int) -> None:
    await _crowd(admin, 20)
    nil = UUID(int=0)
    user: UUID | None = nil
    memory: UUID | None = nil
    calls = changed = 0
    while user is not None:
        row = await admin.fetchrow(SQL["lifecycle.prune"], NOW + 120 * DAY, limit, user, memory)
        assert row is not None
        user, memory, calls, changed = row["p_user"], row["p_memory"], calls + 1, changed + row["changed"]
    assert changed == 20
    assert calls == {1: 21, 3: 7, 1000: 1}[limit]


async def test_two_at_once_share_the_work(database: str, admin: Admin) -> None:
    """Rows that another sweep holds are left to it; nothing is done or told twice."""
    await _crowd(admin, 200)

    async def walk() -> int:
        async with connected(database) as connection:
            row = await connection.fetchrow(SQL["lifecycle.prune"], NOW + 120 * DAY, 1000, UUID(int=0), UUID(int=0))
            assert row is not None
            changed: int = row["changed"]
            return changed

    done = await asyncio.gather(*(walk() for _ in range(4)))
    # One that came too late for a row, and too early to see it changed, leaves it.
    assert sum(done) == 200
    assert await admin.fetchval("SELECT count(*) FROM agent_data.memory_events") == 200


async def test_a_memory_that_somebody_changes_waits_for_the_next_time(
    database: str, admin: Admin, schedule: Schedule
) -> None:
    memory = await put(admin, memory_tier=1, access_count=3, relevance_accumulator=3.0, last_accessed_at=NOW)
    async with connected(database) as other, other.transaction():
        await other.execute("UPDATE agent_data.memory_store SET confidence = 0.6 WHERE memory_id = $1", memory)
        assert await schedule.sweep("promotion") == 0
    assert await schedule.sweep("promotion") == 1


async def test_the_schedule_runs_them_at_their_cadence(schedule: Schedule, clock: FakeClock) -> None:
    assert {"promotion", "demotion", "aging", "decay", "prune"} <= set(await schedule.look())
    clock.move(timedelta(minutes=16))
    assert {"promotion"} == set(await schedule.look()) & {"promotion", "demotion", "aging", "decay", "prune"}
    clock.move(timedelta(hours=6))
    assert {"promotion", "demotion", "aging", "decay", "prune"} <= set(await schedule.look())


# --- as pg_cron calls them --------------------------------------------------------------------------------------------


async def test_a_sweep_by_hand_runs_to_its_end_and_is_noted(admin: Admin) -> None:
    await _crowd(admin, 20)
    await put(admin, memory_tier=1, access_count=3, relevance_accumulator=3.0, last_accessed_at=NOW)
    await admin.execute("SET ROLE mneme_owner")
    late = NOW + 120 * DAY
    for name, changed in (
        ("promotion", 1),
        ("aging", 20),
        ("demotion", 20),
        ("decay", 20),
        ("prune", 20),
        ("expiry", 1),
        ("removal", 0),
    ):
        at = NOW if name == "promotion" else late
        await admin.execute(f"CALL agent_data.sweep('{name}', '{at.isoformat()}', 4)")
        ran = await admin.fetchrow("SELECT last_run, changed FROM agent_data.ticks WHERE name = $1", name)
        assert ran is not None
        assert (ran["last_run"], ran["changed"]) == (at, changed), name


async def test_an_expiry_by_hand_is_of_sessions_too(admin: Admin) -> None:
    """The sweep notes the time as the worker does, so what it left undone would wait for an hour.

    Active, paused and closed sessions expire alike (seed 000 §9.2: status != EXPIRED); one whose time has not come stays.
    """
    user = UUID(int=0x77)
    await admin.execute(
        "INSERT INTO agent_data.sessions (session_id, user_id, tenant_id, expires_at, status)"
        " SELECT gen_random_uuid(), $1, $1, $2::timestamptz - n * interval '1 minute', 1 + abs(n) % 3"
        " FROM generate_series(-2, 8) AS n WHERE n <> 0",
        user, NOW,
    )  # fmt: skip
    await admin.execute("SET ROLE mneme_owner")
    await admin.execute(f"CALL agent_data.sweep('expiry', '{NOW.isoformat()}', 3)")
    states = await admin.fetch("SELECT status, count(*) FROM agent_data.sessions GROUP BY 1 ORDER BY 1")
    assert [tuple(row) for row in states] == [(2, 1), (3, 1), (4, 8)]
    ran = await admin.fetchval("SELECT changed FROM agent_data.ticks WHERE name = 'expiry'")
    assert ran == 8
    with pytest.raises(asyncpg.UndefinedObjectError) as refused:
        await admin.execute("CALL agent_data.sweep('compaction')")
    assert "jobs of a worker" in str(refused.value.hint)


async def test_a_sweep_that_runs_already_is_left_alone(database: str, admin: Admin) -> None:
    async with connected(database) as other:
        await other.execute("SELECT pg_advisory_lock($1, hashtext('prune'))", LOCK_CLASS)
        await _crowd(admin, 1)
        await admin.execute(f"CALL agent_data.sweep('prune', '{(NOW + 120 * DAY).isoformat()}')")
    assert {each.status for each in (await lives(admin)).values()} == {"active"}


async def test_an_unknown_sweep_says_which_there_are(admin: Admin) -> None:
    with pytest.raises(asyncpg.UndefinedObjectError, match="there is no sweep nothing"):
        await admin.execute("CALL agent_data.sweep('nothing')")
    assert (
        await admin.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        == 0
    )


async def test_the_application_may_not_sweep(admin: Admin) -> None:
    await admin.execute("SET ROLE mneme_app")
    for statement in ("SELECT agent_data.promote_memories()", "CALL agent_data.sweep('prune')"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await admin.execute(statement)


async def test_the_lower_tiers_are_found_by_their_index(admin: Admin) -> None:
    for number in range(300):
        await put(admin, user_id=UUID(int=number + 1), memory_tier=3)
    await admin.execute("ANALYZE agent_data.memory_store")
    await admin.execute("SET enable_seqscan = off")
    plan = await admin.fetch(
        "EXPLAIN SELECT FROM agent_data.memory_store m WHERE m.is_active AND m.memory_tier IN (1, 2) AND m.use_level >= 1"
    )
    assert "memory_tier_use_level_idx" in "".join(row[0] for row in plan)


async def test_what_a_tenant_has_is_the_tenants(admin: Admin) -> None:
    """Sweeps are everybody's, and write the tenant of each memory to its history."""
    other = await put(admin, tenant_id=UUID(int=0xB), importance=0.05)
    own = await put(admin, tenant_id=TENANT, importance=0.05, user_id=USER)
    await admin.fetchrow(SQL["lifecycle.prune"], NOW + 40 * DAY, 10, UUID(int=0), UUID(int=0))
    rows = await admin.fetch("SELECT memory_id, tenant_id FROM agent_data.memory_events")
    assert {row["memory_id"]: row["tenant_id"] for row in rows} == {other: UUID(int=0xB), own: TENANT}
