"""The collector of a started server."""

from __future__ import annotations

import asyncio
import gc
import platform
import subprocess
import sys
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


FAULTS = """
import resource
import numpy as np
from app.server import collector

def work():
    return [np.ones(40_000) for _ in range(20)]  # 6 MB

{settle}
for _ in range(3):
    work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's memory that is kept")
def test_what_a_request_frees_is_kept_for_the_next() -> None:
    def pages(settle: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", FAULTS.format(settle=settle)], capture_output=True, check=True, text=True
        )
        return int(done.stdout)

    assert pages("collector.settle()") < 1000 < pages("")
