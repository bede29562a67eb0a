"""What the API takes and gives of UI cards with messages, and who keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Protocol
from uuid import UUID

import orjson
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import Model, clean
from app.gateway.prepare import ReadsCards
from app.store.history import Attach

MAX_CARDS = 100
"""Most cards of one request; a screen shows a handful."""

MAX_ORDER = 1000
"""Highest place of a card within its answer."""

MAX_TYPE_CHARS = 100
"""Longest type of a card, characters (seed 003: VARCHAR(100))."""

MAX_CARD_BYTES = 64 * 1024
"""Largest card, bytes of compact JSON: thirty times the seed's average of 2 KB. Pictures belong behind a URL."""


def _small(data: dict[str, Any]) -> dict[str, Any]:
    if (size := len(compact(data))) > MAX_CARD_BYTES:
        raise ValueError(f"has {size} bytes as JSON, and {MAX_CARD_BYTES} at most")
    return data


def compact(data: object) -> bytes:
    """JSON without white space."""
    return orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)


CardType = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_TYPE_CHARS, strip_whitespace=True), AfterValidator(clean)
]
Order = Annotated[int, Field(ge=1, le=MAX_ORDER)]


class CardGiven(Model):
    """A card that is shown with an answer."""

    type: CardType = Field(
        description="product_card, comparison_table, chart, …: its words are what it is asked for by."
    )
    data: Annotated[dict[str, Any], AfterValidator(_small)] = Field(description="All it takes to show it again.")
    display_order: Order | None = Field(
        None, description="Its place among the cards of its answer, from 1; the next one."
    )


Given = Annotated[list[CardGiven], Field(max_length=MAX_CARDS)]


class CardOut(BaseModel):
    """A card. `question` counts what the user asked in the conversation, from 1, branches with what they share; `display_order`
    its place among the cards of its answer. `source`: `api`, or `tool`: taken from the result of the call `tool_call_id`."""

    id: UUID
    session_id: UUID
    message_id: UUID
    turn_index: int
    question: int
    display_order: int
    type: str
    data: dict[str, Any]
    source: str
    tool_call_id: str | None
    token_count: int
    shown_at: datetime


class KeepsCards(ReadsCards, Protocol):
    """Keeps the cards that are shown with messages (`Feature.cards`)."""

    async def attaching(self, tenant: UUID, given: Mapping[UUID, Sequence[CardGiven]]) -> Attach:
        """Stores these, by the message that they are shown with, along with the messages; then raises Conflict where two are to
        stand in one place."""

    async def of_messages(self, tenant: UUID, user: UUID, messages: Sequence[UUID]) -> Mapping[UUID, Sequence[CardOut]]:
        """By message, the cards that were shown with it, in their order."""
