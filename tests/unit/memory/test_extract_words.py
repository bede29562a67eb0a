"""Trimming values, and telling the world from the conversation."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memory.extract_grammar import alternatives, as_is, free, taste, thing, thing_of_mine, trim, words


@pytest.mark.parametrize(
    ("value", "trimmed"),
    [
        ("Lisbon now", "Lisbon"),
        ("tea, please", "tea"),
        ("tea a lot these days", "tea"),
        ('"Dune"', "Dune"),
        ("tea because it is warm", "tea"),
        ("Ana, not Anna", "Ana"),
        ("tea - you know", "tea"),
        ("sci-fi", "sci-fi"),
        ("", ""),
    ],
)
def test_trim(value: str, trimmed: str) -> None:
    assert trim(value) == trimmed


@pytest.mark.parametrize("value", ["tea", "the sea", "the Beatles", "to read", "a good book", "hiking and photography"])
def test_things(value: str) -> None:
    assert thing(value) == value


POINTING = (
    "it|this answer|your idea|the second option|the idea|how it works|to know more|option B|a lot|42|what you said|the|"
    + "x " * 20
)


@pytest.mark.parametrize("value", [*POINTING.split("|"), "x " * 20])
def test_what_only_points(value: str) -> None:
    assert thing(value) is None


def test_the_others() -> None:
    assert taste("holding them") is None
    assert taste("stories that make me think") == "stories that make me think"
    assert thing_of_mine("my own bakery") == "my own bakery"
    assert thing_of_mine("my own it") is None
    assert free("CET") == "CET"
    assert free("this") is None
    assert as_is(" on  leave ") == "on leave"


def test_word_lists() -> None:
    assert "nurse" in words("trades")
    assert re.fullmatch(alternatives("nationalities"), "south african")
    with pytest.raises(KeyError):
        words("no such list")


@given(st.text(max_size=60))
def test_trimming_twice_changes_nothing(value: str) -> None:
    assert trim(trim(value)) == trim(value)
