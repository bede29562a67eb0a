"""When micro-faults raise or pin an object."""

from __future__ import annotations

import pytest

from app.paging.verdicts import Verdict, groups, judge
from app.store.paging_values import Asked

PORT = "Which port does the gateway listen on?"
CERT = "When does the certificate expire?"
KILLED = "Why was worker 5 killed?"


def test_questions_that_say_the_same_are_one() -> None:
    asked = [Asked(1, PORT), Asked(2, "which port is the gateway listening on"), Asked(3, CERT)]
    assert groups(asked) == [2, 1]


@pytest.mark.parametrize(
    ("questions", "verdict"),
    [
        ([(5, PORT)], Verdict.LEAVE),
        ([(4, PORT), (5, CERT)], Verdict.LEAVE),
        ([(3, PORT), (4, CERT), (5, KILLED)], Verdict.RAISE),
        ([(3, PORT), (5, PORT)], Verdict.PIN),
        ([(3, PORT), (4, CERT), (5, "On which port does the gateway listen?")], Verdict.PIN),
    ],
)
def test_verdicts(questions: list[tuple[int, str]], verdict: Verdict) -> None:
    assert judge([Asked(*each) for each in questions], 5) == verdict


def test_only_the_last_turns_count() -> None:
    asked = [Asked(1, PORT), Asked(20, CERT), Asked(21, KILLED)]
    assert judge(asked, 21) == Verdict.LEAVE
    assert judge([Asked(1, PORT), Asked(21, PORT)], 21) == Verdict.LEAVE
    assert judge([], 3) == Verdict.LEAVE
