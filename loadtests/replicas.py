"""What standbys take off a primary: read throughput with 0, 1 and 2 of them, CPU by process, and what it costs to be sure.

python -m loadtests.replicas [--quick] [--no-save]

A primary and two streaming standbys, all of them and everything else on this machine's cores: what a run does a second says
little of machines of their own. So the figure is CPU for each request, by process: what is no longer done on the primary can be
done elsewhere.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import click
import httpx
import uvloop
from rich.table import Table

from app.features.replicas import begin_marking
from app.index.indexes import Indexes, IndexScope
from app.providers.embeddings import Embedder, build_embedder
from app.server.core import REPLICA_WAIT_SHARE
from app.settings import Settings
from app.store import ids
from app.store.ids import LOCAL_TENANT
from app.store.indexed import IndexStore
from app.store.pools import APP_ROLE, OtherServers, PoolLimits, open_pools
from app.store.queries import Queries
from app.store.turns import TurnStore
from app.tasks import Supervisor
from loadtests import fill, load, results
from loadtests.cpu import cpu_s
from loadtests.stack import Service
from loadtests.terminal import console, measuring
from loadtests.texts import Talk
from loadtests.work import questions
from tests.support.replicas import Cluster, Node

STANDBYS = 2
CLIENTS = 8
WAIT_S = 5.0
"""Seconds that a standby is waited for: an overloaded machine must not send its reads back to the primary unseen."""
GATES = 2000


@dataclass(frozen=True, slots=True)
class Size:
    users: int
    messages: int
    seconds: float


FULL, QUICK = Size(users=16, messages=400, seconds=20.0), Size(users=4, messages=100, seconds=3.0)


@dataclass(frozen=True, slots=True)
class Run:
    """One run. CPU in milliseconds for each request; `standbys_cpu` has what they replay as well."""

    what: str
    standbys: int
    marked: bool
    per_second: float
    p50_ms: float
    primary_cpu: float
    standbys_cpu: list[float]
    asking_cpu: float
    """Of the server, or of this process where it asks itself."""
    reads: dict[str, int]
    """By result and server."""


class Clock:
    """CPU of processes over a while."""

    def __init__(self, nodes: Sequence[Node], asking: int) -> None:
        self._pids = [*(each.pid for each in nodes), asking]
        self._before = [cpu_s(pid) for pid in self._pids]

    def per(self, count: int) -> list[float]:
        return [
            1000 * (cpu_s(pid) - before) / max(1, count) for pid, before in zip(self._pids, self._before, strict=True)
        ]


# --- reads alone ----------------------------------------------------------------------------------------------------------


async def reading(cluster: Cluster, standbys: int, size: Size, embedder: Embedder) -> Run:
    """The three reads of a prompt, again and again, by so many at once."""
    limits = PoolLimits(CLIENTS, 10_000, 10_000)
    url = ",".join(f"127.0.0.1:{each.port}" for each in cluster.standbys[:standbys])
    own = cluster.primary.dsn.replace(f"127.0.0.1:{cluster.primary.port}", url)
    pools = await open_pools(
        cluster.primary.dsn,
        dict.fromkeys(("write", "history", "memory", "background"), limits),
        statement_cache_size=256,
        role=APP_ROLE,
        elsewhere=OtherServers(dict.fromkeys(("history", "memory"), own), WAIT_S) if standbys else None,
    )
    told: Counter[str] = Counter()
    for reads in pools.replicas.values():
        reads.meter = lambda pool, server, result: told.update([f"{pool} {result} {server}"])
    store = TurnStore(pools.write, Queries.load(), history=pools.reads("history"), memory=pools.reads("memory"))
    indexes = Indexes(
        IndexStore(pools.reads("memory"), pools.background, Queries.load()), Supervisor(),
        space=await store.space_of(embedder.space), dimensions=embedder.dimensions, limit=10**8,
    )  # fmt: skip
    talk = Talk("replicas")
    asked = [talk.asked() for _ in range(64)]
    vectors = list(await embedder.embed(asked))
    took: list[float] = []

    async def one(client: int, until: float) -> None:
        for n in itertools.count():
            began = time.perf_counter()
            if began > until:
                return
            user = ids.user_id(LOCAL_TENANT, fill.user_name((client + n) % size.users))
            await prompt(store, indexes, user, asked[n % 64], vectors[n % 64])
            took.append(time.perf_counter() - began)

    async def all_of(seconds: float) -> float:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for client in range(CLIENTS):
                group.create_task(one(client, began + seconds))
        return time.perf_counter() - began

    try:
        await all_of(size.seconds / 4)  # plans, caches
        took.clear()
        told.clear()
        clock = Clock(cluster.nodes, os.getpid())
        elapsed = await all_of(size.seconds)
        primary, *others, asking = clock.per(len(took))
    finally:
        await pools.close()
    middle = 1000 * load.quantile(sorted(took), 0.5)
    return Run(
        "reads of a prompt", standbys, True, len(took) / elapsed, middle, primary, others[:standbys], asking, dict(told)
    )  # fmt: skip


async def prompt(store: TurnStore, indexes: Indexes, user: UUID, question: str, vector: Any) -> None:
    await store.recognise(LOCAL_TENANT, user)
    where: dict[str, Any] = {"confine": None, "session": None, "visible": 0, "ancestors": (), "history": False}
    scan = await indexes.scan(LOCAL_TENANT, user, question, vector, IndexScope(), vectors=4000, texts=200)
    await store.fetch_items(LOCAL_TENANT, user, scan.places[:24], **where)


# --- whole turns ------------------------------------------------------------------------------------------------------------


@contextmanager
def server(folder: Path, cluster: Cluster, standbys: int, mock: int, name: str) -> Iterator[tuple[Service, int]]:
    url = ",".join(f"127.0.0.1:{each.port}" for each in cluster.standbys[:standbys])
    own = cluster.primary.dsn.replace(f"127.0.0.1:{cluster.primary.port}", url)
    environment = {
        "MNEME_DATA_DIR": str(folder / name),
        "MNEME_DATABASE_URL": cluster.primary.dsn,
        "MNEME_UPSTREAM_BASE_URL": f"http://127.0.0.1:{mock}/v1",
        "MNEME_WORKER": "off",
        "MNEME_RETRIEVAL_DEADLINE_MS": str(int(1000 * WAIT_S / REPLICA_WAIT_SHARE)),
        **(dict.fromkeys(("MNEME_DATABASE_HISTORY_URL", "MNEME_DATABASE_MEMORY_URL"), own) if standbys else {}),
    }
    service = Service(name, ["-m", "app.cli", "serve", "--port", "0"], folder, environment)
    try:
        yield service, service.port(r"running on http://127\.0\.0\.1:([0-9]+)")
    finally:
        service.stop()


def turns(folder: Path, cluster: Cluster, standbys: int, mock: int, size: Size, *, marked: bool) -> Run:
    """Whole turns through a server: prompts compiled, answers recorded."""
    with server(folder, cluster, standbys, mock, f"mneme-{standbys}-{marked}") as (service, port):

        def plan(seconds: float, seed: str) -> load.Plan:
            return load.Plan("127.0.0.1", port, questions("reply", port, (), size.users, seed), CLIENTS, seconds)

        asyncio.run(load.run(plan(size.seconds / 4, f"warm {standbys} {marked}")))
        before = read(port)
        clock = Clock(cluster.nodes, service.pid)
        outcome = asyncio.run(load.run(plan(size.seconds, f"run {standbys} {marked}")))
        primary, *others, asking = clock.per(len(outcome.took))
        after = read(port)
        found = load.Summary.of(outcome)
        assert not found.errors, "a run with errors measures nothing"
    reads = {name: int(count - before.get(name, 0)) for name, count in after.items()}
    return Run("whole turns", standbys, marked, found.rps, found.p50_ms, primary, others, asking, reads)


def read(port: int) -> dict[str, float]:
    """Reads so far, by pool, result and server."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=30).text
    pattern = r'^mneme_replica_reads_total\{pool="(\w+)",result="(\w+)",server="([^"]+)"\} ([0-9.]+)'
    return {f"{p} {r} {s}": float(n) for p, r, s, n in re.findall(pattern, text, re.MULTILINE)}


