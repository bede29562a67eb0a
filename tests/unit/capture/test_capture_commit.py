"""Group commit without a database: who is written with whom, who waits, and who hears of what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast
from uuid import UUID

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from app.capture import commit as module
from app.capture.commit import GroupCommit
from app.errors import StoreUnavailable
from app.metrics import Exposition, Metrics
from app.store.records import CallRecord, SessionRecord, StreamRecord, TurnRecord
from app.store.turns import TurnStore
from app.tasks import Supervisor


def turn(
    n: int, *, session: int | None = None, key: bytes | None = None, body: bytes = b"", user: int = 1
) -> TurnRecord:
    of_call = dict.fromkeys(CallRecord._fields)
    call = CallRecord(**of_call | {"call_id": UUID(int=n), "user_id": UUID(int=user), "repeat_key": key})  # type: ignore[arg-type]  # of a call nothing else is looked at
    of_session = dict.fromkeys(SessionRecord._fields) | {"session_id": UUID(int=session or 0)}
    return TurnRecord(
        call,
        stream=StreamRecord(body, False, [], [], [], []),
        session=SessionRecord(**of_session) if session is not None else None,  # type: ignore[arg-type]  # as above
    )


class Gate:
    """A store that waits at its gate, and does what `answer` says for the ids of a batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.open = asyncio.Event()
        self.answer: Callable[[list[int]], bool] = lambda ids: True
        self.at_once = self.most_at_once = 0
        self.asked = asyncio.Condition()

    async def record_many(self, turns: Sequence[TurnRecord]) -> bool:
        ids = [each.call.call_id.int for each in turns]
        self.batches.append(ids)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        async with self.asked:
            self.asked.notify_all()
        try:
            await self.open.wait()
            return self.answer(ids)
        finally:
            self.at_once -= 1

    async def called(self, times: int) -> None:
        async with self.asked, asyncio.timeout(5):
            await self.asked.wait_for(lambda: len(self.batches) >= times)


@pytest.fixture
def store() -> Gate:
    return Gate()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def tasks() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    await supervisor.close(0)


@pytest.fixture
def make(store: Gate, registry: CollectorRegistry, tasks: Supervisor) -> Callable[..., GroupCommit]:
    def made(**given: Any) -> GroupCommit:
        metrics = Metrics(registry)
        return GroupCommit(
            cast("TurnStore", store), tasks, metrics, **{"turns": 4, "queue": 64, "timeout_s": 30.0} | given
        )

    return made


async def send(commit: GroupCommit, *turns: TurnRecord) -> list[asyncio.Task[bool]]:
    """Each from a task of its own; returns when all have asked."""
    callers = Supervisor()
    group = [callers.spawn(commit.record(each), "caller") for each in turns]
    for _ in range(3):
        await asyncio.sleep(0)
    return group


async def outcomes(sent: Sequence[asyncio.Task[bool]]) -> list[Any]:
    async with asyncio.timeout(5):
        return await asyncio.gather(*sent, return_exceptions=True)


# --- gathering ------------------------------------------------------------------------------------------------------------


async def test_a_lone_turn_goes_at_once_and_the_next_gather_meanwhile(
    make: Callable[..., GroupCommit], store: Gate, registry: CollectorRegistry
) -> None:
    commit = make()
    sent = await send(commit, turn(1))
    await store.called(1)
    sent += await send(commit, *(turn(n) for n in range(2, 8)))
    assert store.batches == [[1]]
    assert "mneme_commit_queue 6.0" in Exposition(registry).render(None)[0].decode()
    store.open.set()
    assert await outcomes(sent) == [True] * 7
    assert store.batches == [[1], [2, 3, 4, 5], [6, 7]]
    assert store.most_at_once == 1
    shown = Exposition(registry).render(None)[0].decode()
    for line in ('mneme_commit_turns_bucket{le="1.0"} 1.0', "mneme_commit_turns_sum 7.0", "mneme_commit_queue 0.0"):
        assert line in shown


