"""Working memory in a prompt: only what the prompt does not say already, in its own section with a budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from app.context.assemble import Block
from app.context.budget import Budgets
from app.context.request import Compilation, CompileRequest, PathMessage
from app.context.transcript import Transcript
from app.context.working import WINDOW_TURNS, working_told
from tests.unit.context.test_compile import Found, Message, compiler, hash_of, request, said, shown

WINDOW = 1300
"""Tokens of a model that holds four turns of this talk, and not all of it."""


def turn(n: int, result: str = "") -> list[Message]:
    call = {"id": f"c{n}", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    return [
        said("user", f"Question number {n}, at some length " + "so that it takes room " * 6),
        said("assistant", None) | {"tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": result or f"<b>{n} degrees in town {n}</b>"},
        said("assistant", f"Answer number {n}"),
    ]


def path(turns: int) -> list[PathMessage]:
    messages = [each for n in range(1, turns + 1) for each in turn(n)]
    return [PathMessage(each, 40, hash_of(each), n, UUID(int=1000 + n)) for n, each in enumerate(messages, 1)]


async def compiled(turns: int, **given: Any) -> tuple[Compilation, CompileRequest]:
    plain: dict[str, Any] = {
        "messages": [said("user", "What comes next?")],
        "path": path(turns),
        "server_managed": True,
        "has_tools": True,
        "answer_limit": 40,
    }
    asked = request(**plain | given)
    return await compiler(Found(), {"gpt-4o": WINDOW}).compile(asked), asked


def texts(made: Compilation, asked: CompileRequest) -> str:
    return "\n".join(str(each["content"]) for each in shown(made, asked))


def told(made: Compilation) -> Sequence[UUID]:
    found: Sequence[UUID] = made.audit["sections"]["working"]["chosen"]
    return found


async def test_results_of_turns_that_are_left_out_are_told() -> None:
    made, asked = await compiled(12)
    whole, section = texts(made, asked), made.audit["sections"]["working"]
    dropped = made.audit["history"]["dropped"]
    assert dropped > 8
    assert "Earlier in this conversation a tool gave (weather): <b>5 degrees in town 5</b>" in whole
    assert whole.count("town 12") == 1, "what the history holds is not said again"
    assert 0 < section["tokens"] <= section["budget"]
    assert section["why"] == "results of the last turns that the history leaves out"
    assert made.new_block is not None
    assert set(section["chosen"]) <= set(made.new_block.item_ids), "forgetting the message takes the block along"


async def test_a_chat_whose_history_is_whole_has_no_such_section() -> None:
    made, _ = await compiled(2)
    assert made.audit["history"]["dropped"] == 0
    assert "working" not in made.audit["sections"]
    assert made.new_block is None


async def test_without_tools_there_is_none() -> None:
    made, _ = await compiled(12, has_tools=False)
    assert "working" not in made.audit["sections"]


async def test_what_an_earlier_block_tells_is_not_told_again() -> None:
    whole = path(12)
    block = Block(b"", b"", None, "…", (UUID(int=1000 + 7),), 9)
    found = working_told(whole, 4, 12, [block])
    assert found is not None
    assert [each.int - 1000 for each in found.results] == [11]
    assert [each.int - 1000 for each in found.seen] == [7]


async def test_of_the_last_twenty_turns_alone() -> None:
    made, _ = await compiled(WINDOW_TURNS + 5)
    oldest = 4 * 5 + 1
    section = made.audit["sections"]["working"]
    numbers = [each.int - 1000 for each in (*section["chosen"], *(each for each, _ in section["dropped"]))]
    assert numbers
    assert min(numbers) >= oldest


async def test_a_tool_heavy_request_has_a_fifth_of_the_budget() -> None:
    messages = [
        said("user", "What comes next?"),
        said("assistant", None) | {"tool_calls": turn(99)[1]["tool_calls"]},
        {"role": "tool", "tool_call_id": "c99", "content": "x"},
    ]
    made, _ = await compiled(12, messages=messages, transcript=Transcript.of(messages), placement="system")
    assert made.audit["task"] == "tool_heavy"
    section, budget = made.audit["sections"]["working"], made.audit["budget"]
    assert section["tokens"] <= budget["available"] // 5 + Budgets().working
