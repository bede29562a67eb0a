"""Cards for tests of prompts."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from app.features.cards.keeper import CardsAsked
from app.features.cards.store import Card


def card(n: int, data: dict[str, Any] | None = None, *, tokens: int = 1, result: UUID | None = None) -> Card:
    """Card `n` of the first question; its answer is message 0x100 + n."""
    return Card(
        card_id=UUID(int=n),
        session_id=UUID(int=0x5),
        message_id=UUID(int=0x100 + n),
        turn_index=2,
        sibling=0,
        question=1,
        kind="chart",
        data=data if data is not None else {"n": n},
        order=n,
        source="tool" if result is not None else "api",
        tool_call_id=None,
        source_message_id=result,
        tokens=tokens,
        shown_at=datetime(2026, 11, 20, tzinfo=UTC),
    )


class Shelf:
    """A `Reading`: these cards, or (None) a store that is away."""

    def __init__(self, *found: Card, away: bool = False) -> None:
        self._found = None if away else CardsAsked(found)
        self.asked = self.closed = 0

    async def cards(self) -> CardsAsked | None:
        self.asked += 1
        return self._found

    def close(self) -> None:
        self.closed += 1
