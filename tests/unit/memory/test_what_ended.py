"""What a message says has ended, and what it only seems to say."""

from __future__ import annotations

from datetime import UTC, datetime

from app.memory.candidate import SourceExchange, Triple
from app.memory.claims import ends, replaces
from app.memory.extract import extract
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def over(said: str, predicate: str, value: str) -> bool:
    subject, _, name = predicate.rpartition(".")
    stored = Triple(subject or "user", name, value)
    found = extract(SourceExchange(said, NOW))
    return any(ends(each, stored) for one in found for each in one.ends) or any(
        replaces(one.triple, stored) for one in found if one.kind == "correction"
    )


@each_of(
    ("said", "predicate", "value"),
    [
        ("I left Acme.", "works_at", "Acme"),
        ("I left Acme; it was time.", "works_at", "Acme"),
        ("I left Acme.", "occupation", "a data engineer at Acme"),
        ("I don't work at Acme any more.", "works_at", "Acme"),
        ("We left Paris for good.", "lives_in", "Paris"),
        ("We moved away from Paris.", "lives_in", "Paris"),
        ("I don't live in Berlin any more.", "lives_in", "Berlin, Germany"),
        ("I moved to Rome.", "lives_in", "Paris"),
        ("I quit smoking.", "smokes", "smoke"),
        ("I don't smoke any more.", "smokes", "smoke"),
        ("I got divorced.", "wife.name", "Maria"),
        ("My wife and I got divorced.", "wife.name", "Maria"),
    ],
)
def test_what_ended(said: str, predicate: str, value: str) -> None:
    assert over(said, predicate, value)


@each_of(
    ("said", "predicate", "value"),
    [
        ("I quit Apple Music.", "works_at", "Apple"),
        ("My sister got divorced.", "wife.name", "Maria"),
        ("Our dog died.", "dog.name", "Rex"),
        ("I left Apple.", "works_at", "Apple Records"),
        ("I just left Paris.", "lives_in", "Paris"),
        ("We left Paris, now we're on the train.", "lives_in", "Paris"),
        ("Ich habe Bonn verlassen.", "lives_in", "Bonn"),
        ("J'ai quitté Paris.", "lives_in", "Paris"),
        ("我离开了北京。", "lives_in", "北京"),
        ("I don't work at Acme on Fridays.", "works_at", "Acme"),
        ("I don't live in Berlin alone.", "lives_in", "Berlin"),
        ("I moved to dark mode.", "lives_in", "Berlin"),
        ("I moved to Dark Mode.", "lives_in", "Berlin"),
        ("I moved to row 3.", "lives_in", "Berlin"),
        ("J'ai déménagé vers Linux.", "lives_in", "Paris"),
        ("Eu mudei para Linux.", "lives_in", "Lisboa"),
        ("我搬到下一行了。", "lives_in", "北京"),
    ],
)
def test_what_did_not(said: str, predicate: str, value: str) -> None:
    assert not over(said, predicate, value)


def test_who_smokes_is_told_by_a_triple() -> None:
    assert [each.triple for each in extract(SourceExchange("I still smoke.", NOW))] == [
        Triple("user", "smokes", "smoke")
    ]
