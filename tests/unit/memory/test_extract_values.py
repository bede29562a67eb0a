"""What may stand for a name, a place, a trade … and what only looks like one."""

from __future__ import annotations

import pytest

from app.memory.extract_grammar import CHECKS

CASES = {
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
    "job": ({"nurse": "nurse", "being a pilot": "a pilot"}, ["boring", "the worst", "killing me"]),
    "field": ({"IT": "IT", "a hospital": "a hospital"}, ["silence", "hard", "it"]),
    "business": ({"a bakery in Mumbai": "a bakery in Mumbai"}, ["a mess", "it"]),
    "allergen": ({"peanuts": "peanuts", "bee stings": "bee stings"}, ["Mondays", "work", "this"]),
    "allergy": ({"severe shellfish": "shellfish", "peanut": "peanut"}, ["no", "a", "severe"]),
    "food": ({"pork": "pork", "meat or fish": "meat or fish"}, ["breakfast", "much", "that much", "it"]),
    "diet": ({"Vegan": "vegan", "teetotaler": "a teetotaler"}, []),
    "diet_plan": ({"a keto diet": "a keto diet"}, ["this new diet", "no diet", "a different diet"]),
    "years": ({"34": "34", "thirty-four": "thirty-four"}, ["2", "150", "many"]),
    "age": ({"2": "2", "five": "five"}, ["0", "200", "late"]),
    "kin": ({"two kids": "two kids", "a dog named Rex": "a dog named Rex"}, ["a cat meme", "a dog person"]),
    "day": ({"4 May": "4 May", "June 3rd": "June 3rd"}, ["soon", "over", "the best"]),
}


@pytest.mark.parametrize("check", CASES)
def test_values(check: str) -> None:
    good, bad = CASES[check]
    for value, trimmed in good.items():
        assert CHECKS[check](value) == trimmed, value
    for value in bad:
        assert CHECKS[check](value) is None, value
