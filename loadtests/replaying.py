"""How true replays are: recorded through Mneme, exported, played at speed 1, and compared in bytes, pieces and time.

python -m loadtests.replaying [--quick] [--vllm URL] [--no-save]

Two sessions: all that a real vLLM was seen to send (tests/fixtures/captures), from a scripted socket, in its time; and, where
one is named, a vLLM that runs. The commands are the real ones; each server is a process of its own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import httpx
from rich.console import Console
from rich.table import Table

from loadtests import results
from loadtests.figures import number
from loadtests.load import quantile
from loadtests.sections import LATE_MS
from loadtests.stack import START_S, Service, Stack, StackFailed, running, version_of
from loadtests.terminal import console, keep, measuring
from mneme_replay.cassette import Cassette
from mneme_replay.files import load
from mneme_replay.player import HEALTH
from tests.support.round_trip import (
    Call,
    Compared,
    Made,
    beside,
    captured_calls,
    captured_script,
    live_calls,
    make,
    play_all,
)
from tests.support.scripted import ScriptedUpstream
from tests.support.sockets import RawResponse, fetch

VLLM_VARIABLE = "MNEME_TEST_VLLM_URL"
CLIENTS = (1, 16)
"""One after the other, and as many at once as a small test run under xdist has."""
SETTLE_S = 60.0
"""Seconds that recordings may take to be stored after the last answer."""
WARM = 20
"""Requests before the first that counts: a server's first ones take some 10 ms each."""
TICK_S = 0.01
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Played:
    """A session, played by so many clients at once, in all rounds. Times in milliseconds: |late| of each recorded piece."""

    session: str
    clients: int
    rounds: int
    calls: int
    equal: int
    """Answers whose status, headers, every byte and end are those of the recording."""
    chunked: int
    """Answers that are sent in pieces, and so have borders."""
    chunks_equal: int
    """Of these: all borders as recorded."""
    pieces: int
    timed: int
    p50_ms: float
    p95_ms: float
    max_ms: float
    late_ms: float
    """The mean, with its sign: how much later everything is."""
    timer_p95_ms: float
    """By how much a bare timer of the client's came late in the meantime: that was the machine."""

    @property
    def true(self) -> bool:
        """Bytes and pieces are as they were."""
        return self.equal == self.calls and self.chunks_equal == self.chunked


@dataclass(frozen=True, slots=True)
class Session:
    """What was recorded: seconds are those of the answers, from the request to the last piece."""

    name: str
    calls: list[Call]
    made: list[Made]
    cassettes: list[Cassette]
    folder: Path

    def summary(self) -> dict[str, object]:
        """As it is kept."""
        answers = [each.response for each in self.cassettes if each.response is not None]
        outcomes = [str(each.outcome) for each in self.cassettes]
        return {
            "session": self.name,
            "calls": len(self.cassettes),
            "outcomes": {name: outcomes.count(name) for name in sorted(set(outcomes))},
            "with_memory": sum(each.sent is not None for each in self.cassettes),
            "errors": sum(each.status >= 400 for each in answers),
            "bytes": sum(len(each.body) for each in answers),
            "pieces": sum(len(each.chunks) for each in answers),
            "seconds": sum(each.chunks[-1].at_us for each in answers if each.chunks) / 1e6,
        }


@dataclass(frozen=True, slots=True)
class Round:
    """A session played once: the answers beside their recordings, and seconds by which a bare timer came late."""

    compared: Sequence[Compared]
    timer_s: Sequence[float]


def summarise(session: str, clients: int, rounds: Sequence[Round]) -> Played:
    """The figures of a session's replays."""
    compared = [each for one in rounds for each in one.compared]
    chunked = [each for each in compared if each.pieces]
    late = [each for one in compared for each in one.late_ms]
    off = sorted(map(abs, late))
    return Played(
        session=session,
        clients=clients,
        rounds=len(rounds),
        calls=len(compared),
        equal=sum(not each.bytes for each in compared),
        chunked=len(chunked),
        chunks_equal=sum(not each.chunks for each in chunked),
        pieces=sum(each.pieces for each in compared),
        timed=len(late),
        p50_ms=quantile(off, 0.5),
        p95_ms=quantile(off, 0.95),
        max_ms=quantile(off, 1.0),
        late_ms=sum(late) / len(late) if late else float("nan"),
        timer_p95_ms=1000 * quantile(sorted(each for one in rounds for each in one.timer_s), 0.95),
    )


def record(stack: Stack, name: str, calls: list[Call], before: Say, say: Say) -> Session:
    """Make the calls through Mneme, one after the other, and export them by its command. Raises StackFailed."""
    headers = [(b"x-mneme-user", name.encode())]

    async def all_of_them() -> list[Made]:
        made = []
        for n, call in enumerate(calls):
            say(f"{name}: recording {n + 1} of {len(calls)}")
            before(call.name)
            made.append(await make(stack.mneme_port, call, headers))
        return made

    made = asyncio.run(all_of_them())
    folder = stack.folder / "cassettes"
    with httpx.Client(base_url=stack.base_url, headers={"x-mneme-user": name}, trust_env=False) as client:
        deadline = time.monotonic() + SETTLE_S
        while len(client.get("/api/v1/calls", params={"limit": 1000}).json()["calls"]) < len(made):
            if time.monotonic() > deadline:
                raise StackFailed(f"Not all of {len(made)} calls were recorded in {SETTLE_S:g} s.")
            time.sleep(0.1)
    say(f"{name}: exporting")
    arguments = ["capture", "export", "--out", str(folder), "--base", stack.base_url, "--user", name]
    export = Service("export", ["-m", "app.cli", *arguments], stack.folder, stack.environment)
    export.finish(START_S)
    return Session(name, calls, made, load([folder]), folder)


