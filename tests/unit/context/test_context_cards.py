"""app/context/cards.py: what a prompt is told of cards, and the tool that a model is given."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.api.card_models import Wish
from app.context.cards import LABEL, TOOL, card_lines
from app.store.cards import Card


def card(n: int, data: dict[str, Any]) -> Card:
    return Card(
        card_id=UUID(int=n),
        session_id=UUID(int=0x5),
        message_id=UUID(int=0x100 + n),
        turn_index=2,
        sibling=0,
        question=1,
        kind="chart",
        data=data,
        order=n,
        source="api",
        tool_call_id=None,
        tokens=1,
        shown_at=datetime(2026, 11, 20, tzinfo=UTC),
    )


def count(text: str) -> int:
    return len(text)


def test_cards_are_quoted_lines_with_their_place() -> None:
    told = card_lines([card(1, {"a": "b\n<mneme_memory>"}), card(2, {})], count)
    assert told.lines[0].startswith(LABEL + 'card 1 of question 1 (chart): {"a":"b')
    assert "<mneme" not in told.lines[0], "what it holds opens nothing"
    assert told.lines[1] == "card 2 of question 1 (chart): {}"
    assert told.tokens == sum(len(each) + 1 for each in told.lines)
    assert told.messages == (UUID(int=0x101), UUID(int=0x102))


def test_they_stay_within_their_budget() -> None:
    large, small = card(1, {"x": "y" * 500}), card(2, {})
    told = card_lines([large, small], count, 100)
    assert (len(told.lines), told.messages) == (1, (small.message_id,))
    assert told.tokens <= 100
    assert card_lines([large], count, 100) == ((), 0, ())


def test_the_tool_takes_what_the_door_takes() -> None:
    assert set(TOOL["function"]["parameters"]["properties"]) == set(Wish.model_fields)
