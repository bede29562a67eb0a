"""/api/v1/sessions/{id}/cards and /api/v1/cards: the UI cards that were shown with answers, and which one somebody means."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import APIRouter, Query, Response
from pydantic import Discriminator, Field, Tag, ValidationError

from app.api.common import (
    DEFAULT_PAGE,
    MAX_CARDS,
    MAX_ORDER,
    CardType,
    Cursor,
    Limit,
    Segment,
    Text,
    decode_cursor,
    paged,
    parse_json,
)
from app.api.scope import Admitted, CallerScope, Gate, find_session
from app.api.sessions import Owner
from app.errors import BadBody, BadRequest, NotFound
from app.features.cards.keeper import (
    TOOL,
    CardAdded,
    CardFinder,
    CardIn,
    CardKeeper,
    CardPage,
    CardsAdded,
    CardsFound,
    FoundCards,
    ToolCall,
    ToolMessage,
    Understood,
    Wish,
    shown_card,
)
from app.features.cards.navigation import MAX_ASKED_CHARS, CardRequest, kind_of
from app.features.cards.store import CardFilter, Cards
from app.store.sessions import SessionRef, Sessions

TOOL_TOKENS = 4000
"""Most tokens of cards that a model is given at once: six of the seed's 2 KB."""

MAX_DATA_CHARS = 2000
"""Longest `data` to look for, characters: it stands in a URL."""

HINT = 'Such as "the second card from three questions ago", "that table again" or "card 3 from question two".'


def _shape(value: object) -> str:
    return "many" if isinstance(value, list) else "one"


OneOrMany = Annotated[
    Annotated[CardIn, Tag("one")] | Annotated[list[CardIn], Field(min_length=1, max_length=MAX_CARDS), Tag("many")],
    Discriminator(_shape),
]
Place = Annotated[int | None, Query(ge=1, le=MAX_ORDER)]
Number = Annotated[int | None, Query(ge=0, le=2**30)]


