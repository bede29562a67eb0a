"""What a question names, and which strategy of seed 004 it calls for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.context.question import EARLIER, MAX_CHARS, QueryType, Span, query_type, temporal_scope, turns_ago, understand

NOW = datetime(2024, 10, 15, tzinfo=UTC)


def test_the_worked_example_of_seed_004() -> None:
    """ "What did Gai Media order last month?": the entity, September 2024, and FACTUAL_ENTITY_FOCUSED."""
    asked = understand("What did Gai Media order last month?", NOW)
    assert asked.entities == {"gai-media"}
    assert asked.span == Span(datetime(2024, 9, 1, tzinfo=UTC), datetime(2024, 10, 1, tzinfo=UTC))
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


def test_without_a_domain_nothing_is_asked_there() -> None:
    asked = understand("What did Gai Media order?", NOW)
    assert not query_type(asked, resolved=True, domain=False).requires_domain_db
    assert not query_type(asked, resolved=False, domain=True).requires_domain_db


def test_an_open_time_is_shown_open() -> None:
    assert temporal_scope(understand("What came since June?", NOW).span) == {"start": "2024-06-01", "end": None}
    assert temporal_scope(understand("What came before June?", NOW).span) == {"start": None, "end": "2024-05-31"}
    assert temporal_scope(None) is None


@pytest.mark.parametrize(
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
