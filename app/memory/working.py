"""The newest messages of a running session, its working memory: L0 (seed 001 §5.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

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
