"""Events with their day, said on Friday 2026-11-20."""

from __future__ import annotations

from datetime import UTC, datetime

from app.memory.extract import event_content, without_date
from app.memory.extract_dates import find_date
from tests.support.tables import each_of

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@each_of(
    ("said", "past", "told"),
    [
        ("I have a dentist appointment tomorrow", False, "Has a dentist appointment on 2026-11-21"),
        ("Tomorrow I have a meeting with my lawyer", False, "Has a meeting with their lawyer on 2026-11-21"),
        ("my exam is next Friday", False, "Exam is on 2026-11-27"),
        ("My flight to Oslo leaves on Sunday", False, "Flight to Oslo leaves on 2026-11-22"),
        ("I'm flying to Tokyo on 3 March with Tom", False, "Is flying to Tokyo on 2027-03-03 with Tom"),
        ("I have a deadline of April 5 for my thesis", False, "Has a deadline of 2027-04-05 for their thesis"),
        ("We went to Rome last May", True, "Went to Rome in May 2026"),
        ("I started surfing about five years ago", True, "Started surfing in 2021"),
        ("My grandmother passed away last week", True, "Grandmother passed away in the week of 2026-11-09"),
    ],
)
def test_events(said: str, past: bool, told: str) -> None:
    when = find_date(said, NOW, past=past)
    assert when is not None
    assert event_content(said, when) == told


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
        "We moved to Kubernetes last year",
    ],
)
def test_no_events(said: str) -> None:
    when = find_date(said, NOW, past=False)
    assert when is not None
    assert event_content(said, when) is None


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
