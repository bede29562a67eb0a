"""What a compile costs as the tables grow, and what the vector graph finds among other users' vectors.

python -m loadtests.scale [--quick] [--size N]… [--compiles N] [--messages N] [--no-save]

Memories of many users, from 1,000 to 1,000,000 in the table, each with as many messages; one user of them has 1,000, one has
10,000 and a session of 200 turns. The compile is the server's own (place and compile, as `POST /api/v1/context` does both), in
this process and one at a time: its time, and the CPU of this process and of Postgres.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

import asyncpg
import click
import httpx
import orjson
import uvloop
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from app.api.context import PreviewRequest
from app.api.preview import CompilePreviewer
from app.clock import SystemClock
from app.context.retrieve import Limits
from app.gateway.identify import Identity, Switches
from app.gateway.prepare import ChatRequest, Prepared, Preparer
from app.gateway.reconcile import Place
from app.gateway.upstream import Target
from app.main import Core, Proxy, open_core, open_proxy
from app.metrics import Metrics, process_registry
from app.settings import Settings
from app.store import ids
from app.store.tenancy import UserRef
from loadtests import cpu, crowd, fill, results
from loadtests.crowd import Person
from loadtests.figures import number
from loadtests.load import quantile
from loadtests.stack import Stack, StackFailed, running, version_of
from loadtests.terminal import console, keep, measuring
from loadtests.texts import Talk
from loadtests.work import MODEL, SYSTEM

LIGHT, HEAVY = 1000, 10_000
"""Memories of the two users who are measured."""
LONG_TURNS = 200
LONG = "long"
"""Name of the session of so many turns."""
SIZES = (1000, 11_000, 100_000, 1_000_000)
"""Memories in the table: the user with few alone, with the other one beside, and with many others."""
QUICK_SIZES = (1000, 11_000, 20_000)
ROUNDS = 5
"""In which everything is measured in turn."""
WARM = 20
K = 50
"""Vectors asked for (seed 000 §6.4)."""
PACE_LOOPS = 200_000
FAR = "http://127.0.0.1:9/v1"
"""An upstream that is never asked."""
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Case:
    """What is compiled: a user's request, in a session of `session`'s name or with the whole `transcript` before it."""

    name: str
    title: str
    user: str
    session: str | None = None
    transcript: Sequence[Mapping[str, str]] = ()


@dataclass(slots=True)
class Spent:
    """Of each compile: milliseconds, and those of this process' CPU."""

    took: list[float]
    cpu: list[float]


class Timed(Preparer):
    """A preparer that notes what it costs."""

    def __init__(self, inner: Preparer) -> None:
        self._inner = inner
        self.took = 0.0
        self.cpu = 0.0

    @contextmanager
    def _clocked(self) -> Iterator[None]:
        began, used = time.perf_counter(), time.process_time()
        yield
        self.took += time.perf_counter() - began
        self.cpu += time.process_time() - used

    async def place(self, identity: Identity, chat: ChatRequest, switches: Switches, now: datetime) -> Place:
        self.took = self.cpu = 0.0
        with self._clocked():
            return await self._inner.place(identity, chat, switches, now)

    async def compile(
        self, identity: Identity, chat: ChatRequest, place: Place, target: Target, now: datetime
    ) -> Prepared:
        with self._clocked():
            return await self._inner.compile(identity, chat, place, target, now)


