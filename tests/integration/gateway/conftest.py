"""What the rooms of the gateway share."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from app.sources import Placement
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.gateway_world import World
from tests.support.journey import build_journey
from tests.support.stored_stage import StoredStage, make_stage
from tests.support.wired_api import HashEmbedder, make_space


@pytest.fixture(params=["tail", "system", "second_system"])
async def stage(request: pytest.FixtureRequest, pool: Pool, admin: asyncpg.Connection[Any]) -> StoredStage:
    placement: Placement = request.param
    return await make_stage(pool, admin, placement=placement)


@pytest.fixture
async def world(pool: Pool, admin: asyncpg.Connection[Any]) -> World:
    store = TurnStore(pool, Queries.load())
    await make_space(admin)
    return World(build_journey(store, embedder=HashEmbedder()), store, admin)