async def test_turns_that_end_in_the_same_moment_are_one_transaction(
    make: Callable[..., GroupCommit], store: Gate
) -> None:
    store.open.set()
    assert await outcomes(await send(make(), turn(1), turn(2), turn(3))) == [True] * 3
    assert store.batches == [[1, 2, 3]]


async def test_what_depends_on_one_another_is_not_written_together(
    make: Callable[..., GroupCommit], store: Gate
) -> None:
    store.open.set()
    sent = await send(
        make(turns=9), turn(1, session=5), turn(2, session=5), turn(3, key=b"k"), turn(4, key=b"k"), turn(5, session=5),
        turn(6, session=5, user=2), turn(7, key=b"k", user=2),
    )  # fmt: skip
    assert await outcomes(sent) == [True] * 7
    assert store.batches == [[1, 3, 6, 7], [2, 4], [5]]


async def test_a_large_turn_ends_its_batch(
    make: Callable[..., GroupCommit], store: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 100)
    store.open.set()
    sent = await send(make(), turn(1), turn(2, body=b"x" * 100), turn(3))
    assert await outcomes(sent) == [True] * 3
    assert store.batches == [[1, 2], [3]]


async def test_beside_a_transaction_that_stalls_the_next_ones_begin(
    make: Callable[..., GroupCommit], store: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL_S", 0.0)
    commit = make()
    sent: list[asyncio.Task[bool]] = []
    for n in range(1, module.WRITERS + 1):
        sent += await send(commit, turn(n))
        await store.called(n)
    sent += await send(commit, turn(98), turn(99))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(store.batches) == module.WRITERS
    store.open.set()
    assert await outcomes(sent) == [True] * (module.WRITERS + 2)
    # And afterwards it is one at a time again.
    monkeypatch.setattr(module, "STALL_S", 30.0)
    store.open.clear()
    store.most_at_once = 0
    sent = await send(commit, turn(101))
    await store.called(len(store.batches))
    sent += await send(commit, turn(102), turn(103))
    store.open.set()
    assert await outcomes(sent) == [True] * 3
    assert store.most_at_once == 1


# --- bounds ---------------------------------------------------------------------------------------------------------------


async def test_where_the_queue_is_full_the_next_waits_for_room(make: Callable[..., GroupCommit], store: Gate) -> None:
    commit = make(turns=1, queue=2)
    sent = await send(commit, turn(1), turn(2), turn(3))
    await store.called(1)
    store.open.set()
    assert await outcomes(sent) == [True] * 3
    assert store.batches == [[1], [2], [3]]


async def test_who_waits_too_long_is_told_and_nothing_of_it_is_stored(
    make: Callable[..., GroupCommit], store: Gate
) -> None:
    commit = make(turns=1, queue=2, timeout_s=0.05)
    sent = await send(commit, turn(1), turn(2), turn(3))
    await store.called(1)
    waiting, without_room = await outcomes(sent[1:])
    assert isinstance(waiting, StoreUnavailable)
    assert isinstance(without_room, StoreUnavailable)
    assert not sent[0].done(), "what is under way is waited for"
    store.open.set()
    assert await outcomes(sent[:1]) == [True]
    assert store.batches == [[1]]
    assert await outcomes(await send(commit, turn(4), turn(5))) == [True, True], "their places are free again"


# --- who fails ------------------------------------------------------------------------------------------------------------


async def test_a_turn_that_takes_the_database_too_long_fails_alone(
    make: Callable[..., GroupCommit], store: Gate
) -> None:
    def answer(ids: list[int]) -> bool:
        if 3 in ids:
            late = StoreUnavailable()
            late.too_much = True
            raise late
        return True

    store.answer = answer
    store.open.set()
    found = await outcomes(await send(make(turns=8), *(turn(n) for n in range(1, 7))))
    assert isinstance(found.pop(2), StoreUnavailable)
    assert found == [True] * 5
    assert sum(3 in each for each in store.batches) == 2, "once with the others, once alone: each takes its whole time"


async def test_a_deadlock_is_nobodys_fault(make: Callable[..., GroupCommit], store: Gate) -> None:
    def answer(ids: list[int]) -> bool:
        if len(store.batches) < 3:
            raise asyncpg.DeadlockDetectedError("chosen")
        return True

    store.answer = answer
    store.open.set()
    assert await outcomes(await send(make(), turn(1), turn(2))) == [True, True]
    assert store.batches == [[1, 2]] * 3


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.DeadlockDetectedError("chosen, again and again"),
        asyncpg.UndefinedTableError("somebody migrates"),
        asyncpg.InsufficientPrivilegeError("somebody grants"),
        asyncpg.DataCorruptedError("a damaged page"),
    ],
)
async def test_a_database_that_is_not_well_refuses_no_turn_for_good(
    make: Callable[..., GroupCommit], store: Gate, error: Exception
) -> None:
    def answer(ids: list[int]) -> bool:
        raise error

    store.answer = answer
    store.open.set()
    (found,) = await outcomes(await send(make(), turn(1)))
    assert isinstance(found, StoreUnavailable)
    assert (found.too_much, found.__cause__) == (False, error)


