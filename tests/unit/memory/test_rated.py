"""Rated answers with one theme become a pattern (seed 001 §4.1)."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from app.features.consolidation.patterns import outcome_patterns
from app.store.consolidation import Episode

AT = datetime(2026, 11, 1, tzinfo=UTC)


def episodes(*of: tuple[tuple[str, ...], tuple[str, ...]]) -> list[Episode]:
    return [
        Episode(UUID(int=n), UUID(int=99), AT, "request", topics=topics, tools=tools)
        for n, (topics, tools) in enumerate(of)
    ]


def worth(*scores: float) -> dict[UUID, float]:
    return {UUID(int=n): score for n, score in enumerate(scores)}


def test_three_that_agree_are_one_pattern_under_all_their_words() -> None:
    told = episodes(*[(("recipe", "post"), ())] * 3, (("weather",), ()))
    (found,) = outcome_patterns(told, worth(1, 0.5, 1, 1))
    assert found.text == "Answers about recipe post were rated good 3 of 3 times"
    assert (found.key, found.count, found.confidence) == ("outcome:topic:recipe", 3, 0.6)
    assert found.sources == tuple(each.message_id for each in told[:3])


def test_two_or_a_divided_opinion_are_none() -> None:
    told = episodes(*[(("recipe",), ())] * 4)
    assert outcome_patterns(told, worth(1, 1)) == []
    assert outcome_patterns(told, worth(1, 1, 0, 0)) == [], "neutral ones say nothing"
    assert outcome_patterns(told, worth(1, 1, -1, -1)) == []
    (found,) = outcome_patterns(told, worth(-1, 1, -1, -1))
    assert found.text == "Answers about recipe were rated bad 3 of 4 times"


def test_what_a_tool_came_to() -> None:
    told = episodes(*[((f"word{n}",), ("send_email", "look_up")) for n in range(3)])
    (found,) = outcome_patterns(told, worth(1, 1, 1))
    assert found.text == "Answers that used send_email look_up were rated good 3 of 3 times"


def test_a_word_of_everything_is_no_theme() -> None:
    told = episodes(*[(("please",), ())] * 20)
    assert outcome_patterns(told, worth(1, 1, 1)) == []
