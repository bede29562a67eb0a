"""What a recorded turn costs in write-ahead log.

python -m loadtests.wal [--quick] [--turns N] [--streams N] [--messages N] [--no-save]

Conversations of ten turns, memory on, the worker off, autovacuum off (when it comes is a matter of chance). Twice: on a
Postgres without full-page images, for the ratio, and right after a checkpoint on one as it is shipped, for what is really
written then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import asyncpg
import click
import httpx
import orjson
from rich.console import Console
from rich.table import Table

from loadtests import fill, results
from loadtests.figures import number, ratio
from loadtests.stack import Stack, StackFailed, prepare, running, version_of
from loadtests.terminal import console, keep, measuring
from loadtests.texts import Talk
from loadtests.wal_reads import BYTES, NOW, VECTORS, Connection, Log, log_between, values
from loadtests.work import CHUNKS, MODEL, PATH, SYSTEM, Kind

SESSION_TURNS = 10
GAP_MS = 2
"""Between two chunks of a stream: long enough for each to be read by itself."""
TIMEOUT_S = 60.0
QUIET = {"autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "8GB"}
"""Nothing but the turns writes, and the checkpoints are ours."""
EVENTS = """
CREATE TABLE public.bench_events (
    call_id uuid NOT NULL, tenant_id uuid NOT NULL, user_id uuid NOT NULL, seq integer NOT NULL, t_us bigint NOT NULL,
    data bytea NOT NULL, PRIMARY KEY (call_id, user_id, seq));
CREATE TABLE public.bench_streams (LIKE agent_data.streams INCLUDING ALL);
"""
A_ROW_EACH = """
INSERT INTO public.bench_events SELECT call_id, tenant_id, user_id, seq, t_us, data FROM agent_data.stream_events
WHERE call_id = $1
"""
ONE_ROW = "INSERT INTO public.bench_streams SELECT * FROM agent_data.streams WHERE call_id = $1"
STREAMED = "SELECT call_id FROM agent_data.upstream_calls WHERE streamed ORDER BY call_id"


@dataclass(frozen=True, slots=True)
class Amount:
    """How many turns of each kind, and messages of the user's past."""

    turns: int
    streams: int
    messages: int

    def of(self) -> dict[Kind, int]:
        """Turns by kind."""
        return {"reply": self.turns, "stream": self.streams}


FULL = Amount(turns=200, streams=60, messages=1000)
QUICK = Amount(turns=20, streams=10, messages=200)


def converse(client: httpx.Client, kind: Kind, count: int, seed: str) -> None:
    """So many turns, in conversations whose whole transcript is sent each time. Raises StackFailed."""
    talk, stream = Talk(seed), kind == "stream"
    model = f"{MODEL}:chunks={CHUNKS[kind]};gap_ms={GAP_MS if stream else 0}"
    transcript: list[dict[str, str]] = []
    for n in range(count):
        if n % SESSION_TURNS == 0:
            transcript = [{"role": "system", "content": SYSTEM}]
        transcript.append({"role": "user", "content": f"{talk.said()} {talk.asked()}"})
        body = {"model": model, "messages": transcript, "stream": stream}
        answer = client.post(PATH, json=body).raise_for_status()
        if answer.headers["x-mneme-status"] != "ok":
            raise StackFailed(f"A turn was answered without memory: {answer.headers.get('x-mneme-reason')}.")
        transcript.append({"role": "assistant", "content": content_of(answer.text, stream)})


def content_of(text: str, stream: bool) -> str:
    """What the mock upstream said."""
    if not stream:
        content: str = orjson.loads(text)["choices"][0]["message"]["content"]
        return content
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    deltas = [orjson.loads(each)["choices"][0]["delta"] for each in events]
    return "".join(each.get("content") or "" for each in deltas)


async def recorded(connection: Connection, client: httpx.Client, kind: Kind, count: int, seed: str) -> Log:
    """The log of so many turns, right after a checkpoint."""
    before = await values(connection)
    # After the look at the tables, which may write pages itself.
    await connection.execute("CHECKPOINT")
    start = await connection.fetchval(NOW)
    await asyncio.to_thread(converse, client, kind, count, seed)
    end = await connection.fetchval(NOW)
    return await log_between(connection, start, end, before, await values(connection))


async def by_event(connection: Connection) -> dict[str, float]:
    """The streams of the run written once more, in tables of their own: one row each, and a row for each event."""
    await connection.execute(EVENTS)
    calls = [row["call_id"] for row in await connection.fetch(STREAMED)]
    found = {}
    for name, statement in (("one_row", ONE_ROW), ("row_each", A_ROW_EACH)):
        start = await connection.fetchval(NOW)
        for call in calls:
            await connection.execute(statement, call)
        found[name] = await connection.fetchval(BYTES, start, await connection.fetchval(NOW)) / len(calls)
    events = await connection.fetchval("SELECT count(*) FROM public.bench_events")
    return {**found, "events": events / len(calls), "ratio": ratio(found["row_each"], found["one_row"])}


