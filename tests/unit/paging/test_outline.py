"""Levels made of the best lines that fit, and what they declare."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.paging import outline as made
from app.features.paging.outline import (
    Group,
    Outline,
    OutlineLine,
    beyond,
    clip,
    count_bounded,
    fitting,
    shorten,
    source_lines,
)
from tests.support.properties import examples
from tests.unit.paging.made import COUNT

GROUPS = (Group("the first", "{n} of {of} firsts", "you need a first"), Group("", "{n} others", "you need the others"))


def words(text: str) -> int:
    return len(text.split())


def test_lines_are_kept_by_group_then_weight_and_shown_in_their_order() -> None:
    lines = [
        OutlineLine("rest one", 1, 1),
        OutlineLine("a b", 0, 2),
        OutlineLine("light", 1, 3),
        OutlineLine("heavy", 1, 4, 5.0),
    ]
    shrunk, kept, ask = shorten(Outline((), GROUPS, lines), 13, words)
    assert kept == {1, 3}
    assert shrunk.text == "… 2\na b\n… 4\nheavy"
    assert shrunk.losses == ("2 others",)
    assert shrunk.can_answer == ("the first",)
    assert ask == ("you need the others",)


def test_losses_are_told_against_the_level_above() -> None:
    lines = [OutlineLine("one", 0, 1), OutlineLine("two", 0, 2), OutlineLine("three", 1, 3)]
    shrunk, kept, ask = shorten(Outline((), GROUPS, lines), 7, words, above=frozenset([0, 1]))
    assert kept == {0}
    assert shrunk.losses == ("1 of 2 firsts",)
    assert shrunk.can_answer == ()
    assert ask == ("you need a first", "you need the others")


def test_everything_fits() -> None:
    lines = [OutlineLine("one", 0, 1), OutlineLine("two", 1, 2)]
    shrunk, _, ask = shorten(Outline(("head",), GROUPS, lines), 100, words)
    assert (shrunk.text, shrunk.losses, ask) == ("head\none\ntwo", (), ())


@pytest.mark.parametrize("form", ["{:>6}→{}", "{:>6}\t{}", "{}| {}", "{}: {}"])
def test_numbers_of_lines_are_taken_off(form: str) -> None:
    text = "\n".join(form.format(10 + i, line) for i, line in enumerate(["def a():", "    pass", "x = 1"]))
    assert source_lines(text) == (["def a():", "    pass", "x = 1"], 10)


def test_numbers_that_are_content_stay() -> None:
    assert source_lines("5: five\n9: nine\n10: ten")[0][0] == "5: five"


def test_what_is_not_looked_at_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert beyond("short") is None
    assert beyond("x" * (made.MAX_CHARS + 1)) == "all after the first 1,000,000 of 1,000,001 characters"
    assert beyond("\n" * (made.MAX_LINES + 1)) == "all after the first 40,000 of 40,001 lines"


def test_a_long_text_is_counted_in_part() -> None:
    assert count_bounded("a " * 1000, words) == 1000
    assert 990_000 <= count_bounded("a " * 1_000_000, words) <= 1_010_000


def test_cut_at_a_word() -> None:
    assert fitting("one two three four", 2, words) in ("one two…", "one…")
    assert clip("abcdef", 4) == "abc…"


@examples(60)
@given(
    st.lists(st.tuples(st.text(max_size=60), st.integers(0, 1), st.floats(-5, 5)), max_size=60),
    st.integers(1, 200),
)
def test_never_over_its_budget(rows: list[tuple[str, int, float]], budget: int) -> None:
    lines = [OutlineLine(text.replace("\n", " "), group, i + 1, weight) for i, (text, group, weight) in enumerate(rows)]
    shrunk, kept, _ = shorten(Outline((), GROUPS, lines), budget, COUNT)
    assert shrunk.tokens == COUNT(shrunk.text) <= budget
    assert kept <= set(range(len(lines)))
    assert bool(shrunk.losses) == any(i not in kept for i in range(len(lines)))


@given(st.text(max_size=300), st.integers(1, 60))
def test_fitting_fits(text: str, tokens: int) -> None:
    line = " ".join(text.split())
    assert COUNT(fitting(line, tokens, COUNT)) <= tokens
