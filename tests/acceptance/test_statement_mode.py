"""PgBouncer in statement mode before a standby (seed 000 §11.1): what it serves there, and why not before the primary."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.acceptance.test_replica_reads_served import Stage
from tests.chaos.test_fault_replicas import LOGIN
from tests.support import pgbouncer
from tests.support.clients import ask
from tests.support.database import MEMORY, connected
from tests.support.pgbouncer import PgBouncer
from tests.support.replicas import Cluster
from tests.support.replies import chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

pytestmark = [pytest.mark.heavy, pgbouncer.needed]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("statement")


@pytest.fixture(scope="module")
def upstream() -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(chat_script(lambda asked: "All right.")) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def cluster(folder: Path, upstream: ScriptedUpstream) -> Iterator[Cluster]:
    """One standby, whose primary is migrated and has the login of `deploy/`."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as place:
        Path(place).chmod(0o755)
        with Cluster(Path(place), standbys=1) as cluster:
            with MnemeServer(folder / "first", database=cluster.primary.dsn, upstream=upstream.url):
                pass
            yield cluster


async def test_every_read_of_a_prompt_is_answered_through_it(
    folder: Path, cluster: Cluster, upstream: ScriptedUpstream
) -> None:
    await cluster.primary.execute(LOGIN)
    (standby,) = cluster.standbys
    with PgBouncer(folder / "reads", standby, pool_mode="statement", default_pool_size="2", min_pool_size="0") as pool:
        own = {"DATABASE_HISTORY_URL": pool.dsn, "DATABASE_MEMORY_URL": pool.dsn, "RETRIEVAL_DEADLINE_MS": "125000"}
        with MnemeServer(
            folder / "one", database=cluster.primary.dsn, upstream=upstream.url, worker=True, settings=own
        ) as server:
            stage = Stage(cluster, server, server, upstream)
            ask(server, "My dog is called Bello.", headers={"x-mneme-user": "ana"})
            assert "Bello" in await stage.settled(server, "ana", "What is my dog called?")
            reads = stage.reads(server)
            print(reads)
            assert reads["replica"] >= 2
            assert set(reads) <= {"replica", "behind"}, (
                "none is a transaction, which this mode refuses, and none was late"
            )


async def test_what_writes_cannot_go_through_it(folder: Path, cluster: Cluster) -> None:
    """Each write says whose rows it may see, and then writes: two statements, one transaction."""
    with PgBouncer(folder / "writes", cluster.primary, pool_mode="statement", min_pool_size="0") as pool:
        async with connected(pool.dsn) as connection:
            assert await connection.fetchval("SELECT 1") == 1
            with pytest.raises(asyncpg.PostgresError, match="statement pooling"):
                async with connection.transaction():
                    pass
