"""Searches among what has certain tags or metadata: ranked as any search, then filtered, then cut to what was asked for.

The filter sees what a search of a much larger budget would find (`WIDER`), not all that is stored: to see everything with
a tag, list it (GET /api/v1/memories).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from app.context.compile import SearchRequest, SearchResult
from app.context.score import Scored
from app.store.memories import Memories

WIDER = 32
"""How many times the budget is looked through for what has the tags: some 50,000 tokens, or 1,500 short items."""

RAW = frozenset({"message", "turn", "passage"})
"""Kinds of raw text; all others are memories."""


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
        self, request: SearchRequest, found: SearchResult, tags: list[str], metadata: Mapping[str, Any] | None
    ) -> SearchResult:
        """Of what `widened` found, what has all the tags and contains the metadata, within the limits of `request`: in order,
        leaving out what does not fit and going on, as the packer does. Raw turns have no tags."""
        memories = [each.candidate.id for each in found.items if each.candidate.kind not in RAW]
        messages = {each.candidate.id: each.candidate.created_at for each in found.items if each.candidate.kind in RAW}
        right = await self._memories.matching(
            request.scope.tenant_id,
            request.scope.user_id,
            memories=memories,
            messages={} if tags else messages,
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