class Scale:
    """Fills and measures one stack."""

    def __init__(self, stack: Stack, core: Core, proxy: Proxy, admin: crowd.Connection, compiles: int) -> None:
        self._stack = stack
        self._core = core
        self._admin = admin
        self._compiles = compiles
        self._timed = Timed(proxy.preparer)
        self._previewer = CompilePreviewer(self._timed, proxy.router, SystemClock(), MODEL)
        self._talks: dict[str, Talk] = {}

    async def cell(self, case: Case, memories: int, progress: Callable[[str], None]) -> list[Spent | float]:
        """One round of a case: what the compiles cost, and Postgres' milliseconds of CPU for each."""
        progress(f"{memories:,} memories: {case.title}")
        for _ in range(WARM):
            await self._compile(case)
        before, spent = cpu.cpu_s(self._stack.postgres_pid), Spent([], [])
        for _ in range(max(1, self._compiles // ROUNDS)):
            await self._compile(case)
            spent.took.append(1000 * self._timed.took)
            spent.cpu.append(1000 * self._timed.cpu)
        used = cpu.cpu_s(self._stack.postgres_pid) - before
        return [spent, 1000 * used / len(spent.took)]

    async def _compile(self, case: Case) -> None:
        talk = self._talks.setdefault(case.name, Talk(f"asked {case.name}"))
        messages = [*case.transcript, {"role": "user", "content": talk.asked()}]
        user = UserRef(ids.user_id(ids.LOCAL_TENANT, case.user), case.user)
        found = await self._previewer.preview(
            PreviewRequest(ids.LOCAL_TENANT, user, case.session, MODEL, messages, None, None)
        )
        if not found["memories"]:
            raise StackFailed(f"{case.title}: a compile found no memory.")

    async def recall(self, user: str, questions: int) -> dict[str, float]:
        """The vector leg of `agent_data.retrieve` by the graph against the exact scan: recall, rows, times."""
        core, owner = self._core, ids.user_id(ids.LOCAL_TENANT, user)
        vectors = await core.embedder.embed([Talk(f"recall {n}").asked() for n in range(questions)])
        space = await core.turns.space_of(core.embedder.space)
        kept: dict[bool, list[set[Any]]] = {}
        took: dict[bool, float] = {}
        for graph in (False, True):
            await self._admin.execute("UPDATE agent_data.user_stats SET use_hnsw = $2 WHERE user_id = $1", owner, graph)
            kept[graph], times = [], []
            for vector in vectors:
                began = time.perf_counter()
                rows = await core.turns.retrieve(
                    ids.LOCAL_TENANT, owner, query="", vector=vector, space=space, confine=None, session=None, visible=1,
                    ancestors=[], history=False, limits=Limits(K, 0, 0),
                )  # fmt: skip
                times.append(1000 * (time.perf_counter() - began))
                kept[graph].append({row.item_id for row in rows})
            took[graph] = median(times)
        await self._admin.execute("UPDATE agent_data.user_stats SET use_hnsw = false WHERE user_id = $1", owner)
        shares = [len(one & other) / max(1, len(one)) for one, other in zip(kept[False], kept[True], strict=True)]
        counts = [len(each) for each in kept[True]]
        return {
            "recall": sum(shares) / len(shares),
            "recall_least": min(shares),
            "rows": sum(counts) / len(counts),
            "rows_least": min(counts),
            "exact_ms": took[False],
            "graph_ms": took[True],
        }


def pace_ms() -> float:
    """Milliseconds for a fixed piece of work: how fast this machine is just now."""
    began = time.process_time()
    sum(n * n for n in range(PACE_LOOPS))
    return 1000 * (time.process_time() - began)


def long_session(user: str) -> tuple[bytes, list[dict[str, str]]]:
    """The session of 200 turns: as lines of an import, and as a client would send it."""
    talk, began = Talk(f"{user} {LONG}"), datetime.now(UTC) - 2 * LONG_TURNS * fill.STEP
    transcript, lines = [{"role": "system", "content": SYSTEM}], []
    for n in range(2 * LONG_TURNS):
        role, content = ("assistant", talk.answered()) if n % 2 else ("user", talk.said())
        transcript.append({"role": role, "content": content})
        line = {"session": LONG, "user": user, "role": role, "content": content, "created_at": began + n * fill.STEP}
        lines.append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    return b"".join(lines), transcript


def cases(light: Person, heavy: Person, transcript: Sequence[Mapping[str, str]]) -> list[Case]:
    """Everything that is compiled; those of the heavy user only once there is one."""
    return [
        Case("light", f"{light.memories:,} memories, a new conversation", light.name),
        Case("heavy", f"{heavy.memories:,} memories, a new conversation", heavy.name),
        Case("sent", f"{heavy.memories:,} memories, {LONG_TURNS} turns sent whole", heavy.name, None, transcript),
        Case("named", f"{heavy.memories:,} memories, {LONG_TURNS} turns by the session's name", heavy.name, LONG),
    ]


async def filled(
    stack: Stack,
    scale: Scale,
    admin: crowd.Connection,
    people: Sequence[Person],
    space: int,
    say: Callable[[str], None],
) -> None:
    """Store people in the tables."""
    graph, total, done = await graph_of(admin, Person("heavy", 0, 0)), len(people), 0

    def stored(count: int) -> None:
        nonlocal done
        done += count
        say(f"stored {done:,} of {total:,} users")

    with ProcessPoolExecutor(1) as executor:
        async with crowd.without_slow_indexes(admin, say):
            await crowd.store(admin, people, space, graph, executor, stored)


async def graph_of(admin: crowd.Connection, person: Person) -> crowd.Graph:
    """The partition of the vectors that a user's are in: all of it enters the graph, the others' vectors too."""
    partitions = await admin.fetchval(
        "SELECT count(*) FROM pg_inherits WHERE inhparent = 'agent_data.embeddings'::regclass"
    )
    for n in range(partitions):
        there = "SELECT satisfies_hash_partition('agent_data.embeddings'::regclass, $1::integer, $2::integer, $3::uuid)"
        if await admin.fetchval(there, partitions, n, person.user_id):
            return crowd.Graph(partitions, n)
    raise StackFailed("No partition takes the user's vectors.")


async def import_long(
    stack: Stack, admin: crowd.Connection, user: str, lines: bytes, say: Callable[[str], None]
) -> None:
    """The session of 200 turns, by the front door, and learned from."""
    async with httpx.AsyncClient(base_url=stack.base_url, timeout=TIMEOUT_S, trust_env=False) as client:
        answer = await client.post("/api/v1/import", content=lines, headers={"content-type": "application/x-ndjson"})
        answer.raise_for_status()
    with stack.worker():
        await asyncio.to_thread(fill.wait_until_learned, stack.base_url, say)
    owner = ids.user_id(ids.LOCAL_TENANT, user)
    await admin.execute("UPDATE agent_data.embeddings SET in_hnsw = true WHERE user_id = $1 AND NOT in_hnsw", owner)
    await admin.execute("VACUUM (ANALYZE)")


@dataclass(frozen=True, slots=True)
class Amount:
    """Table sizes (memories), compiles of each case at each size, messages of a crowd's user, questions of the recall."""

    sizes: Sequence[int]
    compiles: int
    messages: int
    questions: int


async def grow(stack: Stack, amount: Amount, tell: Callable[[str], None], out: Console) -> dict[str, Any]:
    """The whole run."""
    light, heavy = Person("light", LIGHT, LIGHT), Person("heavy", HEAVY, LIGHT)
    lines, transcript = long_session(heavy.name)
    settings = Settings(database_url=SecretStr(stack.dsn), upstream_base_url=FAR)
    admin = await asyncpg.connect(stack.dsn)
    cells: list[dict[str, Any]] = []
    recalls: list[dict[str, Any]] = []
    try:
        await crowd.prepare(admin, datetime.now(UTC))
        async with (
            open_core(settings, stack.dsn, SystemClock()) as core,
            open_proxy(core, Metrics(process_registry())) as proxy,
        ):
            space = await core.turns.space_of(core.embedder.space)
            assert space is not None, "the migration makes it"
            scale = Scale(stack, core, proxy, admin, amount.compiles)
            stored, users = 0, 0
            for size in amount.sizes:
                began = time.monotonic()
                people = [light] if stored == 0 else [heavy] if stored == LIGHT else []
                stored += sum(each.memories for each in people)
                people += crowd.crowd(users, max(0, size - stored), LIGHT, amount.messages)
                stored, users = max(size, stored), users + len(people)
                await filled(stack, scale, admin, people, space, tell)
                if heavy in people:
                    await import_long(stack, admin, heavy.name, lines, tell)
                out.print(f"{stored:,} memories after {time.monotonic() - began:.0f} s of filling")
                cells += await measured(
                    scale, cases(light, heavy, transcript)[: 4 if stored > LIGHT else 1], stored, tell
                )
                if stored > LIGHT:
                    tell(f"{stored:,} memories: recall of the graph")
                    counts = await graph_size(admin, heavy)
                    recalls.append({"memories": stored, **counts, **await scale.recall(heavy.name, amount.questions)})
    finally:
        await admin.close()
    return {"cells": cells, "recalls": recalls}


async def graph_size(admin: crowd.Connection, person: Person) -> dict[str, int]:
    """Vectors of a user, and of everybody in the graph where they are."""
    graph = await graph_of(admin, person)
    own = await admin.fetchval("SELECT count(*) FROM agent_data.embeddings WHERE user_id = $1", person.user_id)
    table = f"agent_data.embeddings_p{graph.partition}"
    return {"own": own, "graph": await admin.fetchval(f"SELECT count(*) FROM {table} WHERE in_hnsw")}


async def measured(
    scale: Scale, wanted: Sequence[Case], memories: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """All cases in turn, round after round."""
    spent: dict[str, list[Spent]] = {each.name: [] for each in wanted}
    postgres: dict[str, list[float]] = {each.name: [] for each in wanted}
    paces = []
    for _ in range(ROUNDS):
        paces.append(pace_ms())
        for case in wanted:
            found, used = await scale.cell(case, memories, tell)
            assert isinstance(found, Spent)
            assert isinstance(used, float)
            spent[case.name].append(found)
            postgres[case.name].append(used)
    return [
        {
            "case": each.name,
            "title": each.title,
            "memories": memories,
            **figures(spent[each.name], postgres[each.name]),
            "pace_ms": median(paces),
        }
        for each in wanted
    ]


def figures(rounds: Sequence[Spent], postgres: Sequence[float]) -> dict[str, float]:
    """Quantiles over all rounds; CPU as the median of the rounds' means."""
    took = sorted(one for each in rounds for one in each.took)
    return {
        "compiles": len(took),
        "p50_ms": quantile(took, 0.5),
        "p99_ms": quantile(took, 0.99),
        "server_ms": median(sum(each.cpu) / len(each.cpu) for each in rounds),
        "postgres_ms": median(postgres),
        "cpu_ms": median(sum(each.cpu) / len(each.cpu) + used for each, used in zip(rounds, postgres, strict=True)),
    }


def show(out: Console, found: Mapping[str, Any]) -> None:
    table = Table("compile", "memories in the table", "p50 ms", "p99 ms", "CPU ms + Postgres", "pace ms")
    for each in sorted(found["cells"], key=lambda cell: cell["case"]):
        spent = f"{number(each['server_ms'])} + {number(each['postgres_ms'])}"
        told = (number(each["p50_ms"]), number(each["p99_ms"]), spent, number(each["pace_ms"]))
        table.add_row(each["title"], f"{each['memories']:,}", *told)
    out.print(table)
    columns = ("vectors in the graph", "of the user", "recall", "least", "rows", "least", "exact ms", "graph ms")
    recalls = Table("memories", *columns)
    for each in found["recalls"]:
        names = ("recall", "recall_least", "rows", "rows_least", "exact_ms", "graph_ms")
        sizes = [f"{each[name]:,}" for name in ("memories", "graph", "own")]
        recalls.add_row(*sizes, *(f"{each[name]:.3f}" for name in names))
    out.print(recalls)


@click.command()
@click.option("--quick", is_flag=True, help="Up to 20,000 memories, few compiles.")
@click.option(
    "--size", "sizes", multiple=True, type=click.IntRange(1000, 10_000_000), help="Memories in the table, growing."
)
@click.option("--compiles", type=click.IntRange(5, 100_000), help="Of each case at each size; 500.")
@click.option("--messages", type=click.IntRange(1, 100_000), help="Of each other user, beside 1,000 memories; 1,000.")
@click.option("--no-save", is_flag=True, help="Print only; leave results and docs/benchmarks.md as they are.")
def main(quick: bool, sizes: tuple[int, ...], compiles: int | None, messages: int | None, no_save: bool) -> None:
    """Measure compiles in growing tables."""
    amount = Amount(
        sorted(sizes) or (QUICK_SIZES if quick else SIZES),
        compiles or (50 if quick else 500),
        messages or (200 if quick else 1000),
        20 if quick else 100,
    )
    out = console()
    with measuring(), out.status("starting …") as status, running(postgres_settings={"max_wal_size": "8GB"}) as stack:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(grow(stack, amount, status.update, out))
        version = version_of(stack)
    show(out, found)
    keep(out, results.head("scale", quick=quick, postgres=version) | {"amount": asdict(amount)} | found, no_save)


if __name__ == "__main__":
    main()
