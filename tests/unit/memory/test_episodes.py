"""Episodes, and what many of them come to: patterns (seed 001 §4.4), habits, procedures (seed 004, transformation 4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from app.features.consolidation.patterns import (
    MAX_PATTERNS,
    habits,
    mean_ratio,
    numeric_patterns,
    pattern_confidence,
    patterns,
    procedures,
)
from app.memory.candidate import SourceExchange
from app.memory.episodes import augmentation, episode_of, event_type, measure_of, triggers
from app.memory.extract import extract
from app.store.consolidation import Episode
from tests.support.tables import each_of

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)


def exchange(text: str, answer: str = "Done.", tools: tuple[str, ...] = ()) -> SourceExchange:
    calls = [{"function": {"name": name, "arguments": "{}"}} for name in tools]
    return SourceExchange(text, BEGAN, calls, answer)


def told(text: str, n: int = 0, session: int = 0, tools: tuple[str, ...] = ()) -> Episode:
    said = exchange(text, tools=tools)
    made = episode_of(said, extract(said), message_id=UUID(int=n + 1), session_id=UUID(int=1000 + session))
    assert made is not None
    return Episode(
        made.message_id, made.session_id, BEGAN + timedelta(hours=n), made.event_type, made.entities, made.topics,
        made.tools, made.measure,
    )  # fmt: skip


def test_seed_001_s_example_of_recipe_posts_and_news_posts() -> None:
    """Seed 001 §4.4 says 2.8×; its own figures make 303.33 ÷ 102.5 = 2.96."""
    views = [("recipe", 340), ("recipe", 290), ("recipe", 280), ("news", 95), ("news", 110)]
    own = [told(f"Suggested {sort} post → {many} views", n) for n, (sort, many) in enumerate(views)]
    (pattern,) = numeric_patterns(own)
    assert mean_ratio([340, 290, 280], [95, 110]) == pytest.approx(2.9593, abs=1e-4)
    assert pattern.details["ratio"] == pytest.approx(2.9593, abs=1e-4)
    assert pattern.text == ("Recipe post has 2.96 times the views of news post: 303 on average of 3, against 102 of 2")
    assert pattern.importance == 0.85
    assert pattern.count == 5
    assert set(pattern.sources) == {each.message_id for each in own}


def test_four_are_none_and_figures_without_two_sorts_have_a_mean() -> None:
    runs = [told(f"My morning run took {30 + n} minutes", n) for n in range(5)]
    assert numeric_patterns(runs[:4]) == []
    (pattern,) = numeric_patterns(runs)
    assert pattern.text == "Run: 32 minutes on average of 5 (30 to 34)"
    assert pattern.details["ratio"] is None


@each_of(
    ("text", "expected"),
    [
        (
            "Suggested recipe post → 1,340 views",
            {"label": ["suggested", "recipe", "post"], "value": 1340.0, "unit": "views"},
        ),
        (
            "My Diwali Sweet Recipes post got 340 views",
            {"label": ["diwali", "sweet", "recipe", "post"], "value": 340.0, "unit": "views"},
        ),
        ("What is new?", None),
        ("I was born in 1980", None),
        ("", None),
    ],
)
def test_figures(text: str, expected: object) -> None:
    assert measure_of(text) == expected


@each_of(
    ("text", "expected"),
    [
        ("What did Gai Media order last month?", "question"),
        ("how do i reset the router", "question"),
        ("Yes please", "confirmation"),
        ("No, Thursday now", "correction"),  # seed 004: "Correction flow"
        ("No, thanks", "confirmation"),
        ("Write a poem about harbours", "request"),
        ("I live in Lisbon", "statement"),
        ("No, actually I live in Porto now", "correction"),
    ],
)
def test_what_the_user_did(text: str, expected: str) -> None:
    assert event_type(text, extract(exchange(text))) == expected


def test_only_answered_exchanges_are_episodes_and_injected_blocks_are_no_part_of_them() -> None:
    silent = SourceExchange("What is up?", BEGAN, [], "")
    assert episode_of(silent, [], message_id=UUID(int=1), session_id=UUID(int=2)) is None
    called = SourceExchange("What is up?", BEGAN, [{"function": {"name": "look"}}], "")
    made = episode_of(called, [], message_id=UUID(int=1), session_id=UUID(int=2))
    assert made is not None
    assert made.tools == ("look",)
    injected = "<mneme-memory ab>\nLikes Saturn Rockets\n</mneme-memory ab>\nWhere is Gai Media?"
    made = episode_of(exchange(injected), [], message_id=UUID(int=1), session_id=UUID(int=2))
    assert made is not None
    assert made.entities == ("gai-media",)
    assert "saturn" not in made.topics


def test_a_habit_of_asking_about_a_thing_calls_it_by_its_name() -> None:
    thing = {"canonical_id": "customer:gai_123", "canonical_name": "Gai Media Entertainment", "mentions": []}
    asked = [
        replace(
            told(f"What about it, for the {n}th time?", n, session=n % 3),
            entities=("customer:gai_123",),
            things=(thing,),
        )
        for n in range(5)
    ]
    (habit,) = [each for each in habits(asked) if each.details["theme"] == "customer:gai_123"]
    assert habit.text == "Often asks about Gai Media Entertainment (5 times in 3 sessions)"


def test_a_habit_is_a_theme_of_five_questions_in_several_sessions() -> None:
    asked = [told(f"When does delivery number {n} leave?", n, session=n % 3) for n in range(5)]
    (habit,) = habits(asked)
    assert "delivery" in habit.text
    assert "(5 times in 3 sessions)" in habit.text
    assert habits(asked[:4]) == []
    assert habits([told("When does the delivery leave?", n, session=0) for n in range(9)]) == []  # one conversation


def test_a_user_s_way_of_talking_is_no_theme() -> None:
    topics = ["bread", "rivers", "stones", "clouds", "birds", "trains", "boats", "cheese"]
    asked = [told(f"What kinds of fancy {topics[n % 8]} exist in {n}?", n, session=n) for n in range(40)]
    assert not any("fancy" in each.text.split() for each in habits(asked))
    assert any("bread" in each.text for each in habits(asked))
    assert len(patterns(asked * 3)) <= MAX_PATTERNS


def test_seed_004_s_example_of_delivery_and_then_invoices() -> None:
    """Seed 004, transformation 4: observed 5 times, confidence 0.7."""
    talk: list[Episode] = []
    for n in range(5):
        talk += [
            told("When is the delivery?", 10 * n, session=n),
            told("Are there open invoices?", 10 * n + 1, session=n),
        ]
        talk.append(told(f"Thanks, and what about harbour {n}?", 10 * n + 2, session=n))
    found = {each.key: each for each in procedures(talk)}
    procedure = found["asks:delivery>invoice"]
    assert procedure.confidence == pattern_confidence(5) == 0.7
    assert procedure.importance == 0.8
    assert procedure.details["trigger"]["topics"] == ["delivery"]
    assert procedure.details["action"]["action_type"] == "augment_retrieval"
    assert procedure.details["observed_count"] == 5
    assert triggers(procedure.details, "What about the deliveries?")
    assert augmentation(procedure.details, "What about the deliveries?").words == ["invoice"]
    assert augmentation(procedure.details, "delivery invoices").words == []
    assert not triggers(procedure.details, "Something else")
    assert not triggers({}, "delivery")
    assert not triggers({"trigger": None}, "delivery")
    assert procedures(talk[:12]) == []
    gai = {"canonical_id": "customer:gai_123", "canonical_name": "Gai Media", "mentions": []}
    named = {each.key: each for each in procedures([replace(each, things=(gai,)) for each in talk])}
    assert named["asks:delivery>invoice"].details["action"]["augment_retrieval"] == [
        {"query": "invoice"},
        {"memory_predicate": "invoice_.*", "entity": "{customer}", "importance_boost": 0.2},
    ]


SEEDS = {
    "trigger": {
        "intent": "question",
        "entity_types": ["customer"],
        "topics": ["delivery", "shipping"],
        "context_keywords": ["when", "schedule"],
    },
    "action": {
        "topics": [],
        "augment_retrieval": [
            {"memory_predicate": "delivery_.*_preference", "entity": "{customer}", "importance_boost": 0.2},
            {"domain_query": "sales_orders", "filter": {"customer_id": "{customer}", "status": "in_fulfillment"}},
            {"domain_query": "orders", "status": "in_fulfillment"},
            {"memory_predicate": 7}, "words", {},
        ],
    },
}  # fmt: skip


def test_a_trigger_asks_for_all_that_the_seed_names() -> None:
    assert triggers(SEEDS, "When is the delivery?", ["customer"])
    assert not triggers(SEEDS, "When is the delivery?", ["person"])
    assert not triggers(SEEDS, "What is the delivery?", ["customer"])
    assert not triggers(SEEDS, "No, Thursday is when delivery comes", ["customer"])  # a correction


def test_the_action_of_the_seeds_example() -> None:
    found = augmentation(SEEDS, "When is the delivery?")
    assert found.predicates == [("delivery\\_%\\_preference", "{customer}", 0.2)]
    assert found.rows == [
        ("sales_orders", (("status", "in_fulfillment"),)), ("orders", (("status", "in_fulfillment"),)),
    ]  # fmt: skip
    nothing = augmentation({"action": {"augment_retrieval": "x", "topics": "y"}}, "delivery")
    assert (nothing.words, nothing.predicates, nothing.rows) == ([], [], [])


def test_what_follows_by_chance_is_no_procedure() -> None:
    talk: list[Episode] = []
    for n in range(30):  # five of thirty
        then = "Are there open invoices?" if n < 5 else f"What is harbour{n}?"
        talk += [told("When is the delivery?", 10 * n, session=n), told(then, 10 * n + 1, session=n)]
    assert "asks:delivery>invoice" not in {each.key for each in procedures(talk)}


def test_tools_that_follow_each_other() -> None:
    loops = [told(f"Pay {n}", n, n, ("find_invoice", "check_balance", "pay")) for n in range(5)]
    found = {each.key: each for each in procedures(loops)}
    assert set(found) == {"tools:find_invoice>check_balance", "tools:check_balance>pay"}
    assert found["tools:check_balance>pay"].text == "After calling check_balance, pay is called"


def test_confidence_rises_and_ends() -> None:
    assert [pattern_confidence(n) for n in (5, 6, 10, 1000)] == [0.7, 0.75, 0.95, 0.95]
