"""What a request costs, directly, through the floor, and through Mneme.

python -m loadtests.bench [--quick] [--peers] [--clients N]… [--seconds S] [--rounds N] [--only NAME]… [--kind KIND]…
    [--no-save]
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import FrameType

import click
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from loadtests import cpu, fill, load, report, results
from loadtests.figures import COLUMNS, Cell, Measure, growth, number, row, summarise
from loadtests.peers import PEERS, PeerFailed
from loadtests.serving import HOST
from loadtests.stack import Stack, StackFailed, prepare, run_sql, running
from loadtests.work import CONTENDERS, STREAM_S, Contender, Kind, questions

KINDS: tuple[Kind, ...] = ("reply", "stream")
WARM_S = 0.5
"""Seconds of load before anything is measured: pools, prepared statements and caches fill."""
WARM_CLIENTS = 16
LIMIT = 20_000
"""Requests of one measurement at most: more tell nothing, and would make the tables grow."""
WIDTH = 120
"""Characters of the tables where there is no terminal to say it."""
SETTLE_S = 0.5
"""Seconds that Postgres gets at most to finish what a measurement left to it: that is this one's cost, not the next one's."""
SETTLE_STEP_S = 0.05
IDLE = 0.02
"""Share of a core below which Postgres counts as idle: its background writers wake from time to time."""
WORKER_S = 10.0
"""Seconds for which the worker is watched while it learns from the turns of the run."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. `seconds`: of one measurement; `users` and `messages` (of each) are in the memory."""

    seconds: float
    rounds: int
    stream_rounds: int
    users: int
    messages: int


FULL = Size(seconds=2.0, rounds=5, stream_rounds=5, users=48, messages=1000)
QUICK = Size(seconds=0.4, rounds=3, stream_rounds=1, users=6, messages=1000)