async def test_without_a_database_all_are_told_each_by_an_error_of_its_own(
    make: Callable[..., GroupCommit], store: Gate
) -> None:
    def answer(ids: list[int]) -> bool:
        raise StoreUnavailable("gone")

    store.answer = answer
    store.open.set()
    one, other = await outcomes(await send(make(), turn(1), turn(2)))
    assert isinstance(one, StoreUnavailable)
    assert isinstance(other, StoreUnavailable)
    assert (one.message, one is other) == ("gone", False)


async def test_what_nobody_thought_of_leaves_nobody_waiting(
    make: Callable[..., GroupCommit], store: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(ids: list[int]) -> bool:
        if 1 in ids:
            raise LookupError("a mistake")
        return True

    store.answer = answer
    store.open.set()
    commit = make(turns=2)
    one, two, three = await outcomes(await send(commit, turn(1), turn(2), turn(3)))
    assert isinstance(one, StoreUnavailable)
    assert isinstance(two, StoreUnavailable)
    assert three is True
    assert "group commit" in {getattr(each, "task", None) for each in caplog.records}


async def test_that_it_was_stored_before_is_said(make: Callable[..., GroupCommit], store: Gate) -> None:
    store.answer = lambda ids: False
    store.open.set()
    assert await outcomes(await send(make(), turn(1))) == [False]


# --- going away -----------------------------------------------------------------------------------------------------------


async def test_closing_waits_for_what_came_and_takes_no_more(make: Callable[..., GroupCommit], store: Gate) -> None:
    commit = make(turns=1, queue=2)
    sent = await send(commit, turn(1), turn(2), turn(3))
    closing = Supervisor().spawn(commit.close(30), "closing")
    await asyncio.sleep(0)
    (late,) = await outcomes(await send(commit, turn(9)))
    assert isinstance(late, StoreUnavailable)
    assert not closing.done()
    store.open.set()
    assert await outcomes(sent) == [True] * 3
    await closing
    assert store.batches == [[1], [2], [3]]


async def test_closing_does_not_wait_for_ever(make: Callable[..., GroupCommit], store: Gate, tasks: Supervisor) -> None:
    commit = make(turns=1, queue=2)
    sent = await send(commit, turn(1), turn(2), turn(3))
    await store.called(1)
    await commit.close(0.01)
    assert all(isinstance(each, StoreUnavailable) for each in await outcomes(sent[1:]))
    assert not sent[0].done()
    await tasks.close(0)  # as the process ends
    (first,) = await outcomes(sent[:1])
    assert isinstance(first, StoreUnavailable)
    assert store.batches == [[1]]


async def test_an_idle_one_closes_at_once(make: Callable[..., GroupCommit]) -> None:
    await make().close(0)
