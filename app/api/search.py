"""POST /api/v1/memories/search and /api/v1/context: what the compiler would find, and what it would send."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import Model, Moment, Name, Word, clean
from app.api.filtering import Filtering
from app.api.finding import find_session
from app.api.memory_models import Source
from app.api.scope import Admitted, Gate, Scope
from app.clock import Clock
from app.context import retrieve
from app.context.candidates import Leg
from app.context.compile import Compiler, SearchRequest
from app.context.score import ProfileName, Scored
from app.knowledge.inquiry import Knower
from app.knowledge.resolution import Who
from app.sources import Price
from app.store import ids
from app.store.sessions import Sessions

MAX_QUERY_CHARS = 32_768
MAX_FILTERS = 64
MAX_BUDGET = 1_000_000
"""Tokens; more than any model's window that is known."""

_ALL_VISIBLE = 2**31 - 1
"""No turn of the session stands in a prompt: a search may return them all."""


class SearchIn(Model):
    """A question, and what of the answer is wanted."""

    user: Name | None = None
    query: Annotated[str, StringConstraints(min_length=1, max_length=MAX_QUERY_CHARS), AfterValidator(clean)]
    session: Name | None = Field(None, description="A session of the user: its own session memories are found, too.")
    k: Annotated[int, Field(ge=1, le=1000)] | None = Field(None, description="Most items.")
    token_budget: Annotated[int, Field(ge=0, le=MAX_BUDGET)] | None = Field(
        None, description="Most tokens of all texts together; unset: MNEME_MEMORY_BUDGET_TOKENS."
    )
    tiers: Annotated[list[Annotated[int, Field(ge=0, le=4)]], Field(max_length=MAX_FILTERS)] | None = None
    kinds: Annotated[list[Word], Field(max_length=MAX_FILTERS)] | None = Field(
        None, description="Of memories, or `message` for raw turns."
    )
    tags: Annotated[list[Word], Field(max_length=MAX_FILTERS)] = Field([], description="All of these: memories only.")
    metadata: dict[str, Any] | None = Field(None, description="What the metadata contains.")
    now: Moment | None = Field(None, description="The moment to judge age by.")
    profile: ProfileName = Field(
        "auto", description="How what is found is scored; `strategy`: as the question asks for."
    )
    price: Price | None = Field(
        None, description="Only what is worth its tokens, as in a prompt; unset: the best, as much as is asked for."
    )
    history: bool = Field(False, description="Also what is superseded, invalidated or expired, with its `status`.")


class Found(BaseModel):
    """An item. `kind`: turn, message or passage for raw text, else a kind of memory; the provenance of a passage has its
    `span`, the characters of the message that it is. `signals`: the parts of the score; `via`: the ways by which it was
    found."""

    id: UUID
    kind: str
    tier: int | None
    text: str
    score: float
    signals: dict[str, float]
    via: list[Leg]
    token_count: int
    created_at: datetime
    status: str
    provenance: list[Source]


class WidenedBy(BaseModel):
    """A habit of the user's that the question has the trigger of, and what was looked for besides."""

    procedure: UUID
    words: list[str]


class SearchOut(BaseModel):
    items: list[Found]
    tokens: int
    widened: list[WidenedBy]
    took_ms: float


def search_router(
    gate: Gate,
    sessions: Sessions,
    searcher: Compiler,
    clock: Clock,
    filtering: Filtering,
    knower: Knower | None = None,
) -> APIRouter:
    """POST /api/v1/memories/search. `knower`: None where nothing can be known beside memory."""
    routes = _Routes(sessions, searcher, clock, filtering, knower)
    router = gate.router("memories")
    router.add_api_route("/memories/search", routes.search, methods=["POST"], response_model=SearchOut)
    return router


class _Routes:
    def __init__(
        self, sessions: Sessions, searcher: Compiler, clock: Clock, filtering: Filtering, knower: Knower | None
    ) -> None:
        self._sessions = sessions
        self._knower = knower
        self._searcher = searcher
        self._clock = clock
        self._filtering = filtering

    async def search(self, scope: Admitted, body: SearchIn) -> SearchOut:
        """Search memories and raw turns, in the order and within the budget that the compiler itself would use."""
        began = time.perf_counter()
        where = await self._where(scope, body)
        now = body.now or self._clock.now()
        inquiry = None
        if self._knower is not None:
            who = Who(where.tenant_id, where.user_id if where.confine is None else None)
            inquiry = await self._knower.inquire(who, body.query, (), now)
        request = SearchRequest(
            scope=where,
            query=body.query,
            now=now,
            k=body.k,
            token_budget=body.token_budget,
            tiers=body.tiers,
            kinds=body.kinds,
            profile=body.profile,
            price=body.price,
            inquiry=inquiry,
        )
        if body.tags or body.metadata:
            found = await self._searcher.search(self._filtering.widened(request))
            result = await self._filtering.kept(request, found, body.tags, body.metadata)
        else:
            result = await self._searcher.search(request)
        items = [_found(each, result.statuses) for each in result.items]
        widened = [WidenedBy(procedure=each, words=list(words)) for each, words in result.widened]
        took_ms = (time.perf_counter() - began) * 1000
        return SearchOut(items=items, tokens=result.tokens, widened=widened, took_ms=took_ms)

    async def _where(self, scope: Scope, body: SearchIn) -> retrieve.Scope:
        named = scope.named(body.user)
        if body.session is None:
            return retrieve.Scope(scope.tenant, scope.user(body.user).id, history=body.history)
        if named is None and scope.local_user is not None and not await self._known(scope, body.session):
            named = scope.user()
        if named is not None and not await self._sessions.resolve(scope.tenant, body.session, named.id):
            # A session that has not begun yet has nothing of its own.
            return retrieve.Scope(scope.tenant, named.id, history=body.history)
        ref = await find_session(self._sessions, scope, body.session, body.user)
        return retrieve.Scope(
            tenant_id=scope.tenant,
            user_id=ref.user_id,
            confine=ref.session_id if ref.user_id == ids.nobody(scope.tenant) else None,
            session=ref.session_id,
            visible_from=_ALL_VISIBLE,
            history=body.history,
        )

    async def _known(self, scope: Scope, session: str) -> bool:
        return bool(await self._sessions.resolve(scope.tenant, session, None))


def _found(scored: Scored, statuses: Mapping[UUID, str]) -> Found:
    item = scored.candidate
    return Found(
        id=item.id,
        kind=item.kind,
        tier=item.tier,
        text=item.text,
        score=scored.score,
        signals=scored.signals,
        via=sorted(item.legs),
        token_count=item.token_count,
        created_at=item.created_at,
        status=statuses.get(item.id, "active"),
        provenance=[
            Source.model_validate(
                {
                    "session": each.session,
                    "message_id": each.message_id,
                    "turn_index": each.turn_index,
                    "metadata": dict(each.metadata),
                }
                | ({"span": item.span} if item.span is not None else {})
            )
            for each in item.provenance
        ],
    )
