"""Questions of the measurements: those that ask what was said are compiled with memory, whatever their words."""

from __future__ import annotations

import pytest

from app.languages import heard
from loadtests.compiles import Spent, figures
from loadtests.prose import RECALLING, Prose


def test_a_question_that_asks_back_speaks_of_the_user() -> None:
    """A question that asks back needs memory; of the other questions ("Which apple table?") four in ten show none."""
    questions = [Prose(f"user {n}").ask_back() for n in range(200)]
    assert [question for question in questions if not heard(question).first_person] == []
    assert {beginning for beginning in RECALLING for question in questions if question.startswith(beginning)} == set(
        RECALLING
    )


def test_a_cell_tells_how_many_of_its_prompts_show_memory() -> None:
    rounds = [Spent([1.0, 2.0], [1.0, 1.0], [True, False]), Spent([3.0, 4.0], [1.0, 1.0], [True, True])]
    assert figures(rounds, [1.0, 1.0])["shows_memory"] == pytest.approx(0.75)