class Bench:
    """Measures contenders against a running stack."""

    def __init__(self, stack: Stack, size: Size) -> None:
        self._stack = stack
        self._size = size
        self.measures: list[Measure] = []

    async def warm(self, contenders: Sequence[Contender], kinds: Sequence[Kind]) -> set[tuple[str, Kind]]:
        """What peers cannot do: most of those requests fail. Raises StackFailed where it is not a peer that fails."""
        failing: set[tuple[str, Kind]] = set()
        for contender in contenders:
            for kind in kinds:
                outcome = await load.run(self._plan(contender, kind, WARM_CLIENTS, "warm", WARM_S / len(kinds)))
                if outcome.errors > len(outcome.took):
                    if not contender.peer:
                        raise StackFailed(f"{contender.title} answers {outcome.errors} of its requests with an error.")
                    failing.add((contender.name, kind))
        return failing

    async def measure(self, contender: Contender, kind: Kind, clients: int, number: int) -> Measure:
        """One measurement."""
        roots = self._roots(contender)
        before = [cpu.cpu_s(root) for root in roots]
        plan = self._plan(contender, kind, clients, f"round {number}", self._size.seconds)
        answers = load.Summary.of(await load.run(plan))
        if contender.mneme:
            await self._settled()
        used = [cpu.cpu_s(root) - began for root, began in zip(roots, before, strict=True)]
        server, postgres = (1000 * each / max(1, answers.requests) for each in (*used, 0.0, 0.0)[:2])
        found = Measure(contender.name, kind, clients, number, answers, server, postgres)
        self.measures.append(found)
        return found

    async def _settled(self) -> None:
        last, deadline = cpu.cpu_s(self._stack.postgres_pid), time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            await asyncio.sleep(SETTLE_STEP_S)
            now = cpu.cpu_s(self._stack.postgres_pid)
            if now - last < IDLE * SETTLE_STEP_S:
                return
            last = now

    def _plan(self, contender: Contender, kind: Kind, clients: int, seed: str, seconds: float) -> load.Plan:
        ports = {"direct": self._stack.mock_port, "floor": self._stack.floor_port}
        ports |= {name: port for name, (port, _) in self._stack.peers.items()}
        port = ports.get(contender.name, self._stack.mneme_port)
        headers = [(name, value.format(mock=self._stack.mock_port)) for name, value in contender.headers]
        asked = questions(kind, port, headers, self._size.users, f"{seed} {kind} {clients}")
        ramp = min(seconds, STREAM_S) / 2 if kind == "stream" else 0.0
        return load.Plan(HOST, port, asked, clients, seconds, kind == "stream", LIMIT, ramp)

    def _roots(self, contender: Contender) -> list[int]:
        if contender.mneme:
            return [self._stack.mneme.pid, self._stack.postgres_pid]
        if contender.peer:
            return [self._stack.peers[contender.name][1]]
        return [self._stack.floor_pid] if contender.name == "floor" else []

    def resident_mb(self) -> dict[str, float]:
        roots = {"floor": self._stack.floor_pid, "server": self._stack.mneme.pid, "Postgres": self._stack.postgres_pid}
        roots |= {name: pid for name, (_, pid) in self._stack.peers.items()}
        return {name: cpu.resident_mb(pid) for name, pid in roots.items()}

    def worker_ms(self) -> float:
        """CPU of a worker and of Postgres per turn learned from, watched for `WORKER_S`; NaN where nothing is left to do."""
        with self._stack.worker() as worker:
            left = fill.queued(self._stack.base_url)
            deadline = time.monotonic() + WORKER_S
            # Its start is no turn's cost.
            while fill.queued(self._stack.base_url) == left and time.monotonic() < deadline:
                time.sleep(fill.POLL_S)
            pids = (worker.pid, self._stack.postgres_pid)
            began, before = fill.queued(self._stack.base_url), sum(map(cpu.cpu_s, pids))
            deadline = time.monotonic() + WORKER_S
            while (left := fill.queued(self._stack.base_url)) and time.monotonic() < deadline:
                time.sleep(fill.POLL_S)
            used = sum(map(cpu.cpu_s, pids)) - before
            return 1000 * used / (began - left) if began > left else float("nan")


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the benchmark as Ctrl-C does: with everything that it started."""

    def end(_number: int, _frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it puts in the background so: then SIGTERM would do nothing.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def pin() -> None:
    """Keep this process, which is the load client, to one core; what it started before goes where it likes."""
    if hasattr(os, "sched_setaffinity") and len(cores := os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {max(cores)})


def measure_all(
    bench: Bench,
    size: Size,
    contenders: Sequence[Contender],
    kinds: Sequence[Kind],
    clients: Sequence[int],
    console: Console,
) -> None:
    """Every pair in turn, round after round."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    turns = [
        (n, kind, count, each)
        for n in range(max(size.rounds, size.stream_rounds))
        for kind in kinds
        if n < (size.stream_rounds if kind == "stream" else size.rounds)
        for count in clients
        for each in contenders
    ]
    # Drawn between measurements only.
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        task = progress.add_task("warming up", total=len(turns))
        progress.refresh()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            failing = runner.run(bench.warm(contenders, kinds))
            for name, kind in sorted(failing):
                console.print(f"left out: {name} answers most requests of the kind {kind} with an error")
            for n, kind, count, contender in turns:
                if (contender.name, kind) in failing:
                    continue
                progress.update(task, description=f"{contender.name} {kind} {count}", refresh=True)
                runner.run(bench.measure(contender, kind, count, n))
                progress.advance(task)


def show(console: Console, cells: Sequence[Cell]) -> None:
    """The tables, for a terminal."""
    for kind in dict.fromkeys(each.kind for each in cells):
        table = Table(*COLUMNS, title=report.TITLES[kind])
        for each in cells:
            if each.kind == kind:
                table.add_row(
                    *row(each),
                    end_section=each is [c for c in cells if c.clients == each.clients and c.kind == kind][-1],
                )
        console.print(table)
    for contender in ("off", "memory"):
        grown = growth(cells, contender, "reply")
        console.print(f"{contender}: CPU per request with the most clients ÷ with the fewest: {number(grown)}")


