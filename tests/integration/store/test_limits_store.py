"""Limits as the database holds them: rates, budgets, reservations, whatever comes at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from app.errors import BadRequest
from app.features.limits.limiter import RESERVATION_S, AdmitAnswer, Estimate, LimitStore, Unrecorded
from app.store.ids import LOCAL_TENANT
from app.store.pools import Pool, open_pool
from app.store.queries import Queries
from app.store.tenancy import NO_LIMITS, KeyLimits, Tenancy
from tests.support.clock import FakeClock

KEY = UUID(int=0xE1)
OTHER_TENANT = UUID(int=0xB2)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Keeper:
    """A key under a clock of the test's."""

    def __init__(self, pool: Pool, clock: FakeClock | None) -> None:
        self.clock = clock
        self.store = LimitStore(pool, Queries.load(), clock)

    async def admit(self, limits: KeyLimits, *estimate: int, key: UUID = KEY, call: UUID | None = None) -> AdmitAnswer:
        return await self.store.admit(LOCAL_TENANT, key, call or uuid4(), limits, Estimate(*estimate))

    async def call(self, limits: KeyLimits, *estimate: int) -> tuple[UUID, int]:
        """An admitted call, and its slot."""
        call = uuid4()
        standing = await self.admit(limits, *estimate, call=call)
        assert standing.refused is None
        return call, standing.slot

    async def settle(
        self,
        call: tuple[UUID, int],
        tokens: int = 0,
        microcents: int = 0,
        *,
        unasked: bool = False,
        unrecorded: Unrecorded | None = None,
    ) -> None:
        await self.store.settle(
            LOCAL_TENANT, KEY, *call, unasked=unasked, tokens=tokens, microcents=microcents, unrecorded=unrecorded
        )

    def move(self, seconds: float) -> None:
        assert self.clock is not None
        self.clock.move(timedelta(seconds=seconds))


@pytest.fixture
def keeper(pool: Pool) -> Keeper:
    return Keeper(pool, FakeClock(NOON))


# --- rates --------------------------------------------------------------------------------------------------------------


async def test_a_minute_holds_no_more_than_the_rate(keeper: Keeper) -> None:
    limits = KeyLimits(requests_per_minute=3)
    lefts = [(await keeper.admit(limits)).requests_left for _ in range(3)]
    assert lefts == [2, 1, 0]
    refused = await keeper.admit(limits)
    assert (refused.refused, refused.requests_left) == ("requests", 0)
    assert refused.wait_s == pytest.approx(61)
    keeper.move(60.9)
    assert (await keeper.admit(limits)).refused == "requests"
    keeper.move(0.1)
    assert [(await keeper.admit(limits)).refused for _ in range(4)] == [None, None, None, "requests"]


async def test_no_sixty_seconds_hold_more_whenever_they_begin(keeper: Keeper) -> None:
    limits, at = KeyLimits(requests_per_minute=5), [0.0]
    passed: list[float] = []
    for step in range(400):
        seconds = (0.07, 3.3, 11.9, 0.5)[step % 4]
        keeper.move(seconds)
        at.append(at[-1] + seconds)
        if (await keeper.admit(limits)).refused is None:
            passed.append(at[-1])
    assert len(passed) > 100
    assert all(later - first >= 60 for first, later in zip(passed, passed[5:], strict=False))


async def test_the_wait_that_is_told_is_enough_and_not_too_long(keeper: Keeper) -> None:
    limits = KeyLimits(requests_per_minute=2)
    await keeper.admit(limits)
    keeper.move(20.5)
    await keeper.admit(limits)
    refused = await keeper.admit(limits)
    assert refused.wait_s == pytest.approx(40.5)
    keeper.move((refused.wait_s or 0) - 0.01)
    assert (await keeper.admit(limits)).refused == "requests"
    keeper.move(0.02)
    assert (await keeper.admit(limits)).refused is None


async def test_tokens_are_counted_as_guessed_and_then_as_they_were(keeper: Keeper) -> None:
    limits = KeyLimits(tokens_per_minute=100)
    first = await keeper.call(limits, 60)
    refused = await keeper.admit(limits, 60)
    assert (refused.refused, refused.tokens_left) == ("tokens", 40)
    await keeper.settle(first, 10)
    second = await keeper.call(limits, 60)
    await keeper.settle(second, 95)  # it came to more than was guessed
    refused = await keeper.admit(limits, 1)
    assert (refused.refused, refused.tokens_left) == ("tokens", 0)
    keeper.move(61)
    assert (await keeper.admit(limits, 1)).refused is None


async def test_a_call_larger_than_the_rate_passes_alone(keeper: Keeper) -> None:
    limits = KeyLimits(tokens_per_minute=100)
    await keeper.call(limits, 10_000)
    assert (await keeper.admit(limits, 1)).refused == "tokens"
    keeper.move(61)
    await keeper.call(limits, 1)
    assert (await keeper.admit(limits, 10_000)).refused == "tokens"


