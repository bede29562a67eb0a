"""A question: the time that it speaks of, on whose clock, and what else it asks for."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from app.context.question import (
    COUNTED_WEEKS,
    EARLIER,
    MAX_CHARS,
    TIME_CHARS,
    Period,
    QueryType,
    TimeSpan,
    asked_time,
    at_home,
    back,
    find_periods,
    months_on,
    query_type,
    temporal_scope,
    turns_ago,
    understand,
    zone_of,
)
from app.store.user_profile import NOTHING, Standing, StandingFact
from tests.support.tables import each_of

FRIDAY = datetime(2026, 11, 20, 15, 30, tzinfo=UTC)


def days(span: TimeSpan | None) -> tuple[str | None, str | None] | None:
    if span is None:
        return None
    begin, end = (None if each is None else each.date().isoformat() for each in span)
    return begin, end


@each_of(
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


@each_of(
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


@each_of("year", [1, 9999])
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


# --- quarters, weeks and stretches of time, asked on Friday 2026-11-20 ------------------------------------------------

THAT_DAY = date(2026, 11, 20)


def found(text: str, today: date = THAT_DAY, *, past: bool = True) -> list[tuple[str, str]]:
    return [(each.first.isoformat(), each.until.isoformat()) for each in find_periods(text, today, past=past)]


@each_of(
    ("text", "first", "until"),
    [
        ("What did we sell last quarter?", "2026-07-01", "2026-10-01"),
        ("What did we sell in the previous quarter?", "2026-07-01", "2026-10-01"),
        ("What did we sell this quarter?", "2026-10-01", "2027-01-01"),
        ("What is planned for next quarter?", "2027-01-01", "2027-04-01"),
        ("What did we sell in Q3?", "2026-07-01", "2026-10-01"),
        ("What did we sell in Q4?", "2026-10-01", "2027-01-01"),
        ("What did we sell in Q3 2024?", "2024-07-01", "2024-10-01"),
        ("What did we sell in q3 of 2024?", "2024-07-01", "2024-10-01"),
        ("What did we sell in 2024-Q3?", "2024-07-01", "2024-10-01"),
        ("What did we sell in the third quarter of 2024?", "2024-07-01", "2024-10-01"),
        ("What did we sell in the 1st quarter?", "2026-01-01", "2026-04-01"),
        ("What did we sell in the last quarter of 2024?", "2024-10-01", "2025-01-01"),
        ("What was it in week 34?", "2026-08-17", "2026-08-24"),
        ("What was it in week 50?", "2025-12-08", "2025-12-15"),  # this December is still to come
        ("What was it in week 34 of 2025?", "2025-08-18", "2025-08-25"),
        ("What was it in week 1, 2026?", "2025-12-29", "2026-01-05"),
        ("What was it in calendar week 3?", "2026-01-12", "2026-01-19"),
        ("What came in the last 30 days?", "2026-10-21", "2026-11-21"),
        ("What came in the past two weeks?", "2026-11-06", "2026-11-21"),
        ("What came over the last few months?", "2026-08-20", "2026-11-21"),
        ("What came in the past couple of days?", "2026-11-18", "2026-11-21"),
        ("What came in the last two quarters?", "2026-05-20", "2026-11-21"),
        ("What came in the last 48 hours?", "2026-11-18", "2026-11-21"),
        ("What came in the past year?", "2025-11-20", "2026-11-21"),
        ("What came over the last month?", "2026-10-20", "2026-11-21"),
        ("What comes in the next two weeks?", "2026-11-20", "2026-12-05"),
    ],
)
def test_what_is_meant(text: str, first: str, until: str) -> None:
    assert found(text) == [(first, until)]


def test_of_what_is_to_come_the_next() -> None:
    assert found("Q3", past=False) == [("2027-07-01", "2027-10-01")]
    assert found("Q4", past=False) == [("2026-10-01", "2027-01-01")], "it is not over"
    assert found("week 34", past=False) == [("2027-08-23", "2027-08-30")]
    assert found("week 50", past=False) == [("2026-12-07", "2026-12-14")]


@each_of(
    "text",
    ["", "a quarter of the cake", "the third quarter of the game", "last month", "the last week of May", "week 54 of 2025",
     f"week {COUNTED_WEEKS}", "the last two times", "Q5", "the FAQ2", "the last quarter of the cake", "weeks 34"],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    assert found(text) == []


def test_where_it_stands_and_whether_it_names_its_year() -> None:
    text = "What did we sell by the end of Q2 2025?"
    (there,) = find_periods(text, THAT_DAY, past=True)
    assert there == Period(text.index("the end"), len(text) - 1, date(2025, 4, 1), date(2025, 7, 1), True)
    (there,) = find_periods("in Q2", THAT_DAY, past=True)
    assert not there.year


@each_of(
    ("count", "unit", "expected"),
    [(1, "month", "2026-02-28"), (13, "month", "2025-02-28"), (1, "quarter", "2025-12-31"), (25, "hour", "2026-03-29"),
     (1, "week", "2026-03-24"), (-1, "month", "2026-04-30")],
)  # fmt: skip
def test_so_long_before(count: int, unit: str, expected: str) -> None:
    assert back(date(2026, 3, 31), count, unit).isoformat() == expected


@given(st.dates(date(2, 1, 1), date(9998, 1, 1)), st.integers(-11, 11))
def test_months_on_is_undone(day: date, by: int) -> None:
    first = day.replace(day=1)
    assert months_on(months_on(first, by), -by) == first


# --- the user's own clock ---------------------------------------------------------------------------------------------

NIGHT = datetime(2026, 7, 1, 23, 30, tzinfo=UTC)


def standing(value: str, key: str = "time_zone") -> Standing:
    return Standing(facts=(StandingFact(uuid4(), UUID(int=0), key, False, value, None, None, None),))


@each_of(
    ("told", "hours"),
    [
        ("Europe/Lisbon", 1), ("europe/lisbon", 1), ("America/New_York", -4), ("america/new_york", -4), ("Asia/Kolkata", 5.5),
        ("Pacific", -7), ("eastern time", -4), ("Eastern Time Zone", -4), ("CET", 2), ("UTC", 0), ("gmt", 0),
        ("UTC+2", 2), ("GMT-5", -5), ("+05:30", 5.5), ("UTC \u22123", -3), ("-0330", -3.5),
    ],
)  # fmt: skip
def test_what_is_a_zone(told: str, hours: float) -> None:
    zone = zone_of(told)
    assert zone is not None
    assert NIGHT.astimezone(zone).utcoffset() == timedelta(hours=hours)


@each_of(
    "told",
    ["", "Lisbon", "Europe", "Europe/", "Nowhere/Land", "UTC+15", "+99", "../../etc/passwd", "/etc/localtime", "localtime",
     "Europe/../../etc/passwd", "x/" + "y" * 300, "Europe/Lisbon\0", "my wife's"],
)  # fmt: skip
def test_what_is_no_zone(told: str) -> None:
    assert zone_of(told) is None
    assert at_home(NIGHT, standing(told)) == NIGHT
    assert at_home(NIGHT, standing(told)).tzinfo is UTC


@given(st.text(max_size=60))
def test_whatever_a_fact_says(told: str) -> None:
    assert at_home(NIGHT, standing(told)) == NIGHT


def test_yesterday_is_the_users() -> None:
    """At 23:30 UTC it is tomorrow in Lisbon's summer, and July is not last month in Los Angeles yet."""
    for told, yesterday in (("Europe/Lisbon", "2026-07-01"), ("Pacific", "2026-06-30"), ("nowhere", "2026-06-30")):
        span = understand("What did I say yesterday?", at_home(NIGHT, standing(told))).span
        assert temporal_scope(span) == {"start": yesterday, "end": yesterday}


