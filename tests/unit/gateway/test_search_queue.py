"""The search queue, with a clock that is a number: searches run, wait or are shed."""

from __future__ import annotations

import asyncio

import pytest

from app.gateway import search_queue
from app.gateway.search_queue import SEARCHES_AT_ONCE, SHORT_WAIT_S, STANDING_S, SearchQueue, SearchTurn
from tests.support.journey import user
from tests.support.tables import each_of
from tests.support.turns import GatewayStage

SEARCH_S, DEADLINE_S = 0.010, 0.500
"""Processor time of a search in the simulated server, and the time that its request waits for it."""
CAPACITY = 1 / SEARCH_S
"""Searches that the simulated server can run in a second."""


class Outcome:
    """The searches of a run, by outcome."""

    def __init__(self) -> None:
        self.ended_s: list[float] = []
        """Seconds from arrival to end of each search that ended in time."""
        self.late = 0
        self.shed = 0


def simulate(rate: float, seconds: float, *, stall: tuple[float, float] = (0.0, 0.0), burst: int = 0) -> Outcome:
    """Simulate searches that arrive steadily after a `burst` at once, and share one processor as in an event loop.

    Nothing runs during the `stall`.
    """
    queue, outcome, step = SearchQueue(), Outcome(), 0.0005
    work_left: dict[SearchTurn, float] = {queue.enter(0.0): SEARCH_S for _ in range(burst)}
    next_at, now = 0.0, 0.0
    while now < seconds:
        if now >= next_at:
            next_at += 1 / rate
            work_left[queue.enter(now)] = SEARCH_S
        running = sum(turn.admitted for turn in work_left)
        share = 0.0 if stall[0] <= now < stall[1] else step / max(1, running)
        now += step
        for turn in list(work_left):
            work_left[turn] -= share if turn.admitted else 0.0
            is_shed, is_late = turn.decided.is_set() and not turn.admitted, now - turn.arrived_at >= DEADLINE_S
            if is_shed or is_late or work_left[turn] <= 0:
                del work_left[turn]
                queue.leave(turn, now)
                outcome.shed += is_shed
                outcome.late += is_late and not is_shed
                if not (is_shed or is_late):
                    outcome.ended_s.append(now - turn.arrived_at)
    return outcome


@each_of("rate", [20, 40, 60, 90])
def test_nothing_is_left_out_below_what_a_server_carries(rate: int) -> None:
    outcome = simulate(rate, 10)
    assert (outcome.shed, outcome.late) == (0, 0)


@each_of("rate", [120, 200, 400, 1000])
def test_overload_leaves_a_server_all_that_it_carries_and_none_late(rate: int) -> None:
    outcome = simulate(rate, 10)
    assert len(outcome.ended_s) > 0.95 * CAPACITY * 10
    assert outcome.late <= STANDING_S * rate, "only those who came before the queue stood"
    assert sorted(outcome.ended_s)[len(outcome.ended_s) // 2] < 0.6 * DEADLINE_S


@each_of("burst", [17, 24, 40])
def test_a_burst_is_no_overload(burst: int) -> None:
    outcome = simulate(20, 5, burst=burst)
    assert (outcome.shed, outcome.late) == (0, 0)


@each_of(("stall", "most_lost"), [((2.0, 2.3), 0), ((2.0, 2.45), 8), ((2.0, 2.8), 40)])
def test_a_stall_loses_those_that_it_makes_late_and_no_others(stall: tuple[float, float], most_lost: int) -> None:
    outcome = simulate(40, 8, stall=stall)
    assert outcome.shed + outcome.late <= most_lost


def test_a_short_wait_is_asked_only_of_those_who_come_to_a_queue_that_stands() -> None:
    queue = SearchQueue()
    running = [queue.enter(0.0) for _ in range(SEARCHES_AT_ONCE)]
    first, second = queue.enter(0.0), queue.enter(STANDING_S + 0.01)
    later = STANDING_S + SHORT_WAIT_S + 0.02
    queue.leave(running.pop(), later)
    assert first.admitted, "it has waited for longer than a short time, but nothing stood when it came"
    third = queue.enter(later)
    assert second.decided.is_set()
    assert not second.admitted
    queue.leave(running.pop(), later)
    assert third.admitted


def test_who_gives_up_its_place_leaves_no_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_queue, "SEARCHES_AT_ONCE", 1)
    queue = SearchQueue()
    running, waiting, last = queue.enter(0.0), queue.enter(0.0), queue.enter(0.0)
    queue.leave(waiting, 0.1)
    queue.leave(running, 0.1)
    assert last.admitted
    queue.leave(last, 0.1)
    assert queue.enter(0.2).admitted


async def test_a_request_whose_search_is_shed_goes_on_with_what_the_place_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search_queue, "SEARCHES_AT_ONCE", 1)
    monkeypatch.setattr(search_queue, "STANDING_S", -1.0)
    monkeypatch.setattr(search_queue, "SHORT_WAIT_S", 0.0)
    stage = GatewayStage(retrieval_deadline_ms=5000)
    slow = stage.preparer.fail["compile"] = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(stage.ask([user(f"question {n}")])) for n in range(3)]
        first_to_end = asyncio.as_completed(asking)
        shed = [await next(first_to_end) for _ in range(2)]
        slow.set()
    for answer in shed:
        assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", "busy")
        assert answer.whole
    assert sorted(task.result().headers["x-mneme-status"] for task in asking) == ["degraded", "degraded", "ok"]
    assert stage.journey.count("mneme_degradations_total", reason="busy") == 2
