"""What the inline rules find and cost: `python -m loadtests.extraction` prints precision and recall by language, and
milliseconds per message, by its length.

The messages are the labelled sets of the tests, said alone, and joined to longer ones. Seed 001 §4.2 allows 10 ms.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from app.languages import LANGUAGES
from app.memory.candidate import SourceExchange
from app.memory.commands import commands
from app.memory.extract import extract, read_rules
from app.text_cache import forget
from tests.support.languages import cases, score
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
            forget()  # a message is new to the server, not read a moment ago
            began = time.perf_counter()
            extract(SourceExchange(message, NOW))
            commands(message)
            best = min(best, time.perf_counter() - began)
        taken.append(best * 1000)
    taken.sort()
    return taken[len(taken) // 2], taken[len(taken) * 95 // 100], taken[-1]


def main() -> None:
    read_rules()
    print(f"{'language':<12}{'half':<8}{'sentences':>10}{'precision':>11}{'recall':>8}")
    for code in LANGUAGES:
        for half in ("dev", "held"):
            of = list(cases(code, half))
            found = score(of)
            print(f"{code:<12}{half:<8}{len(of):>10}{found.precision:>11.3f}{found.recall:>8.3f}")
    print()
    print(f"{'ten sentences, by language':<34}{'median':>8}{'p95':>8}{'most':>8}  ms, commands included")
    for code in LANGUAGES:
        texts = [each.text for half in ("dev", "held") for each in cases(code, half)]
        median, high, most = measure([" ".join(texts[at : at + 10]) for at in range(0, len(texts), 10)])
        print(f"{code:<34}{median:>8.2f}{high:>8.2f}{most:>8.2f}")
    print()
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
