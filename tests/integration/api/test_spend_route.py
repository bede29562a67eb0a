"""/api/v1/spend: every call in it once, whatever is kept of it, and whose it is."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app.capture.facts import CallFacts, Outcome, Usage
from app.capture.record import Recorder
from app.features.limits.limiter import Estimate, LimitStore, Unrecorded
from app.providers.embeddings import NoEmbedder
from app.providers.tokens import CountCache
from app.store import ids
from app.store.ids import LOCAL_TENANT
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.tenancy import KeyLimits
from app.store.turns import TurnStore
from tests.support.cases import cases
from tests.support.rows import count_rows, delete_rows, insert_row
from tests.support.wired_api import WiredApi, WordCounter, all_pages, error_of

SPEND = "/api/v1/spend"
ANA, BOB = (ids.user_id(LOCAL_TENANT, name) for name in ("ana", "bob"))
KEY, SESSION = UUID(int=0xE1), UUID(int=0x51)


class Book:
    """Records calls."""

    def __init__(self, pool: Pool) -> None:
        self.recorder = Recorder(TurnStore(pool, Queries.load()), NoEmbedder(), CountCache(), WordCounter())

    async def call(self, *, at: datetime | None = None, call: UUID | None = None, **given: Any) -> UUID:
        at = at or datetime.now(UTC)
        call = call or ids.uuid7(at)
        plain: dict[str, Any] = {
            "tenant_id": LOCAL_TENANT, "user_id": ANA, "method": "POST", "path": "/v1/x", "upstream": "u",
            "outcome": Outcome.COMPLETE, "memory_status": "bypass", "model": "gpt-4o", "usage": Usage(10, 5, 2),
            "cost_microcents": 7, "key_id": KEY, "session_id": SESSION,
        }  # fmt: skip
        await self.recorder.record(CallFacts(call_id=call, created_at=at, **(plain | given)), None, None)
        return call


@pytest.fixture
def book(pool: Pool) -> Book:
    return Book(pool)


async def fold(admin: asyncpg.Connection[Any]) -> int:
    folded: int = await admin.fetchval(Queries.load()["schedule.fold_spend"], datetime.now(UTC), 2)
    return folded


async def spent(client: httpx.AsyncClient, by: str = "day", **params: Any) -> list[dict[str, Any]]:
    return await all_pages(client, SPEND, "spend", by=by, **params)


async def test_spend_by_everything(client: httpx.AsyncClient, book: Book, admin: asyncpg.Connection[Any]) -> None:
    for name in ("ana", "bob"):
        await client.post("/api/v1/users", json={"id": name})
    key = {"key_hash": b"1", "key_id": KEY, "tenant_id": LOCAL_TENANT, "name": "app", "hint": "h"}
    await insert_row(admin, "api_keys", **key)
    await book.call()
    await book.call(user_id=BOB, model="o3", key_id=None, session_id=None)
    await book.call(user_id=ids.nobody(LOCAL_TENANT), model="mine", cost_microcents=0, priced=False)
    (day,) = await spent(client)
    today = datetime.now(UTC).date()
    assert day == {
        "id": str(today), "name": None, "calls": 3, "prompt_tokens": 30, "completion_tokens": 15, "cached_tokens": 6,
        "unpriced_tokens": 15, "cost_microcents": 14, "cost_usd": 14e-8,
    }  # fmt: skip
    for _ in range(3):
        found = {
            by: {row["id"]: row for row in await spent(client, by, limit=1)}
            for by in ("key", "user", "session", "model")
        }
        assert {name: row["calls"] for name, row in found["key"].items()} == {str(KEY): 2, None: 1}
        assert found["key"][str(KEY)]["name"] == "app"
        assert {name: row["calls"] for name, row in found["user"].items()} == {"ana": 1, "bob": 1, None: 1}
        assert {name: row["calls"] for name, row in found["session"].items()} == {str(SESSION): 2, None: 1}
        assert {name: row["cost_microcents"] for name, row in found["model"].items()} == {
            "gpt-4o": 7,
            "o3": 7,
            "mine": 0,
        }
        await fold(admin)
    assert await count_rows(admin, "spend_entries") == 0


async def test_a_call_is_spent_once_and_outlives_its_record(
    client: httpx.AsyncClient, book: Book, admin: asyncpg.Connection[Any]
) -> None:
    call = await book.call()
    await book.call(call=call)
    assert (await spent(client))[0]["calls"] == 1
    assert await fold(admin) == 1
    await book.call(call=call)
    assert (await spent(client))[0]["calls"] == 1
    await delete_rows(admin, "upstream_calls")
    assert (await spent(client))[0]["cost_microcents"] == 7


async def test_a_call_that_is_not_recorded_is_spent_all_the_same(client: httpx.AsyncClient, pool: Pool) -> None:
    store, call = LimitStore(pool, Queries.load()), ids.uuid7(datetime.now(UTC))
    standing = await store.admit(LOCAL_TENANT, KEY, call, KeyLimits(money_budget=100), Estimate(1, 1, 1))
    told = Unrecorded(ANA, None, "m" * 10_000, datetime.now(UTC), 3, 4, 0, True)
    for _ in range(2):
        await store.settle(
            LOCAL_TENANT, KEY, call, standing.slot, unasked=False, tokens=7, microcents=9, unrecorded=told
        )  # fmt: skip
    (row,) = await spent(client, "model")
    assert (row["id"], row["calls"], row["cost_microcents"]) == ("m" * 200, 1, 9)


async def test_days_are_those_of_utc_and_bound_what_is_read(client: httpx.AsyncClient, book: Book) -> None:
    late = datetime.now(UTC).replace(hour=23, minute=59, second=59) - timedelta(days=3)
    await book.call(at=late)
    await book.call(at=late + timedelta(seconds=1), model="x" * 5000 + "\0é")
    days = [str(late.date()), str(late.date() + timedelta(days=1))]
    assert [each["id"] for each in await spent(client)] == days
    assert [each["id"] for each in await spent(client, **{"from": days[1], "to": days[1]})] == days[1:]
    assert await spent(client, to=str(date.min)) == []
    assert await spent(client, **{"from": str(date.min), "to": str(date.max)}) != []


@cases(
    "query",
    ["by=tenant", "by=", "from=soon", "to=99999-01-01", "from=2026-02-01&to=2026-01-01", "limit=0", "limit=1e9", "cursor=x",
     "from=NaN", "from=-1e400"],
)  # fmt: skip
async def test_hostile_questions(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"{SPEND}?{query}")
    assert answer.status_code == 400, answer.text
    error_of(answer)


async def test_whose_spend_it_is(locked: WiredApi, pool: Pool, book: Book) -> None:
    one, row = await locked.tenancy.create_key("one", "k")
    two, _ = await locked.tenancy.create_key("two", "k")
    ana, _ = await locked.tenancy.create_key("one", "a", user="ana")
    writing, _ = await locked.tenancy.create_key("one", "w", scopes=["write", "proxy"])
    for name in ("ana", "bob"):
        await book.call(tenant_id=row.tenant_id, user_id=ids.user_id(row.tenant_id, name))
    async with locked.client(one) as client:
        assert (await spent(client))[0]["calls"] == 2
        assert (await spent(client, "user"))[0]["calls"] == 1
    async with locked.client(ana) as client:
        assert (await spent(client))[0]["calls"] == 1
    async with locked.client(two) as client:
        assert await spent(client) == []
    async with locked.client(writing) as client:
        assert (await client.get(SPEND)).status_code == 403
    async with locked.client() as client:
        assert (await client.get(SPEND)).status_code == 401