# --- what being sure costs ----------------------------------------------------------------------------------------------------


async def gate(cluster: Cluster, size: Size) -> dict[str, float]:
    """The gate's query alone, one after another: its time, and the primary's CPU; beside it one that asks nothing."""
    sql, found = Queries.load(), {}
    connection = await asyncpg.connect(cluster.primary.dsn)
    try:
        users = [ids.user_id(LOCAL_TENANT, fill.user_name(n)) for n in range(size.users)]
        for name, statement in (("nothing", "SELECT $1::uuid, $2::uuid"), ("gate", sql["replicas.marks"])):
            prepared = await connection.prepare(statement)
            for user in users * 10:
                await prepared.fetchrow(LOCAL_TENANT, user)
            before, began = cpu_s(cluster.primary.pid), time.perf_counter()
            for n in range(GATES):
                await prepared.fetchrow(LOCAL_TENANT, users[n % len(users)])
            found[f"{name}_us"] = 1e6 * (time.perf_counter() - began) / GATES
            found[f"{name}_cpu_us"] = 1e6 * (cpu_s(cluster.primary.pid) - before) / GATES
    finally:
        await connection.close()
    return found


def run(size: Size, say: Callable[[str], None]) -> tuple[list[Run], dict[str, float], str]:
    with tempfile.TemporaryDirectory(prefix="mneme-replicas-", dir="/dev/shm") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with Cluster(
            folder / "cluster", STANDBYS, settings={"shared_buffers": "256MB", "max_wal_size": "1GB"}
        ) as cluster:
            mock = Service("mock", ["-m", "loadtests.mock_upstream"], folder, {})
            try:
                return measured(folder, cluster, mock.port("port ([0-9]+)"), size, say)
            finally:
                mock.stop()


