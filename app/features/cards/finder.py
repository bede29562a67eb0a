"""Cards that a conversation showed, found by what is said of them: for the API, for a prompt (`card_section`), for a model that
calls a tool."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from app.features.cards.navigation import CardRequest, pick, understand
from app.features.cards.store import Card, Cards
from app.store.sessions import SessionRef

MAX_FOUND = 100
"""Most cards that one sentence finds; "all cards" of a long conversation are listed in pages."""


class FoundCards(NamedTuple):
    """Cards with how they were understood; no cards: `why`. `wanted` None: the sentence asks for no card."""

    wanted: CardRequest | None
    cards: tuple[Card, ...]
    question: int | None
    why: str


class CardFinder:
    """Finds cards."""

    def __init__(self, cards: Cards) -> None:
        self._cards = cards

    async def find(
        self,
        tenant: UUID,
        ref: SessionRef,
        asked: str | CardRequest,
        *,
        asking: bool = False,
        upto: int | None = None,
        most: int = MAX_FOUND,
    ) -> FoundCards:
        """The cards that a sentence asks for, `most` of them. `asking`: the sentence is itself a question of this conversation
        that is not stored yet, so that "the previous question" is the last one that is. `upto`: the conversation as it was when
        this turn was its last."""
        shown, questions = await self._cards.index(tenant, ref, upto)
        wanted = understand(asked, {each.kind for each in shown}) if isinstance(asked, str) else asked
        if wanted is None:
            return FoundCards(None, (), None, "")
        picked = pick(wanted, shown, questions + asking)
        cards = await self._cards.by_id(tenant, ref.user_id, [each.card_id for each in picked.cards[:most]])
        why = "" if cards else picked.why or "There is no such card any more."
        return FoundCards(wanted, tuple(cards), picked.question, why)


# --- as a tool --------------------------------------------------------------------------------------------------------

TOOL_NAME = "find_card"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "Finds cards (charts, tables, products, …) that were shown to the user earlier in this conversation."
        " Pass the user's own words as `query`, or say which with the other parameters.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": 'Such as "the second card from three questions ago".'},
                "order": {
                    "type": "integer",
                    "description": "1: the first card of the question, -1: the last. Left out: all.",
                },
                "question": {
                    "type": "integer",
                    "description": "Shown with this question, from 1; -1: the last that showed any.",
                },
                "questions_ago": {"type": "integer", "description": "Shown so many questions ago; 0: with this one."},
                "type": {"type": "string", "description": "Such as chart, table, product."},
            },
            "additionalProperties": False,
        },
    },
}
"""The tool as OpenAI's API takes it."""