@click.command()
@click.option("--quick", is_flag=True, help="About a minute in all: for the shape only.")
@click.option(
    "--clients",
    multiple=True,
    type=click.IntRange(1, 256),
    help="How many at once; may be given several times (1, 16, 64).",
)
@click.option("--seconds", type=click.FloatRange(0.1, 60), help="Of each measurement.")
@click.option("--rounds", type=click.IntRange(1, 50))
@click.option("--users", type=click.IntRange(1, 1000), help="Whose memory is filled.")
@click.option("--messages", type=click.IntRange(0, 100_000), help="In the memory of each user.")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(CONTENDERS)),
    help="Measure these alone; may be given several times.",
)
@click.option("--peers", is_flag=True, help="LiteLLM and Portkey, too; they are installed into ~/.cache/mneme-peers.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Plain answers or streams alone.")
@click.option("--no-save", is_flag=True, help="Print only; leave results and docs/generated/benchmarks.md as they are.")
def main(
    quick: bool,
    clients: tuple[int, ...],
    seconds: float | None,
    rounds: int | None,
    users: int | None,
    messages: int | None,
    only: tuple[str, ...],
    peers: bool,
    kinds: tuple[Kind, ...],
    no_save: bool,
) -> None:
    """Measure what a request costs: directly, through a bare pass-through, and through Mneme."""
    usual = QUICK if quick else FULL
    size = Size(
        seconds or usual.seconds,
        rounds or usual.rounds,
        rounds or usual.stream_rounds,
        users or usual.users,
        usual.messages if messages is None else messages,
    )
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    contenders = [each for name, each in CONTENDERS.items() if (name in only if only else peers or not each.peer)]
    contenders = [each for each in contenders if not each.peer or available(each, console)]
    with ended_by_sigterm():
        try:
            found = run(console, quick, size, contenders, kinds or KINDS, clients or (1, 16, 64))
        except StackFailed as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            raise click.Abort from None
    show(console, found.cells)
    console.print(f"worker: {number(found.worker_ms)} ms of CPU per turn, with its Postgres")
    if not no_save:
        console.print(f"written: {report.save(found.document())}, {report.PAGE}")


def available(contender: Contender, console: Console) -> bool:
    """Whether a peer is installed, or can be."""
    try:
        PEERS[contender.name].installed(console.print)
    except PeerFailed as error:
        console.print(f"left out: {error}")
        return False
    return True


def run(
    console: Console,
    quick: bool,
    size: Size,
    contenders: Sequence[Contender],
    kinds: Sequence[Kind],
    clients: Sequence[int],
) -> report.Report:
    """The whole benchmark. Raises StackFailed."""
    peers = [PEERS[each.name] for each in contenders if each.peer]
    with console.status("starting …") as status, running(peers=peers) as stack:
        say: Callable[[str], None] = status.update
        prepare(stack, size.users, size.messages, say)
        memories = fill.memories(stack.base_url, fill.user_name(0))
        pin()
        bench = Bench(stack, size)
        status.stop()
        measure_all(bench, size, contenders, kinds, clients, console)
        status.start()
        resident = bench.resident_mb()
        say("counting what was kept")
        (kept,) = asyncio.run(
            run_sql(stack.dsn, "SELECT count(*) AS n, version() FROM agent_data.conversation_history")
        )
        say("measuring the worker")
        worker = bench.worker_ms() if any(each.name == "memory" for each in contenders) else float("nan")
    return report.Report(
        head=results.head("bench", quick=quick, postgres=str(kept["version"]).split()[1]),
        settings={**asdict(size), "clients": list(clients), "kinds": list(kinds)},
        filled={
            "users": size.users,
            "messages": size.messages,
            "memories": memories,
            "messages_after": round(kept["n"] / size.users),
        },
        resident_mb=resident,
        worker_ms=worker,
        cells=summarise(bench.measures),
    )


if __name__ == "__main__":
    main()
