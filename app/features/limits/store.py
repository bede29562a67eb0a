"""The statements that hold keys to their limits (`sql/schema/010_limits.sql`), and what was spent."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Annotated, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Query
from msgspec import Struct
from pydantic import BaseModel, Field

from app.api.common import DEFAULT_PAGE, Cursor, Limit, decode_cursor, paged
from app.api.scope import Admitted, Gate
from app.clock import Clock
from app.errors import BadRequest
from app.store.ids import NIL, nobody
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.tenancy import MICROCENTS_PER_DOLLAR, By, KeyLimits

RESERVATION_S = 3600.0
"""Seconds after which what a call reserved counts no more if nobody settled it: its server is gone. Longer than answers take;
one that takes longer still is counted when it ends."""


class Estimate(NamedTuple):
    """What a call may come to: as the rate counts it, as a token budget does (tokens), and in micro-cents."""

    rate_tokens: int = 0
    tokens: int = 0
    microcents: int = 0


class AdmitAnswer(Struct, frozen=True):
    """What `admit_call` answered. `refused`: token_budget, money_budget, requests or tokens; None: admitted. `wait_s`: seconds
    until it may be tried again, None: never. `…_left`: None where there is no such limit; `…_reset_s`: seconds until the window
    is empty. `slot`: what `settle` takes."""

    refused: str | None
    wait_s: float | None
    slot: int
    requests_left: int | None
    requests_reset_s: float | None
    tokens_left: int | None
    tokens_reset_s: float | None


class Unrecorded(NamedTuple):
    """A call of which there is no record: `agent_data.spend_record`."""

    user_id: UUID
    session_id: UUID | None
    model: str
    created_at: datetime
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    priced: bool


class _Sent(NamedTuple):
    """`agent_data.key_limits`."""

    requests_per_minute: int | None
    tokens_per_minute: int | None
    token_budget: int | None
    token_period: str
    money_budget: int | None
    money_period: str


class LimitStore:
    """The state of every key's limits. One statement each, nothing is held in between."""

    def __init__(self, pool: Pool, queries: Queries, clock: Clock | None = None) -> None:
        """`clock`: for tests; None takes the database's, which all servers share."""
        self._pool = pool
        self._sql = queries
        self._clock = clock

    async def admit(self, tenant: UUID, key: UUID, call: UUID, limits: KeyLimits, estimate: Estimate) -> AdmitAnswer:
        """Admit a call and reserve what it may come to, or say why not. Raises StoreUnavailable."""
        sent = _Sent(
            limits.requests_per_minute, limits.tokens_per_minute,
            limits.token_budget, limits.token_period, limits.money_budget, limits.money_period,
        )  # fmt: skip
        now = self._clock.now() if self._clock is not None else None
        async with self._pool.acquire() as connection:
            row = await connection.fetchrow(
                self._sql["limits.admit"], tenant, key, call, sent, *estimate, RESERVATION_S, now
            )
        assert row is not None, "the function returns one row"
        return AdmitAnswer(**dict(row))

    async def settle(
        self,
        tenant: UUID,
        key: UUID,
        call: UUID,
        slot: int,
        *,
        unasked: bool,
        tokens: int,
        microcents: int,
        unrecorded: Unrecorded | None,
    ) -> None:
        """What an admitted call came to; with nothing, it is released. `unasked`: it never got to an upstream, so that it
        was no request.

        Raises StoreUnavailable.
        """
        async with self._pool.acquire() as connection:
            await connection.execute(
                self._sql["limits.settle"], tenant, key, call, slot, unasked, tokens, microcents, unrecorded
            )


class Spent(Struct, frozen=True):
    """One group of calls. `value`: the id of a key, user or session as text (None in `id`: calls that have none), the name of
    a model, or a day; `name`: what the tenant calls it. `unpriced_tokens`: those whose model has no known price: the cost,
    micro-cents, does not hold them."""

    value: str
    name: str | None
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    unpriced_tokens: int
    cost_microcents: int


class SpendStore:
    """Reads what was spent. It outlives the calls, which are kept for a while only."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        self._pool = pool
        self._sql = queries

    async def spent(
        self, tenant: UUID, user: UUID | None, by: By, since: date, until: date, *, after: str = "", limit: int
    ) -> list[Spent]:
        """Groups in the order of their values, after `after`, of the UTC days from `since` to `until`, both included; of one
        user, or of the whole tenant. Raises StoreUnavailable."""
        async with self._pool.transaction(tenant) as connection:
            rows = await connection.fetch(
                self._sql["limits.spend"], tenant, since, until, user, by, after, limit, nobody(tenant)
            )
        return [Spent(**dict(row)) for row in rows]


def is_nothing(tenant: UUID, value: str) -> bool:
    """Whether a group's value stands for calls without a key or session, or without a user."""
    return value in (str(NIL), str(nobody(tenant)))


# --- /api/v1/spend: what was spent, by key, user, session, model or day. It outlives the calls themselves.

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
