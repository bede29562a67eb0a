"""The API, in open mode and with keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.wired_api import WiredApi, build_api, make_space


@pytest.fixture
async def api(pool: Pool, admin: asyncpg.Connection[Any], database: str) -> WiredApi:
    """Every router, in open mode."""
    return await build_api(pool, await make_space(admin), dsn=database)


@pytest.fixture
async def client(api: WiredApi) -> AsyncIterator[httpx.AsyncClient]:
    """A client without a key, in open mode."""
    async with api.client() as client:
        yield client


@pytest.fixture
async def locked(pool: Pool, admin: asyncpg.Connection[Any], database: str) -> WiredApi:
    """Every router, where a key is needed."""
    return await build_api(pool, await make_space(admin), auth="keys", dsn=database)


@pytest.fixture
def turns(pool: Pool) -> TurnStore:
    return TurnStore(pool, Queries.load())
