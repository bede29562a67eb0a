"""The writing of a turn is rehearsed on each connection, and leaves nothing behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from app.clock import SystemClock
from app.providers.tokens import CountCache
from app.server.rehearsal import RollbackStore, rehearse_recording
from app.store.pools import NoPool, Pool
from app.store.queries import Queries
from app.store.records import TurnRecord
from tests.support.wired_api import HashEmbedder, WordCounter

TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'agent_data'::regnamespace AND (relkind = 'p' OR relname = 'pgqueuer')"""
"""All that a turn writes: partitioned tables, and the queue."""


def build_core(pool: Pool) -> Any:
    return SimpleNamespace(
        pools=SimpleNamespace(write=pool), queries=Queries.load(), embedder=HashEmbedder(), counts=CountCache(),
        counter=WordCounter(), clock=SystemClock(),
    )  # fmt: skip


async def count_rows(admin: asyncpg.Connection[Any]) -> dict[str, int]:
    tables = [row["relname"] for row in await admin.fetch(TABLES)]
    return {table: await admin.fetchval(f'SELECT count(*) FROM agent_data."{table}"') for table in tables}


async def test_a_rehearsed_turn_is_written_and_rolled_back(
    pool: Pool, admin: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    results: list[bool] = []
    notifications: list[str] = []
    record_many = RollbackStore.record_many

    async def note_result(self: RollbackStore, turns: list[TurnRecord]) -> bool:
        results.append(await record_many(self, turns))
        return results[-1]

    monkeypatch.setattr(RollbackStore, "record_many", note_result)
    await admin.add_listener("ch_pgqueuer", lambda *arguments: notifications.append(str(arguments)))
    before = await count_rows(admin)
    await rehearse_recording(build_core(pool))
    assert results == [True] * 4, "as a turn that was not there before"
    assert await count_rows(admin) == before
    assert notifications == []
    locks = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE a.state LIKE 'idle in%'"
    assert await admin.fetchval(locks) == 0


async def test_a_database_that_is_away_ends_the_rehearsal_alone(caplog: pytest.LogCaptureFixture) -> None:
    await rehearse_recording(build_core(NoPool()))
    (record,) = caplog.records
    assert "written more slowly" in record.message