def cards_router(gate: Gate, sessions: Sessions, cards: Cards, keeper: CardKeeper) -> APIRouter:
    finder = CardFinder(cards)

    async def _find(scope: CallerScope, ref: SessionRef, wish: Wish) -> FoundCards:
        """Raises BadRequest where nothing is asked for."""
        numbers = (wish.question, wish.questions_ago, wish.order, wish.type)
        if wish.query is None and all(each is None for each in numbers):
            raise BadRequest(f"Say which card: with `query`, or with numbers. {HINT}", param="query")
        if wish.query is not None and any(each is not None for each in numbers):
            raise BadRequest("Say it with `query` or with numbers, not both.", param="query")
        if wish.question is not None and wish.questions_ago is not None:
            raise BadRequest("Say `question` or `questions_ago`, not both.", param="questions_ago")
        if wish.question == 0 or wish.order == 0:
            raise BadRequest("Questions and cards are counted from 1, and from -1 backwards.", param="order")
        wanted = CardRequest(wish.order, 1, kind_of(wish.type), wish.question, wish.questions_ago)
        found = await finder.find(scope.tenant, ref, wish.query if wish.query is not None else wanted)
        if found.wanted is None:
            raise BadRequest(f"This does not say which card. {HINT}", param="query", code="not_understood")
        return found

    async def listing(
        scope: Admitted,
        session_id: Segment,
        user: Owner = None,
        turn: Annotated[Number, Query(description="Shown with the answer of this `turn_index`.")] = None,
        order: Annotated[Place, Query(description="At this place among the cards of its answer.")] = None,
        question: Annotated[Number, Query(description="Shown with this question, from 1.")] = None,
        kind: Annotated[CardType | None, Query(alias="type", description="Of this type.")] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> CardPage:
        """List the cards of a session in the order in which they were shown."""
        after = decode_cursor(cursor, (int, int, int))
        ref = await find_session(sessions, scope, session_id, user)
        rows = await cards.page(
            scope.tenant,
            ref,
            CardFilter(turn, order, question, kind),
            after=after and (after[0], after[1], after[2]),
            limit=limit + 1,
        )
        page, following = paged(rows, limit, lambda row: (row.turn_index, row.sibling, row.order))
        return CardPage(cards=[shown_card(each) for each in page], next=following)

    async def add(
        scope: Admitted, session_id: Segment, response: Response, body: OneOrMany, user: Owner = None
    ) -> CardsAdded:
        """Add cards that were shown with answers, all or none (201). The same card again in the same place changes nothing
        (200, where all are); another one there is refused (409). Send `turn` and `display_order` where a request may be
        repeated."""
        ref = await find_session(sessions, scope, session_id, user)
        given = body if isinstance(body, list) else [body]
        fresh = await keeper.ready(given)
        turns = [each.turn for each in given]
        added = await cards.add(scope.tenant, ref, list(zip(turns, fresh, strict=True)))
        if not any(created for _, created in added):
            response.status_code = 200
        return CardsAdded(
            cards=[CardAdded(**shown_card(card).model_dump(), created=created) for card, created in added]
        )

    async def find(
        scope: Admitted,
        session_id: Segment,
        user: Owner = None,
        query: Annotated[Text | None, Query(max_length=MAX_ASKED_CHARS, description=HINT)] = None,
        question: Annotated[
            int | None, Query(ge=-(2**30), le=2**30, description="Shown with this question, from 1.")
        ] = None,
        questions_ago: Annotated[
            Number, Query(description="Shown so many questions ago; 0: with the last one.")
        ] = None,
        order: Annotated[
            int | None, Query(ge=-MAX_ORDER, le=MAX_ORDER, description="1: the first card there, -1: the last.")
        ] = None,
        kind: Annotated[CardType | None, Query(alias="type", description="Words of its type.")] = None,
    ) -> CardsFound:
        """Find the cards that somebody means, by what was said or by numbers (seed 003, voice navigation)."""
        ref = await find_session(sessions, scope, session_id, user)
        wish = Wish(query=query, question=question, questions_ago=questions_ago, order=order, type=kind)
        found = await _find(scope, ref, wish)
        if not found.cards:
            raise NotFound(found.why, param="query" if query is not None else None, code="no_card")
        return CardsFound(cards=[shown_card(each) for each in found.cards], understood=_understood(found))

    async def holding(
        scope: Admitted,
        data: Annotated[
            Text, Query(max_length=MAX_DATA_CHARS, description='JSON that their data hold: `{"sku": "A1"}`.')
        ] = "{}",
        kind: Annotated[CardType | None, Query(alias="type", description="Of this type.")] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> CardPage:
        """List the cards of a user, of all sessions, newest first."""
        after = decode_cursor(cursor, (datetime, UUID))
        try:
            wanted = parse_json(data.encode())
        except BadBody as error:
            raise BadRequest(f"data: {error}", param="data") from error
        if not isinstance(wanted, dict):
            raise BadRequest("data is a JSON object.", param="data")
        rows = await cards.holding(
            scope.tenant, scope.user().id, wanted, kind, after=after and (after[0], after[1]), limit=limit + 1
        )
        page, following = paged(rows, limit, lambda row: (row.shown_at, row.card_id))
        return CardPage(cards=[shown_card(each) for each in page], next=following)

    async def tool() -> dict[str, Any]:
        """The tool to give to a model; what it calls goes to …/sessions/{id}/cards/call."""
        return TOOL

    async def call(scope: Admitted, session_id: Segment, body: ToolCall, user: Owner = None) -> ToolMessage:
        """Answer a model's call of `find_card`. What is wrong with the call is told to the model, which can mend it."""
        ref = await find_session(sessions, scope, session_id, user)
        try:
            wish = Wish.model_validate(parse_json(body.arguments.encode() or b"{}"))
            found = await _find(scope, ref, wish)
            content = _for_model(found) if found.cards else {"error": found.why}
        except ValidationError as error:
            told = error.errors()[0]
            content = {"error": f"{'.'.join(map(str, told['loc'])) or 'arguments'}: {told['msg']}"}
        except (BadBody, BadRequest) as error:
            content = {"error": f"These arguments cannot be read. {error}"}
        return ToolMessage(tool_call_id=body.tool_call_id, content=orjson.dumps(content).decode())

    router = gate.router("cards")
    at = "/sessions/{session_id}/cards"
    router.add_api_route(at, listing, methods=["GET"], response_model=CardPage)
    router.add_api_route(at, add, methods=["POST"], response_model=CardsAdded, status_code=201)
    router.add_api_route(f"{at}/find", find, methods=["GET"], response_model=CardsFound)
    router.add_api_route(f"{at}/call", call, methods=["POST"], response_model=ToolMessage)
    router.add_api_route("/cards", holding, methods=["GET"], response_model=CardPage)
    router.add_api_route("/cards/tool", tool, methods=["GET"], response_model=dict[str, Any])
    return router


def _understood(found: FoundCards) -> Understood:
    wanted = found.wanted or CardRequest()
    return Understood(
        order=wanted.order,
        count=wanted.take,
        type=" ".join(wanted.kind) or None,
        question=found.question,
        questions_ago=wanted.ago,
    )


def _for_model(found: FoundCards) -> dict[str, Any]:
    """Cards as a model reads them, within `TOOL_TOKENS`; how many more there are."""
    shown: list[dict[str, Any]] = []
    tokens = 0
    for each in found.cards:
        tokens += each.tokens
        if tokens > TOOL_TOKENS and shown:
            break
        shown.append({"question": each.question, "order": each.order, "type": each.kind, "data": each.data})
    told: dict[str, Any] = {"cards": shown}
    left = len(found.cards) - len(shown)
    return told | {"left_out": left, "hint": "Ask for fewer at once."} if left else told
