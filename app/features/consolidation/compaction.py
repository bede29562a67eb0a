"""Compaction: which of a long session's oldest messages a summary stands for (seed 000 §7.3). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

from msgspec import Struct

KEEP_TURNS = 4
"""Newest turns that stay verbatim (seed 001 §6, final check: "summarize older turns, keep last 4 verbatim")."""
THRESHOLD_WINDOWS = 2
"""Context windows that a session's active messages may fill before it is compacted (seed 000 §9.3)."""
TARGET_RATIO = 5.0
"""ρ that a compaction must reach (seed 000 §7.3, §11.3)."""
SUMMARY_TOKENS = 500
"""Most tokens of a session's summary: a third of a memory block (seed 001 §6: 1,500), of which it must leave the rest."""
ROOM_RATIO = 6
"""A summary is given a sixth of what it stands for, so that ρ stays above its bar whatever a tokenizer makes of it."""
MIN_REMOVED = 300
"""Tokens below which a compaction is not worth a summary: some four exchanges."""


class CompactionMessage(Struct, frozen=True):
    """A message as compaction sees it. `compressed`: a summary stands for it already."""

    message_id: UUID
    turn_index: int
    role: str
    token_count: int
    compressed: bool = False


class CompactionWindow(Struct, frozen=True):
    """What a compaction takes out: `messages`, oldest first, of `tokens` in all, and all turns up to `last_turn` that were
    taken out before. `left`: tokens of what stays."""

    messages: tuple[UUID, ...]
    first_turn: int
    last_turn: int
    tokens: int
    left: int


def needs_compaction(active_tokens: int, context_window: int) -> bool:
    """Seed 000 §9.3: more than twice the context window. A window of 0 is unknown."""
    return context_window > 0 and active_tokens > THRESHOLD_WINDOWS * context_window


def choose(entries: Sequence[CompactionMessage], target: int, shared_turn: int = 0) -> CompactionWindow | None:
    """The messages to compact so that at most `target` tokens stay, or as near as the rules allow (seed 000 §7.3, step 2).

    `entries`: of one session, by turn. Oldest first, whole turns only (a tool's result never loses its call); never the first
    turn (seed 001 §5.2) nor the last `KEEP_TURNS`, nor what a branch shares (up to `shared_turn`): its own summary does not
    tell of it. None: nothing to do, or too little.
    """
    active = [each for each in entries if not each.compressed]
    total = sum(each.token_count for each in active)
    starts = _turns(entries)
    if total <= target or len(starts) <= KEEP_TURNS + 1:
        return None
    second, last = starts[1], starts[-KEEP_TURNS]
    taken: list[CompactionMessage] = []
    removed = 0
    for begin, end in pairwise(starts[1 : 1 - KEEP_TURNS]):
        if total - removed <= target:
            break
        if begin <= shared_turn:
            continue
        turn = [each for each in active if begin <= each.turn_index < end and second <= each.turn_index < last]
        taken += turn
        removed += sum(each.token_count for each in turn)
    if removed < MIN_REMOVED:
        return None
    return CompactionWindow(
        tuple(each.message_id for each in taken), taken[0].turn_index, taken[-1].turn_index, removed, total - removed
    )


def summary_budget(removed: int) -> int:
    """Tokens for the summary of `removed` tokens."""
    return min(SUMMARY_TOKENS, removed // ROOM_RATIO)


def ratio(removed: int, summary: int) -> float:
    """ρ = removed tokens ÷ summary tokens (seed 000 §7.3, step 6)."""
    return removed / max(1, summary)


def _turns(entries: Sequence[CompactionMessage]) -> list[int]:
    """The turn index at which each turn begins: a message of the user after one that is not."""
    starts: list[int] = []
    before = None
    for each in entries:
        if each.role == "user" and before != "user":
            starts.append(each.turn_index)
        before = each.role
    return starts
