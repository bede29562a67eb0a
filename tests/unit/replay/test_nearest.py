"""Which of many texts has most in common with another."""

from __future__ import annotations

from mneme_replay.nearest import MOST_FEATURES, Nearest, features


def best(near: Nearest, text: str) -> int:
    return max(near.to(text))[1]


def test_what_everybody_has_is_looked_at_last_and_no_further_than_needed() -> None:
    """20,000 texts, each with the same words: only the rare one is looked at beside what fits."""
    near = Nearest()
    for n in range(20_000):
        near.add(n, f"the same words for each and every one of them, but this: own{n}")
    assert best(near, "some of the same words, and own19999 as this one of them had it") == 19_999


def test_with_nothing_in_common_any_is_as_near() -> None:
    near = Nearest()
    near.add(3, "one")
    assert list(near.to("two")) == [(0.0, 3)]
    assert list(Nearest().to("two")) == []


def test_of_a_text_without_end_the_end_counts() -> None:
    found = features("\n".join(f"line {n}" for n in range(100_000)))
    assert MOST_FEATURES <= len(found) <= MOST_FEATURES + 2
    assert features("line 99999") <= found
    assert features("\ud800")
