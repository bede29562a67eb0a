"""A statement before a question in one sentence is learned; a question about it, or a condition, is not."""

from __future__ import annotations

from datetime import UTC, datetime

from app.memory.candidate import SourceExchange
from app.memory.extract import extract
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def read_values(message: str) -> list[str]:
    return [statement.triple.value for statement in extract(SourceExchange(message, NOW)) if statement.triple]


@each_of(
    ("message", "values"),
    [
        ("Soy celíaca y vivo en Rosario, ¿qué puedo desayunar?", ["celíaca", "Rosario"]),
        ("Me mudé a Cádiz la semana pasada, ¿qué ver?", ["Cádiz"]),
        ("Moro em Braga, o que posso comer?", ["Braga"]),
        ("J'ai déménagé à Brest en mars, des idées de balade ?", ["Brest"]),
        ("J'habite à Metz et cherche un dentiste.", ["Metz"]),
        ("Ich wohne in Kiel, was kann ich heute machen?", ["Kiel"]),
        ("Wir wohnen in Görlitz und haben nur ein Lastenrad.", ["Görlitz"]),
        ("我住在成都，吃什么好？", ["成都"]),
        ("I live in Hull, need a dentist.", ["Hull"]),
        ("We relocated to Hull in spring, need a dentist.", ["Hull"]),
        ("Just moved to Hull, any tips?", ["Hull"]),
        ("I turned 34 today.", ["34"]),
        ("I'm Polish and I live in Hull.", ["Polish", "Hull"]),
        ("Mein Bruder arbeitet bei Siemens.", ["Siemens"]),
    ],
)
def test_the_slot_of_a_statement_ends_where_the_question_begins(message: str, values: list[str]) -> None:
    assert read_values(message) == values


@each_of(
    "message",
    [
        "Wenn ich in Kiel wohne, was kann ich machen?",
        "Ich bin 34, oder?",
        "Soy vegano, ¿no?",
        "Si vivo en Rosario, ¿qué hago?",
        "Moro em Braga, né?",
        "我住在成都，对吗？",
        "如果我住在成都，吃什么好？",
        "¿Vivo en Rosario, o en Santa Fe?",
        "Er sagt, ich wohne in Kiel, stimmt das?",
        "Moved to Kubernetes last year.",
        "I turned 90 degrees left.",
        "He moved to Hull.",
    ],
)
def test_what_is_asked_or_supposed_fills_no_slot(message: str) -> None:
    assert read_values(message) == []
