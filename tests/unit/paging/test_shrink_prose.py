"""Prose by headings, leads and weighty sentences."""

from __future__ import annotations

from app.features.paging.shrink import (
    HEADING,
    LEAD,
    OTHER_SENTENCE,
    SALIENT,
    prose_outline,
    salience,
    sentences,
    shrink,
)
from app.features.paging.values import ContentKind
from tests.unit.paging.made import COUNT, PROSE


def test_groups() -> None:
    made = prose_outline(f"# The harbour\n\n{PROSE}\n\nThe lights are green. Nobody knows why.\n")
    found = {line.text: line.group for line in made.lines}
    assert found["# The harbour"] == HEADING
    assert found["The harbour was rebuilt in 1874 by the brothers Falk."] == LEAD
    assert found["The lights are green."] == LEAD
    assert {SALIENT, OTHER_SENTENCE} & set(found.values())


def test_a_sentence_of_the_texts_own_words_weighs_more_and_a_figure_more_still() -> None:
    weights = salience(["The lock has a gate.", "The lock has 4 gates.", "Rain fell.", "The lock was built."])
    assert weights[1] > weights[0] > weights[2]


def test_sentences() -> None:
    assert sentences("One. Two! “Three?” Four") == ["One.", "Two!", "“Three?", "Four"]
    assert [len(each) for each in sentences("x" * 1000)] == [400, 400, 200]


def test_levels() -> None:
    text = "\n\n".join(f"## Part {i}\n\n{PROSE}" for i in range(20))
    made = shrink(text, ContentKind.PROSE, COUNT)
    assert "what it is about and how it is divided" in made.detailed.can_answer
    assert "## Part 0" in made.compact.text
    assert any("other sentences" in each for each in made.detailed.losses)