def measured(
    folder: Path, cluster: Cluster, mock: int, size: Size, say: Callable[[str], None]
) -> tuple[list[Run], dict[str, float], str]:
    with server(folder, cluster, 0, mock, "filling") as (_, port):
        base = f"http://127.0.0.1:{port}"
        fill.fill(base, size.users, size.messages, say)
        environment = {"MNEME_DATABASE_URL": cluster.primary.dsn, "MNEME_DATA_DIR": str(folder)}
        worker = Service("worker", ["-m", "app.cli", "worker"], folder, environment)
        try:
            fill.wait_until_learned(base, say)
        finally:
            worker.stop()
    asyncio.run(cluster.primary.execute("VACUUM (ANALYZE)"))
    say("turns, nothing marked")
    found = [turns(folder, cluster, 0, mock, size, marked=False)]
    asyncio.run(begin(cluster))
    asyncio.run(cluster.caught_up())
    for standbys in range(STANDBYS + 1):
        say(f"turns, {standbys} standbys")
        found.append(turns(folder, cluster, standbys, mock, size, marked=True))
    embedder = build_embedder(Settings())
    asyncio.run(cluster.primary.execute("SELECT agent_data.take_marks()"))
    for standbys in range(STANDBYS + 1):
        say(f"reads, {standbys} standbys")
        asyncio.run(cluster.caught_up())
        found.append(asyncio.run(reading(cluster, standbys, size, embedder)))
    version = asyncio.run(cluster.primary.value("SHOW server_version"))
    return found, asyncio.run(gate(cluster, size)), str(version).split()[0]


async def begin(cluster: Cluster) -> None:
    connection = await asyncpg.connect(cluster.primary.dsn)
    try:
        await begin_marking(connection, Queries.load(), wanted=True)
    finally:
        await connection.close()


def table(found: Sequence[Run]) -> Table:
    shown = Table(
        "what", "standbys", "marked", "/s", "p50 ms", "CPU ms: primary", "standbys", "asking", "from standbys"
    )
    for each in found:
        total = sum(each.reads.values())
        share = sum(n for name, n in each.reads.items() if " replica " in name) / total if total else 0.0
        shown.add_row(
            each.what, str(each.standbys), "yes" if each.marked else "no", f"{each.per_second:.0f}", f"{each.p50_ms:.1f}",
            f"{each.primary_cpu:.2f}", " + ".join(f"{cpu:.2f}" for cpu in each.standbys_cpu), f"{each.asking_cpu:.2f}",
            f"{100 * share:.1f} %",
        )  # fmt: skip
    return shown


@click.command()
@click.option("--quick", is_flag=True, help="For the shape: little data, short runs.")
@click.option("--save/--no-save", default=True, help="Keep the figures in loadtests/results/.")
def main(quick: bool, save: bool) -> None:
    """Measure."""
    uvloop.install()
    out = console()
    with measuring(), out.status("starting") as status:
        found, gates, version = run(QUICK if quick else FULL, status.update)
    out.print(table(found))
    out.print({name: round(value, 1) for name, value in gates.items()})
    for each in found:
        out.print(each.what, each.standbys, each.reads)
    if save:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        head = {"name": "replicas", "at": at, "quick": quick, "machine": results.machine(version)}
        results.write({**head, "runs": [asdict(each) for each in found], "gate": gates})


if __name__ == "__main__":
    main()
