"""A running session: its working memory (seed 001 §5), and what a compaction takes out (seed 000 §7.3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from app.context.working import MAX_RESULTS, WINDOW_TURNS, window, working_of
from app.features.consolidation.patterns import (
    KEEP_TURNS,
    MIN_REMOVED,
    SUMMARY_TOKENS,
    TARGET_RATIO,
    choose,
    needs_compaction,
    ratio,
    summary_budget,
)
from app.features.consolidation.store import SessionMessage
from app.store.consolidation import RESULT_CHARS, RecentMessage
from tests.support.tables import each_of

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def said(*messages: tuple[str, str], **more: Any) -> list[RecentMessage]:
    return [
        RecentMessage(UUID(int=n + 1), n + 1, role, text, None, (), None, BEGAN + timedelta(seconds=n))
        for n, (role, text) in enumerate(messages)
    ]


def test_an_empty_session_has_an_empty_one() -> None:
    found = working_of([], [])
    assert (found.active_preferences, found.pending_confirmations, found.tool_results_buffer) == ([], [], [])


@each_of(
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
    roles = ["user", "assistant"] * 30
    assert window(roles) == 20 == len(roles) - 2 * WINDOW_TURNS
    assert window(roles[:6]) == 0


# --- what a compaction takes out: whole turns, oldest first, never the first turn or the last four ---------------


def message(turn: int, role: str, tokens: int, *, compressed: bool) -> SessionMessage:
    return SessionMessage(UUID(int=turn), turn, role, "", [], tokens, BEGAN, compressed, True)


def session(turns: int, tokens: int = 100, *, compressed: int = 0, tools: bool = False) -> list[SessionMessage]:
    """Turns of a question, perhaps a tool call and its result, and an answer."""
    found: list[SessionMessage] = []
    roles = ["user", "assistant", "tool", "assistant"] if tools else ["user", "assistant"]
    for turn in range(turns):
        for role in roles:
            at = len(found) + 1
            found.append(message(at, role, tokens, compressed=0 < turn <= compressed))
    return found


def test_due_above_twice_the_window_and_never_where_it_is_unknown() -> None:
    assert not needs_compaction(2000, 1000)
    assert needs_compaction(2001, 1000)
    assert not needs_compaction(10**9, 0)


def test_the_oldest_turns_go_until_the_window_holds_the_rest() -> None:
    window = choose(session(30), 3000)
    assert window is not None
    assert (window.first_turn, window.last_turn) == (3, 32)
    assert (window.tokens, window.left) == (3000, 3000)


def test_the_first_turn_and_the_last_four_stay_however_small_the_target() -> None:
    window = choose(session(30), 0)
    assert window is not None
    assert window.first_turn == 3
    assert window.last_turn == 2 * (30 - KEEP_TURNS)


def test_a_tool_call_keeps_its_result() -> None:
    entries = session(20, tools=True)
    window = choose(entries, 5000)
    assert window is not None
    after = next(each for each in entries if each.turn_index == window.last_turn + 1)
    assert after.role == "user"


def test_what_a_branch_shares_stays() -> None:
    window = choose(session(30), 1000, shared_turn=20)
    assert window is not None
    assert window.first_turn == 21
    assert choose(session(30), 1000, shared_turn=60) is None


def test_what_is_compacted_counts_no_more() -> None:
    assert choose(session(30, compressed=20), 2000) is None
    window = choose(session(30, compressed=10), 2000)
    assert window is not None
    assert window.first_turn == 2 * 11 + 1


def test_nothing_to_do() -> None:
    assert choose([], 0) is None
    assert choose(session(5), 0) is None  # all of it is first or last
    assert choose(session(30), 6000) is None
    assert choose(session(7, tokens=1), 0) is None  # too little


def test_the_budget_of_a_summary_keeps_the_ratio_above_its_bar() -> None:
    for removed in (MIN_REMOVED, 1000, 10_000, 1_000_000):
        assert ratio(removed, summary_budget(removed)) >= TARGET_RATIO
    assert summary_budget(10**6) == SUMMARY_TOKENS
    assert ratio(10, 0) == 10


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.integers(0, 500), st.booleans()), max_size=60
    ),
    st.integers(0, 8000),
)
def test_whatever_a_session_looks_like(shape: list[tuple[str, int, bool]], target: int) -> None:
    entries = [message(n + 1, role, tokens, compressed=done) for n, (role, tokens, done) in enumerate(shape)]
    window = choose(entries, target)
    if window is None:
        return
    by_id = {each.message_id: each for each in entries}
    taken = [by_id[each] for each in window.messages]
    assert not any(each.compressed for each in taken)
    assert window.tokens == sum(each.token_count for each in taken) >= MIN_REMOVED
    assert window.left == sum(each.token_count for each in entries if not each.compressed) - window.tokens
    assert [each.turn_index for each in taken] == sorted({each.turn_index for each in taken})
