"""Statements that the tagger finds in a user's message, and what it leaves to others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import numpy as np

from app.memory.candidate import SourceExchange
from app.memory.extract import extract
from app.memory.statements import find_statements, is_role_play_start, tag_message
from app.memory.tagger import MAX_CHARS, MAX_TAIL_CHARS, MAX_WORDS, MessageTagger, split_words
from app.text_cache import forget
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def read_contents(message: str, *, in_role_play: bool = False) -> list[str]:
    return [candidate.content for candidate in extract(SourceExchange(message, NOW, in_role_play=in_role_play))]


@each_of(
    ("message", "word"),
    [
        ("hi, I'm a solicitor in Leeds, we have an old rails monolith that I'm porting to React", "solicitor"),
        ("I work in the affiliate team at a shoe company, can you draft our newsletter?", "affiliate"),
        ("Can you explain useEffect? I'm building a habit tracker app in React Native.", "habit tracker"),
        ("I run a small bakery in Leeds and need a slogan", "bakery"),
        ("Ich arbeite als Krankenpfleger in Leipzig und brauche einen Dienstplan in Excel.", "Krankenpfleger"),
        ("Trabajo en una clínica veterinaria, ¿me ayudas con un correo?", "clínica"),
        ("Je suis infirmière à Lyon et je cherche une recette rapide.", "infirmière"),
        ("Trabalho como enfermeira no Porto e preciso de uma escala.", "enfermeira"),
    ],
)
def test_a_statement_beside_a_request_is_learned(message: str, word: str) -> None:
    assert any(word in content for content in read_contents(message)), read_contents(message)


@each_of(
    "message",
    [
        "Translate into French:\nI live in Lagos and I work as a nurse. My husband is a pilot.",
        "Write a story about a man who says: I have three dogs and I hate my job.",
        "What is the capital of France?",
        "Can you give me a regex for e-mail addresses?",
        "Übersetze ins Englische:\nIch wohne in Bremen und habe zwei Katzen.",
        "Resume este correo:\nHola, soy Marta y trabajo en el banco.",
    ],
)
def test_what_is_not_the_users_own_is_not_learned(message: str) -> None:
    assert read_contents(message) == []


def test_a_statement_is_an_exact_span_of_the_message() -> None:
    message = "Thanks!\n\nI run a small bakery in Leeds, and my sister Ana helps out on Saturdays. What should we sell?"
    statements = find_statements(tag_message(message))
    assert statements
    for statement in statements:
        assert message[statement.start : statement.end].strip() == message[statement.start : statement.end]
        assert 0 < statement.probability <= 1


def test_a_role_play_is_noticed() -> None:
    start = "Let's role-play: you are a waiter and I am a guest who is allergic to peanuts. You begin."
    assert is_role_play_start(SourceExchange(start, NOW))
    assert not is_role_play_start(SourceExchange("I am a waiter in Leeds. Suggest a snack.", NOW))


def test_a_huge_message_is_read_at_both_ends_alone() -> None:
    message = "x " * 100_000 + "\nI live in Leeds."
    words = split_words(message)
    assert len(words.words) == MAX_WORDS
    assert words.ends[-1] == len(message)
    assert max(words.starts[: MAX_WORDS // 2]) < MAX_CHARS
    assert min(start for start in words.starts if start > MAX_CHARS) >= len(message) - MAX_TAIL_CHARS


def test_an_empty_message_has_no_statements() -> None:
    assert find_statements(tag_message("")) == []
    assert find_statements(tag_message(" \n\t\n")) == []


def test_a_rule_takes_only_its_own_clause() -> None:
    message = "hi, I'm a solicitor in Leeds, we have an old rails monolith that I'm porting to React"
    assert read_contents(message) == [
        "Is a solicitor in Leeds",
        "Has an old rails monolith that they are porting to React",
    ]


def test_a_relative_alone_is_no_statement() -> None:
    assert "Brother" not in read_contents("Gave the Golf to my brother, I take the tram now.")


def test_a_lone_surrogate_is_read() -> None:
    assert len(tag_message("I live in \ud83d Leeds").words.words) == 5


def test_threads_that_tag_at_once_agree() -> None:
    texts = [f"I work as a nurse in town {number} with my {number} cats named Zq{number}x" for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        tagged = list(pool.map(MessageTagger().tag, [split_words(text) for text in texts]))
    alone = MessageTagger()
    for text, message in zip(texts, tagged, strict=True):
        assert np.allclose(message.keep, alone.tag(split_words(text)).keep, atol=1e-5)


def test_nothing_of_a_message_is_kept_when_users_are_erased() -> None:
    first = tag_message("I live in Leeds.")
    assert tag_message("I live in Leeds.") is first
    forget()
    assert tag_message("I live in Leeds.") is not first
