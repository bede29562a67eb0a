"""The working memory of a running session (L0; seed 000 §2.2 and §6.1, seed 001 §5): what its newest messages hold, and what a
prompt tells of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from app.context.assemble import Block, neutralise
from app.context.facts_section import shown
from app.context.notes import Count, NoteLines, line_cost
from app.context.pack import Reason
from app.context.request import PathMessage
from app.context.transcript import RESULT_ROLES, text_of
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
    called: dict[str, str] = {}
    pending: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for each in messages[window([each.role for each in messages]) :]:
        if each.tool_calls:
            called |= _named(each.tool_calls)
        if each.role == "user":
            pending = []
        elif each.role == "assistant":
            pending = [{"message_id": str(each.message_id), "question": one} for one in asks_to_go_on(each.content)][
                -MAX_PENDING:
            ]
        elif each.role in RESULT_ROLES:
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


def window(roles: Sequence[str], turns: int = WINDOW_TURNS) -> int:
    """Where the last turns begin (seed 001 §5.2); a turn begins with a message of the user."""
    asked = [i for i, role in enumerate(roles) if role == "user"]
    return asked[-turns] if len(asked) > turns else 0


def _named(calls: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The tools that were called, by the ids of the calls."""
    return {str(each.get("id")): str((each.get("function") or {}).get("name") or "") for each in calls}


# --- in a prompt ---------------------------------------------------------------------------------------------------------
#
# What tools gave in the session's last turns, where the history that is supplied leaves these out. What the transcript says
# already is never said again; pending questions stand in the last turns, which are always there.

LABEL = "Earlier in this conversation a tool gave"
WHY = "results of the last turns that the history leaves out"


class WorkingTold(NamedTuple):
    """`results`: what there is to tell, newest first, by message; `seen`: what an earlier block tells."""

    results: Mapping[UUID, str]
    seen: Sequence[UUID]

    def wants(self, count: Count) -> int:
        """Tokens that it would take."""
        return sum(line_cost(each, count) for each in self.results.values())

    def tell(self, said: NoteLines, budget: int, count: Count) -> None:
        """Add what fits, the newest first, in the order in which it came. Before what is known of things: see
        `facts_section.shown`."""
        chosen: list[UUID] = []
        used = 0
        for message, line in self.results.items():
            if used + (cost := line_cost(line, count)) <= budget:
                chosen.append(message)
                used += cost
        said.before += [self.results[each] for each in reversed(chosen)]
        said.ids += chosen
        said.tokens += used
        said.account["working"] = {
            "budget": budget,
            "tokens": used,
            "why": WHY,
            "chosen": chosen,
            "dropped": [[each, Reason.OVER_BUDGET] for each in self.results if each not in chosen],
            "visible": list(self.seen),
        }


def working_told(
    path: Sequence[PathMessage], first: int, start: int, blocks: Sequence[Block], said: str = ""
) -> WorkingTold | None:
    """Of a path whose messages up to `first` and from `start` on stand in the prompt; None where it leaves out no result of a
    tool. `said`: the texts that the client sent, which may repeat one."""
    begin = max(first, window([str(each.message.get("role") or "") for each in path]))
    called: dict[str, str] = {}
    texts = {each.strip() for each in said.split("\0")}
    there = shown(blocks)
    results: dict[UUID, str] = {}
    seen: list[UUID] = []
    for each in path[begin:start]:
        if calls := each.message.get("tool_calls"):
            called |= _named(calls)
        text = text_of(each.message).strip()
        if each.message.get("role") not in RESULT_ROLES or each.message_id is None or not text or text in texts:
            continue
        if each.message_id in there:
            seen.append(each.message_id)
            continue
        name = called.get(str(each.message.get("tool_call_id"))) or str(each.message.get("name") or "")
        told = f"{LABEL}{f' ({name})' if name else ''}: {text[:RESULT_CHARS]}"
        results[each.message_id] = neutralise(told)
    latest = dict(islice(reversed(results.items()), MAX_RESULTS))
    return WorkingTold(latest, seen) if results or seen else None
