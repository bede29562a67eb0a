"""app/store/tuning.py on the database: what it ships starts, and what is wrong there does not."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from app.errors import NotReady
from app.store.pools import Pool
from app.store.tuning import check_parameters
from tests.support.jobs import SQL


async def test_a_wrong_value_is_refused_and_named(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await check_parameters(pool, SQL)
    await admin.execute("UPDATE agent_data.system_config SET value = '-3' WHERE key = 'removal_days'")
    await admin.execute("DELETE FROM agent_data.system_config WHERE key = 'prune'")
    with pytest.raises(NotReady) as refused:
        await check_parameters(pool, SQL)
    assert "system_config.prune is missing; system_config.removal_days: -3 is less than 0" in refused.value.message
