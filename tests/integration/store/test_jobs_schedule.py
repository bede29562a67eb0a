"""app/jobs/schedule.py on a real Postgres: as mneme_owner, for every tenant, once among several workers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import pytest

from app.errors import NotFound
from app.index.indexes import MOST_ITEMS
from app.jobs.schedule import GRAPH_FROM, LOCK_CLASS, Schedule
from app.jobs.worker import connector
from app.store.pools import Pool, halfvec
from tests.support.clock import FakeClock
from tests.support.jobs import SQL, rows, until, working

NOW = datetime(2031, 3, 15, 12, tzinfo=UTC)
TENANTS = (UUID(int=0xA), UUID(int=0xB))
USER = UUID(int=7)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def schedule(database: str, clock: FakeClock) -> Schedule:
    return Schedule(connector(database, role="mneme_owner", name="mneme schedule"), SQL, clock)


async def _memory(admin: asyncpg.Connection[Any], tenant: UUID, number: int, expires: datetime | None) -> None:
    await admin.execute(
        "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text, "
        "content_hash, provenance_type, token_count, expires_at) VALUES ($1, $2, $3, 1, 0, 'x', $4, 0, 1, $5)",
        UUID(int=number), USER, tenant, number.to_bytes(4, "big"), expires,
    )  # fmt: skip


async def _session(admin: asyncpg.Connection[Any], tenant: UUID, number: int, expires: datetime) -> None:
    await admin.execute(
        "INSERT INTO agent_data.sessions (session_id, user_id, tenant_id, expires_at) VALUES ($1, $2, $3, $4)",
        UUID(int=number), USER, tenant, expires,
    )  # fmt: skip


async def _partitions(admin: asyncpg.Connection[Any]) -> set[str]:
    found = await admin.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'agent_data'::regnamespace AND relname ~ '_2031\\d\\d$'"
        " AND relkind IN ('r', 'p')"
    )
    return {row["relname"] for row in found}


async def test_partitions_stand_ready_two_months_ahead(schedule: Schedule, admin: asyncpg.Connection[Any]) -> None:
    assert await schedule.sweep("partitions") > 0
    names = await _partitions(admin)
    months = {"203103", "203104", "203105"}
    for parent in ("conversation_history_p0", "conversation_history_p1", "upstream_calls", "streams", "compilations"):
        assert {name for name in names if name.startswith(parent)} == {f"{parent}_{month}" for month in months}
    assert await schedule.sweep("partitions") == 0


async def test_partitions_over_the_turn_of_the_year(
    schedule: Schedule, clock: FakeClock, admin: asyncpg.Connection[Any]
) -> None:
    clock.move(datetime(2031, 12, 31, tzinfo=UTC) - NOW)
    await schedule.sweep("partitions")
    assert await admin.fetchval("SELECT to_regclass('agent_data.streams_203202') IS NOT NULL")


async def test_a_new_partition_shows_the_app_nothing_by_its_own_name(
    schedule: Schedule, admin: asyncpg.Connection[Any]
) -> None:
    await schedule.sweep("partitions")
    held = await rows(
        admin,
        "SELECT relrowsecurity AND relforcerowsecurity AS held, pg_get_userbyid(relowner) AS owner FROM pg_class "
        "WHERE relname ~ '_203104$' AND relkind = 'r'",
    )
    assert held
    assert all(each == {"held": True, "owner": "mneme_owner"} for each in held)


async def test_a_month_whose_rows_came_before_its_partition_stays_in_the_default_one(
    schedule: Schedule, admin: asyncpg.Connection[Any]
) -> None:
    await admin.execute(
        "INSERT INTO agent_data.conversation_history (message_id, session_id, user_id, tenant_id, turn_index, role, "
        "content, token_count, created_at) VALUES ($1, $1, $2, $3, 1, 1, 'early', 1, '2031-04-10')",
        UUID(int=1), USER, TENANTS[0],
    )  # fmt: skip
    await schedule.sweep("partitions")
    names = await _partitions(admin)
    assert len([name for name in names if name.startswith("conversation_history") and name.endswith("203104")]) == 1
    assert await schedule.sweep("partitions") == 0


async def test_what_is_over_expires_for_every_tenant(schedule: Schedule, admin: asyncpg.Connection[Any]) -> None:
    for n, tenant in enumerate(TENANTS):
        await _memory(admin, tenant, 10 + n, NOW - timedelta(seconds=1))
        await _memory(admin, tenant, 20 + n, NOW + timedelta(seconds=1))
        await _memory(admin, tenant, 30 + n, None)
        await _session(admin, tenant, 40 + n, NOW - timedelta(seconds=1))
        await _session(admin, tenant, 50 + n, NOW + timedelta(seconds=1))
    assert await schedule.sweep("expiry") == 4
    expired = await rows(admin, "SELECT memory_id, updated_at FROM agent_data.memory_store WHERE status = 'expired'")
    assert {(row["memory_id"].int, row["updated_at"]) for row in expired} == {(10, NOW), (11, NOW)}
    assert await admin.fetchval("SELECT count(*) FROM agent_data.memory_store WHERE is_active") == 4
    assert await admin.fetchval("SELECT array_agg(session_id::text) FROM agent_data.sessions WHERE status = 4") == [
        str(UUID(int=40)), str(UUID(int=41)),
    ]  # fmt: skip
    told = await rows(admin, "SELECT memory_id, event, actor FROM agent_data.memory_events")
    assert {(row["memory_id"].int, row["event"], row["actor"]) for row in told} == {
        (10, "expired", "system"), (11, "expired", "system"),
    }  # fmt: skip
    assert await schedule.sweep("expiry") == 0


async def test_more_than_a_batch_expires(
    schedule: Schedule, admin: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.schedule.BATCH", 2)
    for n in range(5):
        await _memory(admin, TENANTS[0], 10 + n, NOW - timedelta(hours=1))
    assert await schedule.sweep("expiry") == 5


async def _vectors(pool: Pool, numbers: range) -> None:
    async with pool.transaction(TENANTS[0]) as connection:
        await connection.execute(
            SQL["learning.add_vectors"], TENANTS[0], USER, 1, 0, [UUID(int=n) for n in numbers], [NOW] * len(numbers),
            [halfvec(np.eye(8, dtype=np.float32)[n % 8]) for n in numbers],
        )  # fmt: skip


async def _stats(admin: asyncpg.Connection[Any]) -> tuple[bool | None, int]:
    graph = await admin.fetchval("SELECT use_hnsw FROM agent_data.users WHERE user_id = $1", USER)
    inside = await admin.fetchval("SELECT count(*) FROM agent_data.embeddings WHERE in_hnsw")
    return graph, inside


async def test_who_has_too_many_vectors_goes_over_to_the_graph(
    database: str, clock: FakeClock, pool: Pool, admin: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.schedule.BATCH", 4)
    connect = connector(database, role="mneme_owner", name="mneme schedule")
    schedule = Schedule(connect, SQL, clock, graph_from=10)
    await admin.execute(
        "INSERT INTO agent_data.users (user_id, tenant_id, external_id) VALUES ($1, $2, 'ana')", USER, TENANTS[0]
    )
    await admin.execute("SELECT agent_data.ensure_embedding_space('test', 8)")
    await _vectors(pool, range(10))
    assert await schedule.sweep("vectors") == 0
    assert await _stats(admin) == (False, 0)
    await _vectors(pool, range(10, 11))
    assert await schedule.sweep("vectors") == 11
    assert await _stats(admin) == (True, 11)
    await _vectors(pool, range(11, 13))
    assert await _stats(admin) == (True, 13)  # new ones enter at once
    await admin.execute("UPDATE agent_data.embeddings SET in_hnsw = false WHERE item_id = $1", UUID(int=3))
    assert await schedule.sweep("vectors") == 1  # one that a turn added while the user went over


def test_the_graph_begins_at_half_of_what_a_server_keeps() -> None:
    assert GRAPH_FROM == MOST_ITEMS // 2


async def test_old_effects_and_logs_are_purged(schedule: Schedule, admin: asyncpg.Connection[Any]) -> None:
    for name, age in (("old", timedelta(days=8)), ("new", timedelta(days=6))):
        await admin.execute(
            "INSERT INTO agent_data.job_effects (user_id, tenant_id, job_key, at) VALUES ($1, $2, $3, $4)",
            USER, TENANTS[0], name, NOW - age,
        )  # fmt: skip
    dead = await admin.fetchval(
        "INSERT INTO agent_data.pgqueuer (priority, status, entrypoint) VALUES (0, 'failed', 'x') RETURNING id"
    )
    for number, days in ((dead, 3), (dead + 1, 3), (dead + 2, 0)):
        await admin.execute(
            "INSERT INTO agent_data.pgqueuer_log (job_id, status, priority, entrypoint, created) "
            "VALUES ($1, 'failed', 0, 'x', $2)",
            number, NOW - timedelta(days=days),
        )  # fmt: skip
    assert await schedule.sweep("purge") == 2
    assert await admin.fetchval("SELECT array_agg(job_key) FROM agent_data.job_effects") == ["new"]
    assert set(await admin.fetchval("SELECT array_agg(job_id) FROM agent_data.pgqueuer_log")) == {dead, dead + 2}


async def test_what_calls_cost_is_added_up_and_budgets_learn_of_it(
    schedule: Schedule, admin: asyncpg.Connection[Any], clock: FakeClock
) -> None:
    """But for a call that is still to be settled: until its reservation runs out."""
    key, tenant = UUID(int=0xE1), UUID(int=1)
    flying, ended = UUID(int=0xF1), UUID(int=0xF2)
    await admin.execute(
        "INSERT INTO agent_data.key_usage (key_id, tenant_id, money_since) VALUES ($1, $2, '-infinity')", key, tenant
    )
    await admin.execute(
        "INSERT INTO agent_data.key_reservations VALUES ($1, $2, $3, $4, $5, 0, 0, 0, 5)",
        key, flying, tenant, clock.now(), clock.now() + timedelta(hours=1),
    )  # fmt: skip
    for call in (flying, ended):
        await admin.execute(
            "INSERT INTO agent_data.spend_entries VALUES ($1, $2, $3, $4, $2, 'm', $5, 1, 1, 0, 0, 7)",
            call, UUID(int=0), tenant, key, clock.now().date(),
        )  # fmt: skip
    assert await schedule.sweep("spend") == 1
    assert await schedule.sweep("spend") == 0
    assert await schedule.sweep("budgets") == 1
    assert await admin.fetchval("SELECT money_spent FROM agent_data.key_usage") == 7
    clock.move(timedelta(hours=2))
    assert await schedule.sweep("budgets") == 1
    assert await admin.fetchval("SELECT money_spent FROM agent_data.key_usage") == 14
    assert await schedule.sweep("spend") == 1
    assert await admin.fetchval("SELECT calls FROM agent_data.spend") == 2
    assert await schedule.sweep("budgets") == 1
    assert await admin.fetchval("SELECT money_spent FROM agent_data.key_usage") == 14


async def test_a_task_runs_when_it_is_due(schedule: Schedule, clock: FakeClock) -> None:
    assert set(await schedule.look()) == {
        "partitions",
        "expiry",
        "vectors",
        "purge",
        "spend",
        "budgets",
    }
    assert await schedule.look() == {}
    clock.move(timedelta(minutes=16))
    assert set(await schedule.look()) == {"vectors", "spend"}
    clock.move(timedelta(hours=1))
    assert set(await schedule.look()) == {"expiry", "vectors", "spend", "budgets"}


async def test_of_two_workers_one_runs_a_task(schedule: Schedule, admin: asyncpg.Connection[Any]) -> None:
    await admin.execute("SELECT pg_advisory_lock($1, hashtext('expiry'))", LOCK_CLASS)
    assert "expiry" not in await schedule.look()
    await admin.execute("SELECT pg_advisory_unlock($1, hashtext('expiry'))", LOCK_CLASS)
    assert set(await schedule.look()) == {"expiry"}


async def test_a_task_that_fails_does_not_stop_the_others_and_is_tried_again(
    schedule: Schedule, admin: asyncpg.Connection[Any]
) -> None:
    await admin.execute("ALTER TABLE agent_data.sessions RENAME COLUMN expires_at TO was")
    assert set(await schedule.look()) == {"partitions", "vectors", "purge", "spend", "budgets"}
    await admin.execute("ALTER TABLE agent_data.sessions RENAME COLUMN was TO expires_at")
    assert set(await schedule.look()) == {"expiry"}


async def test_an_unknown_sweep(schedule: Schedule) -> None:
    with pytest.raises(NotFound, match="partitions, expiry"):
        await schedule.sweep("nothing")


async def test_a_login_that_may_not_become_the_owner_is_told_so(
    database: str, clock: FakeClock, admin: asyncpg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    await admin.execute("DROP ROLE IF EXISTS plain_login")
    await admin.execute("CREATE ROLE plain_login LOGIN PASSWORD 'plain'")
    try:
        connect = connector(_as("plain_login", "plain", database), role="mneme_owner", name="mneme schedule")
        assert await Schedule(connect, SQL, clock).look() == {}
        assert "cannot connect as mneme_owner" in caplog.text
    finally:
        await admin.execute("DROP ROLE plain_login")


def _as(login: str, password: str, dsn: str) -> str:
    scheme, _, rest = dsn.partition("://")
    return f"{scheme}://{login}:{password}@{rest.partition('@')[2]}"


async def test_the_worker_runs_what_is_due_at_its_start(
    database: str, schedule: Schedule, admin: asyncpg.Connection[Any]
) -> None:
    async def ran() -> bool:
        return bool(await admin.fetchval("SELECT count(*) = 6 FROM agent_data.ticks"))

    async with working(database, {}, schedule=schedule):
        await until(ran)


async def test_it_ends_when_it_is_told_to(schedule: Schedule) -> None:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(schedule.run(stop))
        stop.set()
