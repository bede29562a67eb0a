"""The talks of `tests/fixtures/changes.txt`: later words that end, oppose, take back or only mention what was said earlier."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "fixtures" / "changes.txt"
KEPT_FACTS = FILE.with_name("kept_facts.txt")
"""Later words that only look like an end of a fact."""


class ChangeCase(NamedTuple):
    """A line of the file, which tells what its parts are."""

    half: str
    kind: str
    language: str
    earlier: str
    later: str
    question: str
    old: str
    beside: str


def read_cases(*kinds: str, half: str | None = None) -> list[ChangeCase]:
    """Return the cases of some kinds, of one half or of both."""
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    cases = [ChangeCase(*line.split(" | ")) for line in lines]
    return [case for case in cases if case.kind in kinds and half in (None, case.half)]
