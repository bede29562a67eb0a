"""The collector of a started server."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from app.server import collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def test_while_a_process_starts_it_looks_seldom() -> None:
    gc.set_threshold(700, 10, 10)
    collector.hold()
    assert gc.get_threshold() == (collector.YOUNG, collector.MIDDLE, collector.OLD)


def test_what_was_there_at_the_start_is_not_looked_through_again() -> None:
    frozen = gc.get_freeze_count()
    kept = [[] for _ in range(1000)]  # type: list[list[object]]
    collector.settle()
    assert gc.get_freeze_count() >= frozen + len(kept)
    assert gc.get_threshold() == (collector.YOUNG, collector.MIDDLE, collector.OLD)


def test_cycles_are_found_all_the_same() -> None:
    class Node:
        pass

    collector.settle()
    seen = []

    def watch(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            seen.append(info["collected"])

    gc.callbacks.append(watch)
    try:
        for _ in range(2 * collector.YOUNG):
            node = Node()
            node.__dict__["self"] = node
    finally:
        gc.callbacks.remove(watch)
    assert sum(seen) > collector.YOUNG // 2


class Node:
    """Part of a cycle."""

    def __init__(self) -> None:
        self.itself = self


async def test_a_worker_looks_for_garbage_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "TIDY_S", 0.001)
    given = asyncio.Event()
    loop = asyncio.get_running_loop()

    def give_back() -> bool:
        loop.call_soon_threadsafe(given.set)
        return True

    collector.settle()
    monkeypatch.setattr(collector, "give_back", give_back)
    gone = weakref.ref(Node())
    stop = asyncio.Event()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(collector.keep_tidy(stop))
        await given.wait()
        stop.set()
    assert gone() is None


def test_giving_back_what_is_free() -> None:
    kept = [bytes(1000) for _ in range(100_000)]
    del kept[::2]
    assert collector.give_back() in {True, False}, "whatever the C library is"
