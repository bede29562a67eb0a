"""Pools by what they are for: none starves another, and all of them come back after whatever happens to the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from app.errors import StoreUnavailable
from app.store.pools import POOL_NAMES, Pool, PoolLimits, Pools, open_pool, open_pools
from tests.support.database import connected

SIZE = 2


def limits(**more: int) -> dict[str, PoolLimits]:
    """Statements may take as long as opening a connection does on a busy machine; whoever gets none hears it soon."""
    hot = PoolLimits(SIZE, timeout_ms=2000, statement_timeout_ms=1000)
    return {**dict.fromkeys(POOL_NAMES, hot), "background": PoolLimits(SIZE, 2000, 1500)}


@pytest.fixture
async def pools(empty_database: str) -> AsyncIterator[Pools]:
    opened = await open_pools(empty_database, limits(), statement_cache_size=100, role=None)
    yield opened
    await opened.close()


async def backend(pool: Pool) -> int:
    async with pool.acquire() as connection:
        return int(await connection.fetchval("SELECT pg_backend_pid()"))


async def backends(pools: Pools) -> set[int]:
    return {await backend(pool) for pool in pools.by_name.values()}


async def test_each_has_its_own_size_and_limits(pools: Pools, empty_database: str) -> None:
    assert {name: pool.size for name, pool in pools.by_name.items()} == dict.fromkeys(POOL_NAMES, 1)
    for pool in pools.by_name.values():
        await asyncio.gather(*(backend(pool) for _ in range(SIZE + 1)))
    assert {name: pool.size for name, pool in pools.by_name.items()} == dict.fromkeys(POOL_NAMES, SIZE)
    async with connected(empty_database) as admin:
        names = await admin.fetch("SELECT DISTINCT application_name AS name FROM pg_stat_activity WHERE datname = $1"
                                  " AND pid <> pg_backend_pid()", urlsplit(empty_database).path[1:])  # fmt: skip
    assert {each["name"] for each in names} == {f"mneme {name}" for name in POOL_NAMES}
    for pool, expected in ((pools.write, "1s"), (pools.background, "1500ms")):
        async with pool.acquire() as connection:
            assert await connection.fetchval("SELECT current_setting('statement_timeout')") == expected


async def test_the_small_ones_open_when_they_are_needed(pools: Pools) -> None:
    async with pools.background.acquire(), pools.background.acquire():
        assert pools.background.size == SIZE


async def test_a_worker_has_one_for_everything(empty_database: str) -> None:
    only = {"background": limits()["background"]}
    pools = await open_pools(empty_database, only, statement_cache_size=100, role=None)
    assert pools.write is pools.history is pools.memory is pools.background
    assert list(pools.by_name) == ["background"]
    await pools.close()


async def test_if_one_cannot_be_opened_none_stays(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Pool] = []

    async def open_some(dsn: str, **more: Any) -> Pool:
        if len(opened) == 2:
            raise StoreUnavailable
        opened.append(await open_pool(dsn, **more))
        return opened[-1]

    monkeypatch.setattr("app.store.pools.open_pool", open_some)
    with pytest.raises(StoreUnavailable):
        await open_pools(empty_database, limits(), statement_cache_size=100, role=None)
    assert [pool.size for pool in opened] == [0, 0]


async def test_the_server_says_how_many_it_gives(pools: Pools, empty_database: str) -> None:
    async with connected(empty_database) as admin:
        most = int(await admin.fetchval("SHOW max_connections"))
    assert 0 < await pools.connections_allowed() <= most


@pytest.mark.parametrize("busy", POOL_NAMES)
async def test_one_that_is_used_up_holds_no_other_up(pools: Pools, busy: str) -> None:
    async with AsyncExitStack() as taken:
        for _ in range(SIZE):
            await taken.enter_async_context(pools.by_name[busy].acquire())
        for name, pool in pools.by_name.items():
            if name != busy:
                await backend(pool)


async def writes(pool: Pool) -> None:
    async with pool.transaction(None) as connection:
        await connection.execute("INSERT INTO t VALUES (1)")


async def test_a_server_that_became_read_only_is_left_by_all(pools: Pools, empty_database: str) -> None:
    name = urlsplit(empty_database).path[1:]
    async with connected(empty_database) as admin:
        await admin.execute("CREATE TABLE t (n int)")
        await writes(pools.write)
        await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        await pools.expire()  # whoever connects now finds what a failover would leave
        pinned = await backends(pools)
        with pytest.raises(StoreUnavailable, match="read-only"):
            await writes(pools.write)
        assert not pinned & await backends(pools), "the readers too: what they see gets no newer"
        await admin.execute("SET default_transaction_read_only = off")
        await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = off")
        with pytest.raises(StoreUnavailable, match="read-only"):
            await writes(pools.write)  # on a connection from before
        await writes(pools.write)
        assert await admin.fetchval("SELECT count(*) FROM t") == 2
