"""The UI cards that were shown with answers: added, listed, and found again (seed 003, table 4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import orjson
from asyncpg.pool import PoolConnectionProxy
from msgspec import Struct
from msgspec.structs import asdict

from app.api.common import MAX_CARD_BYTES, MAX_ORDER
from app.clock import Clock
from app.errors import BadRequest, Conflict, NotFound
from app.sources import CardTool
from app.store import ids
from app.store.learning import Effect, SourceMessage
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.sessions import Ancestry, SessionRef, line_of

if TYPE_CHECKING:
    from app.jobs.learn import LearnJob

MAX_INDEXED = 10_000
"""Cards of a conversation that are looked through for the one that is meant, newest first: a hundred times those of the seed's
20 turns with five cards each."""


class Card(Struct, frozen=True):
    """A card as stored. `question`: how many questions were asked up to the answer that it was shown with. `tokens`: of its
    data as compact JSON (o200k). `source_message_id`: the message with the tool's result that it was taken from."""

    card_id: UUID
    session_id: UUID
    message_id: UUID
    turn_index: int
    sibling: int
    question: int
    kind: str
    data: dict[str, Any]
    order: int
    source: str
    tool_call_id: str | None
    source_message_id: UUID | None
    tokens: int
    shown_at: datetime


class NewCard(Struct, frozen=True):
    """A card to add. `order` None: the next one of its answer. `result`: the message with the tool's result that it was taken
    from."""

    kind: str
    data: dict[str, Any]
    tokens: int
    shown_at: datetime
    order: int | None = None
    tool_call_id: str | None = None
    result: UUID | None = None


class CardPlace(Struct, frozen=True):
    """An answer that cards are shown with."""

    session_id: UUID
    message_id: UUID
    turn_index: int
    sibling: int
    question: int


class Indexed(NamedTuple):
    """A card without its data: what it takes to find it."""

    card_id: UUID
    session_id: UUID
    question: int
    turn_index: int
    sibling: int
    order: int
    kind: str


class CardFilter(Struct, frozen=True):
    """Of which turn, place in it, question and type; None: any."""

    turn: int | None = None
    order: int | None = None
    question: int | None = None
    kind: str | None = None