def test_no_fact_no_zone() -> None:
    assert at_home(NIGHT, NOTHING) is NIGHT
    assert at_home(NIGHT, standing("Europe/Lisbon", "wife.time_zone")) is NIGHT


def test_at_the_edge_of_the_calendar() -> None:
    last = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    assert at_home(last, standing("+14:00")) is last


# --- what a question names, and which strategy of seed 004 it calls for -----------------------------------------------

NOW = datetime(2024, 10, 15, tzinfo=UTC)


def test_the_worked_example_of_seed_004() -> None:
    """ "What did Gai Media order last month?": the entity, September 2024, and FACTUAL_ENTITY_FOCUSED."""
    asked = understand("What did Gai Media order last month?", NOW)
    assert asked.entities == {"gai-media"}
    assert asked.span == TimeSpan(datetime(2024, 9, 1, tzinfo=UTC), datetime(2024, 10, 1, tzinfo=UTC))
    assert asked.strategy == "factual_entity_focused"
    assert temporal_scope(asked.span) == {"start": "2024-09-01", "end": "2024-09-30"}
    assert query_type(asked, resolved=True, domain=True) == QueryType(
        category="factual",
        entity_focused=True,
        time_focused=True,
        procedural=False,
        requires_domain_db=True,
        strategy="factual_entity_focused",
    )


