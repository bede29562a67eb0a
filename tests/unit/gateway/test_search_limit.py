"""How many searches run at once."""

from __future__ import annotations

import asyncio
import math

from app.gateway.augment import SearchLimit
from tests.support.journey import user
from tests.support.tables import each_of
from tests.support.turns import GatewayStage

SEARCH_S, DEADLINE_S = 0.010, 0.050


def test_nothing_is_held_back_until_something_was_late() -> None:
    limit = SearchLimit()
    begun = [limit.begin() for _ in range(1000)]
    assert all(each is not None for each in begun)
    assert limit.most == math.inf


def test_those_that_were_late_together_cut_once() -> None:
    limit = SearchLimit()
    begun = [limit.begin() for _ in range(16)]
    for each in begun:
        assert each is not None
        limit.end(each, late=True)
    assert (limit.most, limit.running) == (8.0, 0)


def test_two_always_run_and_room_comes_back() -> None:
    limit = SearchLimit()
    for _ in range(10):
        begun = limit.begin()
        assert begun is not None
        limit.end(begun, late=True)
    assert limit.most == 2.0
    for _ in range(20):
        for each in [limit.begin() for _ in range(4)]:
            if each is not None:
                limit.end(each, late=False)
    assert limit.most > 3.0


@each_of("rate", [50, 120, 200, 1000])
def test_more_than_a_server_can_do_leaves_it_what_it_can(rate: int) -> None:
    """One processor that shares its time between all searches that run, as an event loop does; arrivals twice to ten times
    as fast as it can serve (100 a second)."""
    limit = SearchLimit()
    running: list[tuple[float, float, int]] = []  # began, work left, begun
    step, ended, late, next_at, now = 0.0005, 0, 0, 0.0, 0.0
    while now < 20.0:
        if now >= next_at:
            next_at += 1 / rate
            begun = limit.begin()
            if begun is not None:
                running.append((now, SEARCH_S, begun))
        share = step / max(1, len(running))
        left: list[tuple[float, float, int]] = []
        for began, work, begun in running:
            if now - began >= DEADLINE_S:
                limit.end(begun, late=True)
                late += 1
            elif work - share <= 0:
                limit.end(begun, late=False)
                ended += 1
            else:
                left.append((began, work - share, begun))
        running = left
        now += step
    possible = min(rate, 1 / SEARCH_S) * 20.0
    assert ended > 0.6 * possible, f"{ended} of {possible}, {late} late"


async def test_a_request_too_many_goes_on_with_what_the_place_knows() -> None:
    stage = GatewayStage(retrieval_deadline_ms=500)
    slow = stage.preparer.fail["compile"] = asyncio.Event()
    late = await stage.ask([user("hi")])
    assert late.headers["x-mneme-reason"] == "deadline"
    async with asyncio.TaskGroup() as group:
        at_once = [group.create_task(stage.ask([user(f"question {n}")])) for n in range(3)]
        done, _ = await asyncio.wait(at_once, return_when=asyncio.FIRST_COMPLETED)
        (one_too_many,) = [each.result() for each in done]
        slow.set()
    assert (one_too_many.headers["x-mneme-status"], one_too_many.headers["x-mneme-reason"]) == ("degraded", "busy")
    assert one_too_many.whole
    assert sorted(each.result().headers["x-mneme-status"] for each in at_once) == ["degraded", "ok", "ok"]
    assert stage.journey.count("mneme_degradations_total", reason="busy") == 1
