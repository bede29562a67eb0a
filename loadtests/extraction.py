"""What the inline rules cost: `python -m loadtests.extraction` prints milliseconds per message, by its length.

The messages are the labelled sets of the tests, said alone, and joined to longer ones. Seed 001 §4.2 allows 10 ms.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from app.memory.candidate import Exchange
from app.memory.extract import extract
from app.memory.extract_rules import rules
from tests.unit.memory.labelled import labelled

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROUNDS = 3
"""Best of so many: the machine has other things to do."""


def measure(messages: list[str]) -> tuple[float, float, float]:
    """(median, 95th percentile, most) milliseconds of one message, each the best of `ROUNDS`."""
    taken = []
    for message in messages:
        best = float("inf")
        for _ in range(ROUNDS):
            began = time.perf_counter()
            extract(Exchange(message, NOW))
            best = min(best, time.perf_counter() - began)
        taken.append(best * 1000)
    taken.sort()
    return taken[len(taken) // 2], taken[len(taken) * 95 // 100], taken[-1]


def main() -> None:
    rules()
    said = [case.text for case in labelled()]
    print(f"{'message':<34}{'median':>8}{'p95':>8}{'most':>8}  ms")
    for name, joined in (("a sentence", 1), ("five sentences (some 50 words)", 5), ("twenty (some 200 words)", 20)):
        messages = [" ".join(said[at : at + joined]) for at in range(0, len(said), joined)]
        median, high, most = measure(messages)
        print(f"{name:<34}{median:>8.2f}{high:>8.2f}{most:>8.2f}")
    filler = "The quarterly report is attached, and nobody has read it so far. "
    median, high, most = measure([filler * 8_000])
    print(f"{'100,000 tokens of prose':<34}{median:>8.2f}{high:>8.2f}{most:>8.2f}")


if __name__ == "__main__":
    main()
