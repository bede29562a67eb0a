"""A standby that had received more than the one that was promoted cannot follow it, and still answers: with what was lost."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from app.features.replicas import begin_marking, servers_of
from app.store.migrate import migrate
from app.store.pools import OtherServers, PoolLimits, open_pools
from app.store.queries import Queries
from app.store.queue import install_queue
from tests.support.database import MEMORY, PARTITIONS, connected
from tests.support.replicas import Cluster, Node, login
from tests.support.teller import TENANT

pytestmark = pytest.mark.heavy

SQL = Queries.load()
USER, OTHER = UUID(int=7), UUID(int=8)


@pytest.fixture
def servers() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        Path(folder).chmod(0o755)
        with Cluster(Path(folder)) as cluster:
            yield cluster


@pytest.fixture
async def cluster(servers: Cluster) -> Cluster:
    async with connected(servers.primary.dsn) as admin:
        await migrate(admin, hash_partitions=PARTITIONS, history_partitions=PARTITIONS, after=[install_queue])
        await admin.execute("INSERT INTO agent_data.tenants (tenant_id, name) VALUES ($1, 'a')", TENANT)
        await begin_marking(admin, SQL, wanted=True)
    return servers


async def written(node: Node, who: UUID) -> int:
    """Acknowledged; the transaction's id."""
    async with connected(node.dsn) as admin, admin.transaction():
        await admin.execute(
            "INSERT INTO agent_data.users (user_id, tenant_id, external_id) VALUES ($1, $2, 'x')", who, TENANT
        )
        return int(await admin.fetchval("SELECT pg_current_xact_id()::text"))


async def results(primary: Node, standby: Node, who: UUID) -> Counter[str]:
    """Of one read of this user's."""
    told = Counter[str]()
    limits = dict.fromkeys(("memory", "background"), PoolLimits(2, 10_000, 10_000))
    elsewhere = OtherServers({"memory": login([standby.port])}, wait_s=10.0)
    pools = await open_pools(
        primary.dsn, limits, statement_cache_size=100, role="mneme_app", elsewhere=elsewhere
    )  # fmt: skip
    pools.replicas["memory"].meter = lambda pool, server, result: told.update([result])
    await pools.reads("memory").many("turns.procedures", TENANT, who)
    await pools.close()
    return told


async def test_a_standby_of_another_history_is_not_taken_for_one_that_has_all(cluster: Cluster) -> None:
    old, promoted, further = cluster.nodes
    await written(old, OTHER)
    await cluster.caught_up()
    promoted.kill9()
    lost = await written(old, USER)
    await cluster.caught_up()
    old.kill9()
    promoted.start()
    promoted.promote()
    kept = await written(promoted, USER)
    assert kept == lost, "PostgreSQL gives ids again that the new primary knows nothing of"
    assert await results(promoted, further, OTHER) == {"replica": 1}, "it answers, and has all of him"
    assert await results(promoted, further, USER) == {"behind": 1}
    # The old primary's worker had taken the marks away; the new one's does it now.
    await promoted.execute("SELECT agent_data.take_marks()")
    assert await results(promoted, further, OTHER) == {"behind": 1}


async def test_the_doctor_looks_at_servers_before_the_first_migration(servers: Cluster) -> None:
    async with connected(servers.primary.dsn) as admin:
        assert not await admin.fetchval("SELECT to_regnamespace('agent_data') IS NOT NULL")
    primary, marking, (found, _) = await servers_of(servers.primary.dsn, {"memory": servers.standbys_dsn})
    assert (primary.away, marking) == ("", False)
    assert (found.away, found.standby, found.ours) == ("", True, True)


async def test_marks_that_are_begun_anew_are_not_those_of_before(cluster: Cluster) -> None:
    standby, _ = cluster.standbys
    await cluster.caught_up()
    async with cluster.paused(standby):
        await cluster.primary.execute("CALL agent_data.marks_end()")
        await written(cluster.primary, USER)
        async with connected(cluster.primary.dsn) as admin:
            await begin_marking(admin, SQL, wanted=True)
        assert await results(cluster.primary, standby, USER) == {"behind": 1}