async def test_what_never_got_to_an_upstream_was_no_request(keeper: Keeper) -> None:
    limits = KeyLimits(requests_per_minute=1)
    call = await keeper.call(limits)
    await keeper.settle(call, unasked=True)
    again = await keeper.call(limits)
    await keeper.settle(again)
    assert (await keeper.admit(limits)).refused == "requests"


async def test_a_clock_that_goes_back_or_ran_ahead_locks_nobody_out(keeper: Keeper) -> None:
    limits = KeyLimits(requests_per_minute=2)
    await keeper.admit(limits)
    keeper.move(-30)
    assert (await keeper.admit(limits)).refused is None
    assert (await keeper.admit(limits)).refused == "requests"
    keeper.move(86_400)
    await keeper.admit(limits)
    keeper.move(-86_400)
    assert (await keeper.admit(limits)).refused is None


# --- budgets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("period", "until"),
    [("day", NOON.replace(day=21, hour=0)), ("month", datetime(2026, 12, 1, tzinfo=UTC)), ("ever", None)],
)
async def test_a_budget_is_of_its_period(keeper: Keeper, period: Any, until: datetime | None) -> None:
    limits = KeyLimits(money_budget=100, money_period=period)
    await keeper.settle(await keeper.call(limits, 0, 0, 10), 5, 100)
    refused = await keeper.admit(limits)
    assert refused.refused == "money_budget"
    assert refused.wait_s == ((until - NOON).total_seconds() if until else None)
    keeper.move(refused.wait_s or 400 * 86_400)
    assert (await keeper.admit(limits)).refused == (None if until else "money_budget")


async def test_a_budget_is_exceeded_by_what_was_in_flight_and_not_by_more(keeper: Keeper) -> None:
    limits = KeyLimits(token_budget=100, token_period="day")
    flying = [await keeper.call(limits, 0, 40) for _ in range(3)]
    assert (await keeper.admit(limits, 0, 1)).refused == "token_budget"
    await keeper.settle(flying[0], 50)
    assert (await keeper.admit(limits, 0, 1)).refused == "token_budget"
    await keeper.settle(flying[1])  # it failed: nothing of it stays
    await keeper.call(limits, 0, 1)


async def test_nothing_may_be_spent_of_nothing(keeper: Keeper) -> None:
    assert (await keeper.admit(KeyLimits(token_budget=0))).refused == "token_budget"
    assert (await keeper.admit(KeyLimits(money_budget=0))).refused == "money_budget"


async def test_what_a_dead_server_reserved_comes_free(keeper: Keeper) -> None:
    limits = KeyLimits(money_budget=100, money_period="ever")
    await keeper.call(limits, 0, 0, 100)
    assert (await keeper.admit(limits)).refused == "money_budget"
    keeper.move(RESERVATION_S + 1)
    assert (await keeper.admit(limits)).refused is None


async def test_a_call_is_settled_once(keeper: Keeper, admin: asyncpg.Connection[Any]) -> None:
    limits = KeyLimits(money_budget=100, tokens_per_minute=100)
    call = await keeper.call(limits, 30, 30, 30)
    for _ in range(3):
        await keeper.settle(call, 20, 20)
    row = await admin.fetchrow(
        "SELECT money_spent, (SELECT sum(x) FROM unnest(tokens) x) AS t FROM agent_data.key_usage"
    )
    assert row is not None
    assert tuple(row) == (20, 20)


async def test_a_new_budget_knows_what_was_spent_before(keeper: Keeper, admin: asyncpg.Connection[Any]) -> None:
    await spend(admin, KEY, day="2026-11-19", microcents=70)
    await spend(admin, KEY, day="2026-11-20", microcents=30, folded=False)
    await spend(admin, UUID(int=9), day="2026-11-20", microcents=1000)
    assert (await keeper.admit(KeyLimits(money_budget=100))).refused == "money_budget"
    assert (await keeper.admit(KeyLimits(money_budget=101))).refused is None
    assert (await keeper.admit(KeyLimits(money_budget=31, money_period="day"))).refused is None


async def test_a_budget_that_was_lifted_for_a_while_is_counted_anew(
    pool: Pool, keeper: Keeper, admin: asyncpg.Connection[Any]
) -> None:
    tenancy = Tenancy(pool, Queries.load(), FakeClock(NOON))
    _, row = await tenancy.create_key("local", "k", limits=KeyLimits(money_budget=100))
    assert (await keeper.admit(row.limits, key=row.key_id)).refused is None
    await tenancy.change_key(row.key_id, {"money_budget": None})
    await spend(admin, row.key_id, day="2026-11-20", microcents=100)
    changed = await tenancy.change_key(row.key_id, {"money_budget": 100})
    assert changed is not None
    assert (await keeper.admit(changed.limits, key=row.key_id)).refused == "money_budget"


