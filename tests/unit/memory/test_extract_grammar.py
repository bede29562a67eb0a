"""Sentences without their first person."""

from __future__ import annotations

import pytest

from app.memory.extract_grammar import depersonalise, inner, third_person


@pytest.mark.parametrize(
    ("verb", "form"),
    [
        ("live", "lives"),
        ("have", "has"),
        ("go", "goes"),
        ("study", "studies"),
        ("play", "plays"),
        ("watch", "watches"),
        ("fix", "fixes"),
        ("am", "is"),
        ("can", "can"),
        ("went", "went"),
        ("visited", "visited"),
        ("don't", "don't"),
    ],
)
def test_third_person(verb: str, form: str) -> None:
    assert third_person(verb) == form


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("I live with my parents", "Lives with their parents"),
        ("I'm learning Go", "Is learning Go"),
        ("I am not sure", "Is not sure"),
        ("I've got a cat", "Has a cat"),
        ("I have got a cat", "Has a cat"),
        ("I have a cat", "Has a cat"),
        ("I don't eat meat", "Does not eat meat"),
        ("I do not eat meat", "Does not eat meat"),
        ("I can't swim", "Cannot swim"),
        ("I'll be late", "Will be late"),
        ("I also really like tea", "Likes tea"),
        ("I always walk my dog when I wake up", "Always walks their dog when they wake up"),
        ("my car is red", "Car is red"),
        ("our house is small", "House is small"),
        ("we sell soap", "Sells soap"),
        ("I went to Rome", "Went to Rome"),
    ],
)
def test_statements(said: str, told: str) -> None:
    assert depersonalise(said) == told


@pytest.mark.parametrize("said", ["the car is red", "", "I", "you are nice", "I 'm", "I 42"])
def test_what_has_no_first_person_is_left(said: str) -> None:
    assert depersonalise(said) is None


def test_words_inside() -> None:
    assert inner("my sister and I met, it was mine") == "their sister and they met, it was theirs"
    assert inner("Book I") == "Book I"
    assert inner("my-app") == "my-app"
