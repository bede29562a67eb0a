"""What the tests of the store share."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from app.capture.record import Recorder
from app.providers.tokens import CountCache
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.teller import OTHER_TENANT, TENANT, Teller
from tests.support.wired_api import HashEmbedder, WordCounter, make_space


@pytest.fixture
async def teller(pool: Pool, admin: asyncpg.Connection[Any]) -> Teller:
    await make_space(admin)
    await admin.execute(
        "INSERT INTO agent_data.tenants (tenant_id, name) VALUES ($1, 'a'), ($2, 'b')", TENANT, OTHER_TENANT
    )
    store = TurnStore(pool, Queries.load())
    return Teller(store, Recorder(store, HashEmbedder(), CountCache(), WordCounter()), admin)
