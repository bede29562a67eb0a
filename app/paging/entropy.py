"""When micro-faults say that an object is needed: several different questions raise it, one that comes again pins it. Pure.

Seed 002 §3.3 leaves an object as it is after a micro-fault, and knows faults that are `entropy_triggered` (§1.4): the
entropy of the questions about one object tells a single detail (answer it) from a subject that is worked on (show more of it).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from app.paging.words import overlap, terms
from app.store.paging_values import WINDOW_TURNS, Asked

RAISE_BITS = math.log2(3)
"""Entropy from which an object is raised by one level: three different questions, each asked once."""
REPEATS = 2
"""Times that the same question pins an object: the answer did not stay, or did not do."""
SAME_OVERLAP = 0.6
"""Share of the words of the shorter of two questions that the other has, from which they are the same."""


class Verdict(StrEnum):
    LEAVE = "leave"
    RAISE = "raise"
    PIN = "pin"


def groups(questions: Sequence[Asked]) -> list[int]:
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


def entropy(times: Sequence[int]) -> float:
    """H = −Σ p · log₂ p over the different questions, bits."""
    total = sum(times)
    return -sum(each / total * math.log2(each / total) for each in times if each) if total else 0.0


def judge(questions: Sequence[Asked], turn: int) -> Verdict:
    """What becomes of an object after its last micro-fault. `questions`: all of that object, in order; only those of the last
    `WINDOW_TURNS` count."""
    times = groups([each for each in questions if turn - WINDOW_TURNS < each.turn <= turn])
    if any(each >= REPEATS for each in times):
        return Verdict.PIN
    # Three equal shares may come out a bit below log2(3).
    return Verdict.RAISE if entropy(times) >= RAISE_BITS - 1e-9 else Verdict.LEAVE
