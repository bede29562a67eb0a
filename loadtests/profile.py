"""Where the whole path spends its CPU: `python -m loadtests.profile`.

Prints, in milliseconds per request, the functions of the server that cost most by themselves, Mneme's own with all that they
call, and the statements of Postgres (from pg_stat_statements, nested ones too: their times are within their callers').
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGUSR1, SIGUSR2

import click
import uvloop
from rich.console import Console
from rich.table import Table

from loadtests import cpu, load
from loadtests.bench import WIDTH, ended_by_sigterm
from loadtests.figures import number
from loadtests.serving import HOST
from loadtests.stack import Stack, StackFailed, prepare, run_sql, running
from loadtests.work import CONTENDERS, Kind, questions

Stacks = Mapping[tuple[str, ...], int]

WARM_S = 1.0
TRACK = (
    "CREATE EXTENSION IF NOT EXISTS pg_stat_statements",
    "ALTER SYSTEM SET pg_stat_statements.track = 'all'",
    "ALTER SYSTEM SET pg_stat_statements.track_planning = on",
    "SELECT pg_reload_conf()",
)
FORGET = "SELECT pg_stat_statements_reset()"
STATEMENTS = """
SELECT toplevel, calls, total_exec_time AS ms, total_plan_time AS planning, query FROM pg_stat_statements
WHERE query NOT LIKE '%pg_stat_statements%' ORDER BY total_exec_time + total_plan_time DESC LIMIT 60
"""
SHOWN_CHARS = 110
"""Of a statement; the beginning tells which it is."""


def parse_folded(text: str) -> dict[tuple[str, ...], int]:
    """Stacks and their counts, as the sampler wrote them."""
    parts = (line.rpartition(" ") for line in text.splitlines())
    return {tuple(stack.split(";")): int(count) for stack, _, count in parts}


def own_counts(stacks: Stacks) -> Counter[str]:
    """Samples by innermost function."""
    counts: Counter[str] = Counter()
    for stack, count in stacks.items():
        counts[stack[-1]] += count
    return counts


def inclusive_counts(stacks: Stacks, prefix: str) -> Counter[str]:
    """Samples by every function whose name begins with `prefix`, once where it stands in a stack several times."""
    counts: Counter[str] = Counter()
    for stack, count in stacks.items():
        for name in {each for each in stack if each.startswith(prefix)}:
            counts[name] += count
    return counts


def show_counts(console: Console, title: str, counts: Counter[str], per_sample: float, top: int) -> None:
    """`per_sample`: milliseconds of a request that one sample stands for."""
    table = Table("ms per request", "function", title=title)
    for name, count in counts.most_common(top):
        table.add_row(number(count * per_sample), name)
    console.print(table)


def show_statements(console: Console, rows: Sequence[Mapping[str, object]], requests: int, top: int) -> None:
    table = Table("ms per request", "+ planning", "calls", "", "statement", title="Postgres (wall time)")
    for row in rows[:top]:
        text = " ".join(str(row["query"]).split())[:SHOWN_CHARS]
        figures = [number(float(str(row[name])) / requests) for name in ("ms", "planning", "calls")]
        table.add_row(*figures, "" if row["toplevel"] else "nested", text)
    console.print(table)


async def sampled(stack: Stack, plan: load.Plan) -> tuple[load.Summary, list[float]]:
    """Run the load under the sampler: what came back, and CPU of server and Postgres in ms per request."""
    roots = (stack.mneme.pid, stack.postgres_pid)
    before = [cpu.cpu_s(root) for root in roots]
    stack.mneme.signal(SIGUSR1)
    answers = load.Summary.of(await load.run(plan))
    stack.mneme.signal(SIGUSR2)
    stack.mneme.wait(stack.samples.exists)
    return answers, [
        1000 * (cpu.cpu_s(root) - began) / max(1, answers.requests) for root, began in zip(roots, before, strict=True)
    ]


@click.command()
@click.option("--only", default="memory", show_default=True, type=click.Choice(["off", "capture", "memory"]))
@click.option("--kind", default="reply", show_default=True, type=click.Choice(["reply", "stream"]))
@click.option("--clients", default=4, show_default=True, type=click.IntRange(1, 256))
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(1, 120))
@click.option("--users", default=6, show_default=True, type=click.IntRange(1, 1000))
@click.option("--messages", default=1000, show_default=True, type=click.IntRange(1, 100_000), help="Of each user.")
@click.option("--top", default=15, show_default=True, type=click.IntRange(1, 60), help="Lines of each table.")
@click.option("--folded", type=click.Path(dir_okay=False, path_type=Path), help="Keep the stacks, for a flame graph.")
def main(
    only: str, kind: Kind, clients: int, seconds: float, users: int, messages: int, top: int, folded: Path | None
) -> None:
    """Print where the CPU time of a request goes."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    contender = CONTENDERS[only]
    try:
        with ended_by_sigterm(), console.status("starting …") as status, running(sampler=True) as stack:
            prepare(stack, users, messages, status.update)
            asyncio.run(run_sql(stack.dsn, *TRACK))

            def plan(seed: str, length: float) -> load.Plan:
                asked = questions(kind, stack.mneme_port, contender.headers, users, seed)
                return load.Plan(HOST, stack.mneme_port, asked, clients, length, kind == "stream")

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                status.update("measuring")
                runner.run(load.run(plan("warm", WARM_S)))
                runner.run(run_sql(stack.dsn, FORGET))
                answers, (server, postgres) = runner.run(sampled(stack, plan("profile", seconds)))
                rows = runner.run(run_sql(stack.dsn, STATEMENTS))
            text = stack.samples.read_text()
    except StackFailed as error:
        raise click.ClickException(str(error)) from error
    if folded is not None:
        folded.write_text(text)
    stacks = parse_folded(text)
    total = sum(stacks.values())
    console.print(
        f"{contender.title}, {kind}, {clients} clients: {answers.requests} requests, {answers.errors} errors, "
        f"{number(server)} ms of CPU in the server + {number(postgres)} in Postgres per request ({total} samples)."
    )
    per_sample = server / max(1, total)
    show_counts(console, "The server, by function", own_counts(stacks), per_sample, top)
    show_counts(console, "Mneme's functions with all they call", inclusive_counts(stacks, "app/"), per_sample, top)
    show_statements(console, [dict(each) for each in rows], max(1, answers.requests), top)


if __name__ == "__main__":
    main()
