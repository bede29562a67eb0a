"""The collector of a started server."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from app import collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_was_there_at_the_start_is_not_looked_through_again() -> None:
    kept = [[] for _ in range(1000)]  # type: list[list[object]]
    collector.settle()
    assert gc.get_freeze_count() >= len(kept)
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
