"""The cards that an application shows beside its answers (docs/reference/cards.md).

They are kept with messages (`keeper`), read for prompts, taken from the results of tools (`store`), and found
again by what is said of them (`navigation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate
    from app.features.cards.keeper import CardKeeper
    from app.features.cards.store import CardExtractor
    from app.store.pools import Pool


class CardsShown(Feature):
    """Keeps what was on the user's screen."""

    def cards(self, process: Process, pool: Pool) -> CardKeeper:
        from app.features.cards.keeper import CardKeeper
        from app.features.cards.store import Cards

        cards = Cards(pool, process.queries)
        return CardKeeper(cards, process.queries, process.tasks, process.count, process.clock)

    def noting(self, process: Process) -> CardExtractor | None:
        from app.features.cards.store import CardExtractor

        tools = self.settings.card_tools
        return CardExtractor(process.queries, tools, process.count, process.clock) if tools else None

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.cards.routes import cards_router
        from app.features.cards.store import Cards
        from app.store.sessions import SESSION_TTL, Sessions

        pool, sql, clock = process.pool, process.queries, process.clock
        sessions = Sessions(pool, sql, clock, ttl=SESSION_TTL)
        return (cards_router(gate, sessions, Cards(pool, sql), self.cards(process, pool)),)


FEATURE = CardsShown
