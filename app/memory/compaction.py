"""The messages of a running session, as plain values: the newest are its working memory, L0 (seed 001 §5.1); for the oldest of
a long one a summary may stand (seed 000 §7.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

from msgspec import Struct

from app.memory.text import sentences
from app.store.consolidation import RESULT_CHARS, RecentMessage, Working

WINDOW_TURNS = 20
"""Seed 001 §5.2."""
MAX_RESULTS = 10
"""Tool results kept: more is a loop, of which the last ones count."""
MAX_PREFERENCES = 10
MAX_PENDING = 5

_ASKS_TO_GO_ON = re.compile(
    r"\b(?:shall i|should i|may i|do you want me to|would you like me to|want me to|can i go ahead|ok(?:ay)? to|"
    r"is (?:that|this) (?:right|correct|ok(?:ay)?|fine)|(?:please |can you |could you )?confirm|go ahead|proceed)\b",
    re.IGNORECASE,
)


def working_of(messages: Sequence[RecentMessage], preferences: Sequence[Mapping[str, Any]]) -> Working:
    """The working memory after these messages, oldest first: those of the last `WINDOW_TURNS` turns count."""
    window = last_turns(messages)
    called: dict[str, str] = {}
    pending: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for each in window:
        for call in each.tool_calls:
            called[str(call.get("id"))] = str((call.get("function") or {}).get("name") or "")
        if each.role == "user":
            pending = []
        elif each.role == "assistant":
            pending = [{"message_id": str(each.message_id), "question": one} for one in asks_to_go_on(each.content)][
                -MAX_PENDING:
            ]
        elif each.role in ("tool", "function"):
            results.append(
                {
                    "message_id": str(each.message_id),
                    "tool_call_id": each.tool_call_id,
                    "tool": called.get(str(each.tool_call_id)) or each.name,
                    "result": each.content[:RESULT_CHARS],
                    "created_at": each.created_at.isoformat(),
                }
            )
    return Working([dict(each) for each in preferences][:MAX_PREFERENCES], pending, results[-MAX_RESULTS:])


def asks_to_go_on(text: str) -> list[str]:
    """The sentences by which an assistant asks leave for something."""
    if "?" not in text:
        return []
    return [one for one in sentences(text) if one.endswith("?") and _ASKS_TO_GO_ON.search(one)]


def last_turns(messages: Sequence[RecentMessage], turns: int = WINDOW_TURNS) -> Sequence[RecentMessage]:
    """The messages of the last turns; a turn begins with a message of the user."""
    starts = [n for n, each in enumerate(messages) if each.role == "user"]
    return messages[starts[-turns] :] if len(starts) > turns else messages


# --- compaction -------------------------------------------------------------------------------------------------------

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
