"""What a key may use, the statements that hold it to that (`sql/schema/010_limits.sql`), and what was spent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, TypeVar, get_args
from uuid import UUID

from msgspec import Struct
from msgspec.structs import asdict, replace

from app.clock import Clock
from app.errors import BadRequest
from app.sources import PRICE_NAMES, Price
from app.store.ids import NIL, nobody
from app.store.pools import Pool
from app.store.queries import Queries

Period = Literal["day", "month", "ever"]
"""Of a budget: a day or a month of the calendar in UTC, or for good."""
PERIODS: tuple[str, ...] = get_args(Period)
USUAL_PERIOD: Period = "month"
MICROCENTS_PER_DOLLAR = 100_000_000
"""Seed 000 §2.1: cost is counted in 10⁻⁸ US dollars."""
MAX_COUNT = 10**15
"""Largest number of a limit: beyond what anybody uses, and a sum of thousands of them still fits into Postgres' bigint."""
MAX_DOLLARS = 10_000_000
"""Largest budget: `MAX_COUNT` in US dollars."""
MAX_MODELS = 100
MAX_PATTERN_CHARS = 200
RESERVATION_S = 3600.0
"""Seconds after which what a call reserved counts no more if nobody settled it: its server is gone. Longer than answers take;
one that takes longer still is counted when it ends."""
L = TypeVar("L", bound="KeyLimits")


class KeyLimits(Struct, frozen=True):
    """What a key may use; None: any amount. `money_budget` in micro-cents. `models`: names, or patterns with `*`; none: any.
    `capture`: whether its calls may be captured. `paging`: whether they are paged, where call and session do not say; `price`:
    what a token of memory costs, where the call does not say (`context/worth.py`); neither limits anything."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    token_budget: int | None = None
    token_period: Period = USUAL_PERIOD
    money_budget: int | None = None
    money_period: Period = USUAL_PERIOD
    models: tuple[str, ...] = ()
    capture: bool = True
    paging: bool | None = None
    price: Price | None = None

    def __post_init__(self) -> None:
        """Raises BadRequest for a number out of range, a period or a pattern that is none."""
        for name, least in (
            ("requests_per_minute", 1),
            ("tokens_per_minute", 1),
            ("token_budget", 0),
            ("money_budget", 0),
        ):
            value = getattr(self, name)
            if value is not None and not (type(value) is int and least <= value <= MAX_COUNT):
                raise BadRequest(f"{name} is a whole number from {least} to {MAX_COUNT}.", param=name)
        for name in ("token_period", "money_period"):
            if getattr(self, name) not in PERIODS:
                raise BadRequest(f"{name} is {', '.join(PERIODS[:-1])} or {PERIODS[-1]}.", param=name)
        if self.price not in (None, *PRICE_NAMES):
            raise BadRequest(f"price is {', '.join(PRICE_NAMES[:-1])} or {PRICE_NAMES[-1]}.", param="price")
        if len(self.models) > MAX_MODELS or not all(
            isinstance(each, str) and 0 < len(each) <= MAX_PATTERN_CHARS and "\0" not in each for each in self.models
        ):
            raise BadRequest(
                f"models are at most {MAX_MODELS} names or patterns of 1 to {MAX_PATTERN_CHARS} characters.",
                param="models",
            )

    @property
    def rated(self) -> bool:
        """Whether there is a rate."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    @property
    def budgeted(self) -> bool:
        """Whether there is a budget."""
        return self.token_budget is not None or self.money_budget is not None

    @property
    def limiting(self) -> bool:
        """Whether anything is kept from the key: a choice of its owner's is no limit."""
        return replace(self, paging=None, price=None) != NO_LIMITS

    def allows(self, model: str | None) -> bool:
        """Whether this model may be called; None: nobody can tell which it is."""
        return not self.models or (model is not None and any(fnmatchcase(model, each) for each in self.models))

    def as_json(self) -> dict[str, Any]:
        """What is stored and shown: only what was set."""
        plain = asdict(NO_LIMITS)
        found = {name: value for name, value in asdict(self).items() if value != plain[name]}
        if "models" in found:
            found["models"] = list(self.models)
        return found

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> KeyLimits | None:
        """The limits as they were stored; None where there are none. What a later version added is not looked at."""
        known = {name: value for name, value in stored.items() if name in cls.__struct_fields__}
        if "models" in known:
            known["models"] = tuple(known["models"])
        found = cls(**known)
        return found if found != NO_LIMITS else None

    def changed(self, change: Mapping[str, Any]) -> KeyLimits:
        """With what `change` names. Raises BadRequest."""
        return replace(self, **change)


NO_LIMITS = KeyLimits()


def microcents(dollars: str | int | float | Decimal) -> int:
    """US dollars as micro-cents, rounded down. Raises BadRequest for what is no amount of money from 0 to `MAX_DOLLARS`."""
    try:
        amount = Decimal(str(dollars))
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount <= MAX_DOLLARS:
        raise BadRequest(f"A budget is an amount of US dollars from 0 to {MAX_DOLLARS}.", param="money_budget")
    return int(amount * MICROCENTS_PER_DOLLAR)


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


# What was spent, by key, user, session, model or day.

By = Literal["key", "user", "session", "model", "day"]
GROUPS: tuple[str, ...] = get_args(By)


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