@each_of(
    ("question", "strategy"),
    [
        ("How do I deploy the blog?", "procedural"),
        ("What are the steps to renew it?", "procedural"),
        ("Tell me about Lisbon", "exploratory"),
        ("What do you know of Gai Media?", "exploratory"),
        ("Summarise the project", "exploratory"),
        ("What happened in May?", "temporal_focused"),
        ("When did Ana move?", "temporal_focused"),
        ("What was decided last week?", "temporal_focused"),
        ("Where does Ana live?", "factual_entity_focused"),
        ("which tea is best for me?", "exploratory"),
        ("", "exploratory"),
    ],
)
def test_which_strategy_a_question_calls_for(question: str, strategy: str) -> None:
    assert understand(question, NOW).strategy == strategy


def test_what_names_nothing_is_about_its_words() -> None:
    asked = understand("what did we say of the blog posts?", NOW)
    assert not asked.named
    assert asked.entities == asked.about == {"blog", "post"}
    both = understand("what did Ana say of the blog?", NOW)
    assert both.entities == {"ana"}
    assert both.about == {"ana", "blog"}


def test_of_a_long_question_the_beginning_is_looked_at() -> None:
    assert understand("x " * MAX_CHARS + "and Lisbon?", NOW).entities == understand("x " * MAX_CHARS, NOW).entities


@each_of(
    ("question", "recap"),
    [
        ("What did we talk about in March?", True),
        ("what have we discussed so far", True),
        ("What topics did we cover last week?", True),
        ("What were you and I discussing?", True),
        ("Recap our last session", True),
        ("Please summarise the conversation of Monday", True),
        ("Give me a summary of our chats in May", True),
        ("What was our first conversation about?", True),
        ("Sum up what we said about Lisbon", True),
        ("Where did we leave off?", True),
        ("What did Ana and Bo discuss in May?", False),
        ("What was discussed in the workshop?", False),
        ("Can you summarize how my resume progressed over the past months?", False),
        ("What is the amount offered for the position we discussed?", False),
        ("How does Tim stay motivated during study sessions?", False),
        ("Where does Ana live?", False),
        ("", False),
    ],
)
def test_whether_it_asks_what_a_conversation_was_about(question: str, recap: bool) -> None:
    assert understand(question, NOW).recap is recap


