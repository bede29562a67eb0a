"""Keys held to their limits: the statements that do it (`sql/schema/010_limits.sql`), what was spent, and `Limiter`, which lets
calls in and settles them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import date, datetime, timedelta
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from fastapi import APIRouter, Query
from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import Counter
from pydantic import BaseModel, Field

from app.api.common import DEFAULT_PAGE, Cursor, Limit, decode_cursor, paged
from app.api.scope import Admitted, Gate
from app.capture.facts import CallFacts, Outcome
from app.clock import Clock
from app.errors import BadRequest, Forbidden, RateLimited, StoreUnavailable
from app.gateway.call import Admission, Admits, Parsed
from app.gateway.headers import Headers
from app.metrics import Metrics
from app.providers.models import ModelRegistry
from app.store.ids import NIL, nobody
from app.store.pools import POOL_WAIT_MS, Pool
from app.store.queries import Queries
from app.store.tenancy import MICROCENTS_PER_DOLLAR, By, KeyLimits
from app.tasks import Supervisor

log = logging.getLogger("mneme.turn")

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


class LimitStore:
    """The state of every key's limits. One statement each, nothing is held in between."""

    def __init__(self, pool: Pool, queries: Queries, clock: Clock | None = None) -> None:
        """`clock`: for tests; None takes the database's, which all servers share."""
        self._pool = pool
        self._sql = queries
        self._clock = clock

    async def admit(self, tenant: UUID, key: UUID, call: UUID, limits: KeyLimits, estimate: Estimate) -> AdmitAnswer:
        """Admit a call and reserve what it may come to, or say why not. Raises StoreUnavailable."""
        # As `agent_data.key_limits`.
        sent = (
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


# --- /api/v1/spend: it outlives the calls themselves ---------------------------------------------------------------------

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

    async def listing(
        scope: Admitted,
        by: Annotated[By, Query(description="What is added up.")] = "day",
        since: Annotated[date | None, Query(alias="from", description="First day (UTC); default: 30 days ago.")] = None,
        until: Annotated[date | None, Query(alias="to", description="Last day (UTC); default: today.")] = None,
        limit: Limit = DEFAULT_PAGE,
        cursor: Cursor = None,
    ) -> SpendPage:
        """Add up what was spent. A key made for one user, and X-Mneme-User, see that user's."""
        (after,) = decode_cursor(cursor, (str,)) or ("",)
        until = until or clock.now().date()
        since = since or until - min(timedelta(days=USUAL_DAYS), until - date.min)
        if since > until:
            raise BadRequest("`from` is after `to`.", param="from")
        user = scope.named()
        rows = await spend.spent(
            scope.tenant, user.id if user is not None else None, by, since, until, after=after, limit=limit + 1
        )
        page, following = paged(rows, limit, lambda row: (row.value,))
        return SpendPage(spend=[spent_out(scope.tenant, by, row) for row in page], next=following)

    router = gate.router("spend")
    router.add_api_route("/spend", listing, methods=["GET"], response_model=SpendPage)
    return router


def spent_out(tenant: UUID, by: By, row: Spent) -> SpentOut:
    # What stands for calls without a key or session, or without a user.
    nothing = by in ("key", "user", "session") and row.value in (str(NIL), str(nobody(tenant)))
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


# --- holding a key to its limits -----------------------------------------------------------------------------------------
#
# One statement before the upstream is called, another after the end; keys without limits pay nothing.
# Refusals have OpenAI's shape, so that its SDKs raise RateLimitError and wait for as long as they are told. While the
# database is away, rates go on in every process by itself, and a key with a budget is refused (503): what it has
# spent is not known.

BYTES_PER_TOKEN = 4
"""Of English text: OpenAI's rule of thumb. Its own limits guess from the length, too: nobody tokenises before they admit."""

MAX_CHOICES = 128
"""Largest `n` of the chat API; what is more is refused by the upstream."""

ANSWER_FIELDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""Where the paths under /v1 say how long an answer may be."""

MAX_ANSWER = 10_000_000
"""Tokens of one answer that are believed: more than any model writes, and sums of it stay within Postgres' bigint."""

WINDOW_SLOTS = 61
"""Slots of a second that a rate looks at: the present one and the 60 full ones before it (`sql/schema/010_limits.sql`)."""

MAX_RETRY_S = 60.0
"""Longest wait that a rate tells, seconds: OpenAI's SDKs took more for no wait at all, until they took up to two minutes."""


def estimate(
    document: Mapping[str, Any] | None,
    size: int,
    *,
    reserve: Callable[[str], int],
    cost: Callable[[str, int, int], int],
) -> Estimate:
    """What a request of `size` bytes may come to; nothing where its body is not understood.

    The rate counts the prompt and the answer's limit, if the client names one (as OpenAI's does); a budget counts what a model
    may answer (`reserve`, tokens) where none is named, too. `cost` gives micro-cents for a model's prompt and answer.
    """
    if document is None:
        return Estimate()
    prompt = math.ceil(size / BYTES_PER_TOKEN)
    name = document.get("model")
    model = name if isinstance(name, str) else ""
    named = next((found for each in ANSWER_FIELDS if (found := _count(document.get(each), MAX_ANSWER))), 0)
    choices = _count(document.get("n"), MAX_CHOICES) or 1
    answer = (named or reserve(model)) * choices
    return Estimate(prompt + named * choices, prompt + answer, cost(model, prompt, answer))


def _count(value: object, most: int) -> int:
    """A number of a request's, 0 where it is none: whether it is a mistake is the upstream's to say."""
    return min(value, most) if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


# --- what is told --------------------------------------------------------------------------------------------------------


def rate_headers(limits: KeyLimits, standing: AdmitAnswer) -> Headers:
    """OpenAI's `x-ratelimit-…` headers, for the rates that the key has."""
    told: dict[str, str] = {}
    for kind, limit, left, reset in (
        ("requests", limits.requests_per_minute, standing.requests_left, standing.requests_reset_s),
        ("tokens", limits.tokens_per_minute, standing.tokens_left, standing.tokens_reset_s),
    ):
        if limit is not None:
            told[f"x-ratelimit-limit-{kind}"] = str(limit)
            told[f"x-ratelimit-remaining-{kind}"] = str(left or 0)
            told[f"x-ratelimit-reset-{kind}"] = duration(reset or 0.0)
    return [(name.encode(), value.encode()) for name, value in told.items()]


def refusal(limits: KeyLimits, standing: AdmitAnswer, wanted: Estimate) -> RateLimited:
    """The 429 for what `standing` refused."""
    headers, wait = rate_headers(limits, standing), standing.wait_s
    if standing.refused in ("token_budget", "money_budget"):
        return _over_budget(limits, standing, headers)
    wait = min(max(wait or 0.0, 0.001), MAX_RETRY_S)
    headers += [
        (b"retry-after", str(math.ceil(wait)).encode()),
        (b"retry-after-ms", str(math.ceil(wait * 1000)).encode()),
    ]
    if standing.refused == "requests":
        kind, said = "requests", f"requests per min (RPM): Limit {limits.requests_per_minute}"
    else:
        kind = "tokens"
        said = f"tokens per min (TPM): Limit {limits.tokens_per_minute}, Requested {wanted.rate_tokens}"
    message = f"Rate limit reached for this key on {said}. Please try again in {duration(wait)}."
    return RateLimited(message, kind=kind, code="rate_limit_exceeded", headers=headers)


def _over_budget(limits: KeyLimits, standing: AdmitAnswer, headers: Headers) -> RateLimited:
    """Not to be tried again soon, and OpenAI's SDKs are told so: they would, after any 429."""
    headers.append((b"x-should-retry", b"false"))
    if standing.wait_s is not None:
        headers.append((b"retry-after", str(max(math.ceil(standing.wait_s), 1)).encode()))
    if standing.refused == "token_budget":
        period, budget = limits.token_period, f"{limits.token_budget} tokens"
    else:
        period, budget = limits.money_period, f"${dollars(limits.money_budget or 0)}"
    per = "" if period == "ever" else f" per {period}"
    message = f"You exceeded the budget of this key ({budget}{per}), with what is still being answered."
    return RateLimited(message, kind="insufficient_quota", code="insufficient_quota", headers=headers)


def dollars(microcents: int) -> str:
    """Micro-cents as US dollars, with as many places as there are, at least two: 150000000 → 1.50."""
    whole, rest = divmod(microcents, MICROCENTS_PER_DOLLAR)
    return f"{whole}.{f'{rest:08d}'.rstrip('0').ljust(2, '0')}"


def duration(seconds: float) -> str:
    """As OpenAI writes it: 12ms, 8.64s, 6m0s, 1h0m5s."""
    milliseconds = math.ceil(round(seconds * 1000, 3))
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    hours, minutes = divmod(minutes, 60)
    said = f"{rest / 1000:g}s"
    return f"{hours}h{minutes}m{said}" if hours else f"{minutes}m{said}" if minutes else said


# --- while the database is away ------------------------------------------------------------------------------------------


class RateWindow:
    """The rates of one key in this process alone: the same slots as in the database."""

    def __init__(self) -> None:
        self._slots: dict[int, list[int]] = {}

    def admit(self, limits: KeyLimits, rate_tokens: int, now_s: float) -> AdmitAnswer:
        """As `admit_call`, of the rates. `now_s`: seconds since 1970."""
        second = int(now_s)
        self._slots = {at: used for at, used in self._slots.items() if second - WINDOW_SLOTS < at <= second}
        need = min(rate_tokens, limits.tokens_per_minute or 0)
        refused, wait = None, 0.0
        for name, place, limit, more in (
            ("requests", 0, limits.requests_per_minute, 1),
            ("tokens", 1, limits.tokens_per_minute, need),
        ):
            if refused is None and limit is not None and (wait := self._wait(place, limit - more, now_s)) > 0:
                refused = name
        if refused is None:
            slot = self._slots.setdefault(second, [0, 0])
            slot[0], slot[1] = slot[0] + 1, slot[1] + need
        left = [
            None if limit is None else max(limit - sum(used[place] for used in self._slots.values()), 0)
            for place, limit in enumerate((limits.requests_per_minute, limits.tokens_per_minute))
        ]
        return AdmitAnswer(refused, wait, second, left[0], self._wait(0, 0, now_s), left[1], self._wait(1, 0, now_s))

    def _wait(self, place: int, room: int, now_s: float) -> float:
        """Seconds until the slots hold no more than `room`."""
        used = sum(each[place] for each in self._slots.values())
        wait = 0.0
        for at in sorted(self._slots):
            if used <= room:
                break
            used -= self._slots[at][place]
            wait = at + WINDOW_SLOTS - now_s
        return wait


LOCAL_KEYS = 10_000
"""Keys whose rates a process counts by itself, some 10 kB each at most; the one used longest ago is forgotten first."""

ASKS_NOTHING = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
"""Methods that call no model."""


class Limiter(Admits):
    def __init__(
        self,
        ledger: LimitStore,
        models: ModelRegistry,
        *,
        metrics: Metrics,
        refusals: Counter,
        clock: Clock,
        tasks: Supervisor,
        patience_s: float = POOL_WAIT_MS / 1000,
    ) -> None:
        """`patience_s`: seconds until a database that does not answer counts as away."""
        self._ledger = ledger
        self._models = models
        self._metrics = metrics
        self._refusals = refusals
        self._clock = clock
        self._tasks = tasks
        self._patience_s = patience_s
        self._local: OrderedDict[UUID, RateWindow] = OrderedDict()

    @asynccontextmanager
    async def admitted(self, call: Parsed, document: Mapping[str, Any] | None) -> AsyncIterator[Parsed]:
        """Raises RateLimited; Forbidden for a model that the key may not call; StoreUnavailable where a budget cannot be
        checked."""
        limits = call.principal.limits
        if limits is None:
            yield call
            return
        admission = await self._admit(call, limits, document)
        try:
            yield replace(call, admission=admission)
        finally:
            if admission is not None:
                self._finish(call, limits, admission)

    async def _admit(self, call: Parsed, limits: KeyLimits, document: Mapping[str, Any] | None) -> Admission | None:
        """None: nothing is limited but which models it may call."""
        if not limits.allows(call.model) and call.method not in ASKS_NOTHING:
            named = f"the model {call.model[:100]!r}" if call.model else "a model that Mneme cannot read"
            raise Forbidden(f"This key may not call {named}.", param="model", code="model_not_found")
        if not (limits.rated or limits.budgeted):
            return None
        wanted = estimate(document, call.body_size or 0, reserve=self._reserve, cost=self._models.cost_microcents)
        standing, slot = await self._standing(call, limits, wanted)
        if standing.refused is not None:
            self._refusals.labels(standing.refused).inc()
            raise refusal(limits, standing, wanted)
        return Admission(rate_headers(limits, standing), slot)

    async def _standing(self, call: Parsed, limits: KeyLimits, wanted: Estimate) -> tuple[AdmitAnswer, int | None]:
        principal = call.principal
        assert principal.key_id is not None, "only keys have limits"
        try:
            async with asyncio.timeout(self._patience_s):
                found = await self._ledger.admit(principal.tenant_id, principal.key_id, call.id, limits, wanted)
                return found, found.slot
        except (StoreUnavailable, TimeoutError) as error:
            self._metrics.degraded("limits")
            log.warning("limits without the database", extra={"call_id": str(call.id), "error": type(error).__name__})
            if limits.budgeted:
                raise StoreUnavailable("The budget of this key cannot be checked at the moment; try again.") from error
        window = self._local.setdefault(principal.key_id, RateWindow())
        self._local.move_to_end(principal.key_id)
        if len(self._local) > LOCAL_KEYS:
            self._local.popitem(last=False)
        return window.admit(limits, wanted.rate_tokens, self._clock.now().timestamp()), None

    def _reserve(self, model: str) -> int:
        return self._models.response_reserve(model, None)

    def _finish(self, call: Parsed, limits: KeyLimits, admission: Admission) -> None:
        """Settles it beside everything else."""
        if admission.slot is None:
            return
        facts = admission.facts
        unasked = not admission.asked or (
            facts is not None and facts.status is None and facts.outcome == Outcome.FAILED
        )
        unrecorded = _unrecorded(facts) if facts is not None and not admission.recorded else None
        counted = limits.budgeted or limits.tokens_per_minute is not None
        if counted or unasked or unrecorded is not None:
            settling = self._settle(call, admission.slot, facts, unasked, unrecorded)
            self._tasks.spawn(settling, f"settle {call.id}")

    async def _settle(
        self, call: Parsed, slot: int, facts: CallFacts | None, unasked: bool, unrecorded: Unrecorded | None
    ) -> None:
        principal = call.principal
        assert principal.key_id is not None, "only keys have limits"
        try:
            await self._ledger.settle(
                principal.tenant_id,
                principal.key_id,
                call.id,
                slot,
                unasked=unasked,
                tokens=(facts.usage.prompt or 0) + (facts.usage.completion or 0) if facts is not None else 0,
                microcents=facts.cost_microcents if facts is not None else 0,
                unrecorded=unrecorded,
            )
        except StoreUnavailable as error:
            # What it reserved runs out by itself, and its record brings the budget up to date.
            log.warning("a call was not settled", extra={"call_id": str(call.id), "error": type(error).__name__})


def _unrecorded(facts: CallFacts) -> Unrecorded:
    usage = facts.usage
    return Unrecorded(
        user_id=facts.user_id,
        session_id=facts.session_id,
        model=facts.model.replace("\0", "\ufffd"),
        created_at=facts.created_at,
        prompt_tokens=usage.prompt or 0,
        completion_tokens=usage.completion or 0,
        cached_tokens=usage.cached or 0,
        priced=facts.priced,
    )
