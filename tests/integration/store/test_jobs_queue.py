"""app/store/queue.py: pgqueuer's tables in our schema, and what the API may do with the queue."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.errors import Conflict
from app.store.pools import Pool
from app.store.queue import CHANNEL, Counts, Queue, install_queue, prepare_queue, queue_settings
from tests.support.database import connected
from tests.support.jobs import SQL, TENANT, job, put, rows

OTHER = UUID("00000000-0000-0000-0000-00000000000b")


@pytest.fixture
def queue(pool: Pool) -> Queue:
    return Queue(pool, SQL)


async def _kill(admin: asyncpg.Connection[Any], message: str = "it broke") -> int:
    """Make the oldest queued job a dead letter, as a worker does."""
    number: int = await admin.fetchval(
        "UPDATE agent_data.pgqueuer SET status = 'failed', attempts = 5 WHERE id = ("
        "SELECT min(id) FROM agent_data.pgqueuer WHERE status = 'queued') RETURNING id"
    )
    await admin.execute(
        "INSERT INTO agent_data.pgqueuer_log (job_id, status, priority, entrypoint, traceback) "
        "VALUES ($1, 'picked', 0, 'test', NULL), ($1, 'failed', 0, 'test', $2)",
        number, f'{{"exception_message": "{message}"}}',
    )  # fmt: skip
    return number


async def test_install_again_changes_nothing(admin: asyncpg.Connection[Any]) -> None:
    assert await install_queue(admin) is False


async def test_a_server_that_starts_does_not_wait_for_those_who_write_jobs(
    admin: asyncpg.Connection[Any], database: str
) -> None:
    """Whoever came after it would wait behind it: with every turn that is recorded."""
    async with connected(database) as writer, writer.transaction():
        await writer.execute("LOCK TABLE agent_data.pgqueuer IN ROW EXCLUSIVE MODE")
        await admin.execute("SET lock_timeout = '2s'")
        assert await install_queue(admin) is False
    await admin.execute("RESET lock_timeout")


async def test_install_mends_what_an_older_version_left(admin: asyncpg.Connection[Any]) -> None:
    await admin.execute("ALTER TABLE agent_data.pgqueuer DROP COLUMN slot")
    assert await install_queue(admin) is True
    assert await install_queue(admin) is False


async def test_what_this_pgqueuer_has_made_is_not_looked_through_again(
    admin: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pgqueuer.adapters.drivers.asyncpg", None)  # importing it fails
    await prepare_queue(admin, SQL)
    await admin.execute("COMMENT ON TABLE agent_data.pgqueuer IS 'pgqueuer 0.1'")
    with pytest.raises(ImportError):
        await prepare_queue(admin, SQL)
    monkeypatch.undo()
    await prepare_queue(admin, SQL)
    assert await admin.fetchval(SQL["queue.made_by"]) == f"pgqueuer {version('pgqueuer')}"


async def test_everything_is_logged_and_belongs_to_the_owner(admin: asyncpg.Connection[Any]) -> None:
    found = await rows(
        admin,
        "SELECT relname, relpersistence::text AS kept, pg_get_userbyid(relowner) AS owner FROM pg_class "
        "WHERE relnamespace = 'agent_data'::regnamespace AND relname LIKE 'pgqueuer%' AND relkind = 'r'",
    )
    assert {each["relname"] for each in found} == {
        "pgqueuer", "pgqueuer_log", "pgqueuer_statistics", "pgqueuer_schedules",
    }  # fmt: skip
    assert {each["kept"] for each in found} == {"p"}
    assert {each["owner"] for each in found} == {"mneme_owner"}


def test_names_do_not_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGQUEUER_CHANNEL", "CHANNEL", "PGQUEUER_QUEUE_TABLE", "PGQUEUER_SCHEMA", "PGQUEUER_PREFIX"):
        monkeypatch.setenv(name, "other")
    monkeypatch.setenv("PGQUEUER_DURABILITY", "volatile")
    names = queue_settings()
    assert (names.channel, names.qualified.queue_table) == (CHANNEL, "agent_data.pgqueuer")
    assert names.durability.config.queue_log_table == ""


async def test_a_job_comes_with_its_transaction_and_goes_with_it(pool: Pool, queue: Queue) -> None:
    class Undone(Exception):
        pass

    async def undo() -> None:
        async with pool.transaction(TENANT) as connection:
            await queue.enqueue(connection, [job()])
            raise Undone

    with pytest.raises(Undone):
        await undo()
    assert await queue.counts() == Counts(0, 0, 0)
    await put(pool, job(), job("b"))
    assert await queue.counts() == Counts(2, 0, 0)


async def test_a_job_that_waits_stands_for_its_double(pool: Pool, queue: Queue) -> None:
    await put(pool, job(key="one"), job("b", key="two"))
    await put(pool, job("c", key="one"))
    assert (await queue.counts()).queued == 2


async def test_what_is_scheduled_for_later_is_not_work_now(pool: Pool, queue: Queue) -> None:
    await put(pool, job(delay_s=3600.0))
    assert await queue.counts() == Counts(0, 0, 0)


async def test_a_retry_that_waits_is_still_work(pool: Pool, queue: Queue, admin: asyncpg.Connection[Any]) -> None:
    await put(pool, job(delay_s=3600.0))
    await admin.execute("UPDATE agent_data.pgqueuer SET attempts = 1")
    assert await queue.counts() == Counts(1, 0, 0)


async def test_enqueue_notifies(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    heard: list[object] = []
    await admin.add_listener(CHANNEL, lambda *arguments: heard.append(arguments[3]))
    await put(pool, job())
    await admin.execute("SELECT 1")  # notifications come with the answer to a statement
    assert len(heard) == 1
    assert '"operation" : "insert"' in str(heard[0])


async def test_dead_letters_by_pages_newest_first(pool: Pool, queue: Queue, admin: asyncpg.Connection[Any]) -> None:
    for name in ("a", "b", "c"):
        await put(pool, job(name))
        await _kill(admin, f"{name} broke")
    first, cursor = await queue.dead_letters(limit=2)
    assert [(each.payload["name"], each.error, each.attempts) for each in first] == [
        ("c", "c broke", 5), ("b", "b broke", 5),
    ]  # fmt: skip
    rest, end = await queue.dead_letters(limit=2, cursor=cursor)
    assert [each.payload["name"] for each in rest] == ["a"]
    assert end is None


async def test_retry_gives_all_tries_again(pool: Pool, queue: Queue, admin: asyncpg.Connection[Any]) -> None:
    await put(pool, job())
    number = await _kill(admin)
    assert await queue.retry(number)
    assert not await queue.retry(number)
    (row,) = await rows(admin, "SELECT status::text, attempts, queue_manager_id FROM agent_data.pgqueuer")
    assert row == {"status": "queued", "attempts": 0, "queue_manager_id": None}


async def test_retry_beside_the_same_work_is_a_conflict(
    pool: Pool, queue: Queue, admin: asyncpg.Connection[Any]
) -> None:
    await put(pool, job(key="one"))
    number = await _kill(admin)
    await put(pool, job(key="one"))
    with pytest.raises(Conflict):
        await queue.retry(number)


async def test_a_job_that_is_not_dead_is_not_retried(pool: Pool, queue: Queue, admin: asyncpg.Connection[Any]) -> None:
    await put(pool, job())
    number = await admin.fetchval("SELECT id FROM agent_data.pgqueuer")
    assert not await queue.retry(number)
    assert (await queue.counts()).queued == 1


async def test_a_tenant_sees_only_its_own(pool: Pool, queue: Queue, admin: asyncpg.Connection[Any]) -> None:
    await put(pool, job())
    number = await _kill(admin)
    await put(pool, job("b"))
    assert await queue.counts(TENANT) == Counts(1, 0, 1)
    assert await queue.counts(OTHER) == Counts(0, 0, 0)
    assert await queue.dead_letters(tenant=OTHER) == ([], None)
    assert not await queue.retry(number, OTHER)
    assert await queue.retry(number, TENANT)
