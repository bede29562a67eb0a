"""A primary with two standbys, under load: the primary lost, a standby lost, PgBouncer restarted.

Two servers with a worker each, their prompts read from the standbys. Whatever fails, ledger = rows; docs/how-to/scaling.md
has the figures that these runs print.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.support import pgbouncer
from tests.support.chaos_server import IMPATIENT, agree
from tests.support.database import MEMORY, connected
from tests.support.deployed import DEPLOY
from tests.support.ledger import Ledger, Talker, differences, scripted
from tests.support.pgbouncer import PgBouncer
from tests.support.replicas import Cluster, Node
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import DEADLINE_S

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(300)]

TALKERS = 8
CALM_S = 5.0
"""Seconds of load before and after a fault."""
AWAY_S = 1.5
"""Seconds until somebody promotes a standby."""

_READS = re.compile(r'^mneme_replica_reads_total\{.*result="(\w+)".*\} ([0-9.e+]+)$', re.MULTILINE)

LOGIN = """
CREATE ROLE mneme_pooled LOGIN PASSWORD 'mneme_pooled-password';
GRANT mneme_app TO mneme_pooled;
ALTER ROLE mneme_pooled SET role = 'mneme_app';
ALTER ROLE mneme_pooled SET search_path = agent_data, public;
ALTER ROLE mneme_pooled SET timezone = 'GMT';
"""
"""As deploy/postgres/init/10-mneme.sql makes it."""


@dataclass
class Stage:
    cluster: Cluster
    servers: list[MnemeServer]
    ledger: Ledger
    talkers: list[Talker]
    over: asyncio.Event

    @property
    def results(self) -> dict[str, int]:
        """Reads by what came of them, of both servers."""
        found: Counter[str] = Counter()
        for server in self.servers:
            for result, count in _READS.findall(server.http.get("/metrics").text):
                found[result] += int(float(count))
        return dict(found)

    def result(self, name: str) -> int:
        return self.results.get(name, 0)

    async def talk(self, n: int) -> None:
        """One conversation, at one server: what its spool holds another server does not know of."""
        talker, server = self.talkers[n], self.servers[n % len(self.servers)]
        for turn in itertools.count():
            if self.over.is_set():
                return
            if await talker.ask(server.port, f"{talker.who}-{turn}") is None:
                await asyncio.sleep(0.1)

    async def healed(self) -> float:
        """Seconds until every server answers with memory again."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for n, server in enumerate(self.servers):
            healer = Talker(self.ledger, f"healer-{n}-{began}")
            for turn in itertools.count():
                answer = await healer.ask(server.port, f"{healer.who}-{turn}")
                if answer is not None and answer.ended == "whole" and answer.header("x-mneme-status") == "ok":
                    break
                assert loop.time() - began < DEADLINE_S * 2, "it does not heal"
                await asyncio.sleep(0.02)
        return loop.time() - began

    @contextlib.asynccontextmanager
    async def under_load(self) -> AsyncIterator[None]:
        """Clients talk for the block, and for a while before and behind it."""
        async with asyncio.TaskGroup() as group:
            for n in range(TALKERS):
                group.create_task(self.talk(n))
            try:
                await asyncio.sleep(CALM_S)
                yield
                await asyncio.sleep(CALM_S)
            finally:
                self.over.set()

    async def settled(self, what: str, **figures: object) -> None:
        """Ledger = rows: all that was acknowledged is there, once, each conversation whole and in its order."""
        whole = [each.who for each in self.talkers if not each.unacknowledged]
        await agree(self.ledger, self.cluster.primary.dsn, whole=whole)
        figures = {
            "acknowledged": len(self.ledger.entries),
            "unacknowledged": sum(each.unacknowledged for each in self.talkers),
            "lost": 0,
            "doubled": 0,
            **figures,
        }
        print("FIGURES", what, json.dumps({**figures, "reads": self.results}))


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextlib.asynccontextmanager
async def staged(
    tmp_path: Path, place: Path, ledger: Ledger, *, synchronous: bool = True, pooled: bool = False
) -> AsyncIterator[tuple[Stage, PgBouncer | None]]:
    """`pooled`: by PgBouncer in transaction mode, the standbys by one in statement mode each; else by DSNs of several hosts."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(place, synchronous=synchronous))
        upstream = stack.enter_context(ScriptedUpstream(scripted()))
        settings: Mapping[str, str] = {
            **IMPATIENT,
            "DATABASE_HISTORY_URL": cluster.standbys_dsn,
        }
        database, pool = cluster.any_primary_dsn, None
        if pooled:
            # The first migration makes the role that the login has.
            with MnemeServer(
                tmp_path / "first", database=cluster.primary.dsn, upstream=upstream.url, settings=settings
            ):
                await cluster.primary.execute(LOGIN)
            pool = stack.enter_context(PgBouncer(tmp_path / "pgbouncer", cluster.primary, default_pool_size="10"))
            settings = {**settings, "DATABASE_DIRECT_URL": database}
            before = [
                stack.enter_context(PgBouncer(tmp_path / f"pgbouncer-{each.name}", each, pool_mode="statement"))
                for each in cluster.standbys
            ]
            ports = ",".join(f"127.0.0.1:{each.port}" for each in before)
            settings["DATABASE_HISTORY_URL"] = f"postgresql://mneme_pooled:mneme_pooled-password@{ports}/mneme"
            database = pool.dsn
        settings = {**settings, "DATABASE_MEMORY_URL": settings["DATABASE_HISTORY_URL"]}
        servers = [
            stack.enter_context(
                MnemeServer(tmp_path / name, database=database, upstream=upstream.url, worker=True, settings=settings)
            )
            for name in ("one", "two")
        ]
        talkers = [Talker(ledger, f"talker-{n}", stream=n % 2 == 0) for n in range(TALKERS)]
        yield Stage(cluster, servers, ledger, talkers, asyncio.Event()), pool


async def lose_the_primary(stage: Stage, pool: PgBouncer | None, rng: random.Random) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    before = len(stage.ledger.entries)
    stage.cluster.primary.kill9()
    died = loop.time()
    await asyncio.sleep(rng.uniform(0.5, 1.5) * AWAY_S)
    meanwhile = len(stage.ledger.entries) - before
    promoted: Node = await stage.cluster.fail_over()
    if pool is not None:
        pool.point(promoted)
    took = loop.time() - died
    healed = await stage.healed()
    return {
        "promoted_after_s": round(took, 2),
        "acknowledged_meanwhile": meanwhile,
        "healed_after_promotion_s": round(healed, 2),
    }


@pytest.mark.parametrize("how", ["several hosts", pytest.param("pgbouncer", marks=pgbouncer.needed)])
async def test_the_primary_is_lost_and_a_standby_promoted(
    tmp_path: Path, place: Path, ledger: Ledger, rng: random.Random, how: str
) -> None:
    """With `synchronous_standby_names = 'ANY 1 (…)'` and the standby promoted that has most of the log, nothing is lost."""
    async with staged(tmp_path, place, ledger, pooled=how == "pgbouncer") as (stage, pool):
        async with stage.under_load():
            figures = await lose_the_primary(stage, pool, rng)
        await stage.settled(f"primary lost, {how}", **figures)
        assert figures["acknowledged_meanwhile"], "the spool takes over"
        # The other standby follows the new primary, and is read from again.
        before = stage.result("replica")
        await stage.healed()
        assert stage.result("replica") > before
        for server in stage.servers:
            assert not [line for line in server.logs if "set aside" in str(line.get("message"))]


async def test_what_no_standby_has_is_lost_where_nobody_waits_for_them(
    tmp_path: Path, place: Path, ledger: Ledger
) -> None:
    """Asynchronous replication: what the standbys did not get before the primary died, and nothing else."""
    async with staged(tmp_path, place, ledger, synchronous=False) as (stage, _):
        talker, server = stage.talkers[0], stage.servers[0]
        for n in range(5):
            assert await talker.ask(server.port, f"early-{n}")
        await stage.cluster.caught_up()
        for standby in stage.cluster.standbys:
            standby.kill9()  # what was sent to one that is merely frozen, its machine has
        late = stage.talkers[2]
        for n in range(5):
            assert await late.ask(server.port, f"late-{n}")
        lost = {each.call for each in ledger.entries if each.question.startswith("question late")}
        assert len(lost) == 5, "they were acknowledged"
        stage.cluster.primary.kill9()
        for standby in stage.cluster.standbys:
            standby.start()
        await stage.cluster.fail_over()
        await stage.healed()
        found = await differences(ledger, stage.cluster.primary.dsn)
        gone = {call for call in lost if any(call in line and "is lost" in line for line in found)}
        assert gone == lost
        assert len(found) == len(lost), found
        print(
            "FIGURES asynchronous, standbys cut off",
            json.dumps({"lost": len(gone), "acknowledged": len(ledger.entries)}),
        )


async def test_a_standby_is_lost_and_comes_back(tmp_path: Path, place: Path, ledger: Ledger) -> None:
    async with staged(tmp_path, place, ledger) as (stage, _):
        lost = stage.cluster.standbys[0]
        async with stage.under_load():
            degraded = _degraded(stage)
            lost.kill9()
            await asyncio.sleep(CALM_S)
            await asyncio.to_thread(lost.start)
        await stage.settled("standby lost", degraded=_degraded(stage) - degraded)
        assert _degraded(stage) == degraded, "the other one, and the primary, answer"


async def test_standbys_that_replay_nothing(tmp_path: Path, place: Path, ledger: Ledger) -> None:
    """Every turn is read from the primary, for each follows one that the standbys have not seen."""
    async with staged(tmp_path, place, ledger, synchronous=False) as (stage, _):
        async with stage.under_load():
            degraded = _degraded(stage)
            async with stage.cluster.paused():
                await asyncio.sleep(CALM_S)
        await stage.settled("replay paused", degraded=_degraded(stage) - degraded)
        assert stage.result("behind") > TALKERS
        assert _degraded(stage) == degraded


@pgbouncer.needed
async def test_pgbouncer_starts_anew(tmp_path: Path, place: Path, ledger: Ledger) -> None:
    async with staged(tmp_path, place, ledger, pooled=True) as (stage, pool):
        assert pool is not None
        async with stage.under_load():
            pool.stop()
            await asyncio.sleep(AWAY_S)
            await asyncio.to_thread(pool.start)
            healed = await stage.healed()
        await stage.settled("PgBouncer restarted", healed_s=round(healed, 2), away_s=AWAY_S)


async def test_the_rule_of_the_lag_sees_one_that_replays_nothing(place: Path) -> None:
    """deploy/prometheus: the very query of the exporter, against the rule's 100 ms."""
    told = yaml.safe_load((DEPLOY / "prometheus" / "postgres-queries.yaml").read_text())
    query = told["mneme_postgres_replication"]["query"]
    with Cluster(place) as cluster:
        async with connected(cluster.primary.dsn) as admin:
            await admin.execute("CREATE TABLE t (n int)")

            async def lags() -> list[float]:
                await admin.execute("INSERT INTO t VALUES (1)")
                return sorted(row["lag_seconds"] for row in await admin.fetch(query))

            async with asyncio.timeout(DEADLINE_S):
                while max(await lags()) > 0.1:  # noqa: ASYNC110 - another process' state
                    await asyncio.sleep(0.05)
            async with cluster.paused(cluster.standbys[0]), asyncio.timeout(DEADLINE_S):
                while (found := await lags())[-1] <= 0.1:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                assert found[0] <= 0.1, "the other one keeps up"


def _degraded(stage: Stage) -> float:
    lines = [line for each in stage.servers for line in each.http.get("/metrics").text.splitlines()]
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("mneme_degradations_total"))
