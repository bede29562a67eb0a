"""A message is read for what it ends and takes back, in six languages."""

from __future__ import annotations

import time

import pytest

from app.memory.changes import (
    StatedChange,
    StoredStatement,
    find_changes,
    find_retraction,
    judge_change,
    list_search_patterns,
    restate,
)
from tests.support.changing import KEPT_FACTS, ChangeCase, read_cases
from tests.support.tables import each_of

LEAST_HELD_OUT = 0.85
"""Least share of the held-out half, which no rule was written for."""

MOST_S = 0.5
"""Seconds of CPU for a message as long as is read at all, on a slow machine; a backtracking pattern takes minutes."""


def is_ended(case: ChangeCase) -> bool:
    """Tell whether the later words of a case close or doubt a memory that keeps the earlier ones as they are."""
    memory = StoredStatement("fact", case.earlier, "user", None, None, ())
    changes = find_changes(case.later)
    return any(change.predicates or judge_change(change, memory) is not None for change in changes)


@each_of("case", read_cases("ended", half="fitted"))
def test_a_sign_of_change_with_the_words_of_a_memory_ends_it(case: ChangeCase) -> None:
    assert is_ended(case)


@each_of("case", read_cases("holds"))
def test_words_that_only_mention_a_memory_end_nothing(case: ChangeCase) -> None:
    assert not is_ended(case)
    assert find_retraction(case.later) is None


@each_of("case", read_cases("back", half="fitted"))
def test_words_that_take_back_are_read(case: ChangeCase) -> None:
    assert find_retraction(case.later) is not None


def test_most_of_what_was_held_out_is_read_too() -> None:
    ended, back = read_cases("ended", half="held"), read_cases("back", half="held")
    assert sum(map(is_ended, ended)) >= LEAST_HELD_OUT * len(ended)
    assert sum(find_retraction(case.later) is not None for case in back) >= LEAST_HELD_OUT * len(back)


@each_of(
    "later",
    [
        "Did I tell you that Marc and I split up?",
        "My boss switched from Arch Linux to Fedora.",
        "He said: 'I sold the Golf to my brother.'",
        "```\nI sold the Golf\n```",
        "How do I quit Vim?",
        "That's not true.",
        "Not really.",
        "I love jokes about kidding.",
        "Tell me a joke.",
        "Write *bold* text in Markdown.",
    ],
)
def test_questions_quotes_and_others_change_nothing(later: str) -> None:
    assert find_changes(later) == []
    assert find_retraction(later) is None


GOLF = StoredStatement("fact", "Drives a blue VW Golf", "user", "drives", "a blue VW Golf", ("I drive a blue VW Golf",))
MARC = StoredStatement("fact", "Boyfriend's name is Marc", "boyfriend", "name", "Marc", ())
STAMPS = StoredStatement("fact", "Collects stamps", "user", "collects", "stamps", ("I collect stamps",))
SPEAKS = StoredStatement("fact", "Speaks Dutch and Thai", "user", "speaks", "Dutch and Thai", ())
CHESS = StoredStatement("preference", "Likes chess", "user", "likes", "chess", ())
DIET = StoredStatement("fact", "Is vegetarian", "user", "diet", "vegetarian", ())
SISTER = StoredStatement("fact", "Sister drives a Golf", "sister", "drives", "a Golf", ())


@each_of(
    "later, memory, verdict",
    [
        ("I sold the Golf.", GOLF, "closes"),
        ("I sold the Golf.", SISTER, None),
        ("I sold the Passat.", GOLF, None),
        ("Marc and I broke up.", MARC, "closes"),
        ("I sold two of my stamps.", STAMPS, None),
        ("I gave up Thai.", SPEAKS, "doubts"),
        ("I quit chess.", CHESS, "doubts"),
        ("I'm eating fish again.", DIET, "closes"),
        ("I'm eating fish again.", GOLF, None),
    ],
)
def test_what_ended_is_closed_and_what_is_unclear_is_doubted(
    later: str, memory: StoredStatement, verdict: str | None
) -> None:
    (change,) = find_changes(later)
    assert judge_change(change, memory) == verdict


