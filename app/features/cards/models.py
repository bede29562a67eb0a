"""What the routes of cards take and give."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.card_models import MAX_CARD_BYTES, MAX_ORDER, CardGiven, CardOut, CardType
from app.api.common import Model, clean
from app.features.cards.navigation import MAX_ASKED_CHARS
from app.features.cards.store import Card, NewCard


class CardIn(CardGiven):
    """A card to add to an answer that is stored."""

    turn: Annotated[int, Field(ge=1, le=2**30)] | None = Field(
        None, description="`turn_index` of the answer; the last one."
    )


class CardAdded(CardOut):
    """`created`: false where the same card stood in its place already."""

    created: bool


class CardsAdded(BaseModel):
    cards: list[CardAdded]


class CardPage(BaseModel):
    cards: list[CardOut]
    next: str | None


class Understood(BaseModel):
    """What was asked for. `order`: 1 the first, -1 the last, null all; `count`: so many from there on; `type`: its words.
    `question`: the one that the cards were shown with; null: several."""

    order: int | None
    count: int
    type: str | None
    question: int | None
    questions_ago: int | None


class CardsFound(BaseModel):
    cards: list[CardOut]
    understood: Understood


class Wish(Model):
    """Which card: what was said of it, or numbers. What `find_card` takes."""

    query: Annotated[str, StringConstraints(max_length=MAX_ASKED_CHARS), AfterValidator(clean)] | None = None
    question: Annotated[int, Field(ge=-(2**30), le=2**30)] | None = None
    questions_ago: Annotated[int, Field(ge=0, le=2**30)] | None = None
    order: Annotated[int, Field(ge=-MAX_ORDER, le=MAX_ORDER)] | None = None
    type: CardType | None = None


class ToolCall(Model):
    """A call of `find_card`, as a model made it."""

    arguments: str = Field(max_length=MAX_CARD_BYTES, description="`function.arguments` of the tool call: JSON text.")
    tool_call_id: Annotated[str, StringConstraints(min_length=1, max_length=512), AfterValidator(clean)] | None = None


class ToolMessage(BaseModel):
    """The message to send back to the model."""

    role: str = "tool"
    tool_call_id: str | None
    content: str


def new_cards(given: Sequence[CardGiven], tokens: Sequence[int], now: datetime) -> list[NewCard]:
    """Cards ready to be stored."""
    return [
        NewCard(each.type, each.data, count, now, order=each.display_order)
        for each, count in zip(given, tokens, strict=True)
    ]


def shown_card(card: Card) -> CardOut:
    """A card as the API shows it."""
    return CardOut(
        id=card.card_id,
        session_id=card.session_id,
        message_id=card.message_id,
        turn_index=card.turn_index,
        question=card.question,
        display_order=card.order,
        type=card.kind,
        data=card.data,
        source=card.source,
        tool_call_id=card.tool_call_id,
        token_count=card.tokens,
        shown_at=card.shown_at,
    )
