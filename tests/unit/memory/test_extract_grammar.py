"""Values: trimmed, in the third person, and what may stand in a statement's place."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.memory.extract_grammar import (
    CHECKS,
    alternatives,
    as_is,
    depersonalise,
    free,
    inner,
    order,
    taste,
    thing,
    thing_of_mine,
    third_person,
    trim,
    words,
)
from tests.support.tables import each_of


@each_of(
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


@each_of("value", ["tea", "the sea", "the Beatles", "to read", "a good book", "hiking and photography"])
def test_things(value: str) -> None:
    assert thing(value) == value


POINTING = (
    "it|this answer|your idea|the second option|the idea|how it works|to know more|option B|a lot|42|what you said|the|"
    + "x " * 20
)


@each_of("value", [*POINTING.split("|"), "x " * 20])
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


# --- sentences without their first person -----------------------------------------------------------------------------


@each_of(
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


@each_of(
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


@each_of("said", ["the car is red", "", "I", "you are nice", "I 'm", "I 42"])
def test_what_has_no_first_person_is_left(said: str) -> None:
    assert depersonalise(said) is None


def test_words_inside() -> None:
    assert inner("my sister and I met, it was mine") == "their sister and they met, it was theirs"
    assert inner("Book I") == "Book I"
    assert inner("my-app") == "my-app"


# --- what may stand for a name, a place, a trade … and what only looks like one ---------------------------------------

VALUES = {
    "name": (
        {
            "Ana": "Ana",
            "ana": "Ana",
            "Ana, not Anna": "Ana",
            "Dr. Smith": "Dr. Smith",
            "Ana María López": "Ana María López",
        },
        ["back", "later", "crazy", "when you are done", "a taxi", "Ana 4", "not important", "the one who knocks", ""],
    ),
    "names": ({"Ada and Zoe": "Ada and Zoe", "Rex": "Rex"}, ["the best", "Ada and the others"]),
    "own_name": ({"Marco": "Marco"}, ["easy", "Python", "German"]),
    "place": (
        {
            "Lisbon": "Lisbon",
            "lisbon": "Lisbon",
            "Lisbon, Portugal": "Lisbon, Portugal",
            "the suburbs of Chicago": "the suburbs of Chicago",
            "a small village": "a small village",
            "Porto now": "Porto",
            "Rome with my cat": "Rome",
            "the US": "the US",
            "New York City": "New York City",
        },
        ["fear", "the past", "a bubble", "interesting times", "here", "HR", "PostgreSQL", "the next page", ""],
    ),
    "trade": (
        {
            "a nurse": "a nurse",
            "a graphic designer": "a graphic designer",
            "the CEO of Acme": "the CEO of Acme",
        },
        ["a mess", "a potato", "a bit tired", "a racist", "a big problem", "a", ""],
    ),
    "field": ({"IT": "IT", "a hospital": "a hospital"}, ["silence", "hard", "it"]),
    "allergen": ({"peanuts": "peanuts", "bee stings": "bee stings"}, ["Mondays", "work", "this"]),
    "allergy": ({"severe shellfish": "shellfish", "peanut": "peanut"}, ["no", "a", "severe"]),
    "age": ({"2": "2", "five": "five"}, ["0", "200", "late"]),
    "kin": ({"two kids": "two kids", "a dog named Rex": "a dog named Rex"}, ["a cat meme", "a dog person"]),
    "day": ({"4 May": "4 May", "June 3rd": "June 3rd"}, ["soon", "over", "the best"]),
}


@each_of("check", VALUES)
def test_values(check: str) -> None:
    good, bad = VALUES[check]
    for value, trimmed in good.items():
        assert CHECKS[check](value) == trimmed, value
    for value in bad:
        assert CHECKS[check](value) is None, value


# --- what somebody can like, do, want of answers, and order for good --------------------------------------------------

MANNERS = {
    "style": (
        ["short answers", "posts longer than 800 words"],
        ["a summary", "this answer", "answers", "the second reply"],
    ),
    "tool": (
        ["Vim", "a MacBook", "Python 3.12"],
        ["it", "the same code", "a for loop", "this library", "the function here"],
    ),
    "vehicle": (["a Tesla Model 3", "a bike"], ["a hard bargain", "myself crazy"]),
    "pastime": (["the piano", "chess on Thursdays"], ["devil's advocate", "by the rules"]),
    "order": (
        ["always answer in French", "Never use emojis"],
        [
            "never mind",
            "never again",
            "always",
            "never give up",
            "don't use recursion in this function",
            "never x" + " y" * 50,
        ],
    ),
    "languages": (
        ["English and French", "a little German", "fluent Dutch"],
        ["nonsense", "from experience", "English badly"],
    ),
    "about": (["a Volvo", "43", "red wine"], ["slow", "broken", "this"]),
}


@each_of("check", MANNERS)
def test_checks(check: str) -> None:
    good, bad = MANNERS[check]
    for value in good:
        assert CHECKS[check](value), value
    for value in bad:
        assert CHECKS[check](value) is None, value


def test_an_order_keeps_its_words() -> None:
    assert order("please always use tables when I ask about prices.") == "always use tables when asked about prices"
    assert order("never start with 'Certainly'") == "never start with 'Certainly'"
