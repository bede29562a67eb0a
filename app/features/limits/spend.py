"""/api/v1/spend: what was spent, by key, user, session, model or day. It outlives the calls themselves."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app.api.common import DEFAULT_PAGE, Cursor, Limit, decode_cursor, paged
from app.api.scope import Admitted, Gate
from app.clock import Clock
from app.errors import BadRequest
from app.features.limits.store import SpendStore, Spent, is_nothing
from app.store.limits import MICROCENTS_PER_DOLLAR, By

USUAL_DAYS = 30
"""Days that are added up where `from` is left out, with today."""


class SpentOut(BaseModel):
    """One group of calls."""

    id: str | None = Field(
        description="Of the key or session, your own name for the user, the model, or the day (UTC); null: calls of none, and"
        " of users who were erased."
    )
    name: str | None = Field(description="What the key is called, or your own name for the session.")
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = Field(description="Of the prompt tokens, those that the upstream read from its cache.")
    unpriced_tokens: int = Field(description="Tokens of models whose price is not known: the cost does not hold them.")
    cost_microcents: int = Field(description="10⁻⁸ US dollars.")
    cost_usd: float


class SpendPage(BaseModel):
    spend: list[SpentOut]
    next: str | None


def spend_router(gate: Gate, spend: SpendStore, clock: Clock) -> APIRouter:
    """The route /api/v1/spend."""
    routes = _Routes(spend, clock)
    router = gate.router("spend")
    router.add_api_route("/spend", routes.listing, methods=["GET"], response_model=SpendPage)
    return router


class _Routes:
    def __init__(self, spend: SpendStore, clock: Clock) -> None:
        self._spend = spend
        self._clock = clock

    async def listing(
        self,
        scope: Admitted,
        by: Annotated[By, Query(description="What is added up.")] = "day",
        since: Annotated[date | None, Query(alias="from", description="First day (UTC); default: 30 days ago.")] = None,
        until: Annotated[date | None, Query(alias="to", description="Last day (UTC); default: today.")] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> SpendPage:
        """Add up what was spent. A key made for one user, and X-Mneme-User, see that user's."""
        (after,) = decode_cursor(cursor, (str,)) or ("",)
        until = until or self._clock.now().date()
        since = since or until - min(timedelta(days=USUAL_DAYS), until - date.min)
        if since > until:
            raise BadRequest("`from` is after `to`.", param="from")
        user = scope.named()
        rows = await self._spend.spent(
            scope.tenant, user.id if user is not None else None, by, since, until, after=after, limit=limit + 1
        )
        page, following = paged(rows, limit, lambda row: (row.value,))
        return SpendPage(spend=[spent_out(scope.tenant, by, row) for row in page], next=following)


def spent_out(tenant: UUID, by: By, row: Spent) -> SpentOut:
    """A group as it is shown."""
    nothing = by in ("key", "user", "session") and is_nothing(tenant, row.value)
    shown = row.name or row.value if by == "user" else row.value
    return SpentOut(
        id=None if nothing else shown,
        name=row.name if by in ("key", "session") and not nothing else None,
        calls=row.calls,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cached_tokens=row.cached_tokens,
        unpriced_tokens=row.unpriced_tokens,
        cost_microcents=row.cost_microcents,
        cost_usd=row.cost_microcents / MICROCENTS_PER_DOLLAR,
    )
