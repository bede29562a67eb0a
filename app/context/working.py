"""Working memory in a prompt (L0; seed 000 §2.2 and §6.1, seed 001 §5): what tools gave in the session's last turns, where the
history that is supplied leaves these turns out. What the transcript says already is never said again, so that a chat whose
history is whole has no such section; pending questions stand in the last turns, which are always there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from app.context.assemble import Block, neutralise
from app.context.facts_section import shown
from app.context.notes import NoteLines
from app.context.pack import Reason
from app.context.request import PathMessage
from app.context.transcript import text_of
from app.memory.working import MAX_RESULTS, WINDOW_TURNS
from app.store.consolidation import RESULT_CHARS

LABEL = "Earlier in this conversation a tool gave"
WHY = "results of the last turns that the history leaves out"
_RESULTS = frozenset({"tool", "function"})

Count = Callable[[str], int]


class ToolResult(NamedTuple):
    """What a tool gave, as a line."""

    message: UUID
    line: str


class WorkingTold(NamedTuple):
    """`results`: what there is to tell, newest first; `seen`: what an earlier block tells."""

    results: Sequence[ToolResult]
    seen: Sequence[UUID]

    def wants(self, count: Count) -> int:
        """Tokens that it would take."""
        return sum(_cost(each, count) for each in self.results)

    def tell(self, said: NoteLines, budget: int, count: Count) -> None:
        """Add what fits, the newest first, in the order in which it came. Before what is known of things: see
        `facts_section.shown`."""
        chosen: list[ToolResult] = []
        used = 0
        for each in self.results:
            if used + (cost := _cost(each, count)) <= budget:
                chosen.append(each)
                used += cost
        said.before += [each.line for each in reversed(chosen)]
        said.ids += [each.message for each in chosen]
        said.tokens += used
        said.account["working"] = {
            "budget": budget,
            "tokens": used,
            "why": WHY,
            "chosen": [each.message for each in chosen],
            "dropped": [[each.message, Reason.OVER_BUDGET] for each in self.results if each not in chosen],
            "visible": list(self.seen),
        }


def window(roles: Sequence[str], turns: int = WINDOW_TURNS) -> int:
    """Where the last turns begin (seed 001 §5.2); a turn begins with a message of the user."""
    asked = [i for i, role in enumerate(roles) if role == "user"]
    return asked[-turns] if len(asked) > turns else 0


def working_told(
    path: Sequence[PathMessage], first: int, start: int, blocks: Sequence[Block], said: str = ""
) -> WorkingTold | None:
    """Of a path whose messages up to `first` and from `start` on stand in the prompt; None where it leaves out no result of a
    tool. `said`: the texts that the client sent, which may repeat one."""
    begin = max(first, window([str(each.message.get("role") or "") for each in path]))
    called: dict[str, str] = {}
    texts = {each.strip() for each in said.split("\0")}
    there, results, seen = shown(blocks), [], []
    for each in path[begin:start]:
        for call in each.message.get("tool_calls") or ():
            called[str(call.get("id"))] = str((call.get("function") or {}).get("name") or "")
        text = text_of(each.message).strip()
        if each.message.get("role") not in _RESULTS or each.message_id is None or not text or text in texts:
            continue
        if each.message_id in there:
            seen.append(each.message_id)
            continue
        name = called.get(str(each.message.get("tool_call_id"))) or str(each.message.get("name") or "")
        told = f"{LABEL}{f' ({name})' if name else ''}: {text[:RESULT_CHARS]}"
        results.append(ToolResult(each.message_id, neutralise(told)))
    return WorkingTold(results[::-1][:MAX_RESULTS], seen) if results or seen else None


def _cost(each: ToolResult, count: Count) -> int:
    return count(each.line + "\n") + 1
