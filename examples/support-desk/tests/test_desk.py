"""A customer at the desk. The fixture sets OPENAI_BASE_URL and OPENAI_API_KEY, so the application runs as it is."""

from __future__ import annotations

import pytest

from mneme_replay.session import Replay
from support_desk.desk import Desk, DeskClosed

pytestmark = pytest.mark.usefixtures("mneme_replay")


def test_a_question_is_answered() -> None:
    with Desk("ana") as desk:
        assert "30 days" in desk.answer("How long may I return things?")


def test_an_order_is_looked_up() -> None:
    with Desk("ana") as desk:
        answer = desk.answer("Where is my order 1042?")
    assert "Thursday" in answer


def test_an_order_of_somebody_else_is_not_there() -> None:
    with Desk("ana") as desk:
        answer = desk.answer("Where is my order 1043?")
    assert "no order 1043" in answer
    assert "packed" not in answer


def test_a_conversation_goes_on() -> None:
    with Desk("ana") as desk:
        desk.answer("Where is my order 1042?")
        assert "You are welcome" in desk.answer("Thank you!")


def test_an_answer_comes_in_pieces() -> None:
    with Desk("ana") as desk:
        pieces = list(desk.stream("What do you sell?"))
    assert len(pieces) > 3
    assert "nougat" in "".join(pieces)


def test_a_busy_model_is_asked_again(mneme_replay: Replay) -> None:
    """The 429 is a cassette like any other, and comes back before the answer to the second try."""
    with Desk("ana") as desk:
        assert "open on Sundays" in desk.answer("Are you open on Sundays?")
    old = mneme_replay.unplayed  # recorded before the prompt was changed
    calls = [*(each for each in mneme_replay.cassettes.deck.cassettes if each not in old), *mneme_replay.recorded]
    assert [each.response.status for each in calls if each.response] == [429, 200]


def test_an_answer_that_breaks_off_is_told() -> None:
    """The connection breaks after the same byte as when it was recorded."""
    said = ""
    with Desk("ana") as desk:
        try:
            for piece in desk.stream("Tell me a long story."):
                said += piece
        except DeskClosed as error:
            said += f"[{error}]"
    assert said.startswith("Once upon a time")
    assert said.endswith("it set out[We were cut off. Please ask again.]")
