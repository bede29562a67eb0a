"""Phases of a conversation."""

from __future__ import annotations

from typing import Any

from app.features.paging.segment import MIN_TURNS, PHASE_TURNS, changes_subject, is_phase, type_of
from app.features.paging.values import ObjectType, SemanticObject
from tests.unit.paging.made import TRACEBACK, called, cut, said, sized, user

HARBOUR = "The harbour has four basins, a lock with two gates, green lights and a crane for ships of ninety metres. "
BREAD = "Rye bread wants sour dough, coarse flour, caraway, a hot oven and patience for the crumb to settle. "


def talk(text: str, turns: int) -> list[dict[str, Any]]:
    return [each for i in range(turns) for each in (user(f"{text} Number {i}?"), said(text * 4 + f"So much for {i}."))]


def phases(messages: list[dict[str, Any]]) -> list[SemanticObject]:
    return [each for each in cut(messages).objects if is_phase(each)]


def test_a_change_of_subject_ends_a_phase() -> None:
    messages = [user("Hello, help me today."), *talk(HARBOUR, 6), *talk(BREAD, 2)]
    (phase,) = phases(messages)
    assert phase.object_type == ObjectType.CONVERSATION_PHASE
    assert "crane" in phase.content
    assert "caraway" not in phase.content
    assert (phase.source_turn_start, phase.source_turn_end) == (0, 5)
    assert phase.stub.startswith("Conversation, turns 0–5: “The harbour has four basins")
    assert len(phase.parts) == 12
    assert phase.content.startswith("User: The harbour")


def test_the_first_message_of_the_user_stays_as_it_is() -> None:
    messages = [user("Build me a harbour. " + HARBOUR * 20), *talk(HARBOUR, PHASE_TURNS + 1)]
    assert all("Build me" not in each.content for each in phases(messages))


def test_a_phase_ends_after_so_many_answers() -> None:
    assert phases([user("Hi"), *talk(HARBOUR, PHASE_TURNS)]) == [], "the last one goes on"
    assert len(phases([user("Hi"), *talk(HARBOUR, PHASE_TURNS + 1)])) == 1
    assert len(phases([user("Hi"), *talk(HARBOUR, 3 * PHASE_TURNS + 1)])) == 3


def test_a_tool_loop_without_the_user_has_phases_too() -> None:
    messages = [user("Repair it.")]
    for i in range(2 * PHASE_TURNS + 1):
        messages += [
            {**called("Bash", {"command": f"step {i}"}, "ok", f"c{i}")[0], "content": HARBOUR * 3},
            said(HARBOUR),
        ][:1]
        messages += called("Bash", {"command": f"step {i}"}, "ok", f"c{i}")[1:]
    assert len(phases(messages)) == 2


def test_short_talk_is_no_object() -> None:
    messages = [user("Hi"), *[each for i in range(30) for each in (user(f"and {i}?"), said("yes"))]]
    assert phases(messages) == []


def test_errors_make_it_debugging() -> None:
    messages = [user("Repair it."), *talk(HARBOUR, 5)]
    messages += called("Bash", {"command": "make"}, TRACEBACK, "a") + called(
        "Bash", {"command": "make test"}, TRACEBACK, "b"
    )
    messages += talk(HARBOUR, PHASE_TURNS)
    assert phases(messages)[0].object_type == ObjectType.DEBUGGING_SESSION
    assert phases(messages)[0].stub.startswith("Debugging, turns")
    assert type_of([sized(1, 1)]) == ObjectType.CONVERSATION_PHASE


def test_subjects() -> None:
    before = frozenset("abcdefgh")
    assert changes_subject(frozenset("uvwxyz"), before)
    assert not changes_subject(frozenset("abuvw"), before)
    assert not changes_subject(frozenset("xyz"), before), "too little to tell"
    assert MIN_TURNS > 1