@each_of(
    "statement, later, right",
    [
        ("I live in Leeds.", "Just kidding about Leeds, it's York.", "I live in York."),
        ("My rent is 1100 euros.", "Scratch that, it's 1200 euros.", "My rent is 1200 euros."),
        ("My name is Jonh.", "*John", "My name is John."),
        ("My name is Jonh.", "John*", "My name is John."),
        ("My sister lives in Oslo.", "Correction: Bergen.", "My sister lives in Bergen."),
        ("Meine Miete beträgt 800 Euro.", "Quatsch, 850 Euro.", "Meine Miete beträgt 850 Euro."),
        ("I live in Leeds.", "Just kidding!", None),
        ("I have 2 cats and 3 dogs.", "Correction: 4.", None),
        ("I live in Leeds.", "Scratch that, I need to think about what I really want here.", None),
    ],
)
def test_what_is_right_takes_the_place_of_what_was_wrong(statement: str, later: str, right: str | None) -> None:
    back = find_retraction(later)
    assert back is not None
    assert restate(statement, back.old, back.right, typo=back.typo) == right


@each_of(
    "old, pattern",
    [("the Golf", "%Golf%"), ("peanuts", "%peanu%"), ("阿里巴巴", "%阿里%")],
)
def test_a_search_finds_the_word_in_other_forms(old: str, pattern: str) -> None:
    assert pattern in list_search_patterns(StatedChange(old, (), ""))


@pytest.mark.parametrize("sign", ["sold " * 200, "and I split up " * 60, ", " * 300, "not " * 150 + "any more"])
def test_a_message_of_many_signs_is_read_in_time(sign: str) -> None:
    began = time.process_time()
    find_changes(sign[:600])
    find_retraction(sign[:600])
    assert time.process_time() - began < MOST_S


@each_of("line", KEPT_FACTS.read_text(encoding="utf-8").splitlines()[1:])
def test_words_that_only_look_like_an_end_leave_the_fact_in_force(line: str) -> None:
    subject, predicate, value, text, later = line.split(" | ")
    memory = StoredStatement(
        "fact", text, subject, None if predicate == "-" else predicate, None if value == "-" else value, ()
    )
    assert [verdict for change in find_changes(later) if (verdict := judge_change(change, memory))] == []


@each_of(
    "later",
    [
        "Scratch that itch.",
        "Typo in line 3.",
        "Correction fluid is great.",
        "I lied to my boss.",
        "JK Rowling is my favourite author.",
        "My mistake was to buy it.",
        "That's my code, not me.",
        "This is my brother.",
        "Kidding around with kids is fun.",
        "Nur Spaß beiseite.",
        "Quatsch mit Soße.",
        "Perdón por la molestia.",
    ],
)
def test_words_that_only_look_like_taking_back_take_nothing_back(later: str) -> None:
    assert find_retraction(later) is None


@each_of(
    "statement, later",
    [
        ("I use Python 3.11 at work.", "Scratch that, use Python 3.12 in the script."),
        ("I use Python 3.11 at work.", "Scratch that, use Python 3.12."),
        ("I have two kids.", "Make that a haiku."),
        ("I have 3 kids.", "I mean, give me 5 ideas."),
    ],
)
def test_an_order_for_a_task_corrects_no_statement(statement: str, later: str) -> None:
    back = find_retraction(later)
    assert back is None or restate(statement, back.old, back.right) is None


@each_of(
    ("message", "old"),
    [
        ("I no longer live in Leeds, do I need to tell the council?", "live in Leeds"),
        ("Ich wohne nicht mehr in Leipzig, wem muss ich das sagen?", "wohne  in Leipzig"),
        ("Je n'habite plus à Lille, qui dois-je prévenir ?", "habite  à Lille"),
        ("Ya no vivo en Sevilla, ¿tengo que avisar al ayuntamiento?", "vivo en Sevilla"),
        ("我不住在成都了，需要去派出所吗？", "住在成都"),
        ("I sold the Golf, right?", None),
        ("I sold the Golf, didn't I?", None),
        ("If I sold the Golf, how much would I get for it?", None),
        ("What if I quit chess, what would you do then?", None),
        ("Should I say I quit, I sold the Golf, or what do you think?", None),
        ("我卖了高尔夫，对吗？", None),
    ],
)
def test_what_is_stated_before_a_question_ends_something(message: str, old: str | None) -> None:
    assert [change.old for change in find_changes(message)] == ([old] if old else [])
