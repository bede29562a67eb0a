"""The cards that are shown with messages, for what answers requests: kept with them, shown with them, and read for prompts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from asyncpg.pool import PoolConnectionProxy

from app.api.card_models import CardGiven, CardOut, compact
from app.clock import Clock
from app.context.asked_cards import AskedCards
from app.context.transcript import query_of
from app.dialects.base import ChatRequest
from app.features.cards.finder import CardFinder
from app.features.cards.models import new_cards, shown_card
from app.features.cards.navigation import CardRequest, understand
from app.features.cards.section import CardsAsked
from app.features.cards.store import Cards, NewCard, attach
from app.gateway.reconcile import Place
from app.store.history import Attach
from app.store.queries import Queries
from app.store.sessions import SessionRef
from app.tasks import FailOpen, Supervisor

log = logging.getLogger("mneme.cards")

MOST_READ = 20
"""Cards that a prompt is told of at most: of some 40 tokens each so many fill the section's 800."""


class CardReader:
    """Begins to read cards."""

    def __init__(self, cards: Cards, tasks: Supervisor) -> None:
        self._cards = cards
        self._finder = CardFinder(cards)
        self._tasks = tasks

    def begin(
        self, tenant: UUID, chat: ChatRequest, place: Place, deadline_s: float | None = None
    ) -> AskedCards | None:
        """As `ReadsCards`."""
        if place.how == "new":
            return None
        wanted = understand(query_of(chat.messages))
        if wanted is None:
            return None
        return _Reading(self._tasks.spawn(self._read(tenant, chat, place, wanted), "cards"), deadline_s)

    async def again(self, tenant: UUID, user: UUID, cards: Sequence[UUID]) -> CardsAsked:
        """As `ReadsCards`."""
        return CardsAsked(await self._cards.by_id(tenant, user, cards))

    async def _read(self, tenant: UUID, chat: ChatRequest, place: Place, wanted: CardRequest) -> CardsAsked | None:
        ref, upto = _asked_at(place)
        # A question that is asked again, or is in a tool loop, is stored already.
        asking = (chat.transcript.last_user() or 0) >= place.first_new
        with FailOpen(log.warning, "cards were not read"):
            found = await self._finder.find(tenant, ref, wanted, asking=asking, upto=upto, most=MOST_READ)
            return CardsAsked(found.cards)
        return None


class _Reading:
    """One request's."""

    def __init__(self, task: asyncio.Task[CardsAsked | None], deadline_s: float | None) -> None:
        self._task = task
        self._until = time.monotonic() + deadline_s if deadline_s is not None else None

    async def cards(self) -> CardsAsked | None:
        left_s = max(0.0, self._until - time.monotonic()) if self._until is not None else None
        await asyncio.wait({self._task}, timeout=left_s)
        if not self._task.done():
            log.warning("cards came too late")
        self.close()
        return self._task.result() if self._task.done() and not self._task.cancelled() else None

    def close(self) -> None:
        self._task.cancel()  # of one that is over nothing changes


def _asked_at(place: Place) -> tuple[SessionRef, int | None]:
    """The conversation in which a request asks, and its last turn before that; None: its end."""
    if place.how == "branch" and place.parent_session_id is not None:
        return SessionRef(place.user_id, place.parent_session_id), place.branch_turn_index
    upto = place.asked_index - 1 if place.asked_index is not None else None
    return SessionRef(place.user_id, place.session_id), upto


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
