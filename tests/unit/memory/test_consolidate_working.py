"""Working memory as a function of a session's newest messages (seed 001 §5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from app.memory.compaction import MAX_RESULTS, WINDOW_TURNS, last_turns, working_of
from app.store.working import RESULT_CHARS, RecentMessage

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def said(*messages: tuple[str, str], **more: Any) -> list[RecentMessage]:
    return [
        RecentMessage(UUID(int=n + 1), n + 1, role, text, None, (), None, BEGAN + timedelta(seconds=n))
        for n, (role, text) in enumerate(messages)
    ]


def test_an_empty_session_has_an_empty_one() -> None:
    found = working_of([], [])
    assert (found.active_preferences, found.pending_confirmations, found.tool_results_buffer) == ([], [], [])


@pytest.mark.parametrize(
    ("answer", "pending"),
    [
        ("I found two flights. Shall I book the first one?", ["Shall I book the first one?"]),
        ("Do you want me to delete the old files?", ["Do you want me to delete the old files?"]),
        ("What is your name?", []),
        ("I booked it.", []),
    ],
)
def test_what_the_assistant_asks_leave_for_is_pending(answer: str, pending: list[str]) -> None:
    found = working_of(said(("user", "Find a flight"), ("assistant", answer)), [])
    assert [each["question"] for each in found.pending_confirmations] == pending


def test_an_answer_of_the_user_ends_it() -> None:
    found = working_of(said(("user", "x"), ("assistant", "Shall I book it?"), ("user", "Yes")), [])
    assert found.pending_confirmations == []


def test_results_of_tools_with_the_name_of_what_was_called() -> None:
    messages = said(("user", "How is the weather?"), ("assistant", ""), ("tool", "sunny " * 200))
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    messages[1] = RecentMessage(UUID(int=2), 2, "assistant", "", None, [call], None, BEGAN)
    messages[2] = RecentMessage(UUID(int=3), 3, "tool", "sunny " * 200, None, (), "c1", BEGAN)
    (result,) = working_of(messages, []).tool_results_buffer
    assert result["tool"] == "get_weather"
    assert len(result["result"]) == RESULT_CHARS
    many = working_of(said(("user", "x"), *[("tool", str(n)) for n in range(50)]), []).tool_results_buffer
    assert [each["result"] for each in many] == [str(n) for n in range(50 - MAX_RESULTS, 50)]


def test_the_window_is_twenty_turns() -> None:
    messages = said(*[(role, f"{n}") for n in range(30) for role in ("user", "assistant")])
    window = last_turns(messages)
    assert len(window) == 2 * WINDOW_TURNS
    assert window[0].content == "10"
    assert list(last_turns(messages[:6])) == messages[:6]


def test_preferences_come_as_they_are() -> None:
    preferences = [{"text": "Prefers short posts", "kind": "preference", "memory_id": "x"}]
    assert working_of([], preferences).active_preferences == preferences
