"""Topics that are forgotten, erased or drawn twice while they are drawn, and that another tenant asks for."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import orjson
import pytest

from app.store.erasure import ERASER_ROLE, Eraser, own_connection
from app.store.memories import Memories
from app.store.pools import Pool, open_pool
from tests.integration.jobs.test_user_work import GARDEN, consolidator, drawn, of_the_garden, payload, tell, topic
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk
from tests.support.rows import count_rows_of_user, read_memories

Admin = asyncpg.Connection
WORDS = ("north", "Mondays", "clay")
OTHER_TENANT = UUID(int=0xB)


@pytest.fixture
async def wide(database: str) -> Any:
    """A pool for several jobs at once."""
    pool = await open_pool(
        database, size=8, timeout_ms=20_000, statement_timeout_ms=20_000, statement_cache_size=256, role="mneme_app"
    )
    yield pool
    await pool.close()


async def test_two_jobs_at_once_draw_a_topic_once(wide: Pool, pool: Pool, admin: Admin[Any]) -> None:
    talk = await of_the_garden(pool)
    await asyncio.gather(*(consolidator(wide).consolidate(payload(talk)) for _ in range(4)))
    assert len(topic(await drawn(admin, "summary"))) == 1


async def test_what_is_forgotten_while_it_is_drawn_is_in_no_topic(wide: Pool, pool: Pool, admin: Admin[Any]) -> None:
    talk = await of_the_garden(pool)
    memories = Memories(wide, SQL, FakeClock(NOW), space=None)
    facts = [each["memory_id"] for each in await drawn(admin, "fact")]
    await asyncio.gather(
        *(consolidator(wide).consolidate(payload(talk)) for _ in range(4)),
        *(memories.forget(talk.tenant, talk.user, each) for each in facts),
    )
    held = await read_memories(admin, kind="summary")
    assert not [word for word in WORDS for each in held if word in str(each)]


@pytest.mark.parametrize("rounds", [0, 3, 10])
async def test_a_user_who_is_erased_while_topics_are_drawn_leaves_nothing(
    wide: Pool, pool: Pool, admin: Admin[Any], database: str, rounds: int
) -> None:
    """`rounds`: of the jobs' own waiting, before the erasure begins."""
    talk = await of_the_garden(pool)
    eraser = Eraser(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW))

    async def erase() -> None:
        for _ in range(rounds):
            await admin.fetchval("SELECT 1")
        await eraser.erase(TENANT, talk.user)

    await asyncio.gather(*(consolidator(wide).consolidate(payload(talk)) for _ in range(4)), erase())
    await consolidator(wide).consolidate(payload(talk))  # one that was still queued
    assert await count_rows_of_user(admin, talk.user, besides=["erased_users", "erased_contents"]) == {}


async def test_another_tenant_s_job_draws_nothing_and_sees_nothing(pool: Pool, admin: Admin[Any]) -> None:
    talk = await of_the_garden(pool)
    forged = orjson.dumps(
        {"tenant": OTHER_TENANT, "user": talk.user, "id": uuid4(), "entities": ["garden"]}, default=str
    )
    await consolidator(pool).consolidate(forged)
    assert await drawn(admin, "summary") == []
    await consolidator(pool).consolidate(payload(talk))
    assert len(topic(await drawn(admin, "summary"))) == 1
    # The other tenant's user of the same words has topics of their own.
    for n, text in enumerate(GARDEN):
        await tell(pool, Talk(name=f"chat-{n % 3}", tenant=OTHER_TENANT), text.replace("clay", "sandy"))
    other = Talk(tenant=OTHER_TENANT)
    await consolidator(pool).consolidate(payload(other))
    found = topic(await drawn(admin, "summary"))
    assert {each["tenant_id"]: "sandy" in each["content_text"] for each in found} == {TENANT: False, OTHER_TENANT: True}
