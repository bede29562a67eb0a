"""What a question names, and which strategy of seed 004 it calls for."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.context.asked import MAX_CHARS, understand

NOW = datetime(2024, 10, 15, tzinfo=UTC)


def test_the_worked_example_of_seed_004() -> None:
    """ "What did Gai Media order last month?": the entity, September 2024, and FACTUAL_ENTITY_FOCUSED."""
    asked = understand("What did Gai Media order last month?", NOW)
    assert asked.entities == {"gai-media"}
    assert asked.span == (datetime(2024, 9, 1, tzinfo=UTC), datetime(2024, 10, 1, tzinfo=UTC))
    assert asked.strategy == "factual_entity_focused"


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
