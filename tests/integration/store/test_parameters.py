"""app/store/tuning.py on the database: what it ships starts, and what is wrong there does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import asyncpg
import pytest

from app.context.score import PROFILES, STRATEGY_CHANNELS
from app.errors import NotReady
from app.server.proxy import _profiles
from app.store.pools import Pool
from app.store.tuning import check_parameters
from app.store.turns import TurnStore
from tests.support.jobs import SQL


async def test_a_wrong_value_is_refused_and_named(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await check_parameters(pool, SQL)
    await admin.execute("UPDATE agent_data.system_config SET value = '-3' WHERE key = 'removal_days'")
    await admin.execute("DELETE FROM agent_data.system_config WHERE key = 'prune'")
    with pytest.raises(NotReady) as refused:
        await check_parameters(pool, SQL)
    assert "system_config.prune is missing; system_config.removal_days: -3 is less than 0" in refused.value.message


async def test_profiles_are_made_by_what_stands_there(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    core = cast(Any, SimpleNamespace(turns=TurnStore(pool, SQL)))
    assert await _profiles(core, await check_parameters(pool, SQL)) == PROFILES
    await admin.execute(
        "UPDATE agent_data.system_config SET value = value || CASE key WHEN 'retrieval_limits' THEN '{\"summary\": 2}'::jsonb"
        " ELSE '{\"default_rate_per_day\": 0.5}' END WHERE key IN ('retrieval_limits', 'decay_parameters')"
    )
    found = await _profiles(core, await check_parameters(pool, SQL))
    assert {each.decay_per_day for each in found.values()} == {0.5}
    assert found["procedural"].channels == {**STRATEGY_CHANNELS, "summary": 2}