@each_of(
    ("question", "resolved", "expected"),
    [
        ("what did gai media order?", True, ("factual", True, False, False, True)),
        ("what did gai media order?", False, ("exploratory", False, False, False, False)),
        ("How do I renew SO-1001?", True, ("procedural", True, False, True, True)),
        ("Tell me about Gai Media", True, ("exploratory", True, False, False, True)),
        ("When did Gai Media pay?", True, ("temporal", True, False, False, True)),
        ("what was decided last week?", False, ("temporal", False, True, False, False)),
        ("What did we discuss about Gai Media?", True, ("factual", True, False, False, False)),
        ("what was it three questions ago?", False, ("temporal", False, True, False, False)),
    ],
)
def test_what_kind_of_question_it_is(
    question: str, resolved: bool, expected: tuple[str, bool, bool, bool, bool]
) -> None:
    assert query_type(understand(question, NOW), resolved=resolved, domain=True)[:5] == expected


@each_of(
    ("category", "questions"),
    [
        ("procedural", "How do I export an invoice? | Wie exportiere ich eine Rechnung? | ¿Cómo exporto una factura?"
         " | Comment exporter une facture ? | Como exporto uma fatura? | 怎么导出发票？"),
        ("procedural", "How can I pay? | Wie kann ich bezahlen? | ¿Cómo puedo pagar? | Comment puis-je payer ?"
         " | Como posso pagar? | 如何付款？"),
        ("temporal", "What happened last week? | Was ist letzte Woche passiert? | ¿Qué pasó la semana pasada?"
         " | Que s'est-il passé la semaine dernière ? | O que aconteceu na semana passada? | 上周发生了什么？"),
        ("temporal", "When did Anna call? | Wann hat Anna angerufen? | ¿Cuándo llamó Anna? | Quand Anna a-t-elle appelé ?"
         " | Quando é que a Anna ligou? | 安娜什么时候来电话？"),
        ("exploratory", "Tell me about Acme. | Erzähl mir von Acme. | Háblame de Acme. | Parle-moi d'Acme. | Fala-me da Acme."
         " | 说说 Acme。"),
        ("exploratory", "What do you know about Acme? | Was weißt du über Acme? | ¿Qué sabes de Acme? | Que sais-tu d'Acme ?"
         " | O que sabes da Acme? | 你对 Acme 了解多少？"),
        ("factual", "Where does Anna work? | Wo arbeitet Anna? | ¿Dónde trabaja Anna? | Où travaille Anna ?"
         " | Onde trabalha a Anna?"),
        ("factual", "What is Anna's sister called? | Wie heißt Annas Schwester? | ¿Cómo se llama Anna?"),
    ],
)  # fmt: skip
def test_the_same_kind_in_each_language_of_the_rules(category: str, questions: str) -> None:
    for question in questions.split(" | "):
        assert query_type(understand(question, NOW)).category == category, question


def test_without_a_domain_nothing_is_asked_there() -> None:
    asked = understand("What did Gai Media order?", NOW)
    assert not query_type(asked, resolved=True, domain=False).requires_domain_db
    assert not query_type(asked, resolved=False, domain=True).requires_domain_db


def test_an_open_time_is_shown_open() -> None:
    assert temporal_scope(understand("What came since June?", NOW).span) == {"start": "2024-06-01", "end": None}
    assert temporal_scope(understand("What came before June?", NOW).span) == {"start": None, "end": "2024-05-31"}
    assert temporal_scope(None) is None


@each_of(
    ("question", "turns"),
    [
        ("What did I ask three questions ago?", 3),
        ("what did you say 2 messages ago", 2),
        ("Go a couple of turns back", 2),
        ("Show the second card from 3 questions ago", 3),
        ("What was it one message before?", 1),
        ("Repeat my last question", 1),
        ("Shorten your previous answer", 1),
        ("What did I say earlier in this conversation?", EARLIER),
        ("At the start of this chat I told you a number.", EARLIER),
        ("As I said before in our little discussion", EARLIER),
        ("What did I ask three days ago?", None),
        ("Answer my last question of the quiz", None),
        ("How many questions are there?", None),
        ("Earlier in this book he dies.", None),
        ("", None),
    ],
)
def test_how_many_questions_ago(question: str, turns: int | None) -> None:
    assert turns_ago(question) == turns
    assert understand(question, NOW).turns == turns
