"""Events with their day, said on Friday 2026-11-20."""

from __future__ import annotations

from datetime import UTC, datetime

from app.memory.candidate import SourceExchange, Triple
from app.memory.extract import extract, without_date
from app.memory.extract_dates import find_date
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@each_of(
    ("message", "content"),
    [
        ("I have a dentist appointment tomorrow", "Has a dentist appointment on 2026-11-21"),
        ("Tomorrow I have a meeting with my lawyer", "Has a meeting with their lawyer on 2026-11-21"),
        ("my exam is next Friday", "Exam is on 2026-11-27"),
        ("My flight to Oslo leaves on Sunday", "Flight to Oslo leaves on 2026-11-22"),
        ("I'm flying to Tokyo on 3 March with Tom", "Is flying to Tokyo on 2027-03-03 with Tom"),
        ("I have a deadline of April 5 for my thesis", "Has a deadline of 2027-04-05 for their thesis"),
        ("We went to Rome last May", "Went to Rome in May 2026"),
        ("I started surfing about five years ago", "Started surfing in 2021"),
        ("My grandmother passed away last week", "Grandmother passed away in the week of 2026-11-09"),
    ],
)
def test_events(message: str, content: str) -> None:
    candidates = extract(SourceExchange(message, NOW))
    assert [(candidate.kind, candidate.content) for candidate in candidates] == [("event", content)]


@each_of(
    ("message", "day"),
    [
        ("Ich habe morgen einen Zahnarzttermin.", "2026-11-21"),
        ("Tengo una cita con el dentista mañana.", "2026-11-21"),
        ("J'ai un rendez-vous chez le dentiste demain.", "2026-11-21"),
        ("Tenho uma consulta no dentista amanhã.", "2026-11-21"),
        ("我明天有一个面试", "2026-11-21"),
        ("I got promoted last month", "2026-10"),
    ],
)
def test_events_of_every_language_have_their_day(message: str, day: str) -> None:
    (event,) = extract(SourceExchange(message, NOW))
    assert (event.kind, event.when) == ("event", day)
    assert day in event.content or "October 2026" in event.content


AGAIN = """
I have physio every Wednesday at four
Our fiscal year starts in April
I'm using July 16-18
I usually run on Monday mornings
I swim on Friday evenings
Ich habe jeden Montag Chorprobe.
Tengo clase de yoga todos los lunes.
J'ai un cours de yoga chaque lundi.
我每周一去游泳
Je fais du judo le jeudi
Juego al tenis los jueves
Jogo xadrez às quintas
I play chess on Fridays
"""


@each_of("message", AGAIN.strip().splitlines())
def test_what_comes_again_or_is_no_day_keeps_its_words(message: str) -> None:
    statements = extract(SourceExchange(message, NOW))
    assert statements
    assert not [statement for statement in statements if statement.when or statement.kind == "event"]
    assert "20" not in " ".join(statement.content for statement in statements)


@each_of(
    ("message", "triple"),
    [
        ("Merk dir bitte, dass ich in Köln wohne.", Triple("user", "lives_in", "Köln")),
        ("Denk daran, dass ich keinen Fisch esse.", Triple("user", "avoids", "Fisch")),
        ("Notiere, dass ich vegan bin.", Triple("user", "diet", "vegan")),
        ("Merk dir, dass meine Frau Anna heißt.", Triple("wife", "name", "Anna")),
        ("Vergiss nicht, dass ich bei Bayer arbeite.", Triple("user", "works_at", "Bayer")),
    ],
)
def test_what_is_to_be_remembered_after_dass_has_its_slot(message: str, triple: Triple) -> None:
    (statement,) = extract(SourceExchange(message, NOW))
    assert statement.triple == triple
    assert statement.explicit


@each_of(
    "said",
    [
        "I got this error yesterday",
        "I will try again tomorrow",
        "I have a meeting every Monday",
        "The deadline is tomorrow",
        "I finished yesterday",
        "I went with June 15",
        "I'm using July 16-18",
    ],
)
def test_no_events(said: str) -> None:
    assert "event" not in {candidate.kind for candidate in extract(SourceExchange(said, NOW))}


@each_of(
    ("said", "left"),
    [
        ("I got a puppy two weeks ago", "I got a puppy"),
        ("Last week I got a puppy", "I got a puppy"),
        ("I prefer Monday meetings", None),
        ("a plan of April 5", None),
    ],
)
def test_without_date(said: str, left: str | None) -> None:
    when = find_date(said, NOW, past=True)
    assert when is not None
    assert without_date(said, when) == left


@each_of(
    ("message", "comes"),
    [
        ("Ich habe am Freitag einen Zahnarzttermin.", True),
        ("Wir haben am Samstag Besuch von Oma.", True),
        ("Ich habe am Freitag meine Prüfung bestanden.", False),
        ("Ich habe am Montag eine Wohnung besichtigt.", False),
        ("J'ai rendez-vous chez le dentiste vendredi.", True),
        ("J'ai un examen mardi.", True),
        ("J'ai fini ma thèse vendredi.", False),
        ("J'ai acheté une voiture samedi.", False),
    ],
)
def test_a_weekday_comes_unless_the_verb_is_past(message: str, comes: bool) -> None:
    (statement,) = extract(SourceExchange(message, NOW))
    assert statement.when is not None
    assert (statement.when > NOW.date().isoformat()) == comes
