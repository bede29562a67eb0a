"""Up to which rate requests keep their memory: `python -m loadtests.arrivals`.

Requests arrive steadily, whether the earlier ones are answered or not, with the usual deadline and a worker beside the server;
an answer that says `degraded` went without a search of its memory. Told are, for users of each size, the rate up to which at
most 1 % do, how many do at the next one, and how many of the first requests after a start. (The benchmark proper lifts the
deadline, and so does not see this.)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
import click
import uvloop
from rich.console import Console
from rich.table import Table

from app.settings import Settings
from loadtests.bench import ended_by_sigterm
from loadtests.serving import HOST
from loadtests.stack import Service, Stack, StackFailed, prepare, running
from loadtests.work import CONTENDERS, questions

RATES = (5, 10, 20, 40, 60, 80, 100, 120, 160, 200, 250, 320)
"""Requests a second that are tried, one after the other, until one is too many."""
LOST = 0.01
"""Share of the requests of a rate that may lose their memory."""
FIRST = 20
"""Requests after a start that are looked at by themselves, `FIRST_RATE` a second."""
FIRST_RATE = 5
SIZES = ((24, 1_000), (1, 10_000))
"""Users, and messages of each."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """What became of the requests of one rate."""

    asked: int
    degraded: int
    errors: int

    @property
    def lost(self) -> float:
        return (self.degraded + self.errors) / max(1, self.asked)


async def arrive(port: int, users: int, rate: float, count: int, seed: str) -> Arrived:
    """Send `count` requests, `rate` a second."""
    asked = questions("reply", port, CONTENDERS["memory"].headers, users, seed)
    told = {"ok": 0, "degraded": 0, "error": 0}

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(number: int) -> None:
            head, _, body = asked(0, number).partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines if not line.startswith(("Host", "Content-Length")))
            try:
                url = f"http://{HOST}:{port}{first.split()[1]}"
                async with session.post(url, data=body, headers=headers, timeout=aiohttp.ClientTimeout(60)) as answer:
                    await answer.read()
                    status = answer.headers.get("x-mneme-status", "") if answer.status == 200 else "error"
            except (aiohttp.ClientError, TimeoutError):
                status = "error"
            told[status if status in told else "ok"] += 1

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
                group.create_task(one(number))
    return Arrived(count, told["degraded"], told["error"])


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


def usual() -> dict[str, str]:
    """The settings that other measurements lift, as they are where nobody sets them."""
    fields = Settings.model_fields
    return {f"MNEME_{name.upper()}": str(fields[name].default) for name in ("retrieval_deadline_ms", "pool_timeout_ms")}


def measure(users: int, messages: int, seconds: float, say: Console) -> Sequence[str]:
    """A line of the table. Raises StackFailed."""
    with running(settings=usual()) as stack, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        prepare(stack, users, messages, say.log)
        best = beyond = "none"
        with stack.worker(), restarted(stack) as port:
            first = runner.run(arrive(port, users, FIRST_RATE, FIRST, "first"))
            for rate in RATES:
                told = runner.run(arrive(port, users, rate, int(rate * seconds), f"at {rate}"))
                say.log(f"{messages} messages, {rate} a second: {told}")
                if told.lost > LOST:
                    beyond = f"{told.lost:.0%} at {rate}"
                    break
                best = f"{rate}"
        return f"{users} × {messages:,}", f"{first.degraded + first.errors} of {first.asked}", best, beyond


@click.command()
@click.option("--seconds", default=6.0, show_default=True, type=click.FloatRange(1, 120), help="Of each rate.")
@click.option("--size", "sizes", type=(int, int), multiple=True, help="Users, and messages of each; several times.")
def main(seconds: float, sizes: Sequence[tuple[int, int]]) -> None:
    """Print the table."""
    say = Console()
    table = Table(
        "users × messages",
        "of the first after a start",
        "requests/s with ≤ 1 % lost",
        "lost at the next rate",
        title="Steady arrivals",
    )
    try:
        with ended_by_sigterm():
            for users, messages in sizes or SIZES:
                table.add_row(*measure(users, messages, seconds, say))
    except StackFailed as error:
        raise click.ClickException(str(error)) from error
    say.print(table)


if __name__ == "__main__":
    main()
