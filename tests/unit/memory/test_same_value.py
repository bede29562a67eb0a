"""When two values are the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memory.claims import same_value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NET30", "NET 30"),
        ("NET30", "net-30 days"),
        ("NET30", "Net 30."),
        ("in_fulfillment", "In Fulfillment"),
        ("e-mail", "email"),
        ("  Friday ", "friday"),
        ("$3,500", "3500.00"),
        ("$3,500", "3,500 USD"),
        ("1'200", "1200"),
        ("30 days", "30 day"),
        ("true", "Yes"),
        ("f", "no"),
        ("2025-05-03", "3 May 2025"),
        ("2025-05-03", "May 3rd, 2025"),
        ("2025-05-03", "2025-05-03 00:00:00+00:00"),
        ("2025-05-03T10:00:00+00:00", "2025-05-03 12:00:00+02:00"),
        ("“Friday”", "Friday"),
    ],
)
def test_what_is_the_same(one: str, other: str) -> None:
    assert same_value(one, other)
    assert same_value(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NET30", "NET15"),
        ("NET30", "30 days"),
        ("NET30", "30"),
        ("Friday", "Thursday"),
        ("$3,500", "€3,500"),
        ("3500", "3500.50"),
        ("30 days", "30 weeks"),
        ("10%", "10 kg"),
        ("true", "1"),
        ("yes", "no"),
        ("2025-05-03", "2025-05-04"),
        ("2025-05-03T10:00:00+00:00", "2025-05-03T11:00:00+00:00"),
        ("3 May", "2025-05-03"),
        ("1 23", "12 3"),
        ("!", "?"),
        ("active", "inactive"),
        ("31 February 2025", "2025-03-03"),
    ],
)
def test_what_is_not(one: str, other: str) -> None:
    assert not same_value(one, other)
    assert not same_value(other, one)


NUMBERS = st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=0, max_value=10**9)
VALUES = st.one_of(
    st.text(max_size=40),
    NUMBERS.map(lambda n: f"${n:,}"),
    NUMBERS.map(str),
    st.datetimes().map(str),
    st.dates().map(str),
    st.sampled_from(["yes", "false", "NET 30", "net-30 days", "3 May 2025"]),
)


@given(VALUES)
def test_every_value_is_the_same_as_itself(value: str) -> None:
    assert same_value(value, value)


@given(VALUES, VALUES)
def test_either_way_round(one: str, other: str) -> None:
    assert same_value(one, other) == same_value(other, one)


@given(NUMBERS)
def test_separators_do_not_matter(number: object) -> None:
    assert same_value(f"{number:,}", f"{number}")
