"""Words of prose and code in one form."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.paging.values import overlap, stem, terms


@pytest.mark.parametrize(
    "words",
    [
        "expire expires expired expiry",
        "retry retries retried",
        "stop stopped stopping",
        "index indexes indexed indexer",
        "configuration configurations",
    ],
)
def test_forms_of_a_word_are_one(words: str) -> None:
    assert len({stem(each) for each in words.split()}) == 1


def test_identifiers_are_their_parts_too() -> None:
    assert terms("authMiddleware") == ["authmiddlewar", "auth", "middlewar"]
    assert set(terms("TOKEN_EXPIRED")) == set(terms("expired tokens"))
    assert "http" in terms("HTTPServer")


def test_numbers_count_and_empty_words_do_not() -> None:
    assert terms("What is the status 401?") == [stem("status"), "401"]
    assert terms("") == []


def test_overlap_by_hand() -> None:
    assert math.isclose(overlap(frozenset("abcd"), frozenset("cdef")), 0.5)
    assert overlap(frozenset(), frozenset("a")) == 0.0


@given(st.text(max_size=400))
def test_any_text(text: str) -> None:
    for each in terms(text):
        assert each
        assert each == each.lower() or not each.isascii()
