"""The log of what changed in a user's items, cut: on a server of its own.

What a transaction under way may have left stays in the log, and a snapshot that was taken beside one has not seen all: whatever
other database of the server it is in. On the run's own server another test's transaction would decide what is seen here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from app.index.indexes import Indexes
from app.store.indexed import IndexStore
from app.store.pools import FromPool, Pool
from app.store.queries import Queries
from app.tasks import Supervisor
from tests.integration.store.test_index_kept import SESSION, SPACED, Told, found
from tests.support.database import make_template, shared_server
from tests.support.reused import ReusedDatabase
from tests.support.teller import ANA, TENANT, Teller, talk

SQL = Queries.load()


@pytest.fixture(scope="module")
async def reused(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ReusedDatabase]:
    folder = tmp_path_factory.mktemp("server")
    with shared_server(folder) as dsn:
        reused = ReusedDatabase(dsn, await make_template(dsn, folder))
        yield reused
        await reused.close()


@pytest.fixture
async def tasks() -> AsyncIterator[Supervisor]:
    tasks = Supervisor()
    yield tasks
    await tasks.close(5)


@pytest.fixture
def store(pool: Pool) -> IndexStore:
    return IndexStore(FromPool(pool, SQL), pool, SQL)


async def settled(admin: asyncpg.Connection[Any]) -> None:
    """Until no transaction (of a vacuum) is older than what the log tells: who reads then, has seen all of it."""
    async with asyncio.timeout(20):
        while await admin.fetchval(
            "SELECT EXISTS (SELECT FROM agent_data.index_log, pg_sleep(0.01) WHERE xid < '9000000000000000000'"
            " AND xid >= pg_snapshot_xmin(pg_current_snapshot()))"
        ):
            pass


async def test_a_log_that_is_cut_is_noticed_by_who_has_not_seen_all_of_it(
    teller: Teller, store: IndexStore, tasks: Supervisor, admin: asyncpg.Connection[Any]
) -> None:
    told = Told()
    indexes = Indexes(store, tasks, **SPACED, limit=10**7, meter=told)

    async def cut() -> None:
        # What came beside a transaction that is still under way stays.
        async with asyncio.timeout(20):
            while await admin.fetchval("SELECT count(*) FROM agent_data.index_log"):
                await admin.execute("SELECT agent_data.index_cut($1, $2, now() + interval '1 minute')", TENANT, ANA)

    await teller.tell(talk("about cats"), "fine", session=SESSION)
    await settled(admin)
    assert await found(indexes) == 1
    await cut()
    assert await found(indexes) == 1
    await teller.tell(talk("about cats", "fine", "cats!"), "Yes.", session=SESSION, new=1)
    await cut()
    assert await found(indexes) == 2, "what the log does not tell any more is read anew"
    assert told.asked == ["loaded", "held", "loaded"]


async def test_what_another_cluster_left_in_the_log_does_no_harm(
    teller: Teller, store: IndexStore, tasks: Supervisor, admin: asyncpg.Connection[Any]
) -> None:
    """A dump that is restored brings transactions whose numbers this cluster has not reached."""
    told = Told()
    indexes = Indexes(store, tasks, **SPACED, limit=10**7, meter=told)
    await teller.tell(talk("about cats"), "fine", session=SESSION)
    await admin.execute("UPDATE agent_data.index_log SET xid = '9000000000000000000'")
    assert await found(indexes) == 1
    await teller.tell(talk("about cats", "fine", "cats!"), "Yes.", session=SESSION, new=1)
    await settled(admin)
    assert await found(indexes) == 2
    await admin.execute("SELECT agent_data.index_cut($1, $2, now() + interval '1 minute')", TENANT, ANA)
    assert await found(indexes) == 2
    await teller.tell(talk("about cats", "fine", "cats!", "Yes.", "a cat"), "So?", session=SESSION, new=1)
    assert await found(indexes) == 3
    assert told.asked == ["loaded", "changed", "held", "changed"]
