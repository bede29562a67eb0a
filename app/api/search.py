"""POST /api/v1/memories/search: what the compiler would find (seed 003).

A search among what has certain tags or metadata is ranked as any, then filtered, then cut to what was asked for. The filter
sees what a search of a much larger budget would find (`WIDER`), not all that is stored: to see everything with a tag, list it
(GET /api/v1/memories).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from msgspec import Struct
from msgspec.structs import replace
from pydantic import AfterValidator, BaseModel, Field, StringConstraints

from app.api.common import Model, Moment, Name, SpaceName, StoredUserName, Word, clean
from app.api.memories import Source
from app.api.scope import Admitted, CallerScope, Gate, find_session
from app.clock import Clock
from app.context import retrieve
from app.context.candidates import Channel
from app.context.compile import Compiler
from app.context.request import SearchRequest, SearchResult
from app.context.resolution import Knows, Who
from app.context.score import ProfileName, Scored
from app.sources import Price
from app.store import ids
from app.store.memories import Memories
from app.store.sessions import Sessions
from app.store.spaces import SharedSpaces, no_such_space

_MAX_QUERY_CHARS = 32_768
MAX_FILTERS = 64
_MAX_BUDGET = 1_000_000
"""Tokens; more than any model's window that is known."""
WIDER = 32
"""How many times the budget is looked through for what has the tags: some 50,000 tokens, or 1,500 short items."""
RAW = frozenset({"message", "turn", "passage"})
"""Kinds of raw text; all others are memories."""
_ALL_VISIBLE = 2**31 - 1
"""No turn of the session stands in a prompt: a search may return them all."""


class SearchIn(Model):
    """A question, and what of the answer is wanted."""

    user: StoredUserName | None = None
    query: Annotated[str, StringConstraints(min_length=1, max_length=_MAX_QUERY_CHARS), AfterValidator(clean)]
    session: Name | None = Field(None, description="A session of the user: its own session memories are found, too.")
    k: Annotated[int, Field(ge=1, le=1000)] | None = Field(None, description="Most items.")
    token_budget: Annotated[int, Field(ge=0, le=_MAX_BUDGET)] | None = Field(
        None, description="Most tokens of all texts together; unset: MNEME_MEMORY_BUDGET_TOKENS."
    )
    tiers: Annotated[list[Annotated[int, Field(ge=0, le=4)]], Field(max_length=MAX_FILTERS)] | None = None
    kinds: Annotated[list[Word], Field(max_length=MAX_FILTERS)] | None = Field(
        None, description="Of memories, or `message` for raw turns."
    )
    space: SpaceName | None = Field(None, description="Only what is of this shared space.")
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
    found; `space`: the shared space that it is of, where it is not the user's own."""

    id: UUID
    kind: str
    space: str | None
    tier: int | None
    text: str
    score: float
    signals: dict[str, float]
    via: list[Channel]
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


def search_router(gate: Gate, routes: SearchRoutes) -> APIRouter:
    """POST /api/v1/memories/search."""
    router = gate.router("memories")
    router.add_api_route("/memories/search", routes.search, methods=["POST"])
    return router


