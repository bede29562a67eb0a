"""A load client: keep-alive connections, each sending its next request when the last answer is whole.

    python -m loadtests.load http://127.0.0.1:PORT --clients 16 --seconds 3 --stream

On asyncio (uvloop) and httptools, so that it costs a fraction of what it measures.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import cast
from urllib.parse import urlsplit

import click
import httptools
import orjson
import uvloop

GRACE_S = 60.0
"""Seconds that answers may take after the last request was sent; what is open then counts as an error."""
MAX_ERRORS = 200
"""Errors after which a run is given up: whatever is measured does not work."""
END_OF_STREAM = b"data: [DONE]\n\n"

Requests = Callable[[int, int], bytes]
"""The bytes of a whole HTTP request, from the client's number and how many it sent before."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send, and how much of it. It ends by time or by number, whichever comes first."""

    host: str
    port: int
    requests: Requests
    clients: int
    seconds: float
    stream: bool = False
    limit: int = 1_000_000
    ramp_s: float = 0.0
    """Clients begin one after the other over this time: long answers would otherwise all begin and end together."""


@dataclass(slots=True)
class Outcome:
    """What came back. Times in seconds, one per answer that was whole and had status 200."""

    took: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    """From the request to the first byte of the body."""
    errors: int = 0
    """Other statuses, answers that broke off or had no `[DONE]`, connections that failed."""
    degraded: int = 0
    """Answers that say `x-mneme-status: degraded`; they count as answers, too."""
    reads: int = 0
    """Reads from the sockets, of all answers."""
    elapsed_s: float = 0.0

    @property
    def per_second(self) -> float:
        return len(self.took) / self.elapsed_s if self.elapsed_s else 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """An outcome in figures; times in milliseconds."""

    requests: int
    errors: int
    degraded: int
    rps: float
    p50_ms: float
    p99_ms: float
    first_p50_ms: float
    first_p99_ms: float
    reads: float
    """Reads per answer."""

    @classmethod
    def of(cls, outcome: Outcome) -> Summary:
        took, first, count = sorted(outcome.took), sorted(outcome.first), len(outcome.took)
        return cls(
            requests=count,
            errors=outcome.errors,
            degraded=outcome.degraded,
            rps=outcome.per_second,
            p50_ms=1000 * quantile(took, 0.5),
            p99_ms=1000 * quantile(took, 0.99),
            first_p50_ms=1000 * quantile(first, 0.5),
            first_p99_ms=1000 * quantile(first, 0.99),
            reads=outcome.reads / count if count else 0.0,
        )


def quantile(ordered: Sequence[float], q: float) -> float:
    """The nearest-rank quantile of ordered values; NaN where there are none."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)] if ordered else math.nan


def http_request(port: int, path: str, headers: Sequence[tuple[str, str]], body: bytes) -> bytes:
    """A POST of JSON, as it goes over the wire."""
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers]
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


async def run(plan: Plan) -> Outcome:
    """Send the load; returns when all answers are in."""
    running = _Run(plan)
    began = time.perf_counter()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(plan.seconds + GRACE_S), asyncio.TaskGroup() as group:
            for number in range(plan.clients):
                group.create_task(running.client(number))
    outcome = running.outcome
    outcome.errors += running.open
    outcome.elapsed_s = (running.last or time.perf_counter()) - began
    return outcome


class _Run:
    """What the clients of one run share."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.outcome = Outcome()
        self.open = 0
        self.last = 0.0
        self._sent = 0
        self._ends = time.perf_counter() + plan.seconds

    async def client(self, number: int) -> None:
        """One client; it connects again when its connection ends before the run does."""
        loop = asyncio.get_running_loop()
        sent = 0
        await asyncio.sleep(self.plan.ramp_s * number / self.plan.clients)
        while self.goes_on():
            try:
                made = functools.partial(_Connection, self, number, sent)
                _, connection = await loop.create_connection(made, self.plan.host, self.plan.port)
            except OSError:
                self.outcome.errors += 1
                await asyncio.sleep(0.01)  # nobody listens: no reason to spin until MAX_ERRORS
                continue
            sent = await connection.ended

    def goes_on(self) -> bool:
        return time.perf_counter() < self._ends and self._sent < self.plan.limit and self.outcome.errors < MAX_ERRORS

    def begin(self) -> None:
        self._sent += 1
        self.open += 1

    def finish(self, ok: bool, took: float, first: float, at: float) -> None:
        self.open -= 1
        self.last = at
        if ok:
            self.outcome.took.append(took)
            self.outcome.first.append(first)
        else:
            self.outcome.errors += 1


class _Connection(asyncio.Protocol):
    """One connection. `ended` tells how many requests its client has sent so far."""

    def __init__(self, running: _Run, number: int, sent: int) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._run = running
        self._number = number
        self._sent = sent
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._began = 0.0
        self._first: float | None = None
        self._tail = b""
        self._waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without saying so
        self._next()

    def _next(self) -> None:
        assert self._transport is not None
        if not self._run.goes_on():
            self._transport.close()
            return
        request = self._run.plan.requests(self._number, self._sent)
        self._run.begin()
        self._sent += 1
        self._waiting, self._first, self._tail = True, None, b""
        self._began = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._run.outcome.reads += 1
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            assert self._transport is not None
            self._transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if value == b"degraded" and name.lower() == b"x-mneme-status":
            self._run.outcome.degraded += 1

    def on_body(self, body: bytes) -> None:
        if self._first is None:
            self._first = time.perf_counter()
        self._tail = (self._tail + body)[-len(END_OF_STREAM) :]

    def on_message_complete(self) -> None:
        now = time.perf_counter()
        ok = self._parser.get_status_code() == 200 and (not self._run.plan.stream or self._tail == END_OF_STREAM)
        self._waiting = False
        self._run.finish(ok, now - self._began, (self._first or now) - self._began, now)
        # Not from within the parser, which is not done with this answer.
        asyncio.get_running_loop().call_soon(self._next)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting:
            self._waiting = False
            self._run.finish(False, 0.0, 0.0, time.perf_counter())
        if not self.ended.done():
            self.ended.set_result(self._sent)


@click.command()
@click.argument("url")
@click.option("--clients", default=16, show_default=True, type=click.IntRange(1, 1000))
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0.1, 600))
@click.option("--stream", is_flag=True)
@click.option("--model", default="mock", show_default=True)
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE")
def main(url: str, clients: int, seconds: float, stream: bool, model: str, headers: tuple[str, ...]) -> None:
    """Send the same question to URL (scheme, host, port) again and again; print what came back as JSON."""
    target = urlsplit(url)
    host, port = target.hostname or "127.0.0.1", target.port or 80
    given = [(name, value) for name, _, value in (each.partition("=") for each in headers)]
    question = {"role": "user", "content": "Where did we leave the tent?"}
    body = orjson.dumps({"model": model, "messages": [question], "stream": stream})
    request = http_request(port, "/v1/chat/completions", given, body)
    plan = Plan(host, port, lambda _client, _sent: request, clients, seconds, stream)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(orjson.dumps(asdict(Summary.of(runner.run(run(plan)))), option=orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    main()
