"""What the tests of resolution share: a tenant with the labelled business, and two users."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from app.clock import FakeClock
from app.knowledge.resolve import Resolver, Who
from app.store import ids
from app.store.entities import EntityStore
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.entities import add_business, add_user
from tests.support.labelled_mentions import Rows

ANA = Who(ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, "ana"))
BEN = Who(ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, "ben"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime.now(UTC))


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def entities(pool: Pool, clock: FakeClock) -> EntityStore:
    return EntityStore(pool, Queries.load(), clock)


@pytest.fixture
async def ana(admin: asyncpg.Connection[Any]) -> Who:
    await add_user(admin, ANA, "ana")
    await add_business(admin, ANA)
    return ANA


@pytest.fixture
async def ben(admin: asyncpg.Connection[Any]) -> Who:
    await add_user(admin, BEN, "ben")
    return BEN


@pytest.fixture
def resolver(entities: EntityStore, rows: Rows, clock: FakeClock) -> Resolver:
    return Resolver(entities, rows, clock)
