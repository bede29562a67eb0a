from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.budget import EPOCH_BLOCKS, SHARES, Split, TaskType, allocate, available, epoch_budget, memory_budget


def test_available_is_what_seed_000_section_6_1_says() -> None:
    assert available(window=128_000, system=500, reserve=4096, tools=1200) == 128_000 - 500 - 4096 - 1200
    assert available(window=4096, system=3000, reserve=4096, tools=0) == 0


@pytest.mark.parametrize(
    ("task", "split"),
    [
        (TaskType.CONTINUATION, Split(1500, 8500, 0)),
        (TaskType.KNOWLEDGE_INTENSIVE, Split(4000, 6000, 0)),
        (TaskType.NEW_SESSION, Split(5000, 5000, 0)),
        (TaskType.TOOL_HEAVY, Split(1000, 7000, 2000)),
    ],
)
def test_the_table_of_seed_000_section_6_1(task: TaskType, split: Split) -> None:
    assert allocate(10_000, task) == split


def test_history_may_have_a_bound_of_its_own() -> None:
    """Seed 001 §6, step 5: 2,000 tokens of conversation."""
    assert allocate(10_000, TaskType.CONTINUATION, 2000) == Split(1500, 2000, 0)
    assert allocate(1000, TaskType.CONTINUATION, 2000) == Split(150, 850, 0)


@given(st.integers(0, 2_000_000), st.sampled_from(TaskType))
def test_the_parts_add_up(budget: int, task: TaskType) -> None:
    split = allocate(budget, task)
    assert sum(split) == budget
    assert min(split) >= 0
    assert sum(SHARES[task]) == 100


@pytest.mark.parametrize(
    ("share", "budget", "client", "cap", "expected"),
    [
        (4000, 10_000, 2000, 1500, 1500),  # the setting decides
        (1200, 10_000, 2000, 1500, 1200),  # the task's share decides
        (4000, 10_000, 9700, 1500, 300),  # what the client leaves decides
        (4000, 10_000, 10_000, 1500, 0),
        (4000, 10_000, 50_000, 1500, 0),  # the client's own messages are over the budget: nothing is added
        (4000, 10_000, 2000, 0, 0),
    ],
)
def test_memory_takes_what_remains(share: int, budget: int, client: int, cap: int, expected: int) -> None:
    assert memory_budget(share, budget, client, cap) == expected


def test_live_blocks_are_paid_first() -> None:
    assert memory_budget(4000, 10_000, 9000, 1500, live=800) == 200
    assert memory_budget(4000, 10_000, 9000, 1500, live=1200) == 0


def test_a_block_leaves_half_of_what_is_left_of_its_epoch() -> None:
    assert memory_budget(4000, 10_000, 100, 1500, live=0, epoch=2000) == 1000
    assert memory_budget(4000, 10_000, 100, 1500, live=1000, epoch=2000) == 500
    assert memory_budget(4000, 100_000, 100, 1500, live=0, epoch=12_000) == 1500
    assert memory_budget(4000, 10_000, 100, 1500, live=3000, epoch=2000) == 0


def test_epoch_budget() -> None:
    assert epoch_budget(120_000, 1000, 1500) == EPOCH_BLOCKS * 1500
    assert epoch_budget(4000, 1000, 1500) == 2000
    assert epoch_budget(4000, 3500, 1500) == 500
    assert epoch_budget(4000, 5000, 1500) == 0


@given(*[st.integers(0, 200_000)] * 5)
def test_an_epoch_never_outgrows_its_budget(share: int, budget: int, client: int, cap: int, turns: int) -> None:
    live, epoch = 0, epoch_budget(budget, client, cap)
    for _ in range(min(turns, 20)):
        block = memory_budget(share, budget, client, cap, live=live, epoch=epoch)
        assert 0 <= block <= cap
        live += block
        assert live <= epoch
        assert client + live <= budget or live == 0
