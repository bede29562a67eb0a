from __future__ import annotations

import asyncio
import logging
import os

import pytest

from app import tasks as tasks_module
from app.errors import StoreUnavailable
from app.settings import SUPERVISOR
from app.tasks import FailOpen, Supervisor, until_orphaned
from tests.support.sockets import eventually


async def test_work_runs_beside_and_is_forgotten_when_done() -> None:
    tasks, go = Supervisor(), asyncio.Event()
    ran: list[int] = []

    async def work() -> int:
        await go.wait()
        ran.append(1)
        return 7

    task = tasks.spawn(work(), "the work")
    assert (len(tasks), task.get_name(), ran) == (1, "the work", [])
    go.set()
    assert await task == 7
    await eventually(lambda: not len(tasks))


async def test_a_failure_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Supervisor()

    async def fail() -> None:
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR):
        tasks.spawn(fail(), "doomed")
        await eventually(lambda: not len(tasks))
    (record,) = caplog.records
    assert getattr(record, "task", None) == "doomed"
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ValueError)


async def test_a_cancelled_task_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    tasks = Supervisor()
    task = tasks.spawn(asyncio.Event().wait(), "waiting")
    task.cancel()
    await eventually(lambda: not len(tasks))
    assert caplog.records == []


async def test_closing_waits_for_what_ends_in_time() -> None:
    tasks, go, ended = Supervisor(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        ended.set()

    tasks.spawn(work(), "quick")
    asyncio.get_running_loop().call_soon(go.set)
    await tasks.close(30)
    assert ended.is_set()


async def test_closing_cancels_what_does_not_end_and_waits_for_its_cleanup() -> None:
    tasks, cleaned = Supervisor(), asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    tasks.spawn(stubborn(), "stubborn")
    await asyncio.sleep(0)
    await tasks.close(0)
    assert cleaned.is_set()
    assert not len(tasks)


async def test_closing_with_nothing_to_do() -> None:
    await Supervisor().close(30)


async def test_whoever_waits_may_go_and_the_work_goes_on() -> None:
    tasks, go, ended = Supervisor(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        ended.set()

    async def caller() -> None:
        await asyncio.shield(tasks.spawn(work(), "record"))

    waiting = tasks.spawn(caller(), "caller")
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    go.set()
    await asyncio.wait_for(ended.wait(), 10)
    await eventually(lambda: not len(tasks))


# --- processes whose supervisor is gone -----------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [None, "itself"])
async def test_without_a_supervisor_nobody_is_an_orphan(monkeypatch: pytest.MonkeyPatch, told: str | None) -> None:
    monkeypatch.delenv(SUPERVISOR, raising=False)
    if told is not None:
        monkeypatch.setenv(SUPERVISOR, str(os.getpid()))
    stop = asyncio.Event()
    asyncio.get_running_loop().call_soon(stop.set)
    assert not await until_orphaned(stop)


async def test_a_process_whose_parent_is_another_than_its_supervisor_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # (Not the parent's and one more: that may be this very process.)
    monkeypatch.setenv(SUPERVISOR, str(os.getpid() + os.getppid()))
    assert await until_orphaned(asyncio.Event())


async def test_while_the_supervisor_lives_it_goes_on_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUPERVISOR, str(os.getppid()))
    monkeypatch.setattr(tasks_module, "ORPHAN_LOOK_S", 0.001)
    stop, looks = asyncio.Event(), 0

    def parent() -> int:
        nonlocal looks
        looks += 1
        if looks == 3:
            stop.set()
        return real()

    real = os.getppid
    monkeypatch.setattr(os, "getppid", parent)
    assert not await until_orphaned(stop)
    assert looks == 3


async def test_what_fails_open_is_logged_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    for error in (StoreUnavailable(), TimeoutError(), ValueError("a bug")):
        with FailOpen(tasks_module.log.warning, "left out", call_id="7") as tried:
            raise error
        assert tried.error is error
    told = [(each.getMessage(), each.__dict__["call_id"], each.__dict__["error"]) for each in caplog.records]
    assert told == [("left out", "7", name) for name in ("StoreUnavailable", "TimeoutError", "ValueError")]
    assert [bool(each.exc_info) for each in caplog.records] == [False, False, True]
    with FailOpen(tasks_module.log.warning, "left out") as tried:
        pass
    assert tried.error is None
    with pytest.raises(asyncio.CancelledError), FailOpen(tasks_module.log.warning, "left out"):
        raise asyncio.CancelledError