class Cards:
    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def add(
        self, tenant: UUID, ref: SessionRef, cards: Sequence[tuple[int | None, NewCard]]
    ) -> list[tuple[Card, bool]]:
        """Add cards, each to the answer of a turn (None: the last one), all or none. True: it is new; the same one again in the
        same place is found. Raises NotFound where there is no such answer, Conflict where another card stands there."""
        added: list[tuple[Card, bool]] = []
        async with self._pool.transaction(tenant) as connection:
            # As jobs and deletions do: what is read here stays as it is.
            alone = ref.session_id if ref.user_id == ids.nobody(tenant) else ref.user_id
            await connection.execute(self._sql["learning.lock"], alone)
            line = await line_of(connection, self._sql, tenant, ref)
            places: dict[int | None, tuple[CardPlace, list[Card]]] = {}
            for turn in dict.fromkeys(turn for turn, _ in cards):
                place = await self._place(connection, tenant, ref, line, turn)
                rows = await connection.fetch(
                    self._sql["cards.shown_with"],
                    tenant, ref.user_id, place.session_id, place.turn_index, place.sibling,
                )  # fmt: skip
                # The last answer may be named both ways.
                same = next((known for known in places.values() if known[0] == place), None)
                places[turn] = same or (place, [card_from(row) for row in rows])
            for turn, new in cards:
                added.append(_put(*places[turn], new))
            await _insert(connection, self._sql, tenant, ref.user_id, [card for card, fresh in added if fresh])
        return added

    async def page(
        self, tenant: UUID, ref: SessionRef, wanted: CardFilter, *, after: tuple[int, int, int] | None, limit: int
    ) -> list[Card]:
        """Cards of a session in their order, after (turn_index, sibling, order). A branch begins with what it shares with its
        parent."""
        async with self._pool.transaction(tenant) as connection:
            line = await line_of(connection, self._sql, tenant, ref)
            if line is None:
                return []
            rows = await connection.fetch(
                self._sql["cards.page"],
                tenant, ref.user_id, line.sessions, line.lows, line.highs,
                wanted.turn, wanted.order, wanted.question, wanted.kind, *(after or (None, None, None)), limit,
            )  # fmt: skip
        return [card_from(row) for row in rows]

    async def holding(
        self,
        tenant: UUID,
        user: UUID,
        data: Mapping[str, Any],
        kind: str | None,
        *,
        after: tuple[datetime, UUID] | None,
        limit: int,
    ) -> list[Card]:
        """Cards of a user, of all sessions, whose data hold `data`, newest first, after (shown_at, card_id)."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self._sql["cards.holding"], tenant, user, kind, dict(data), *(after or (None, None)), limit
            )
        return [card_from(row) for row in rows]

    async def of_messages(self, tenant: UUID, user: UUID, messages: Sequence[UUID]) -> dict[UUID, list[Card]]:
        """By answer, the cards that were shown with it."""
        if not messages:
            return {}
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["cards.of_messages"], tenant, user, list(messages))
        found: dict[UUID, list[Card]] = {}
        for row in rows:
            found.setdefault(row["message_id"], []).append(card_from(row))
        return found

    async def index(self, tenant: UUID, ref: SessionRef, upto: int | None = None) -> tuple[list[Indexed], int]:
        """What a conversation showed, newest first, and how many questions were asked in it; `upto` this turn."""
        async with self._pool.transaction(tenant) as connection:
            line = await line_of(connection, self._sql, tenant, ref)
            if line is None:
                return [], 0
            line = line.upto(upto)
            stretches = (tenant, ref.user_id, line.sessions, line.lows, line.highs)
            questions = await connection.fetchval(self._sql["cards.questions"], *stretches, line.first, line.last)
            rows = await connection.fetch(self._sql["cards.index"], *stretches, MAX_INDEXED)
        return [Indexed(*row.values()) for row in rows], questions

    async def by_id(self, tenant: UUID, user: UUID, cards: Sequence[UUID]) -> list[Card]:
        """Cards in their order; those that are gone by now are left out."""
        if not cards:
            return []
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(self._sql["cards.by_id"], tenant, user, list(cards))
        return [card_from(row) for row in rows]

    async def _place(
        self,
        connection: PoolConnectionProxy[Any],
        tenant: UUID,
        ref: SessionRef,
        line: Ancestry | None,
        turn: int | None,
    ) -> CardPlace:
        row = line and await connection.fetchrow(self._sql["cards.place"], tenant, ref.user_id, *line, turn)
        if not row:
            missing = (
                "Nothing was answered in this session yet"
                if turn is None
                else f"Turn {turn} is no answer of this session"
            )
            raise NotFound(f"{missing}: cards are shown with answers.", param="turn")
        return CardPlace(**dict(row))


async def attach(
    connection: PoolConnectionProxy[Any],
    sql: Queries,
    tenant: UUID,
    ref: SessionRef,
    cards: Mapping[UUID, Sequence[NewCard]],
) -> int:
    """Within the caller's transaction: add cards to messages of a session, by message; how many. Raises Conflict where two are
    to stand in one place."""
    line = await line_of(connection, sql, tenant, ref) if cards else None
    if line is None:
        return 0
    rows = await connection.fetch(sql["cards.places"], tenant, ref.user_id, *line, list(cards))
    fresh: list[Card] = []
    for row in rows:
        place = CardPlace(**dict(row))
        shown = await connection.fetch(
            sql["cards.shown_with"], tenant, ref.user_id, place.session_id, place.turn_index, place.sibling
        )
        known = [card_from(each) for each in shown]
        for new in cards[place.message_id]:
            card, is_new = _put(place, known, new)
            fresh += [card] if is_new else []
    await _insert(connection, sql, tenant, ref.user_id, fresh)
    return len(fresh)


_COLUMNS = {"kind": "card_type", "data": "card_data", "order": "display_order", "tokens": "token_count"}
"""The columns of fields that are called otherwise."""


def card_from(row: Any) -> Card:
    return Card(**{name: row[_COLUMNS.get(name, name)] for name in Card.__struct_fields__})


def _put(place: CardPlace, known: list[Card], new: NewCard) -> tuple[Card, bool]:
    """A new card in its place among those of its answer; or the same one, which stands there."""
    order = new.order if new.order is not None else max((each.order for each in known), default=0) + 1
    there = next((each for each in known if each.order == order), None)
    if there is not None:
        if (there.kind, there.data) != (new.kind, new.data):
            raise Conflict(f"Turn {place.turn_index} shows another card at place {order}.", param="display_order")
        return there, False
    if order > MAX_ORDER:
        raise BadRequest(f"An answer shows at most {MAX_ORDER} cards.", param="display_order")
    source = "api" if new.result is None else "tool"
    card = Card(
        card_id=ids.uuid7(new.shown_at),
        **asdict(place),
        kind=new.kind,
        data=new.data,
        order=order,
        source=source,
        tool_call_id=new.tool_call_id,
        source_message_id=new.result,
        tokens=new.tokens,
        shown_at=new.shown_at,
    )
    known.append(card)
    return card, True


async def _insert(
    connection: PoolConnectionProxy[Any],
    sql: Queries,
    tenant: UUID,
    user: UUID,
    cards: Iterable[Card],
) -> None:
    rows = [{_COLUMNS.get(name, name): value for name, value in asdict(card).items()} for card in cards]
    if rows:
        await connection.execute(sql["cards.insert"], tenant, user, rows)


# --- cards taken from the results of configured tools (MNEME_CARD_TOOLS), in the job that learns from a turn -------------

MAX_RESULT_CHARS = 256 * 1024
"""Longest result that is read, characters: a hundred of the seed's cards of 2 KB, and some more around them."""

