"""Cards that a conversation showed: kept with its messages, found by what is said of them, and told to prompts and to tools."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import orjson
from asyncpg.pool import PoolConnectionProxy
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import MAX_CARD_BYTES, MAX_ORDER, CardGiven, CardOut, CardType, Model, clean, compact
from app.clock import Clock
from app.context.assemble import Block, neutralise
from app.context.facts_section import CARD, told_id
from app.context.notes import Count, NoteLines
from app.context.pack import Reason
from app.context.request import AskedCards
from app.context.transcript import query_of
from app.features.cards.navigation import MAX_ASKED_CHARS, CardRequest, pick, understand
from app.features.cards.store import Card, Cards, NewCard, attach
from app.gateway.dialects.base import ChatRequest
from app.gateway.reconcile import Place
from app.store.history import Attach
from app.store.queries import Queries
from app.store.sessions import SessionRef
from app.tasks import FailOpen, Supervisor

log = logging.getLogger("mneme.cards")

MAX_FOUND = 100
"""Most cards that one sentence finds; "all cards" of a long conversation are listed in pages."""


class FoundCards(NamedTuple):
    """Cards with how they were understood; no cards: `why`. `wanted` None: the sentence asks for no card."""

    wanted: CardRequest | None
    cards: tuple[Card, ...]
    question: int | None
    why: str


class CardFinder:
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


# --- as a tool -----------------------------------------------------------------------------------------------------------

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


# --- in a prompt ---------------------------------------------------------------------------------------------------------
#
# Each card that a user's message asks for is a line of quoted text in the memory block. A card never changes, so its id tells
# whether it stands in an earlier block; then it is not told again. Behind it stand the ids of the messages that it came with:
# whoever deletes one of them takes the block back.
LABEL = "Shown on the user's screen: "


class CardsAsked(NamedTuple):
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


# --- what the routes take and give ---------------------------------------------------------------------------------------


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


def shown_card(card: Card) -> CardOut:
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


# --- kept, and read for prompts ------------------------------------------------------------------------------------------
MOST_READ = 20
"""Cards that a prompt is told of at most: of some 40 tokens each so many fill the section's 800."""


class CardReader:
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

    async def _read(self, tenant: UUID, chat: ChatRequest, place: Place, wanted: CardRequest) -> CardsAsked | None:
        ref, upto = _asked_at(place)
        # A question that is asked again, or is in a tool loop, is stored already.
        asking = (chat.transcript.last_user() or 0) >= place.first_new
        with FailOpen(log.warning, "cards were not read"):
            found = await self._finder.find(tenant, ref, wanted, asking=asking, upto=upto, most=MOST_READ)
            return CardsAsked(found.cards)
        return None


class _Reading:
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
        tokens = await asyncio.to_thread(lambda: [self._count(compact(each.data).decode()) for each in given])
        now = self._clock.now()
        return [
            NewCard(each.type, each.data, count, now, order=each.display_order)
            for each, count in zip(given, tokens, strict=True)
        ]

    async def attaching(self, tenant: UUID, given: Mapping[UUID, Sequence[CardGiven]]) -> Attach:
        fresh = {message: await self.ready(each) for message, each in given.items()}

        async def store(connection: PoolConnectionProxy[Any], session: SessionRef) -> None:
            await attach(connection, self._sql, tenant, session, fresh)

        return store

    async def of_messages(self, tenant: UUID, user: UUID, messages: Sequence[UUID]) -> dict[UUID, list[CardOut]]:
        found = await self._cards.of_messages(tenant, user, messages)
        return {message: [shown_card(card) for card in each] for message, each in found.items()}
