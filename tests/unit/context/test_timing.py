"""The time that a question speaks of, asked on Friday 2026-11-20."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.context.question import TIME_CHARS, Span, asked_time

FRIDAY = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)


def days(span: Span | None) -> tuple[str | None, str | None] | None:
    if span is None:
        return None
    begin, end = (None if each is None else each.date().isoformat() for each in span)
    return begin, end


@pytest.mark.parametrize(
    ("question", "begin", "end"),
    [
        ("What did I say yesterday?", "2026-11-19", "2026-11-20"),
        ("What did we decide last week?", "2026-11-09", "2026-11-16"),
        ("What did Gai Media order last month?", "2026-10-01", "2026-11-01"),
        ("Where were we last weekend?", "2026-11-14", "2026-11-16"),
        ("What happened in May?", "2026-05-01", "2026-06-01"),
        ("What happened in December?", "2025-12-01", "2026-01-01"),
        ("Who called on 3 March 2025?", "2025-03-03", "2025-03-04"),
        ("Who called on March 3rd, 2025?", "2025-03-03", "2025-03-04"),
        ("Who called on 2025-03-03?", "2025-03-03", "2025-03-04"),
        ("Who called on March 3,2025?", "2025-03-03", "2025-03-04"),
        ("What was I reading two weeks ago?", "2026-11-03", "2026-11-10"),
        ("What did I eat three days ago?", "2026-11-16", "2026-11-19"),
        ("Where did I live in 2019?", "2019-01-01", "2020-01-01"),
        ("What did we plan for summer 2024?", "2024-06-01", "2024-09-01"),
        ("What did we do last summer?", "2026-06-01", "2026-09-01"),
        ("What came in the second week of October 2025?", "2025-10-01", "2025-11-01"),
        ("What was it, October 2025 or so?", "2025-10-01", "2025-11-01"),
        ("What did I give her at Christmas?", "2025-12-24", "2025-12-27"),
        ("What did I buy before Christmas?", None, "2025-12-24"),
        ("What did we do on New Year's Eve 2024?", "2024-12-31", "2025-01-02"),
        ("What has changed since June?", "2026-06-01", None),
        ("What came after 3 March 2025?", "2025-03-04", None),
        ("How many were done by July 10, 2026?", None, "2026-07-11"),
        ("What was said until March 2026?", None, "2026-04-01"),
        ("What happened between August 11 and August 15 2025?", "2025-08-11", "2025-08-16"),
        ("What happened between 3 and 5 May 2025?", "2025-05-03", "2025-05-06"),
        ("What did I say from the 3rd to the 5th of May 2025?", "2025-05-03", "2025-05-06"),
        ("What happened from 3 March 2025 to 5 March 2025?", "2025-03-03", "2025-03-06"),
        ("What did I read between May and July?", "2026-05-01", "2026-08-01"),
        ("What did I read from October to December?", "2025-10-01", "2026-01-01"),  # this December is still to come
        ("What did I read between October and November?", "2026-10-01", "2026-12-01"),
        ("What did I read between November and February?", "2025-11-01", "2026-03-01"),
        ("What will I do between May and July?", "2027-05-01", "2027-08-01"),
        ("What will I do from November to January?", "2026-11-01", "2027-02-01"),
        ("What did I read between May and July 2024?", "2024-05-01", "2024-08-01"),
        ("What did I read between November and February 2024?", "2023-11-01", "2024-03-01"),
        ("What did I read between May and July of last year?", "2025-05-01", "2025-08-01"),
        ("What did I read from November to February last year?", "2024-11-01", "2025-03-01"),
        ("What will I read from May to July next year?", "2027-05-01", "2027-08-01"),
        ("What did I read from May 2024 to July?", "2024-05-01", "2024-08-01"),
        ("What did I read from November 2023 through February?", "2023-11-01", "2024-03-01"),
        ("What did I read between May 2024 and March 2025?", "2024-05-01", "2025-04-01"),
        ("what did I read from early may until late july?", "2026-05-01", "2026-08-01"),
        ("What did I read from Sept. to Oct.?", "2026-09-01", "2026-11-01"),
        ("What did I read in May and June?", "2026-05-01", "2026-07-01"),
        ("What did I read in December and January?", "2025-12-01", "2026-02-01"),
        ("What did I read in May\u2013July 2024?", "2024-05-01", "2024-08-01"),
        ("What did I read during the months of May to July?", "2026-05-01", "2026-08-01"),
        ("Where did I live between 2019 and 2021?", "2019-01-01", "2022-01-01"),
        ("Where did I live from 2019 to 2021?", "2019-01-01", "2022-01-01"),
        ("Where did I live in 2019-2021?", "2019-01-01", "2022-01-01"),
        ("Where did I live between the years 2021 and 2019?", "2019-01-01", "2022-01-01"),
        ("What happened between 30 April and 2 May?", "2026-04-30", "2026-05-03"),
        ("What happened from April 30 to May 2, 2025?", "2025-04-30", "2025-05-03"),
        ("What was the week before 16 November 2025?", "2025-11-09", "2025-11-16"),
        ("What did she get two weeks before August 11, 2025?", "2025-07-25", "2025-08-01"),
        ("What was the day after 1 May 2026?", "2026-05-02", "2026-05-03"),
        ("Where was the show on the Sunday before October 25, 2025?", "2025-10-18", "2025-10-25"),
        ("What will I do next week?", "2026-11-23", "2026-11-30"),
        ("What am I going to do in May?", "2027-05-01", "2027-06-01"),
        ("What is due tomorrow?", "2026-11-21", "2026-11-22"),
        ("What was it in September last year?", "2025-09-01", "2025-10-01"),
        ("What was it on 5 March of last year?", "2025-03-05", "2025-03-06"),
        ("What was it on March 5th last year?", "2025-03-05", "2025-03-06"),
        ("What did we do at Christmas last year?", "2025-12-24", "2025-12-27"),
        ("What changed since May last year?", "2025-05-01", None),
        ("What was it from September last year to May this year?", "2025-09-01", "2026-06-01"),
        ("What did I read last May to July?", "2026-05-01", "2026-08-01"),
        ("What did I read from last December to February?", "2025-12-01", "2026-03-01"),
        ("What did I read between May and last July?", "2026-05-01", "2026-08-01"),
        ("What will I read between next May and July?", "2027-05-01", "2027-08-01"),
        ("What happened from 5 March to April?", "2026-03-05", "2026-05-01"),
        ("What happened from March 5, 2025 to April?", "2025-03-05", "2025-05-01"),
        ("What happened between 5 December and January?", "2025-12-05", "2026-02-01"),
        ("What happened from March to 5 April?", "2026-03-01", "2026-04-06"),
        ("What happened from March to April 5, 2025?", "2025-03-01", "2025-04-06"),
        ("What was said in the week of 5 May?", "2026-05-04", "2026-05-11"),
        ("What was said in the week of May 5th, 2025?", "2025-05-05", "2025-05-12"),
        ("What did we do on the weekend of 9 May 2026?", "2026-05-09", "2026-05-11"),
        ("What did we sell last quarter?", "2026-07-01", "2026-10-01"),
        ("What has changed since last quarter?", "2026-07-01", None),
        ("What was done by the end of Q2?", None, "2026-07-01"),
        ("What was it before week 34?", None, "2026-08-17"),
        ("What did we ship between Q1 and Q3?", "2026-01-01", "2026-10-01"),
    ],
)
def test_what_time_a_question_speaks_of(question: str, begin: str | None, end: str | None) -> None:
    assert days(asked_time(question, FRIDAY)) == (begin, end)


@pytest.mark.parametrize(
    "question",
    ["", "Where does Ana live?", "May I ask you something?", "How may we march on?",
     "Which of the 12 was it?", "Do you know a second one?", "How do I march to April's house, and may I?",
     "Who scored in the third quarter of the game?", "What is a quarter of 12?",
     "How many questions are in week 2 of the course?",
     "What was the answer three questions ago?", "What is the last thing that I should weekly do?"],
)  # fmt: skip
def test_no_time(question: str) -> None:
    assert asked_time(question, FRIDAY) is None


def test_a_date_with_a_year_counts_before_one_without() -> None:
    assert days(asked_time("What was the trouble last week, as told on November 6, 2025?", FRIDAY)) == (
        "2025-11-06",
        "2025-11-07",
    )


def test_days_are_those_of_who_asks() -> None:
    late = datetime(2026, 11, 20, 23, 30, tzinfo=timezone(timedelta(hours=9)))
    span = asked_time("What did I say yesterday?", late)
    assert span is not None
    assert span.begin == datetime(2026, 11, 18, 15, tzinfo=UTC)


def test_a_day_is_as_long_as_it_was_there() -> None:
    """The clocks of Lisbon went back on 25 October 2026."""
    span = asked_time("What did I say on 25 October?", datetime(2026, 11, 20, 15, tzinfo=ZoneInfo("Europe/Lisbon")))
    assert span is not None
    assert [each and each.astimezone(UTC) for each in span] == [
        datetime(2026, 10, 24, 23, tzinfo=UTC),
        datetime(2026, 10, 26, 0, tzinfo=UTC),
    ]


def test_of_a_long_question_both_ends_are_looked_at() -> None:
    pasted = "x" * 10 * TIME_CHARS
    assert asked_time(f"Look at this from last month: {pasted} What is it?", FRIDAY) is not None
    assert asked_time(f"Look at this. {pasted} Who sent it last month?", FRIDAY) is not None
    assert asked_time(f"{pasted} last month {pasted}", FRIDAY) is None


@pytest.mark.parametrize("year", [1, 9999])
def test_at_the_edges_of_the_calendar(year: int) -> None:
    for question in (
        "last year",
        "next year",
        "10 years ago",
        "in 999 years",
        "before Christmas",
        "two weeks before 1 May",
    ):
        for month, day in ((1, 1), (12, 31)):
            asked_time(f"What is {question}?", datetime(year, month, day, tzinfo=UTC))


_WORDS = """
    quarter q3 past hours until this
    what between and before after since by last next may on in the of 3 31 2024 march week weeks two ago christmas to day from
    february 29 99999
"""
WORDS = st.sampled_from([*_WORDS.split(), "last year", "week 34", "a couple of", "the last 30 days"])


@given(st.lists(WORDS, max_size=12).map(" ".join), st.datetimes(timezones=st.just(UTC)))
def test_whatever_is_asked(question: str, now: datetime) -> None:
    span = asked_time(question, now)
    assert span is None or span != (None, None)
    if span is not None and span.begin is not None and span.end is not None:
        assert span.begin <= span.end