MAX_TAKEN = 100
"""Most cards of one result: more is a data set, not what a screen shows."""


class ExtractedCard(NamedTuple):
    """A card: its type and data, and its data as compact JSON."""

    kind: str
    data: dict[str, Any]
    text: str


def cards_of(result: str, tool: CardTool) -> list[ExtractedCard] | str:
    """The cards that a tool's result shows, or why there are none: the result itself, or each item of the list at `items`."""
    if len(result) > MAX_RESULT_CHARS:
        return f"it is longer than {MAX_RESULT_CHARS} characters"
    try:
        value = orjson.loads(result)
    except orjson.JSONDecodeError:
        return "it is no JSON"
    items = [value]
    if tool.items is not None:
        found = _at(value, tool.items.split("."))
        if not isinstance(found, list):
            return f"it has no list at {tool.items!r}"
        items = found
    if len(items) > MAX_TAKEN:
        return f"it has {len(items)} items, more than {MAX_TAKEN}"
    try:
        taken = [_card(each, tool) for each in items]
    except orjson.JSONEncodeError:
        return "it is nested too deep"
    if any(len(each.text.encode()) > MAX_CARD_BYTES for each in taken):
        return f"it has an item of more than {MAX_CARD_BYTES} bytes"
    return taken


def _card(item: Any, tool: CardTool) -> ExtractedCard:
    data = item if isinstance(item, dict) else {"value": item}
    if b"\\u0000" in orjson.dumps(data):  # raises for what is nested too deep, which what follows relies on
        data = _without_nul(data)
    title = _at(data, tool.title.split(".")) if tool.title is not None else None
    if isinstance(title, str | int | float) and "title" not in data:
        data = {"title": title, **data}
    return ExtractedCard(tool.type, data, orjson.dumps(data).decode())


def _at(value: Any, path: Sequence[str]) -> Any:
    """What stands at a path of members and places in lists; None: nothing."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isascii() and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _without_nul(value: Any) -> Any:
    """As Postgres can keep it: U+0000 becomes U+FFFD."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, list):
        return [_without_nul(each) for each in value]
    if isinstance(value, dict):
        return {_without_nul(key): _without_nul(each) for key, each in value.items()}
    return value


log = logging.getLogger(__name__)

RESULTS = frozenset({"tool", "function"})
"""Roles of messages that hold a tool's result."""

CALL_DISTANCE = 64
"""Messages that a result stands behind its call at most: as many calls as one answer makes, and their results."""


class CardExtractor:
    def __init__(self, sql: Queries, tools: Mapping[str, CardTool], count: Callable[[str], int], clock: Clock) -> None:
        """`tools`: by name. `count`: tokens of o200k."""
        self._sql = sql
        self._tools = tools
        self._count = count
        self._clock = clock

    async def note(self, job: LearnJob, effect: Effect, messages: Sequence[SourceMessage]) -> None:
        """Within the job's effect: the cards of the results among its messages, each with the answer that followed. A result
        that shows none is passed over, and said in the log."""
        results = {each.message_id: each for each in messages if each.role in RESULTS}
        if not results:
            return
        ref = SessionRef(job.user, job.session)
        line = await line_of(effect.connection, self._sql, job.tenant, ref)
        if line is None:
            return
        rows = await effect.connection.fetch(
            self._sql["cards.results"], job.tenant, job.user, *line, list(results), CALL_DISTANCE
        )
        answers = answers_to(messages)
        cards: dict[UUID, list[NewCard]] = {}
        for row in rows:
            tool = self._tools.get(row["tool"] or "")
            if tool is None:
                continue
            found = cards_of(results[row["message_id"]].content, tool)
            if isinstance(found, str):
                told = {"tool": row["tool"], "message_id": str(row["message_id"]), "reason": found}
                log.warning("a tool's result gives no cards", extra=told)
                continue
            cards.setdefault(answers[row["message_id"]], []).extend(
                await asyncio.to_thread(self._ready, found, row["message_id"], row["tool_call_id"])
            )
        try:
            await attach(effect.connection, self._sql, job.tenant, ref, cards)
        except BadRequest as error:
            log.warning("tool results give no cards", extra={"job_key": job.key, "reason": str(error)})

    def _ready(self, found: Sequence[ExtractedCard], result: UUID, call: str | None) -> list[NewCard]:
        now = self._clock.now()
        return [
            NewCard(each.kind, each.data, self._count(each.text), now, tool_call_id=call, result=result)
            for each in found
        ]


def answers_to(messages: Sequence[SourceMessage]) -> dict[UUID, UUID]:
    """By result of a tool, the answer that shows what came of it: the last one before the user speaks again; where there is
    none, the result itself."""
    answers: dict[UUID, UUID] = {}
    answer: UUID | None = None
    for each in reversed(messages):
        if each.role == "user":
            answer = None
        elif each.role == "assistant":
            answer = answer or each.message_id
        elif each.role in RESULTS:
            answers[each.message_id] = answer or each.message_id
    return answers