class SearchRoutes(Struct, frozen=True):
    """`knower`: None where nothing can be known beside memory."""

    sessions: Sessions
    searcher: Compiler
    clock: Clock
    filtering: Filtering
    spaces: SharedSpaces
    knower: Knows | None = None

    async def search(self, scope: Admitted, body: SearchIn) -> SearchOut:
        """Search memories and raw turns, in the order and within the budget that the compiler itself would use."""
        began = time.perf_counter()
        where = await self._shared(await self._where(scope, body), body.space)
        now = body.now or self.clock.now()
        inquiry = None
        if self.knower is not None:
            who = Who(where.tenant_id, where.user_id if where.confine is None else None)
            inquiry = await self.knower.inquire(who, body.query, (), now)
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
        if body.tags or body.metadata or body.space is not None:
            found = await self.searcher.search(self.filtering.widened(request))
            result = await self.filtering.kept(request, found, body.tags, body.metadata, body.space)
        else:
            result = await self.searcher.search(request)
        items = [_found(each, result.statuses) for each in result.items]
        widened = [WidenedBy(procedure=each, words=list(words)) for each, words in result.widened]
        took_ms = (time.perf_counter() - began) * 1000
        return SearchOut(items=items, tokens=result.tokens, widened=widened, took_ms=took_ms)

    async def _where(self, scope: CallerScope, body: SearchIn) -> retrieve.Scope:
        named = scope.named(body.user)
        if body.session is None:
            return retrieve.Scope(scope.tenant, scope.user(body.user).id, history=body.history)
        if named is None and scope.local_user is not None:
            known = await self.sessions.resolve(scope.tenant, body.session, None)
            named = None if known else scope.user()
        if named is not None and not await self.sessions.resolve(scope.tenant, body.session, named.id):
            # A session that has not begun yet has nothing of its own.
            return retrieve.Scope(scope.tenant, named.id, history=body.history)
        ref = await find_session(self.sessions, scope, body.session, body.user)
        return retrieve.Scope(
            tenant_id=scope.tenant,
            user_id=ref.user_id,
            confine=ref.session_id if ref.user_id == ids.nobody(scope.tenant) else None,
            session=ref.session_id,
            visible_from=_ALL_VISIBLE,
            history=body.history,
        )

    async def _shared(self, where: retrieve.Scope, space: str | None) -> retrieve.Scope:
        """With the spaces that the user may read, or the one that is wanted. Raises NotFound for another. (Whether
        they still may is asked again in the statement that reads.)"""
        if where.confine is not None and space is None:
            return where
        shared = await self.spaces.of(where.tenant_id, where.user_id)
        if space is not None:
            shared = [each for each in shared if each.name == space and where.confine is None]
            if not shared:
                raise no_such_space(space, "space")
        return replace(where, shared=tuple(retrieve.SharedScope(each.space_id, each.name) for each in shared))


def _found(scored: Scored, statuses: Mapping[UUID, str]) -> Found:
    item = scored.candidate
    return Found(
        id=item.id,
        kind=item.kind,
        space=item.space,
        tier=item.tier,
        text=item.text,
        score=scored.score,
        signals=scored.signals,
        via=sorted(item.channels),
        token_count=item.token_count,
        created_at=item.created_at,
        status=statuses.get(item.id, "active"),
        provenance=[
            Source.model_validate(
                {name: getattr(each, name) for name in ("session", "message_id", "turn_index", "metadata")}
                | ({"span": item.span} if item.span is not None else {})
            )
            for each in item.provenance
        ],
    )


class Filtering:
    """Filters what a search finds."""

    def __init__(self, memories: Memories, default_budget: int) -> None:
        """`default_budget`: tokens, for a search that names none."""
        self._memories = memories
        self._budget = default_budget

    def widened(self, request: SearchRequest) -> SearchRequest:
        """The same search with more room, to filter from."""
        return replace(request, k=None, token_budget=WIDER * self._budget_of(request))

    async def kept(
        self,
        request: SearchRequest,
        found: SearchResult,
        tags: list[str],
        metadata: Mapping[str, Any] | None,
        space: str | None,
    ) -> SearchResult:
        """Of what `widened` found, what is of the space, has all the tags and contains the metadata, within the limits of
        `request`: in order, leaving out what does not fit and going on, as the packer does. Raw turns have no tags."""
        wanted = [each.candidate for each in found.items if space is None or each.candidate.space == space]
        right = set[UUID]()
        for owner in {each.space_id for each in wanted}:
            own = [each for each in wanted if each.space_id == owner]
            right |= await self._memories.matching(
                request.scope.tenant_id,
                owner or request.scope.user_id,
                memories=[each.id for each in own if each.kind not in RAW],
                messages={} if tags else {each.id: each.created_at for each in own if each.kind in RAW},
                tags=tags,
                metadata=metadata,
            )
        chosen: list[Scored] = []
        tokens, budget = 0, self._budget_of(request)
        for each in found.items:
            if request.k is not None and len(chosen) >= request.k:
                break
            if each.candidate.id in right and tokens + each.candidate.token_count <= budget:
                chosen.append(each)
                tokens += each.candidate.token_count
        return SearchResult(tuple(chosen), tokens, found.statuses, found.widened)

    def _budget_of(self, request: SearchRequest) -> int:
        return request.token_budget if request.token_budget is not None else self._budget
