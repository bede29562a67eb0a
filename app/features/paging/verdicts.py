"""When micro-faults say that an object is needed: several different questions raise it, one that comes again pins it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from app.features.paging.values import WINDOW_TURNS, FaultRecord
from app.features.paging.words import overlap, terms

RAISE_QUESTIONS = 3
"""Different questions about one object that raise it by a level. Seed 002 §1.4 knows faults that are `entropy_triggered`: the
entropy of questions of which none is asked twice is log2 of how many they are, and what is asked twice pins the object."""
REPEATS = 2
"""Times that the same question pins an object: the answer did not stay, or did not do."""
SAME_OVERLAP = 0.6
"""Share of the words of the shorter of two questions that the other has, from which they are the same."""


class FaultVerdict(StrEnum):
    """What becomes of an object after a micro-fault; seed 002 §3.3 leaves it as it is."""

    LEAVE = "leave"
    RAISE = "raise"
    PIN = "pin"


def groups(questions: Sequence[FaultRecord]) -> list[int]:
    """How often each different question was asked, in the order they came."""
    known: list[tuple[frozenset[str], int]] = []
    for each in questions:
        words = frozenset(terms(each.question))
        for i, (other, times) in enumerate(known):
            short, long = sorted((words, other), key=len)
            if words == other or (short and overlap(short, long) >= SAME_OVERLAP):
                known[i] = (other, times + 1)
                break
        else:
            known.append((words, 1))
    return [times for _, times in known]


def judge(questions: Sequence[FaultRecord], turn: int) -> FaultVerdict:
    """`questions`: all about one object, in order; only those of the last `WINDOW_TURNS` count."""
    times = groups([each for each in questions if turn - WINDOW_TURNS < each.turn <= turn])
    if any(each >= REPEATS for each in times):
        return FaultVerdict.PIN
    return FaultVerdict.RAISE if len(times) >= RAISE_QUESTIONS else FaultVerdict.LEAVE
