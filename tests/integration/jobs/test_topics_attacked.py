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
from tests.support.jobs import SQL, rows
from tests.support.learning import NOW, TENANT, Talk

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


async def everything(admin: Admin[Any], user: UUID) -> dict[str, int]:
    """Rows of a user by table, but for what an erasure leaves on purpose."""
    tables = await admin.fetch(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'user_id'"
        " AND NOT a.attisdropped WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND NOT c.relispartition AND c.relname NOT IN ('erased_users', 'erased_contents')"
    )
    found = {}
    for (name,) in tables:
        many = await admin.fetchval(f"SELECT count(*) FROM agent_data.{name} WHERE user_id = $1", user)
        if many:
            found[name] = many
    return found


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
    held = await rows(admin, "SELECT m::text AS row FROM agent_data.memory_store m WHERE kind = 'summary'")
    assert not [word for word in WORDS for each in held if word in each["row"]]


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
    assert await everything(admin, talk.user) == {}


async def test_another_tenant_s_job_draws_nothing_and_sees_nothing(pool: Pool, admin: Admin[Any]) -> None:
    talk = await of_the_garden(pool)
    forged = orjson.dumps(
        {"tenant": OTHER_TENANT, "user": talk.user, "id": uuid4(), "entities": ["garden"]}, default=str
    )
    await consolidator(pool).consolidate(forged)
    assert await drawn(admin, "summary") == []
    await consolidator(pool).consolidate(payload(talk))
    assert len(topic(await drawn(admin, "summary"))) == 1
    async with pool.transaction(OTHER_TENANT) as connection:
        for table in ("memory_store", "episodes", "consolidation_state", "drawn_keys"):
            assert await connection.fetchval(f"SELECT count(*) FROM agent_data.{table}") == 0, table
    # The other tenant's user of the same words has topics of their own.
    for n, text in enumerate(GARDEN):
        await tell(pool, Talk(name=f"chat-{n % 3}", tenant=OTHER_TENANT), text.replace("clay", "sandy"))
    other = Talk(tenant=OTHER_TENANT)
    await consolidator(pool).consolidate(payload(other))
    found = topic(await drawn(admin, "summary"))
    assert {each["tenant_id"]: "sandy" in each["content_text"] for each in found} == {TENANT: False, OTHER_TENANT: True}
