"""Sentences, words with a content, names."""

from __future__ import annotations

import pytest

from app.memory.text import is_question, names, numbers, pairs, sentences, slug, terms


def test_sentences_without_code_and_injected_blocks() -> None:
    text = "<mneme-memory a>\nx\n</mneme-memory a>\nI went to Rome. It cost 3.5 euros!\n```\ncode. Here\n```\nFine? Yes"
    assert sentences(text) == ["I went to Rome", "It cost 3.5 euros", "Fine", "Yes"] or [
        each.rstrip(".!?") for each in sentences(text)
    ] == ["I went to Rome", "It cost 3.5 euros", "Fine", "Yes"]
    assert sentences("") == []
    assert sentences("x" * 1000) == []


def test_terms_are_words_with_a_content() -> None:
    assert terms("What about the deliveries and the Boxes of glass?") == ["delivery", "boxe", "glass"]
    assert terms("ok, and you?") == []


def test_numbers_and_pairs() -> None:
    assert numbers("1,200 views, 3.5% and v2") == {"1200", "3.5", "v2"}
    assert list(pairs(["recipe", "post", "post", "views"])) == ["recipe post", "post views"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("We met Gai Media Entertainment in Lisbon.", ["Gai Media Entertainment", "Lisbon"]),
        ("Gai Media called. Then nothing.", ["Gai Media"]),
        ("Monday I saw Anna's dog Rex", ["Anna", "Rex"]),
        ("Please do it", []),
    ],
)
def test_names(text: str, expected: list[str]) -> None:
    assert names(text) == expected


def test_slugs_and_questions() -> None:
    assert slug("Gai Media!") == "gai-media"
    assert is_question('Is it "so"?')
    assert not is_question("It is so")