async def test_what_was_not_settled_comes_in_from_what_was_spent(
    keeper: Keeper, admin: asyncpg.Connection[Any]
) -> None:
    limits = KeyLimits(money_budget=100, money_period="ever")
    call, _ = await keeper.call(limits, 0, 0, 10)
    await spend(admin, KEY, day="2026-11-20", microcents=99, call=call, folded=False)
    await admin.execute("SELECT agent_data.refresh_budget($1, $2)", KEY, NOON)
    assert await admin.fetchval("SELECT money_spent FROM agent_data.key_usage") == 0, "it may still be settled"
    later = NOON + timedelta(seconds=RESERVATION_S + 1)
    await admin.execute("SELECT agent_data.refresh_budget($1, $2)", KEY, later)
    assert await admin.fetchval("SELECT money_spent FROM agent_data.key_usage") == 99


async def spend(
    admin: asyncpg.Connection[Any],
    key: UUID,
    *,
    day: str,
    microcents: int,
    call: UUID | None = None,
    folded: bool = True,
) -> None:
    table, first = ("spend", 1) if folded else ("spend_entries", call or uuid4())
    await admin.execute(
        f"INSERT INTO agent_data.{table} ({'calls' if folded else 'call_id'}, user_id, tenant_id, key_id, session_id,"
        " model, day, prompt_tokens, completion_tokens, cached_tokens, unpriced_tokens, cost_microcents)"
        " VALUES ($1, $2, $3, $4, $2, 'm', $5, 1, 1, 0, 0, $6)",
        first, UUID(int=0), LOCAL_TENANT, key, datetime.fromisoformat(day).date(), microcents,
    )  # fmt: skip


# --- many at once ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def wide(database: str) -> AsyncIterator[Pool]:
    """A second server's pool."""
    pool = await open_pool(
        database, size=8, timeout_ms=30_000, statement_timeout_ms=30_000, statement_cache_size=256, role="mneme_app"
    )
    yield pool
    await pool.close()


async def test_of_many_at_once_the_rate_lets_exactly_so_many_through(pool: Pool, wide: Pool) -> None:
    """Under the database's own clock, well within a minute."""
    servers = [Keeper(pool, None), Keeper(wide, None)]
    limits = KeyLimits(requests_per_minute=30)
    found = await asyncio.gather(*(servers[n % 2].admit(limits) for n in range(100)))
    assert sum(each.refused is None for each in found) == 30


async def test_of_many_at_once_a_budget_lets_through_what_fits(
    pool: Pool, wide: Pool, admin: asyncpg.Connection[Any]
) -> None:
    servers = [Keeper(pool, None), Keeper(wide, None)]
    limits, cost = KeyLimits(money_budget=1000, money_period="ever"), 90

    async def one(n: int) -> bool:
        call = uuid4()
        standing = await servers[n % 2].admit(limits, 0, 0, 100, call=call)
        if standing.refused is None:
            await servers[n % 2].settle((call, standing.slot), 1, cost)
        return standing.refused is None

    passed = 0
    for _ in range(4):
        passed += sum(await asyncio.gather(*(one(n) for n in range(25))))
    spent = await admin.fetchval("SELECT money_spent FROM agent_data.key_usage")
    assert spent == passed * cost
    assert 1000 <= spent < 1000 + 10 * cost, "all that was there is used, and at most what was in flight beyond it"
    assert await admin.fetchval("SELECT count(*) FROM agent_data.key_reservations") == 0


async def test_a_key_of_another_tenant_has_nothing_to_do_with_it(pool: Pool) -> None:
    store = LimitStore(pool, Queries.load(), FakeClock(NOON))
    limits = KeyLimits(requests_per_minute=1)
    assert (await store.admit(LOCAL_TENANT, KEY, uuid4(), limits, Estimate())).refused is None
    assert (await store.admit(LOCAL_TENANT, UUID(int=0xE2), uuid4(), limits, Estimate())).refused is None
    async with pool.transaction(OTHER_TENANT) as connection:
        assert await connection.fetchval("SELECT count(*) FROM agent_data.key_usage") == 0
        assert await connection.fetchval("SELECT count(*) FROM agent_data.spending") == 0


# --- what is stored of a key ------------------------------------------------------------------------------------------------


async def test_limits_are_stored_and_changed(pool: Pool) -> None:
    tenancy = Tenancy(pool, Queries.load(), FakeClock(NOON))
    _, row = await tenancy.create_key("local", "k", limits=KeyLimits(requests_per_minute=7, models=("gpt-*",)))
    changed = await tenancy.change_key(row.key_id, {"requests_per_minute": None, "token_budget": 9, "paging": True})
    assert changed is not None
    assert changed.limits == KeyLimits(token_budget=9, models=("gpt-*",), paging=True)
    assert [each.limits for each in await tenancy.list_keys()] == [changed.limits]
    assert await tenancy.change_key(UUID(int=1), {}) is None
    assert await tenancy.change_key(row.key_id, {}, tenant=OTHER_TENANT) is None
    assert not await tenancy.revoke_key(row.key_id, OTHER_TENANT)
    with pytest.raises(BadRequest):
        await tenancy.change_key(row.key_id, {"requests_per_minute": -1})
    assert (await tenancy.keys_of(LOCAL_TENANT, limit=5))[0].limits == changed.limits
    assert NO_LIMITS.as_json() == {}
