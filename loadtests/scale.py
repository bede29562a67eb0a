"""What a compile costs as the tables grow, and what the vector graph finds among other users' vectors.

python -m loadtests.scale [--quick] [--size N]… [--compiles N] [--messages N] [--note TEXT] [--no-save]

Memories of many users, from 1,000 to 1,000,000 in the table, each with as many messages; one user of them has 1,000, one has
10,000 and a session of 200 turns. The compile is the server's own (place and compile, as `POST /api/v1/context` does both), in
this process and one at a time: its time, and the CPU of this process and of Postgres.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
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

from app.clock import SystemClock
from app.features import Features
from app.metrics import Metrics, process_registry
from app.server import collector
from app.server.core import open_core
from app.server.proxy import open_proxy
from app.settings import Settings
from app.store import ids
from loadtests import crowd, fill, results
from loadtests.compiles import ROUNDS, Case, Compiles, Spent, figures
from loadtests.crowd import Person
from loadtests.figures import number
from loadtests.prose import Prose
from loadtests.stack import Stack, StackFailed, running, version_of
from loadtests.terminal import console, keep, measuring
from loadtests.work import SYSTEM

LIGHT, HEAVY = 1000, 10_000
"""Memories of the two users who are measured."""
LONG_TURNS = 200
LONG = "long"
"""Name of the session of so many turns."""
SIZES = (1000, 11_000, 100_000, 1_000_000)
"""Memories in the table: the user with few alone, with the other one beside, and with many others."""
QUICK_SIZES = (1000, 11_000, 20_000)
PACE_LOOPS = 200_000
FAR = "http://127.0.0.1:9/v1"
"""An upstream that is never asked."""
TIMEOUT_S = 300.0


def pace_ms() -> float:
    """Milliseconds for a fixed piece of work: how fast this machine is just now."""
    began = time.process_time()
    sum(n * n for n in range(PACE_LOOPS))
    return 1000 * (time.process_time() - began)


def long_session(user: str) -> tuple[bytes, list[dict[str, str]]]:
    """The session of 200 turns: as lines of an import, and as a client would send it."""
    talk, began = Prose(user), datetime.now(UTC) - 2 * LONG_TURNS * fill.STEP
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


def newcomers(first: Sequence[Person], stored: int, size: int, messages: int) -> list[Person]:
    """Who is stored when a table that holds `stored` memories is to hold `size`: the users who are measured, each as soon as
    there is room, and a crowd."""
    people: list[Person] = []
    before = 0
    for person in first:
        if stored <= before and before + person.memories <= size:
            people.append(person)
        before += person.memories
    held = stored + sum(each.memories for each in people)
    return people + crowd.crowd(held, max(0, size - held), LIGHT, messages)


async def filled(
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
    """The session of 200 turns, by the gateway, and learned from."""
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
            open_proxy(core, Metrics(process_registry()), Features({})) as proxy,
        ):
            collector.settle()  # as in a server
            space = await core.turns.space_of(core.embedder.space)
            assert space is not None, "the migration makes it"
            compiles = Compiles(stack, core, proxy, admin, amount.compiles)
            stored = 0
            for size in amount.sizes:
                began = time.monotonic()
                people = newcomers([light, heavy], stored, size, amount.messages)
                stored += sum(each.memories for each in people)
                await filled(admin, people, space, tell)
                if heavy in people:
                    await import_long(stack, admin, heavy.name, lines, tell)
                out.print(f"{stored:,} memories after {time.monotonic() - began:.0f} s of filling")
                cells += await measured(
                    compiles, cases(light, heavy, transcript)[: 1 if stored < HEAVY else None], stored, tell
                )
                if stored >= HEAVY:
                    tell(f"{stored:,} memories: recall of the graph")
                    counts = await graph_size(admin, heavy)
                    recalls.append(
                        {"memories": stored, **counts, **await compiles.recall(heavy.name, amount.questions)}
                    )
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
    compiles: Compiles, wanted: Sequence[Case], memories: int, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """All cases in turn, round after round."""
    spent: dict[str, list[Spent]] = {each.name: [] for each in wanted}
    postgres: dict[str, list[float]] = {each.name: [] for each in wanted}
    paces = []
    for _ in range(ROUNDS):
        paces.append(pace_ms())
        for case in wanted:
            found, used = await compiles.cell(case, memories, tell)
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
@click.option("--note", help="What else ran on the machine; stands in the page.")
@click.option("--no-save", is_flag=True, help="Print only; leave results and docs/generated/benchmarks.md as they are.")
def main(
    quick: bool, sizes: tuple[int, ...], compiles: int | None, messages: int | None, note: str | None, no_save: bool
) -> None:
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
    conditions = {"note": note} if note else {}
    head = results.head("scale", quick=quick, postgres=version)
    keep(out, head | conditions | {"amount": asdict(amount)} | found, no_save)


if __name__ == "__main__":
    main()
