"""Aliases that nobody uses go; what the business's own database calls a thing stays."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg

from app.context.resolution import Who
from app.features.knowledge.jobs import ALIAS_FLOOR, ALIAS_IDLE, alias_ticks
from app.features.knowledge.resolution import faded
from app.jobs.schedule import Schedule
from app.jobs.worker import connector
from tests.support.clock import FakeClock
from tests.support.entities import add_alias
from tests.support.jobs import SQL
from tests.support.rows import clear_aliases, read_aliases


async def test_faded_aliases_go(database: str, admin: asyncpg.Connection[Any], ana: Who, clock: FakeClock) -> None:
    await clear_aliases(admin)
    now = clock.now()
    cases = {
        "fresh": (0.31, 1, "learned", ana.user, True),
        "idle and sure": (0.98, 100, "learned", ana.user, True),
        "idle and faded": (0.98, 130, "learned", ana.user, False),
        "idle and unsure": (0.7, 91, "fuzzy", ana.user, False),
        "unsure, not idle": (0.5, 89, "fuzzy", ana.user, True),
        "stated long ago": (0.85, 365, "user_stated", ana.user, False),
        "the tenant's": (0.95, 365, "learned", None, False),
        "the domain's": (0.8, 3650, "domain_db", None, True),
    }
    for name, (confidence, days, source, user, _) in cases.items():
        used = now - timedelta(days=days)
        await add_alias(
            admin, ana.tenant, name, "customer:kai", user, source=source, confidence=confidence, last_used_at=used
        )

    schedule = Schedule(connector(database, role="mneme_owner", name="t"), SQL, clock, further=alias_ticks(SQL))
    gone = await schedule.sweep("aliases")

    left = {alias["alias_text"] for alias in await read_aliases(admin)}
    assert left == {name for name, case in cases.items() if case[-1]}
    assert gone == len(cases) - len(left)
    assert await schedule.sweep("aliases") == 0
    # As the formula in Python has it.
    for confidence, days, source, user, stays in cases.values():
        if source != "domain_db" or user is not None:
            used = now - timedelta(days=days)
            assert stays == (now - used <= ALIAS_IDLE or faded(confidence, used, now) >= ALIAS_FLOOR)
