"""Shared prefixes of prompts."""

from __future__ import annotations

import math

import pytest

from loadtests.prefix import Turn, prompt_of, session_of, shared_prefix, turns_of


def body(*messages: bytes) -> bytes:
    return b'{"model":"[m]","messages":[' + b",".join(messages) + b"]}"


def test_the_prompt_ends_where_the_next_one_goes_on() -> None:
    assert prompt_of(body(b'{"a":[1]}', b'{"b":2}')) == b'{"a":[1]},{"b":2}'


@pytest.mark.parametrize(
    ("one", "other", "expected"), [(b"", b"abc", 0), (b"abc", b"abd", 2), (b"ab", b"abc", 2), (b"abc", b"ab", 2)]
)
def test_the_shared_prefix(one: bytes, other: bytes, expected: int) -> None:
    assert shared_prefix(one, other) == expected


def test_a_prompt_that_only_grows_is_found_again_whole() -> None:
    grown, changed = turns_of(
        [body(b"{1}"), body(b"{1}", b"{2}"), body(b"{x}", b"{2}")], [0, 1, 2], [None, None, "spent"]
    )[1:]
    assert (grown.reused, grown.prompt, grown.memories) == (1.0, 7, 1)
    assert (changed.shared, changed.earlier, changed.rebased) == (1, 7, "spent")


def test_rebases_count_apart() -> None:
    turns = [
        Turn(n, 10, shared, 10, 1, why)
        for n, shared, why in ((1, 0, None), (2, 10, None), (3, 8, None), (4, 1, "spent"))
    ]
    found = session_of("tail", turns, 3)
    assert (found.reused, found.reused_least, found.rebases, found.turns) == (0.9, 0.8, 1, 4)
    assert found.reused_all == pytest.approx(1.9 / 3)
    alone = session_of("tail", [turns[0], turns[3]], 1)
    assert math.isnan(alone.reused)