async def learned(connection: Connection, stack: Stack, turns: int, say: Callable[[str], None]) -> float:
    """Bytes of log per turn that a worker writes while it learns from the turns of the run."""
    start = await connection.fetchval(NOW)
    with stack.worker():
        await asyncio.to_thread(fill.wait_until_learned, stack.base_url, say)
    written: int = await connection.fetchval(BYTES, start, await connection.fetchval(NOW))
    return written / turns


async def measure(stack: Stack, amount: Amount, *, images: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """All of one Postgres; the bytes are per turn."""
    connection = await asyncpg.connect(stack.dsn)
    headers = {"X-Mneme-User": fill.user_name(0), "Authorization": "Bearer sk-none"}
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        kinds: list[dict[str, Any]] = []
        with httpx.Client(base_url=stack.base_url, headers=headers, timeout=TIMEOUT_S, trust_env=False) as client:
            for kind, count in amount.of().items():
                say(f"{kind}: {count} turns, {'with' if images else 'without'} full-page images")
                await asyncio.to_thread(converse, client, kind, 1, f"warm {kind}")
                kinds.append(figures(await recorded(connection, client, kind, count, kind), kind, count))
        found: dict[str, Any] = {"kinds": kinds}
        if not images:
            say("a row for each event")
            found["events"] = await by_event(connection)
            found["learned"] = await learned(connection, stack, amount.turns + amount.streams + 2, say)
        return found
    finally:
        await connection.close()


def figures(log: Log, kind: Kind, turns: int) -> dict[str, Any]:
    """A log as it is kept: bytes per turn."""
    per_table = [
        {name: value if name == "table" else value / turns for name, value in asdict(each).items()}
        for each in log.tables
    ]
    return {
        "kind": kind,
        "turns": turns,
        "wal": log.total / turns,
        "images": log.images / turns,
        "image_count": log.image_count / turns,
        "vectors": log.part(VECTORS) / turns,
        "amplification": log.amplification(),
        "amplification_plain": log.amplification(stored=False),
        "tables": per_table,
    }


def show(out: Console, without: dict[str, Any], shipped: dict[str, Any]) -> None:
    columns = ("turn", "KB of WAL", "÷ values stored", "÷ before compression", "KB after a checkpoint")
    table = Table(*columns, title="Write-ahead log of a turn")
    for plain, full in zip(without["kinds"], shipped["kinds"], strict=True):
        kb = (number((plain["wal"] - plain["images"]) / 1000), number(full["wal"] / 1000))
        ratios = (number(plain["amplification"]), number(plain["amplification_plain"]))
        table.add_row(plain["kind"], kb[0], *ratios, kb[1])
    out.print(table)
    for kind in without["kinds"]:
        parts = Table(
            "table", "rows", "updates", "value bytes", "heap", "indexes", title=f"{kind['kind']}, bytes per turn"
        )
        for each in kind["tables"]:
            told = [number(each[name]) for name in ("rows", "updates", "stored", "heap", "indexes")]
            parts.add_row(each["table"], *told)
        out.print(parts)
    events = without["events"]
    out.print(
        f"a row for each of {events['events']:.0f} events writes {number(events['ratio'])} times as much as one row"
    )


@click.command()
@click.option("--quick", is_flag=True, help="Few turns.")
@click.option("--turns", type=click.IntRange(1, 100_000), help="With a plain answer; 200.")
@click.option("--streams", type=click.IntRange(1, 100_000), help="With a stream; 60.")
@click.option("--messages", type=click.IntRange(20, 100_000), help="Of the user's past; 1,000.")
@click.option("--no-save", is_flag=True, help="Print only; leave results and docs/generated/benchmarks.md as they are.")
def main(quick: bool, turns: int | None, streams: int | None, messages: int | None, no_save: bool) -> None:
    """Measure what a turn writes."""
    usual = QUICK if quick else FULL
    amount = Amount(turns or usual.turns, streams or usual.streams, messages or usual.messages)
    out = console()
    found: dict[bool, dict[str, Any]] = {}
    version = ""
    with measuring(), out.status("starting …") as status:
        for images in (False, True):
            settings = {**QUIET, "full_page_writes": "on" if images else "off"}
            with running(postgres_settings=settings) as stack:
                prepare(stack, 1, amount.messages, status.update)
                found[images] = asyncio.run(measure(stack, amount, images=images, say=status.update))
                version = version_of(stack)
    show(out, found[False], found[True])
    document = results.head("wal", quick=quick, postgres=version) | asdict(amount) | found[False]
    shipped = [{name: value for name, value in each.items() if name != "tables"} for each in found[True]["kinds"]]
    keep(out, document | {"after_checkpoint": shipped}, no_save)


if __name__ == "__main__":
    main()
