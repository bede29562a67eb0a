"""What somebody can like, do, want of answers, and order for good."""

from __future__ import annotations

import pytest

from app.memory import extract_grammar as manners

CASES = {
    "style": (
        ["short answers", "posts longer than 800 words"],
        ["a summary", "this answer", "answers", "the second reply"],
    ),
    "sort": (["morning person", "night owl"], ["nice person", "different person", "the person"]),
    "fan": (["Arsenal"], ["this", "your"]),
    "tool": (
        ["Vim", "a MacBook", "Python 3.12"],
        ["it", "the same code", "a for loop", "this library", "the function here"],
    ),
    "vehicle": (["a Tesla Model 3", "a bike"], ["a hard bargain", "myself crazy"]),
    "pastime": (["the piano", "chess on Thursdays"], ["devil's advocate", "by the rules"]),
    "goal": (["run a marathon"], ["this", "win"]),
    "habit": (["wake up at six"], ["do it often", "do"]),
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
    "task": (["a compiler for a toy language"], ["it", "a project", "this bug", "a new thing"]),
    "aim": (["the bar exam", "a marathon"], ["the interview", "this", "it"]),
    "lesson": (["Japanese", "the piano"], ["how to sort a list", "more about cats", "it"]),
    "sort_of": (["a coffee addict"], ["a bit of a nerd", "your fan"]),
    "name_of": (["The Economist", "Netflix"], ["your channel", "that"]),
    "fear": (["spiders", "flying"], ["breaking it", "that"]),
    "about": (["a Volvo", "43", "red wine"], ["slow", "broken", "this"]),
}


@pytest.mark.parametrize("check", CASES)
def test_checks(check: str) -> None:
    good, bad = CASES[check]
    for value in good:
        assert getattr(manners, check)(value), value
    for value in bad:
        assert getattr(manners, check)(value) is None, value


def test_an_order_keeps_its_words() -> None:
    assert (
        manners.order("please always use tables when I ask about prices.")
        == "always use tables when asked about prices"
    )
    assert manners.order("never start with 'Certainly'") == "never start with 'Certainly'"
