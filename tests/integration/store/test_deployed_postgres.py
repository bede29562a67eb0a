"""The Postgres of `deploy/`: seed 000 §11.2, roles that may no more than they need, and Mneme on top of it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
import yaml

from app.server.core import prepare_database
from app.settings import Settings
from app.store.migrate import ROLES, careless, missing
from app.store.pools import SESSION, open_pool
from app.store.queries import Queries
from app.store.retention import storage_of
from tests.support.database import MEMORY, PARTITIONS, connected
from tests.support.deployed import DEPLOY, DeployedPostgres, conf_settings
from tests.support.ports import free_port
from tests.support.sockets import DEADLINE_S

SEED = {
    "work_mem": "64MB",
    "maintenance_work_mem": "2GB",
    "max_wal_senders": "75",
    "wal_level": "replica",
    "hot_standby_feedback": "on",
    "idle_in_transaction_session_timeout": "30s",
    "statement_timeout": "5s",
    "hnsw.ef_search": "100",
    "autovacuum_naptime": "30s",
    "autovacuum_vacuum_cost_delay": "2ms",
}
"""Seed 000 §11.2; shared_buffers and effective_cache_size are shares of the memory."""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPostgres]:
    with DeployedPostgres(tmp_path_factory.mktemp("deployed")) as postgres:
        settings = Settings.model_validate(
            {
                "database_url": postgres.dsn("mneme_pooled"),
                "database_direct_url": postgres.dsn("mneme_direct"),
                "hash_partitions": PARTITIONS,
                "history_partitions": PARTITIONS,
            }
        )
        asyncio.run(prepare_database(settings, postgres.dsn("mneme_pooled")))
        yield postgres


def test_the_file_says_what_the_seed_recommends() -> None:
    said = conf_settings()
    assert SEED.items() <= said.items()
    assert (said["shared_buffers"], said["effective_cache_size"]) == ("2GB", "6GB"), (
        "of 8 GB: a quarter, three quarters"
    )


async def test_the_server_runs_with_it(deployed: DeployedPostgres) -> None:
    async with connected(deployed.dsn("mneme_monitor")) as connection:
        for name, value in SEED.items():
            assert await connection.fetchval("SELECT current_setting($1)", name) == value


def test_the_file_itself_is_read(deployed: DeployedPostgres) -> None:
    """`postgres -C` reads a file as a start does, and refuses what it does not know; of pg_cron it knows nothing here."""
    copy = deployed.data / "deployed.conf"
    copy.write_text((DEPLOY / "postgres" / "postgresql.conf").read_text())
    deployed.binaries.account.own(copy)
    arguments = (
        "-D",
        deployed.binaries.address(deployed.data),
        "-c",
        f"config_file={deployed.binaries.address(deployed.data)}/{copy.name}",
        "-C",
    )
    done = deployed.binaries.run("postgres", *arguments, "max_wal_senders", cwd=deployed.data)
    assert (done.returncode, done.stdout.strip()) == (0, "75")
    copy.write_text("no_such_parameter = 1\n")
    assert deployed.binaries.run("postgres", *arguments, "max_wal_senders", cwd=deployed.data).returncode != 0


async def test_the_direct_login_could_migrate_and_lacks_nothing(deployed: DeployedPostgres) -> None:
    async with connected(deployed.dsn("mneme_direct")) as connection:
        assert await missing(connection) == []
        assert await connection.fetchval("SHOW statement_timeout") == "10min", "the schedule's own limit"
        assert await storage_of(connection, Queries.load())
        rights = "SELECT rolsuper OR rolcreatedb OR rolreplication OR rolbypassrls FROM pg_roles WHERE rolname = $1"
        assert not await connection.fetchval(rights, "mneme_direct")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("ALTER ROLE mneme_eraser BYPASSRLS")


async def test_no_role_of_mnemes_may_log_in(deployed: DeployedPostgres) -> None:
    async with connected(deployed.superuser) as connection:
        found = await connection.fetch(
            "SELECT rolname FROM pg_roles WHERE rolname = ANY ($1) AND (rolcanlogin OR rolsuper OR rolbypassrls)", ROLES
        )
        assert found == []


@pytest.mark.parametrize("cache", [0, 256])
async def test_the_pooled_login_is_the_application_and_no_more(deployed: DeployedPostgres, cache: int) -> None:
    pool = await open_pool(
        deployed.dsn("mneme_pooled"),
        size=1,
        timeout_ms=5000,
        statement_timeout_ms=5000,
        statement_cache_size=cache,
        role="mneme_app",
    )
    try:
        async with pool.acquire() as connection:
            assert await connection.fetchval("SELECT current_user::text") == "mneme_app"
            for name, value in SESSION.items():
                assert (await connection.fetchval("SELECT current_setting($1)", name)).lower() == value.lower()
            for role in set(ROLES) - {"mneme_app"}:
                assert not await connection.fetchval("SELECT pg_has_role('mneme_pooled', $1, 'MEMBER')", role)
    finally:
        await pool.close()


async def test_the_pooled_login_changes_no_schema_and_becomes_nobody(deployed: DeployedPostgres) -> None:
    async with connected(deployed.dsn("mneme_pooled")) as connection:
        for statement in ("CREATE TABLE agent_data.t ()", "SET ROLE mneme_owner", "CREATE ROLE somebody"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


async def test_the_monitor_sees_figures_and_no_rows(deployed: DeployedPostgres) -> None:
    async with connected(deployed.dsn("mneme_monitor")) as connection:
        assert await connection.fetchval("SELECT count(*) FROM pg_stat_statements") > 0
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("SELECT * FROM agent_data.conversation_history")


@pytest.mark.parametrize("login", ["postgres", "mneme_owner"])
async def test_nobody_else_gets_in_from_the_network(deployed: DeployedPostgres, login: str) -> None:
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await asyncpg.connect(deployed.dsn(login))


async def test_what_pg_cron_is_asked_to_do_can_be_done(deployed: DeployedPostgres) -> None:
    async with connected(deployed.superuser) as connection:
        asked = await connection.fetch("SELECT * FROM cron.asked")
        assert {row["name"] for row in asked} == {"mneme-analyze", "mneme-cron-log"}
        for row in asked:
            assert len(row["schedule"].split()) == 5
            await connection.execute(row["command"])


async def test_nothing_is_careless(deployed: DeployedPostgres) -> None:
    said = conf_settings()
    assert [said[name] for name in ("fsync", "full_page_writes", "synchronous_commit")] == ["on"] * 3
    async with connected(deployed.dsn("mneme_monitor")) as connection:
        assert await careless(connection) == ["fsync"], "off in this test alone"


def test_the_archive_keeps_segments_whole_and_overwrites_none(tmp_path: Path) -> None:
    """The very command, with `%p` and `%f` as the server fills them in."""
    command = conf_settings()["archive_command"].replace("/archive/", f"{tmp_path}/archive/")
    (tmp_path / "archive").mkdir()
    (tmp_path / "segment").write_bytes(b"first")
    filled = command.replace("%p", str(tmp_path / "segment")).replace("%f", "000000010000000000000001")
    assert subprocess.run(["sh", "-c", filled], check=False).returncode == 0
    assert [path.name for path in (tmp_path / "archive").iterdir()] == ["000000010000000000000001"]
    (tmp_path / "segment").write_bytes(b"second")
    assert subprocess.run(["sh", "-c", filled], check=False).returncode != 0, (
        "there already: the server is told, and keeps it"
    )
    assert (tmp_path / "archive" / "000000010000000000000001").read_bytes() == b"first"


async def test_the_exporter_gets_what_its_file_promises(deployed: DeployedPostgres) -> None:
    queries = yaml.safe_load((DEPLOY / "prometheus" / "postgres-queries.yaml").read_text())
    async with connected(deployed.superuser) as admin:
        await admin.execute("SELECT pg_create_physical_replication_slot('a_replica', true)")
        await admin.execute("ANALYZE")
    async with connected(deployed.dsn("mneme_monitor")) as connection:
        for name, asked in queries.items():
            declared = {column: said for each in asked["metrics"] for column, said in each.items()}
            statement = await connection.prepare(asked["query"])
            columns = {each.name: each.type.name for each in statement.get_attributes()}
            assert list(columns) == list(declared), name
            for column, said in declared.items():
                kinds = {"text", "name"} if said["usage"] == "LABEL" else {"float8", "int4"}
                assert columns[column] in kinds, f"{name}_{column}"
            rows = await statement.fetch()
            assert rows or name == "mneme_postgres_replication", f"{name} has nothing to tell"
            assert all(value is not None for row in rows for value in row.values()), name
        tables = {row["relation"] for row in await connection.fetch(queries["mneme_postgres_table"]["query"])}
        assert "conversation_history" in tables
        assert not [each for each in tables if each.endswith("_p0")], "partitions are told with their table"


async def test_a_standby_starts_from_nothing_and_starts_again(deployed: DeployedPostgres, tmp_path: Path) -> None:
    """deploy/postgres/replica.sh, as docker-compose.replicas.yml has it."""
    account = deployed.binaries.account
    # Where the account may go.
    place = Path(tempfile.mkdtemp(dir=MEMORY))
    account.own(place)
    port = free_port()
    config = place / "postgresql.conf"
    config.write_text(
        f"port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nmax_connections = 300\n"
        "max_wal_senders = 75\nmax_prepared_transactions = 0\nmax_worker_processes = 8\nmax_locks_per_transaction = 128\n"
    )
    (place / "secrets").mkdir()
    (place / "secrets" / "mneme_replica_password").write_text("mneme_replica-password")
    for path in (config, place / "secrets", place / "secrets" / "mneme_replica_password"):
        account.own(path)
    bin_folder = Path(deployed.binaries.program("postgres")).parent
    environment = deployed.binaries.environment() | {
        "PATH": f"{bin_folder}:/usr/bin:/bin", "PGDATA": f"{place}/18/docker", "REPLICA": "replica_1", "PRIMARY": "127.0.0.1",
        "PRIMARY_PORT": str(deployed.port), "CONFIG": str(config), "SECRETS": f"{place}/secrets", "TMPDIR": str(place),
    }  # fmt: skip

    def start() -> subprocess.Popen[bytes]:
        with (DEPLOY / "postgres" / "replica.sh").open("rb") as script, (place / "log").open("ab") as log:
            return subprocess.Popen(
                ["sh", "-s"], stdin=script, stdout=log, stderr=log, env=environment, cwd="/", **account.options()
            )

    dsn = f"postgresql://mneme_pooled:mneme_pooled-password@127.0.0.1:{port}/mneme"
    try:
        for n in range(2):
            process = start()
            try:
                async with asyncio.timeout(DEADLINE_S):
                    while True:
                        assert process.poll() is None, (place / "log").read_text()
                        with contextlib.suppress(OSError, asyncpg.PostgresError):
                            async with connected(dsn) as standby:
                                assert await standby.fetchrow(Queries.load()["replicas.server"])
                                assert await standby.fetchval("SELECT pg_is_in_recovery()")
                                break
                        await asyncio.sleep(0.05)
                async with connected(deployed.superuser) as primary:
                    async with asyncio.timeout(DEADLINE_S):
                        streams = "SELECT count(*) FROM pg_stat_replication WHERE application_name = 'replica_1'"
                        while not await primary.fetchval(streams):  # noqa: ASYNC110 - rows
                            await asyncio.sleep(0.05)
                (place / "18" / "docker" / "kept").touch()
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(DEADLINE_S)
            assert (place / "18" / "docker" / "kept").exists(), f"start {n}: copied anew"
    finally:
        shutil.rmtree(place)
