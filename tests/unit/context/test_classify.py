from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.budget import HEAD_CHARS, TaskType, classify

KNOWLEDGE = [
    "What did I tell you about my sister?",
    "Where do I live?",
    "do you remember the name of that restaurant",
    "Suggest something for dinner. What can I eat with my allergies?",
    "Which database did we choose last week?",
    "What is the capital of Portugal?",
    "what's my deadline",
    "How many invoices are unpaid for Northwind?",
    "¿Dónde vivo?",
    "我住在哪里？",
    "Please recall the budget we agreed on",
]
CONTINUATION = [
    "",
    "Thanks!",
    "Go on.",
    "Make it shorter",
    "Why is that?",
    "What do you mean?",
    "and then?",
    "Write a poem about the sea.",
    "Now translate the second paragraph into French",
    "Continúa, por favor",
]


@pytest.mark.parametrize("query", KNOWLEDGE)
def test_questions_about_the_past_or_the_world_need_knowledge(query: str) -> None:
    assert classify(query, new_session=False, has_tools=False) is TaskType.KNOWLEDGE_INTENSIVE


@pytest.mark.parametrize("query", CONTINUATION)
def test_everything_else_continues(query: str) -> None:
    assert classify(query, new_session=False, has_tools=False) is TaskType.CONTINUATION


@pytest.mark.parametrize("query", KNOWLEDGE + CONTINUATION)
def test_a_new_session_is_one_whatever_is_asked(query: str) -> None:
    assert classify(query, new_session=True, has_tools=True) is TaskType.NEW_SESSION


@pytest.mark.parametrize(
    ("has_tools", "last_role", "tool_results", "expected"),
    [
        (True, "tool", 1, TaskType.TOOL_HEAVY),
        (True, "function", 1, TaskType.TOOL_HEAVY),
        (True, "assistant", 2, TaskType.TOOL_HEAVY),
        (True, "user", 1, TaskType.CONTINUATION),
        (True, "user", 0, TaskType.CONTINUATION),
        (False, "tool", 5, TaskType.CONTINUATION),
    ],
)
def test_tools(has_tools: bool, last_role: str, tool_results: int, expected: TaskType) -> None:
    found = classify("go on", new_session=False, has_tools=has_tools, last_role=last_role, tool_results=tool_results)
    assert found is expected


def test_tool_results_outweigh_a_new_session() -> None:
    assert classify("?", new_session=True, has_tools=True, last_role="tool") is TaskType.TOOL_HEAVY


def test_a_question_is_found_at_either_end_of_a_long_text() -> None:
    pasted = "lorem ipsum dolor " * 1000
    assert len(pasted) > 2 * HEAD_CHARS
    for query in (f"What did we decide? {pasted}", f"{pasted} What did we decide?"):
        assert classify(query, new_session=False, has_tools=False) is TaskType.KNOWLEDGE_INTENSIVE
    buried = f"{pasted} What did we decide? {pasted}"
    assert classify(buried, new_session=False, has_tools=False) is TaskType.CONTINUATION


@given(st.text(), st.booleans(), st.booleans(), st.none() | st.text(max_size=5))
def test_any_text_has_a_type(query: str, new: bool, tools: bool, role: str | None) -> None:
    assert classify(query, new_session=new, has_tools=tools, last_role=role) in TaskType
