"""app/jobs/worker.py on a real Postgres: every job is done, whatever happens to whom."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest

from app.errors import BadBody, HelperError
from app.jobs.worker import connector
from app.store.pools import Pool
from app.store.queue import Counts, Queue
from tests.support.jobs import SQL, job, payload, put, until, working
from tests.support.rows import abandon_jobs, read_jobs

NEVER_S = 3600.0
"""A poll that does not come within a test: what happens then, happens because a notification was heard."""

SHORT_LEASE_S = 2.0
"""A quarter of it is the longest statement: the first of a new connection takes a tenth of a second, on a busy machine more."""


class Doer:
    """A handler that notes what it was given, and does what it is told to."""

    def __init__(self, *errors: Exception) -> None:
        self.begun: list[str] = []
        self.done: list[str] = []
        self.free = asyncio.Event()
        self.free.set()
        self.at_once = 0
        self.most = 0
        self._errors = list(errors)

    async def __call__(self, body: bytes) -> None:
        name = orjson.loads(body)["name"]
        self.begun.append(name)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.free.wait()
        finally:
            self.at_once -= 1
        if self._errors:
            raise self._errors.pop(0)
        self.done.append(name)


class Gate:
    """Opens connections, remembers them, and can be shut: then Postgres is away for this worker."""

    def __init__(self, dsn: str) -> None:
        self._connect = connector(dsn, role="mneme_app", name="mneme worker")
        self.opened: list[asyncpg.Connection[Any]] = []
        self.asked: list[str] = []
        self.shut = False
        self.refused = 0

    async def __call__(self) -> asyncpg.Connection[Any]:
        if self.shut:
            self.refused += 1
            raise ConnectionRefusedError
        connection = await self._connect()
        connection.add_query_logger(lambda told: self.asked.append(told.query))
        self.opened.append(connection)
        return connection

    def cut(self) -> None:
        for connection in self.opened:
            connection.terminate()
        self.opened.clear()


@pytest.fixture
def queue(pool: Pool) -> Queue:
    return Queue(pool, SQL)


@pytest.fixture
async def gate(database: str) -> AsyncIterator[Gate]:
    gate = Gate(database)
    yield gate
    gate.cut()


async def _empty(queue: Queue) -> bool:
    return await queue.counts() == Counts(0, 0, 0)


async def _listening(gate: Gate) -> bool:
    """Statements and LISTEN each have a connection: the worker has begun in full."""
    return len(gate.opened) == 2 and any(each.get_settings() and each._listeners for each in gate.opened)  # type: ignore[attr-defined]  # asyncpg shows its listeners nowhere else


async def test_a_job_is_heard_done_and_gone(database: str, pool: Pool, queue: Queue, gate: Gate) -> None:
    do = Doer()
    async with working(database, {"test": do}, connect=gate, poll_s=NEVER_S):
        await until(lambda: _listening(gate))
        await put(pool, job("a"), job("b"))
        await until(lambda: _empty(queue))
    assert sorted(do.done) == ["a", "b"]


async def test_what_was_queued_before_the_worker_came_is_done(database: str, pool: Pool, queue: Queue) -> None:
    do = Doer()
    await put(pool, *(job(str(n)) for n in range(30)))
    async with working(database, {"test": do}):
        await until(lambda: _empty(queue))
    assert sorted(do.done, key=int) == [str(n) for n in range(30)]


async def test_no_more_at_once_than_allowed(database: str, pool: Pool, queue: Queue) -> None:
    do = Doer()
    do.free.clear()
    await put(pool, *(job(str(n)) for n in range(12)))
    async with working(database, {"test": do}, concurrency=4):
        await until(lambda: do.at_once == 4)
        do.free.set()
        await until(lambda: _empty(queue))
    assert do.most == 4
    assert len(do.done) == 12


async def test_others_jobs_are_left_alone(database: str, pool: Pool, queue: Queue) -> None:
    do = Doer()
    await put(pool, job("mine"), job("theirs", entrypoint="other"))
    async with working(database, {"test": do}):
        await until(lambda: do.done == ["mine"])
    assert (await queue.counts()).queued == 1


async def test_a_failed_job_is_tried_again(database: str, pool: Pool, queue: Queue) -> None:
    do = Doer(HelperError("the helper LLM gave no answer"), OSError("reset"))
    await put(pool, job())
    async with working(database, {"test": do}):
        await until(lambda: do.done == ["a"])
        await until(lambda: _empty(queue))
    assert do.begun == ["a", "a", "a"]


async def test_after_its_last_try_it_is_held_until_someone_retries_it(
    database: str, pool: Pool, queue: Queue, gate: Gate
) -> None:
    do = Doer(*(HelperError("the helper LLM answered status 500: what the user said") for _ in range(3)))
    await put(pool, job())
    async with working(database, {"test": do}, attempts=3):
        await until(lambda: _dead(queue))
        assert do.begun == ["a", "a", "a"]
        ((letter,), _) = await queue.dead_letters()
        assert letter.error == "HelperError: the helper LLM answered status 500"
        assert (letter.attempts, letter.payload["name"]) == (3, "a")
        assert await queue.retry(letter.id)
        await until(lambda: _empty(queue))
    assert do.done == ["a"]


async def _dead(queue: Queue) -> bool:
    return await queue.counts() == Counts(0, 0, 1)


async def test_what_no_further_try_can_help_is_held_at_once(database: str, pool: Pool, queue: Queue) -> None:
    do = Doer(BadBody("This job's payload cannot be read."))
    await put(pool, job())
    async with working(database, {"test": do}):
        await until(lambda: _dead(queue))
    assert do.begun == ["a"]


async def test_neither_logs_nor_dead_letters_quote_anybody(
    database: str, pool: Pool, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    do = Doer(ValueError("my password is hunter2"), ValueError("my password is hunter2"))
    await put(pool, job("canary-name"))
    async with working(database, {"test": do}, attempts=2):
        await until(lambda: _dead(queue))
    ((letter,), _) = await queue.dead_letters()
    assert letter.error == "ValueError"
    told = [record for record in caplog.records if record.name.startswith("app.jobs")]
    assert {record.job_id for record in told if hasattr(record, "job_id")} == {letter.id}
    assert [record.getMessage() for record in told if record.levelno == logging.ERROR]
    everything = caplog.text + repr([vars(record) for record in caplog.records])
    assert "hunter2" not in everything
    assert "canary-name" not in everything


async def test_a_deaf_listener_delays_to_one_poll(database: str, pool: Pool, queue: Queue, gate: Gate) -> None:
    do = Doer()
    async with working(database, {"test": do}, connect=gate, probe_s=NEVER_S):
        await until(lambda: _listening(gate))
        await _deafen(gate)
        await put(pool, job())
        await until(lambda: _empty(queue))
        assert len(gate.opened) == 2
    assert do.done == ["a"]


async def test_a_deaf_listener_is_found_and_replaced(database: str, pool: Pool, queue: Queue, gate: Gate) -> None:
    do = Doer()
    async with working(database, {"test": do}, connect=gate, poll_s=NEVER_S, probe_s=0.05, lease_s=2.0):
        await until(lambda: _listening(gate))
        await _deafen(gate)
        await until(lambda: len(gate.opened) == 3 and bool(gate.opened[2]._listeners))  # type: ignore[attr-defined]  # as above
        await put(pool, job())
        await until(lambda: _empty(queue))
    assert do.done == ["a"]


async def _deafen(gate: Gate) -> None:
    """What a pooler does: UNLISTEN, and nobody is told."""
    listener = next(each for each in gate.opened if each._listeners)  # type: ignore[attr-defined]  # as above

    async def unlisten() -> bool:
        try:
            await listener.execute("UNLISTEN *")
        except asyncpg.InterfaceError:  # it is being probed at this very moment
            return False
        return True

    await until(unlisten)


async def test_a_lost_listener_comes_back(
    database: str, pool: Pool, queue: Queue, gate: Gate, admin: asyncpg.Connection[Any]
) -> None:
    do = Doer()
    async with working(database, {"test": do}, connect=gate, poll_s=NEVER_S):
        await until(lambda: _listening(gate))
        listener = next(each for each in gate.opened if each._listeners)  # type: ignore[attr-defined]  # as above
        await admin.execute("SELECT pg_terminate_backend($1)", listener.get_server_pid())
        await until(lambda: len(gate.opened) == 3 and bool(gate.opened[2]._listeners))  # type: ignore[attr-defined]  # as above
        await put(pool, job())
        await until(lambda: _empty(queue))
    assert do.done == ["a"]


async def test_it_outlives_postgres_being_away(database: str, pool: Pool, queue: Queue, gate: Gate) -> None:
    do = Doer()
    async with working(database, {"test": do}, connect=gate) as worker:
        await until(lambda: _listening(gate))
        gate.shut = True
        gate.cut()
        await until(lambda: gate.refused >= 3)
        await put(pool, job())
        assert not worker.done()
        gate.shut = False
        await until(lambda: _empty(queue))
    assert do.done == ["a"]


async def test_it_waits_for_a_database_that_is_not_there_yet(
    database: str, pool: Pool, queue: Queue, gate: Gate
) -> None:
    do = Doer()
    gate.shut = True
    await put(pool, job())
    async with working(database, {"test": do}, connect=gate):
        await until(lambda: gate.refused >= 2)
        gate.shut = False
        await until(lambda: _empty(queue))
    assert do.done == ["a"]


async def test_a_job_that_fails_with_postgres_is_not_given_up(
    database: str, pool: Pool, queue: Queue, gate: Gate
) -> None:
    """Its failure cannot even be written down: it must not end as a dead letter for that."""
    do = Doer(ConnectionResetError(), ConnectionResetError())
    do.free.clear()
    await put(pool, job())
    # On a busy machine so short a lease may run out once more before the job is begun: each time is a try.
    async with working(database, {"test": do}, connect=gate, lease_s=SHORT_LEASE_S, attempts=5):
        await until(lambda: do.begun == ["a"])
        gate.shut = True
        gate.cut()
        do.free.set()
        await until(lambda: do.at_once == 0 and gate.refused >= 3)
        do._errors.clear()
        gate.shut = False
        await until(lambda: _empty(queue))
    assert do.done == ["a"]


async def test_a_killed_workers_job_is_done_by_another(database: str, pool: Pool, queue: Queue) -> None:
    await put(pool, job())
    script = Path(__file__).parents[2] / "support" / "stuck_worker.py"
    process = subprocess.Popen(  # noqa: ASYNC220 - the test reads one line of it
        [sys.executable, str(script), database], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    try:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"begun\n"
        assert await queue.counts() == Counts(0, 1, 0)
    finally:
        process.kill()
        process.communicate()
    do = Doer()
    async with working(database, {"test": do}, lease_s=SHORT_LEASE_S):
        await until(lambda: _empty(queue))
    assert do.done == ["a"]


async def test_a_worker_that_lost_its_lease_ends_nobody_elses_job(
    database: str, pool: Pool, queue: Queue, gate: Gate, admin: asyncpg.Connection[Any]
) -> None:
    frozen, other = Doer(), Doer()
    frozen.free.clear()
    other.free.clear()
    await put(pool, job())
    async with working(database, {"test": frozen}, connect=gate, lease_s=SHORT_LEASE_S):
        await until(lambda: frozen.begun == ["a"])
        gate.shut = True
        gate.cut()
        async with working(database, {"test": other}, lease_s=SHORT_LEASE_S):
            await until(lambda: other.begun == ["a"])
            ((holder),) = [job["queue_manager_id"] for job in await read_jobs(admin)]
            gate.shut = False
            frozen.free.set()
            await until(lambda: frozen.done == ["a"])
            await until(lambda: SQL["queue.finish"] in gate.asked)
            (held,) = await read_jobs(admin, payload=payload("a"))
            assert (held["status"], held["queue_manager_id"]) == ("picked", holder)
            other.free.set()
            await until(lambda: _empty(queue))
    assert "a" in other.done


async def test_stopping_lets_running_jobs_end(database: str, pool: Pool, queue: Queue) -> None:
    do = Doer()
    do.free.clear()
    await put(pool, job())
    async with asyncio.TaskGroup() as group, working(database, {"test": do}):
        await until(lambda: do.begun == ["a"])
        group.create_task(_free_when_stopping(do))
    assert do.done == ["a"]
    assert await queue.counts() == Counts(0, 0, 0)


async def _free_when_stopping(do: Doer) -> None:
    for _ in range(5):  # the worker is asked to stop in these turns of the loop
        await asyncio.sleep(0)
    do.free.set()


async def test_what_outlasts_the_grace_goes_back_untried(
    database: str, pool: Pool, queue: Queue, admin: asyncpg.Connection[Any]
) -> None:
    do = Doer()
    do.free.clear()
    await put(pool, job())
    async with working(database, {"test": do}, grace_s=0.01):
        await until(lambda: do.begun == ["a"])
    (row,) = await read_jobs(admin)
    assert (row["status"], row["attempts"], row["queue_manager_id"]) == ("queued", 0, None)
    do.free.set()
    async with working(database, {"test": do}):
        await until(lambda: _empty(queue))
    assert do.done == ["a"]


async def test_a_job_that_ends_its_worker_is_held_at_its_last_try(
    database: str, pool: Pool, queue: Queue, admin: asyncpg.Connection[Any]
) -> None:
    """The process of its worker ended each time, as of one that ran out of memory; the error tells the operator so."""
    await put(pool, job("poison"))
    for tries in range(1, 4):
        await abandon_jobs(admin)
        async with working(database, {}, attempts=3, lease_s=1.0):
            await until(lambda tries=tries: has_tries(admin, tries), f"{tries} tries")  # type: ignore[misc]
    (letter,), _ = await queue.dead_letters()
    assert (letter.attempts, letter.error) == (3, "its worker ended or stood still")
    assert await queue.retry(letter.id)


async def has_tries(admin: asyncpg.Connection[Any], tries: int) -> bool:
    return [row["attempts"] for row in await read_jobs(admin)] == [tries]
