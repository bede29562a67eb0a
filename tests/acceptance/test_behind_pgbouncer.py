"""The topology of `deploy/` from its programs: its Postgres, its PgBouncer, two servers, a worker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from tests.support import pgbouncer
from tests.support.clients import Api, ask, assistant, user
from tests.support.database import connected
from tests.support.deployed import DEPLOY, DeployedPostgres
from tests.support.pgbouncer import PgBouncer
from tests.support.replies import chat_script
from tests.support.rows import read_messages, read_users
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, wait_until
from tests.support.sockets import DEADLINE_S

pytestmark = [pytest.mark.heavy, pgbouncer.needed]

USERS = 12
TURNS = 5


@pytest.fixture(scope="module", params=["256", "0"], ids=["prepared", "unprepared"])
def topology(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[MnemeServer, MnemeServer, PgBouncer, DeployedPostgres]]:
    folder = tmp_path_factory.mktemp("topology")
    with ExitStack() as stack:
        postgres = stack.enter_context(DeployedPostgres(folder, fsync="on"))
        # Fewer server connections than the servers ask for: a transaction gets whichever is free.
        pool = stack.enter_context(
            PgBouncer(folder / "pgbouncer", postgres, default_pool_size="3", min_pool_size="0", reserve_pool_size="1")
        )
        upstream = stack.enter_context(ScriptedUpstream(chat_script(lambda asked: "All right.")))
        settings = {"DATABASE_DIRECT_URL": postgres.dsn("mneme_direct"), "STATEMENT_CACHE_SIZE": request.param}
        servers = [
            stack.enter_context(
                MnemeServer(folder / name, database=pool.dsn, upstream=upstream.url, worker=worker, settings=settings)
            )
            for name, worker in (("one", True), ("two", False))
        ]
        yield servers[0], servers[1], pool, postgres


Topology = tuple[MnemeServer, MnemeServer, PgBouncer, DeployedPostgres]


def test_a_conversation_goes_on_at_the_other_server_and_is_remembered(topology: Topology) -> None:
    one, two, _, _ = topology
    said = [user("I am vegetarian, and I live in Lisbon.")]
    first = ask(one, said, user="ana")
    said += [assistant("All right."), user("Suggest a restaurant.")]
    second = ask(two, said, user="ana")
    assert (first.headers["x-mneme-status"], second.headers["x-mneme-status"]) == ("ok", "ok")
    assert second.headers["x-mneme-session-id"] == first.headers["x-mneme-session-id"]
    api = Api(two, user="ana")
    wait_until(lambda: bool(two.http.get("/api/v1/users/ana/facts").json()["facts"]), "the worker to have learned")
    assert api.sessions()


async def test_many_at_once_on_few_connections(topology: Topology) -> None:
    one, two, _, postgres = topology

    def talk(n: int) -> list[str]:
        told, said = [], []
        for turn in range(TURNS):
            said.append(user(f"question {turn} of {n}"))
            answer = ask((one, two)[(n + turn) % 2], said, user=f"user-{n}")
            told.append(f"{answer.status_code} {answer.headers['x-mneme-status']}")
            said.append(assistant("All right."))
        return told

    with ThreadPoolExecutor(USERS) as crowd:
        told = [each for talked in crowd.map(talk, range(USERS)) for each in talked]
    assert told == ["200 ok"] * (USERS * TURNS)
    async with connected(postgres.superuser) as admin:
        users = {row["user_id"] for row in await read_users(admin) if row["external_id"].startswith("user-")}
        messages = [row for row in await read_messages(admin) if row["user_id"] in users]
        turns = Counter((row["user_id"], row["session_id"]) for row in messages)
        assert [*turns.values()] == [2 * TURNS] * USERS, "each conversation once, whole, in one session"
        backends = await admin.fetchval("SELECT count(*) FROM pg_stat_activity WHERE usename = 'mneme_pooled'")
        assert 0 < backends <= 4


async def test_what_needs_a_session_of_its_own_goes_around(topology: Topology) -> None:
    one, two, _, postgres = topology
    ask(one, "My number is 555-0199-CANARY.", user="leo")
    assert two.http.delete("/api/v1/users/leo").status_code == 200
    async with connected(postgres.superuser) as admin:
        assert await read_users(admin, external_id="leo") == []
        direct = await admin.fetch(
            "SELECT DISTINCT application_name FROM pg_stat_activity WHERE usename = 'mneme_direct'"
        )
        assert "mneme worker" in {row["application_name"] for row in direct}
        # Jobs take locks that end with their transaction; one of a session would stay on a connection that is handed around.
        held = (
            "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND usename = 'mneme_pooled'"
        )
        async with asyncio.timeout(DEADLINE_S):
            while await admin.fetchval(held):  # noqa: ASYNC110 - rows, which nothing can wait for
                await asyncio.sleep(0.1)
    done = two.command("sweep", "promotion")
    assert done.returncode == 0, done.stderr
    done = two.command("doctor")
    assert done.returncode == 0, done.stdout


def test_the_health_checks_of_the_image(topology: Topology) -> None:
    one, two, pool, _ = topology

    def checked(server: MnemeServer, *words: str) -> int:
        command = [sys.executable, str(DEPLOY / "image" / "health.py"), *words]
        environment = server.environment | {"MNEME_PORT": str(server.port)}
        return subprocess.run(command, cwd=server.folder, env=environment, capture_output=True, check=False).returncode

    assert [checked(two, "server"), checked(two, "server", "live"), checked(one, "worker")] == [0, 0, 0]
    pool.stop()
    try:
        assert [checked(two, "server"), checked(two, "server", "live")] == [1, 0], "alive, and not ready"
    finally:
        pool.start()
    one.terminate()
    one.wait()
    assert [checked(one, "server", "live"), checked(one, "worker")] == [1, 1]
    one.restart()


def test_pgbouncer_starts_anew(topology: Topology) -> None:
    one, two, pool, _ = topology
    pool.stop()
    away = ask(one, "Are you there?", user="ana")
    assert (away.status_code, away.headers["x-mneme-status"]) == (200, "degraded")
    pool.start()
    wait_until(lambda: ask(one, "And now?", user="ana").headers["x-mneme-status"] == "ok", "the pools to heal")
    assert ask(two, "You, too?", user="ana").headers["x-mneme-status"] == "ok"


def test_nothing_was_complained_of(topology: Topology) -> None:
    """Last: what the servers logged, but for PgBouncer's absence."""
    for server in topology[:2]:
        errors = [line for line in server.logs if line.get("level") == "error"]
        assert not errors, errors
