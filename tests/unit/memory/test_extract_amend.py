"""What "no, I meant …" corrects."""

from __future__ import annotations

from datetime import UTC, datetime

from app.memory.candidate import SourceExchange, Triple
from app.memory.extract import Earlier, amended, amends, extract
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOME = Earlier("I live in Lisbon", Triple("user", "lives_in", "Lisbon"))
NAME = Earlier("My name is Jon", Triple("user", "name", "Jon"))
TEA = Earlier("I like Earl Grey", Triple("user", "likes", "Earl Grey"))


@each_of(
    ("said", "earlier", "content"),
    [
        ("No, I meant Porto", [HOME], "Lives in Porto"),
        ("Sorry, I meant Jan", [NAME, HOME], "Name is Jan"),
        ("I meant Porto, not Lisbon", [NAME, HOME], "Lives in Porto"),
        ("I meant Porto, not Rome", [HOME], None),
        ("No, I meant Thursday", [HOME], None),
        ("No, I meant Lisbon", [HOME], None),
        ("No, I meant Assam", [TEA], None),
        ("No, I meant Porto", [], None),
    ],
)
def test_what_was_meant(said: str, earlier: list[Earlier], content: str | None) -> None:
    exchange = SourceExchange(said, NOW)
    (candidate,) = extract(exchange)
    assert amends(candidate)
    found = amended(candidate, exchange, earlier)
    assert (found.content if found else None) == content
    if found:
        assert (found.kind, found.quote) == ("correction", candidate.quote)


@each_of("said", ["I meant the second one", "No, I mean the other function", "I meant no offence", "I meant well"])
def test_what_points_at_the_conversation_says_nothing(said: str) -> None:
    assert extract(SourceExchange(said, NOW)) == []
