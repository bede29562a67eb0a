"""Which words of a message are the user's own statements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.memory.extract_clauses import MAX_HEAD, MAX_TAIL, clauses, masked
from tests.support.tables import each_of


def texts(message: str) -> list[str]:
    return [clause.text for clause in clauses(message)]


@each_of(
    ("message", "expected"),
    [
        ("I live here. I like tea!", ["I live here", "I like tea"]),
        ("I'm vegan, I live in Rome and I like tea", ["I'm vegan", "I live in Rome", "I like tea"]),
        ("I like tea, coffee, and cake", ["I like tea, coffee, and cake"]),
        ("I live at St. Mary's. I like tea", ["I live at St. Mary's", "I like tea"]),
        ("I use Python 3.12 daily", ["I use Python 3.12 daily"]),
        ("- I like tea\n* I like cake\n1. I like pie", ["I like tea", "I like cake", "I like pie"]),
        ("well, actually I like tea", ["I like tea"]),
        ("I’m vegan", ["I'm vegan"]),
        ("I'm vegan, can you help?", ["I'm vegan"]),
        ("Am I vegan?", []),
        ("I'm vegan, right?", []),
        ("if I were vegan, I'd eat tofu", []),
        ("I like tea, if that matters", ["I like tea"]),
        ("I think I like tea", []),
        ("Tom said I like tea and I live in Rome", []),
        ("I like tea. Just kidding!", []),
        ("I like tea lol", []),
        ("Imagine this. I live on Mars.", []),
        ("", []),
    ],
)
def test_statements(message: str, expected: list[str]) -> None:
    assert texts(message) == expected


@each_of(
    "pasted",
    [
        "```\nI like tea\n```",
        "```\nI like tea",
        "`I like tea`",
        "> I like tea",
        '"I like tea"',
        "“I like tea”",
        "«I like tea»",
        "<doc>I like tea</doc>",
        "    I like tea = 1",
        '{"text": "I like tea"}',
        "| I like tea | yes |",
        "<mneme-memory a>\nI like tea\n</mneme-memory a>",
        "Ana: I like tea\nTom: I like cake",
        "Dear Tom,\nI like tea",
        "Translate this: I like tea",
        "Summarize the following text.\nI like tea.",
        "See https://example.com/I-like-tea",
    ],
)
def test_pasted_text_is_not_the_users(pasted: str) -> None:
    assert not [text for text in texts(pasted) if "like tea" in text]
    assert "I live in Rome" in texts(f"I live in Rome.\n\n{pasted}")


def test_titles_and_nicknames_in_quotes_stay() -> None:
    assert texts('I like "Dune"') == ['I like "Dune"']


def test_what_led_in_is_kept() -> None:
    clause = clauses("No, actually, I live in Porto")[0]
    assert "no" in clause.lead
    assert "actually" in clause.lead
    assert clauses("Hi, I'm Ana")[0].greeted


@given(st.text(alphabet="I'm like tea,.?!\n \"`>-:<a/>“”’and", max_size=200))
def test_places_are_those_of_the_message(message: str) -> None:
    hidden = masked(message)
    assert len(hidden) == len(message)
    for clause in clauses(message):
        assert message[clause.start : clause.end].replace("’", "'") == clause.text


def test_only_the_ends_of_a_long_message_are_read() -> None:
    message = "a" * 100_000
    hidden = masked(message)
    assert len(hidden) == len(message)
    assert hidden.count("a") == MAX_HEAD + MAX_TAIL
