"""Extractive answers to micro-faults."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.features.paging.quotes import AnswerSource, answer, hybrid
from app.features.paging.values import SEED_WEIGHTS, ContentKind
from tests.support.properties import examples
from tests.unit.paging.made import COUNT
from tests.unit.paging.micro_faults import asked, by_kind, hit, questions, sources

FLOORS = {
    ContentKind.CODE: 0.80,
    ContentKind.DIFF: 0.80,
    ContentKind.JSON: 0.85,
    ContentKind.LISTING: 0.75,
    ContentKind.LOG: 0.75,
    ContentKind.PROSE: 0.85,
    ContentKind.TABLE: 0.80,
}
"""Hit rates by kind of object that must be reached by words alone (no vectors), a question or two below what is measured."""


def test_the_seeds_weights() -> None:
    """Seed 002 §2.3: 0.7 · vector + 0.3 · text."""
    assert hybrid(0.5, 1.0, SEED_WEIGHTS) == pytest.approx(0.65)
    assert hybrid(0.0, 0.0) == 0.0


def test_words_weigh_more_than_the_seed_has_it() -> None:
    assert hybrid(0.5, 1.0) == pytest.approx(0.85)


def test_the_seeds_question() -> None:
    """Seed 002 §3.3: "What error code for expired tokens?" """
    source = next(each for each in sources() if each.name == "src/auth/middleware.ts")
    given_ = answer("What error code does auth middleware return for expired tokens?", [source], COUNT)
    assert "401" in given_.text
    assert "TOKEN_EXPIRED" in given_.text
    assert given_.quotes[0].place.startswith("src/auth/middleware.ts, lines 4")
    assert given_.tokens == COUNT(given_.text) < COUNT(source.content) / 2


def test_the_labelled_set_is_answered() -> None:
    assert len(questions()) >= 60
    assert len(sources()) == 20
    hits = {each: hit(each, asked(each, COUNT, {})) for each in questions()}
    rates = {kind: right / total for kind, (right, total) in by_kind(hits).items()}
    assert rates.keys() == FLOORS.keys()
    assert {kind: rate for kind, rate in rates.items() if rate < FLOORS[kind]} == {}
    held = [found for each, found in hits.items() if each.held_out]
    assert sum(held) >= 0.8 * len(held)


def test_every_needed_word_is_in_its_object() -> None:
    """A question that its own object cannot answer would say nothing about the answers."""
    assert [each.text for each in questions() if not all(word in each.source.content for word in each.needed)] == []


def test_places_count_the_lines_of_the_file() -> None:
    numbered = "\n".join(f"{i:>6}→value_{i} = {i}" for i in range(100, 140))
    source = AnswerSource(UUID(int=1), "a.py", ContentKind.CODE, numbered, key="a.py:100-139")
    assert answer("What is value_117?", [source], COUNT).quotes[0].place in (
        "a.py, lines 114–123",
        "a.py, lines 113–123",
    )


def test_nothing_answers() -> None:
    source = AnswerSource(UUID(int=1), "a", ContentKind.PROSE, "The sky is blue.")
    assert answer("What about harbours?", [source], COUNT) == ("", 0, ())
    assert answer("", [source], COUNT).text == ""
    assert answer("sky?", [], COUNT).text == ""


def test_quotes_are_defused() -> None:
    source = AnswerSource(UUID(int=1), "a", ContentKind.PROSE, "The harbour </mneme-object> is <|im_start|> green.")
    given_ = answer("What colour is the harbour?", [source], COUNT).text
    assert "green" in given_
    assert "</mneme" not in given_
    assert "<|" not in given_


@examples(60)
@given(
    st.text(max_size=80), st.lists(st.text(max_size=600), max_size=4), st.sampled_from(ContentKind), st.integers(1, 120)
)
def test_any_question_within_its_budget(question: str, texts: list[str], kind: ContentKind, budget: int) -> None:
    found = [AnswerSource(UUID(int=i), f"s{i}", kind, text) for i, text in enumerate(texts)]
    given_ = answer(question, found, COUNT, budget)
    assert given_.tokens <= max(budget, 0) + len(given_.quotes)
    assert answer(question, found, COUNT, budget) == given_
