"""Truth and commands in six languages: precision and recall of the rules, and their speed on hostile input."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from app.features.multilingual import fact_rules
from app.languages import LANGUAGES, language, language_of, read
from app.memory.candidate import Ended, SourceExchange, Triple
from app.memory.commands import Command, commands
from app.memory.extract import extract
from tests.support.languages import cases, score
from tests.support.tables import each_of

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


@each_of("code", LANGUAGES)
def test_what_the_rules_were_written_with(code: str) -> None:
    precision, recall, report = score(cases(code, "dev"))
    assert precision >= 0.98, "\n".join(report)
    assert recall >= 0.97, "\n".join(report)


@each_of("code", LANGUAGES)
def test_what_they_never_saw(code: str) -> None:
    """No report: nobody is to look up, sentence by sentence, what fails here, and mend the rules by it."""
    precision, recall, _ = score(cases(code, "held"))
    assert precision >= 0.9
    assert recall >= 0.87


@each_of("code", LANGUAGES)
def test_there_are_enough_sentences(code: str) -> None:
    both = [*cases(code, "dev"), *cases(code, "held")]
    assert len([each for each in both if each.labels]) >= 120
    assert len([each for each in both if not each.labels]) >= 40


@each_of("code", LANGUAGES)
def test_the_language_of_a_sentence_is_known(code: str) -> None:
    said = [each.text for half in ("dev", "held") for each in cases(code, half)]
    known = [text for text in said if language_of(text) == code]
    assert len(known) >= 0.93 * len(said)


@each_of(
    "text",
    ["", "42", "Berlin?", "Ciao, mi chiamo Luca e vivo a Roma.", "Привет, меня зовут Иван.", "東京に住んでいます。"],
)
def test_a_language_without_rules_is_none_of_the_six(text: str) -> None:
    assert language_of(text) == ""


@each_of(
    ("code", "texts"),
    [
        ("en", "Use metric units. | No more emojis. | Be brief. | Stop using emojis. | Continue"),
        (
            "es",
            "Nunca uses emojis. | Deja de usar emojis. | Sé breve. | Contesta en inglés. | No uses emojis. | Que sabes de mi?",
        ),
        (
            "pt",
            "Usa sempre emojis. | Responde sempre em tópicos. | Que sabes de mim? | Sê breve. | Trata-me por tu.",
        ),
        ("de", "Nutze metrische Einheiten. | Fass dich kurz. | Keine Emojis mehr."),
        ("fr", "Sois bref. | Arrête les emojis. | Tutoie-moi."),
    ],
)
def test_the_language_of_a_short_text_is_known(code: str, texts: str) -> None:
    assert [text for text in texts.split(" | ") if language_of(text) != code] == []


def test_the_talk() -> None:
    """The conversation of one user, in the order of its messages."""
    said = (
        "Hi! I'm Bob. I work as a data engineer at Acme in Porto, my wife Maria is allergic to peanuts, "
        "and our daughter Inês turns 5 on March 3rd."
    )
    assert [each.triple for each in extract(SourceExchange(said, NOW))] == [
        Triple("user", "name", "Bob"),
        Triple("user", "occupation", "a data engineer"),
        Triple("user", "works_at", "Acme"),
        Triple("user", "work_location", "Porto"),
        Triple("wife", "name", "Maria"),
        Triple("wife", "allergic_to", "peanuts"),
        Triple("daughter", "name", "Inês"),
        Triple("daughter", "birthday", "3 March"),
    ]
    moved, left, freelance = extract(
        SourceExchange("Actually we moved to Berlin last month. And I left Acme, I'm freelancing now.", NOW)
    )
    october = datetime(2026, 10, 1, tzinfo=UTC)
    assert (moved.triple, moved.since) == (Triple("user", "lives_in", "Berlin"), october)
    assert moved.ends == (Ended("user", "lives_in", None, october),)
    assert {"commute", "gym", "work_location"} <= set(moved.doubts)
    assert Ended("user", "works_at", "Acme") in left.ends
    assert freelance.triple == Triple("user", "occupation", "freelancing")
    hated, wish = extract(SourceExchange("I hate cilantro, never suggest it.", NOW))
    assert hated.triple == Triple("user", "dislikes", "cilantro")
    assert (wish.kind, wish.content) == ("instruction", "Never suggest cilantro")
    assert [each.kind for each in extract(SourceExchange("Always answer me in bullet points.", NOW))] == ["instruction"]


@each_of(
    ("text", "kind", "about", "scope", "replacement"),
    [
        ("Please forget that I worked at Acme.", "forget", "I worked at Acme", "thing", ""),
        ("Don't remember this.", "forget", "", "this", ""),
        ("Olvida todo lo que sabes de mí.", "forget", "", "everything", ""),
        ("That's wrong. I live in Porto.", "correct", "", "thing", "I live in Porto"),
        ("What do you know about me?", "recall", "", "everything", ""),
        ("Que sabes de mim?", "recall", "", "everything", ""),
        ("Deja de usar emojis.", "stop", "emojis", "thing", ""),
        ("记住我对坚果过敏。", "remember", "我对坚果过敏", "thing", ""),
    ],
)
def test_a_command(text: str, kind: str, about: str, scope: str, replacement: str) -> None:
    (command,) = commands(text)
    assert (command.kind, command.about, command.scope, command.replacement) == (kind, about, scope, replacement)
    start, end = command.span
    assert text[start:end] in text


@each_of("code", LANGUAGES)
def test_what_orders_nothing_of_memory_is_no_command(code: str) -> None:
    """One that is wrongly obeyed destroys memory: none is allowed, of the sentences that are labelled as saying nothing."""
    assert [each.text for each in cases(code, "dev") if not each.labels and _plain(each.text)] == []


def _plain(text: str) -> list[Command]:
    return [each for each in commands(text) if each.plain]


def test_a_bad_file_is_refused() -> None:
    with pytest.raises(ValueError, match="is not defined"):
        read("en", "[commands]\n<NOWHERE> x => forget thing")
    with pytest.raises(ValueError, match="before the first section"):
        read("en", "x = y")


@each_of("code", LANGUAGES)
def test_all_rules_are_read(code: str) -> None:
    assert language(code).commands
    assert code == "en" or len(fact_rules(code)) > 60


SECONDS = 2.0
"""Of one hostile message on a busy machine; a catastrophic expression takes minutes."""


@each_of(
    "piece",
    [
        "I no longer ",
        "forget that ",
        "olvida que ",
        "ich habe ",
        "je ne ",
        "não ",
        "我以前在",
        ", ",
        "please ",
        "<!--",
        "“",
        "¿",
        "a: ",
        "no, ",
        "ahora ",
        "no more ",
        "you can use ",
        "keine ",
        "别再用",
    ],
)
def test_hostile_input_takes_no_time(piece: str) -> None:
    for text in (piece * 2_000, "mi " + piece * 500 + "es", "vivo en " + piece * 300):
        began = time.perf_counter()
        extract(SourceExchange(text, NOW))
        commands(text)
        assert time.perf_counter() - began < SECONDS
