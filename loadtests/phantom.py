"""What the phantom engine costs a stream, event by event: no socket, no database, one process.

python -m loadtests.phantom [--events N] [--rounds N]

A relay records each chunk and keeps the end of the stream back; the engine stands before that. Each way takes the same streams,
one event a chunk, as an upstream sends them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
import orjson
from rich.table import Table

from app.features.paging.stream import PhantomStream
from app.features.paging.tools import Names
from app.gateway.dialects.sse import EndGuard
from app.gateway.relay import Tape
from loadtests.terminal import console

EVENTS = 200
ROUNDS = 200
"""Streams of each way; the median of them counts."""
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one way: microseconds of processor time an event, the median stream and the slowest of a hundred."""

    way: str
    median_us: float
    p99_us: float


def text_stream(events: int, id_: str = "chatcmpl-0123456789abcdef") -> list[bytes]:
    """A stream of so many text deltas, as vLLM writes them."""
    made = [chunk({"role": "assistant", "content": ""}, id_)]
    made += [chunk({"content": f" word{n}"}, id_) for n in range(events)]
    return [*made, chunk({}, id_, "stop"), DONE]


def call_stream(id_: str = "chatcmpl-fedcba9876543210") -> list[bytes]:
    """A leg that ends in a phantom call."""
    begun = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "memory_query"}}
    asked = {"index": 0, "function": {"arguments": '{"question":"Which code?"}'}}
    deltas = [{"content": None, "tool_calls": [each]} for each in (begun, asked)]
    return [
        chunk({"role": "assistant", "content": ""}, id_),
        *(chunk(d, id_) for d in deltas),
        chunk({}, id_, "tool_calls"),
        DONE,
    ]


def chunk(delta: object, id_: str, finish: str | None = None) -> bytes:
    part = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None}
    head = {"id": id_, "object": "chat.completion.chunk", "created": 1795198280, "model": "tiny", "choices": [part]}
    return b"data: " + orjson.dumps(head) + b"\n\n"


def relayed(chunks: Sequence[bytes]) -> int:
    """The relay alone; the bytes that went out."""
    tape, guard = Tape(time.perf_counter_ns()), EndGuard()
    tape.listen_for_events()
    size = 0
    for each in chunks:
        tape.add(each)
        size += len(guard.feed(each))
    return size + len(guard.rest())


def engaged(chunks: Sequence[bytes], engine: PhantomStream) -> int:
    """The relay with the engine before it."""
    tape, guard = Tape(time.perf_counter_ns()), EndGuard()
    tape.listen_for_events()
    size = 0
    for each in chunks:
        tape.add(each)
        for out in engine.feed(each):
            if isinstance(out, bytes):
                size += len(guard.feed(out))
    return size + len(guard.rest())


def second_leg() -> PhantomStream:
    """An engine whose first leg has ended in a call."""
    engine = PhantomStream(Names())
    for each in call_stream():
        engine.feed(each)
    engine.next_leg()
    return engine


def ways(chunks: Sequence[bytes]) -> dict[str, Callable[[], Callable[[], int]]]:
    """What is measured: each makes a run ready, which is not measured, and gives it."""

    def first() -> Callable[[], int]:
        engine = PhantomStream(Names())
        return lambda: engaged(chunks, engine)

    def second() -> Callable[[], int]:
        engine = second_leg()
        return lambda: engaged(chunks, engine)

    return {
        "relay alone": lambda: lambda: relayed(chunks),
        "with the engine, no call": first,
        "with the engine, second leg": second,
    }


def measure(events: int, rounds: int) -> list[Cost]:
    """All ways in turn, round by round, so that what the machine does meanwhile meets each of them."""
    chunks = text_stream(events)
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for way, ready in ways(chunks).items():
            run = ready()
            begun = time.thread_time_ns()  # this thread's processor alone: what else runs here does not count
            run()
            found.setdefault(way, []).append((time.thread_time_ns() - begun) / 1000 / len(chunks))
    return [
        Cost(way, statistics.median(times), sorted(times)[min(len(times) - 1, round(len(times) * 0.99))])
        for way, times in found.items()
    ]


@click.command(help=__doc__)
@click.option("--events", default=EVENTS, show_default=True, help="Text deltas of a stream.")
@click.option("--rounds", default=ROUNDS, show_default=True, help="Streams of each way.")
def main(events: int, rounds: int) -> None:
    table = Table(
        "way", "µs of CPU an event (median stream)", "p99", title=f"{events} events, one a chunk, {rounds} streams each"
    )
    for cost in measure(events, rounds):
        table.add_row(cost.way, f"{cost.median_us:.2f}", f"{cost.p99_us:.2f}")
    console().print(table)


if __name__ == "__main__":
    main()
