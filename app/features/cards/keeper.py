"""The cards that are shown with messages, for what answers requests: kept with them, shown with them, and read for prompts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy

from app.api.card_models import CardGiven, CardOut, compact
from app.clock import Clock
from app.features.cards.models import new_cards, shown_card
from app.features.cards.reader import CardReader
from app.features.cards.store import Cards, NewCard, attach
from app.store.history import Attach
from app.store.queries import Queries
from app.store.sessions import SessionRef
from app.tasks import Supervisor


class CardKeeper(CardReader):
    """Keeps and shows them, too."""

    def __init__(
        self, cards: Cards, sql: Queries, tasks: Supervisor, count: Callable[[str], int], clock: Clock
    ) -> None:
        """`count`: tokens of o200k."""
        super().__init__(cards, tasks)
        self._sql = sql
        self._count = count
        self._clock = clock

    async def ready(self, given: Sequence[CardGiven]) -> list[NewCard]:
        """Cards ready to be stored."""
        tokens = await asyncio.to_thread(lambda: [self._count(compact(each.data).decode()) for each in given])
        return new_cards(given, tokens, self._clock.now())

    async def attaching(self, tenant: UUID, given: Mapping[UUID, Sequence[CardGiven]]) -> Attach:
        fresh = {message: await self.ready(each) for message, each in given.items()}

        async def store(connection: PoolConnectionProxy[Any], session: SessionRef) -> None:
            await attach(connection, self._sql, tenant, session, fresh)

        return store

    async def of_messages(self, tenant: UUID, user: UUID, messages: Sequence[UUID]) -> dict[UUID, list[CardOut]]:
        found = await self._cards.of_messages(tenant, user, messages)
        return {message: [shown_card(card) for card in each] for message, each in found.items()}