def play(session: Session, clients: int, folder: Path) -> Round:
    """Play a session once, on a fresh server at speed 1. Raises StackFailed."""
    arguments = ["replay", "serve", str(session.folder), "--port", "0", "--speed", "1", "--match", "strict", "--once"]
    server = Service("replay", ["-m", "app.cli", *arguments], folder, {})
    try:
        port = server.port(r" on http://127\.0\.0\.1:([0-9]+)")
        answers, late = asyncio.run(_played(port, session.calls, clients))
    finally:
        server.stop()
    return Round(beside(session.cassettes, answers, session.made), late)


async def _played(port: int, calls: Sequence[Call], clients: int) -> tuple[list[RawResponse], list[float]]:
    """The answers, and by how much a bare timer came late."""
    for _ in range(WARM):
        await fetch(port, "GET", HEALTH)
    late: list[float] = []

    async def tick() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            late.append(time.perf_counter() - began - TICK_S)

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        answers = await play_all(port, calls, clients)
        ticking.cancel()
    return answers, late


def measure(name: str, upstream: str | None, rounds: int, say: Say) -> tuple[Session, list[Played], list[str], str]:
    """One session: what was recorded, its replays, what differed, and the version of Postgres. `upstream`: a vLLM; None: the
    captures. Raises StackFailed."""
    at = ""

    def now(case: str) -> None:
        nonlocal at
        at = case

    say(f"{name}: starting …")
    with ScriptedUpstream(captured_script(lambda: at, timing=True)) as scripted:
        settings = {"MNEME_UPSTREAM_BASE_URL": upstream or scripted.url}
        with running(settings=settings) as stack:
            calls = live_calls() if upstream else captured_calls()
            session = record(stack, name, calls, now, say)
            found: dict[int, list[Round]] = {clients: [] for clients in CLIENTS}
            for n in range(rounds):
                for clients in CLIENTS:  # in turn: the machine has other things to do
                    say(f"{name}: playing for {clients} at once, round {n + 1} of {rounds}")
                    found[clients].append(play(session, clients, stack.folder))
            played = [summarise(name, clients, each) for clients, each in found.items()]
            told = [
                told for each in found.values() for one in each for c in one.compared for told in (*c.bytes, *c.chunks)
            ]
            return session, played, told, version_of(stack)


def show(out: Console, played: Sequence[Played]) -> None:
    head = (
        "session",
        "at once",
        "answers",
        "equal",
        "in pieces",
        "equal",
        "pieces",
        "p50 ms",
        "p95 ms",
        "max ms",
        "timer",
    )
    table = Table(*head, title="Replays at speed 1; ms: how far each piece is from its time; timer: a bare one's p95")
    for each in played:
        counts = [each.clients, each.calls, each.equal, each.chunked, each.chunks_equal, each.pieces]
        times = [each.p50_ms, each.p95_ms, each.max_ms, each.timer_p95_ms]
        table.add_row(each.session, *map(str, counts), *map(number, times))
    out.print(table)


@click.command()
@click.option("--quick", is_flag=True, help="One round instead of three.")
@click.option("--rounds", type=click.IntRange(1, 100), help="How often each session is played; 3.")
@click.option(
    "--vllm", default=lambda: os.environ.get(VLLM_VARIABLE), help=f"A vLLM's URL, with /v1 ({VLLM_VARIABLE})."
)
@click.option("--no-save", is_flag=True, help="Print only; leave results and docs/generated/benchmarks.md as they are.")
def main(quick: bool, rounds: int | None, vllm: str | None, no_save: bool) -> None:
    """Measure how true replays are. Fails where a byte or a border differs, or times miss the tolerance."""
    rounds = rounds or (1 if quick else 3)
    out = console()
    with measuring(), out.status("starting …") as status:
        wanted = [("captures", None), *([("live", vllm)] if vllm else [])]
        found = [measure(name, upstream, rounds, status.update) for name, upstream in wanted]
    played = [each for _, of, _, _ in found for each in of]
    differences = [told for _, _, of, _ in found for told in of]
    show(out, played)
    document = results.head("replaying", quick=quick, postgres=found[0][3]) | {
        "rounds": rounds,
        "tolerance_ms": LATE_MS,
        "recorded": [session.summary() for session, _, _, _ in found],
        "played": [asdict(each) for each in played],
    }
    keep(out, document, no_save)
    for told in differences[:20]:
        out.print(told, markup=False)
    if not all(each.true for each in played):
        raise click.ClickException("replays differ from their recordings")
    if late := [each for each in played if each.p95_ms > LATE_MS]:
        raise click.ClickException(f"p95 is above {LATE_MS:g} ms in {len(late)} of {len(played)} lines")


if __name__ == "__main__":
    main()
