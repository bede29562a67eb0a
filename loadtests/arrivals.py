"""Measure how many requests go without their memory when they arrive steadily: `python -m loadtests.arrivals`.

Requests arrive whether the earlier ones are answered or not, with the usual deadlines and a worker beside the server. An answer
that says `degraded` had no search of its memory. The mock upstream answers at once: the time of an answer is what Mneme adds.
Upstream, load generator, server, worker and Postgres share the machine.

The table has, for users of each size, the first 120 requests at 20 a second after an import (the worker learns meanwhile) and
after a start, then rising rates until more than 1 % go without memory. (The benchmark proper lifts the deadlines, and so does
not see this.)
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
import click
import uvloop
from rich.console import Console
from rich.table import Table

from app.settings import Settings
from loadtests import fill
from loadtests.bench import ended_by_sigterm
from loadtests.serving import HOST
from loadtests.stack import Service, Stack, StackFailed, run_sql, running
from loadtests.work import CONTENDERS, questions

RATES = (20, 40, 60, 80, 100, 120, 160, 200, 250, 320)
"""Requests a second that are tried, one after the other, until one is too many."""
MOST_LOST = 0.01
"""Share of the requests of a rate that may go without memory."""
FIRST_COUNT = 120
"""Requests after a start, and after an import, that are measured apart from the rates."""
FIRST_RATE = 20
"""How many of these first requests arrive in a second."""
ANSWER_TIMEOUT_S = 60.0
"""Seconds after which an answer counts as an error."""
SIZES = ((24, 1_000), (1, 10_000))
"""Users, and messages of each."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The outcome of requests that arrived at one rate."""

    count: int
    reasons: Counter[str]
    """How many went without memory, by `x-mneme-reason`; `error` counts those that failed."""
    seconds: Sequence[float]
    """Time from each request to the end of its answer, in the order of arrival."""

    @property
    def share_lost(self) -> float:
        return self.reasons.total() / max(1, self.count)

    def percentile_ms(self, percent: float) -> float:
        """Return the time of an answer that `percent` of all answers do not exceed, in milliseconds."""
        ordered = sorted(self.seconds)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    def summary(self) -> str:
        """Return the share without memory, the reasons, and the times of the first, the median and the slowest answers."""
        reasons = ", ".join(f"{name} {count}" for name, count in self.reasons.most_common())
        times = (
            f"first {1000 * self.seconds[0]:.0f}, p50 {self.percentile_ms(50):.0f}, p99 {self.percentile_ms(99):.0f} ms"
        )
        return f"{self.share_lost:.1%} of {self.count} without memory ({reasons or 'none'}); {times}"


async def send_steadily(port: int, users: int, rate: float, count: int, seed: str) -> Arrivals:
    """Send `count` requests, `rate` a second."""
    build_request = questions("reply", port, CONTENDERS["memory"].headers, users, seed)
    reasons: Counter[str] = Counter()
    seconds = [0.0] * count

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def send(number: int) -> None:
            head, _, body = build_request(0, number).partition(b"\r\n\r\n")
            request_line, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines if not line.startswith(("Host", "Content-Length")))
            url = f"http://{HOST}:{port}{request_line.split()[1]}"
            timeout = aiohttp.ClientTimeout(ANSWER_TIMEOUT_S)
            sent_at = time.perf_counter()
            try:
                async with session.post(url, data=body, headers=headers, timeout=timeout) as answer:
                    await answer.read()
                    if answer.status != 200:
                        reasons["error"] += 1
                    elif answer.headers.get("x-mneme-status") == "degraded":
                        reasons[answer.headers.get("x-mneme-reason", "")] += 1
            except (aiohttp.ClientError, TimeoutError):
                reasons["error"] += 1
            seconds[number] = time.perf_counter() - sent_at

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
                group.create_task(send(number))
    return Arrivals(count, reasons, seconds)


@contextmanager
def restarted(stack: Stack) -> Iterator[int]:
    """The port of a server that has just become ready, on the same database."""
    environment = {**stack.environment, "MNEME_DATABASE_URL": stack.dsn}
    service = Service("again", ["-m", "app.cli", "serve", "--port", "0"], stack.folder, environment)
    try:
        port = service.port(r"running on http://127\.0\.0\.1:([0-9]+)")
        yield port
    finally:
        service.stop()


def usual_settings() -> dict[str, str]:
    """Return the settings that other measurements lift, as they are where nobody sets them."""
    return {"MNEME_RETRIEVAL_DEADLINE_MS": str(Settings.model_fields["retrieval_deadline_ms"].default)}


def measure(users: int, messages: int, seconds: float, console: Console, table: Table) -> None:
    """Add the lines of one size to the table. Raises StackFailed."""

    def add_row(when: str, arrivals: Arrivals) -> None:
        console.log(f"{users} × {messages:,}, {when}: {arrivals.summary()}")
        figures = (arrivals.percentile_ms(50), arrivals.percentile_ms(99))
        table.add_row(f"{users} × {messages:,}", when, f"{arrivals.share_lost:.1%}", *(f"{ms:.0f}" for ms in figures))

    with running(settings=usual_settings()) as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        with stack.worker():
            fill.fill(stack.base_url, users, messages, console.log)
            first = send_steadily(stack.mneme_port, users, FIRST_RATE, FIRST_COUNT, "after an import")
            add_row(f"the first {FIRST_COUNT} after an import, {FIRST_RATE}/s", runner.run(first))
            fill.wait_until_learned(stack.base_url, console.log)
        asyncio.run(run_sql(stack.dsn, "VACUUM (ANALYZE)"))
        with stack.worker(), restarted(stack) as port:
            first = send_steadily(port, users, FIRST_RATE, FIRST_COUNT, "after a start")
            add_row(f"the first {FIRST_COUNT} after a start, {FIRST_RATE}/s", runner.run(first))
            for rate in RATES:
                arrivals = runner.run(send_steadily(port, users, rate, int(rate * seconds), f"at {rate}"))
                add_row(f"{rate}/s", arrivals)
                if arrivals.share_lost > MOST_LOST:
                    break


@click.command()
@click.option("--seconds", default=6.0, show_default=True, type=click.FloatRange(1, 120), help="Of each rate.")
@click.option("--size", "sizes", type=(int, int), multiple=True, help="Users, and messages of each; several times.")
def main(seconds: float, sizes: Sequence[tuple[int, int]]) -> None:
    """Print the table."""
    console = Console()
    table = Table("users × messages", "requests", "without memory", "p50, ms", "p99, ms", title="Steady arrivals")
    try:
        with ended_by_sigterm():
            for users, messages in sizes or SIZES:
                measure(users, messages, seconds, console, table)
    except StackFailed as error:
        raise click.ClickException(str(error)) from error
    console.print(table)


if __name__ == "__main__":
    main()
