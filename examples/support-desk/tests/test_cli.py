"""The command, from its arguments to what it prints."""

from __future__ import annotations

import pytest

from support_desk.cli import main

pytestmark = pytest.mark.usefixtures("mneme_replay")


@pytest.mark.parametrize("options", [[], ["--no-lookups"]], ids=["whole", "in pieces"])
def test_a_question_from_the_command_line(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*options, "ana", "How long may I return things?"]) == 0
    assert "30 days" in capsys.readouterr().out


def test_no_answer_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-lookups", "ana", "Tell me a long story."]) == 1
    assert capsys.readouterr().out.rstrip().endswith("We were cut off. Please ask again.")
