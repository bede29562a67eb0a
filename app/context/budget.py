"""How many tokens there are, and who gets them (seed 000 §6.1). All figures are tokens."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from app.context.classify import TaskType


class Split(NamedTuple):
    """The parts of an available budget; they add up to it, unless history has a bound of its own."""

    memory: int
    history: int
    tools: int


SHARES: Mapping[TaskType, tuple[int, int, int]] = MappingProxyType(
    {
        TaskType.CONTINUATION: (15, 85, 0),
        TaskType.KNOWLEDGE_INTENSIVE: (40, 60, 0),
        TaskType.NEW_SESSION: (50, 50, 0),
        TaskType.TOOL_HEAVY: (10, 70, 20),
    }
)
"""Per cent of the budget for memory, history and the working memory's tool results: the table of seed 000 §6.1."""

EPOCH_BLOCKS = 8
"""Full memory blocks that one epoch of a session may hold in all. A block stays in the prompt for the rest of its
epoch, so this bounds what memory adds to every later request: eight of 1,500 tokens are a tenth of a 128,000-token
window."""


def available(window: int, system: int, reserve: int, tools: int) -> int:
    """B = C − S − R − T, never below 0 (seed 000 §6.1).

    `window`: the model's context; `system`: the system messages; `reserve`: kept for the answer; `tools`: the tool
    definitions.
    """
    return max(0, window - system - reserve - tools)


def allocate(budget: int, task: TaskType, history: int | None = None) -> Split:
    """`budget` (B) shared out by task; what rounding leaves over goes to history, which has `history` at most."""
    memory, _, tools = SHARES[task]
    for_memory, for_tools = budget * memory // 100, budget * tools // 100
    for_history = budget - for_memory - for_tools
    return Split(for_memory, for_history if history is None else min(for_history, history), for_tools)


def memory_budget(share: int, budget: int, client: int, cap: int, live: int = 0, *, epoch: int | None = None) -> int:
    """What this turn's memory block may cost: min(B_mem, B − client − live, cap), never below 0.

    `share`: B_mem; `budget`: B; `client`: the messages that go out anyway (the client's own and the history chosen,
    system messages apart: B is already without them), which are never dropped to make room; `cap`: the setting;
    `live`: the blocks of earlier turns that are emitted again. With an `epoch` budget (placement `tail`) a block
    takes at most half of what is left of it, so that later turns find room as well, and an epoch lasts for several
    turns even in a small window.
    """
    limit = min(share, budget - client - live, cap)
    if epoch is not None:
        limit = min(limit, (epoch - live) // 2)
    return max(0, limit)


def epoch_budget(budget: int, client: int, cap: int) -> int:
    """What all memory blocks of an epoch may cost together (placement `tail`), never below 0.

    The largest share that seed 000 §6.1 gives to memory, but no more than the client leaves, and no more than
    `EPOCH_BLOCKS` full blocks. It does not move with the task type: a block that is in the prompt stays there.
    """
    largest = max(memory for memory, _, _ in SHARES.values())
    return max(0, min(budget * largest // 100, budget - client, EPOCH_BLOCKS * cap))
