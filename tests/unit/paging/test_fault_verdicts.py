"""When micro-faults raise or pin an object."""

from __future__ import annotations

from app.features.paging.faults import FaultVerdict, groups, judge
from app.features.paging.values import FaultRecord

PORT = "Which port does the gateway listen on?"
CERT = "When does the certificate expire?"
KILLED = "Why was worker 5 killed?"


def test_questions_that_say_the_same_are_one() -> None:
    asked = [FaultRecord(1, PORT), FaultRecord(2, "which port is the gateway listening on"), FaultRecord(3, CERT)]
    assert groups(asked) == [2, 1]


def test_only_the_last_turns_count() -> None:
    asked = [FaultRecord(1, PORT), FaultRecord(20, CERT), FaultRecord(21, KILLED)]
    assert judge(asked, 21) == FaultVerdict.LEAVE
    assert judge([FaultRecord(1, PORT), FaultRecord(21, PORT)], 21) == FaultVerdict.LEAVE
    assert judge([], 3) == FaultVerdict.LEAVE
