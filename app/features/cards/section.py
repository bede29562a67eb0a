"""The cards that a user's message asks for ("show me the second card from the first question"), as a section of a memory block.

Each is a line of quoted text. A card never changes, so that its id tells whether it stands in an earlier block; then it is not
told again. Behind it stand the ids of the messages that it came with: whoever deletes one of them takes the block back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import orjson

from app.context.assemble import Block, neutralise
from app.context.facts_section import CARD, told_id
from app.context.notes import Count, NoteLines
from app.context.pack import Reason
from app.features.cards.store import Card

LABEL = "Shown on the user's screen: "


class CardsAsked(NamedTuple):
    """The cards that were found, in their order."""

    found: Sequence[Card]

    @property
    def ids(self) -> list[UUID]:
        return [each.card_id for each in self.found]

    def beside(self, blocks: Sequence[Block]) -> CardsTold:
        """Of these cards what is to be told beside the blocks that stay in the prompt."""
        live = {item for block in blocks for item in block.item_ids}
        told: tuple[list[Card], list[Card]] = [], []
        for each in self.found:
            told[note_of(each) in live].append(each)
        return CardsTold(*told)


class CardsTold(NamedTuple):
    """What there is to tell now, and of that what an earlier block tells already (`seen`)."""

    cards: Sequence[Card]
    seen: Sequence[Card]

    @property
    def new(self) -> bool:
        return bool(self.cards)

    def wants(self, count: Count, budget: int) -> int:
        """Tokens that it would take, as far as they matter: beyond `budget` nothing is counted."""
        used = 0
        for each in self.cards:
            if used >= budget:
                break
            if each.tokens <= budget:  # a large one takes long to count, and is not told
                used += _cost(each, count)
        return used

    def tell(self, said: NoteLines, budget: int, count: Count) -> None:
        """Add the cards that fit to what is said, in their order, and their figures to its account. After all other lines: see
        `facts_section.shown`."""
        chosen: list[Card] = []
        used = 0
        for each in self.cards:
            if used + each.tokens <= budget and used + (cost := _cost(each, count)) <= budget:
                chosen.append(each)
                used += cost
        said.before += map(card_line, chosen)
        said.ids += map(note_of, chosen)
        said.ids += [message for each in chosen for message in _sources(each)]
        said.tokens += used
        said.account["cards"] = {
            "budget": budget,
            "tokens": used,
            "chosen": [each.card_id for each in chosen],
            "dropped": [[each.card_id, Reason.OVER_BUDGET] for each in self.cards if each not in chosen],
            "visible": [each.card_id for each in self.seen],
        }


def card_line(card: Card) -> str:
    """ "Shown on the user's screen: card 2 of question 1 (chart): {…}"."""
    data = orjson.dumps(card.data).decode()
    return neutralise(f"{LABEL}card {card.order} of question {card.question} ({card.kind}): {data}")


def note_of(card: Card) -> UUID:
    """The id of a card's line."""
    return told_id(str(card.card_id), "", CARD)


def _sources(card: Card) -> list[UUID]:
    return [each for each in (card.message_id, card.source_message_id) if each is not None]


def _cost(card: Card, count: Count) -> int:
    return count(card_line(card) + "\n") + 1
