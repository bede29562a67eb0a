"""What the rooms of the gateway share."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from app.sources import Placement
from app.store.pools import Pool
from tests.support.replaying import ReplayStage, make_stage


@pytest.fixture(params=["tail", "system", "second_system"])
async def stage(request: pytest.FixtureRequest, pool: Pool, admin: asyncpg.Connection[Any]) -> ReplayStage:
    placement: Placement = request.param
    return await make_stage(pool, admin, placement=placement)
