"""The load client, against a server that answers by script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from loadtests import load
from loadtests.load import Outcome, Plan, http_request

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
DEGRADED = b"HTTP/1.1 200 OK\r\nX-Mneme-Status: degraded\r\nContent-Length: 2\r\n\r\n{}"
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
REQUEST = http_request(1, "/v1/chat/completions", [("X-A", "b")], b"{}")


def chunked(*pieces: bytes) -> bytes:
    return STREAM_HEAD + b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in (*pieces, b""))


@asynccontextmanager
async def serving(answers: Sequence[bytes]) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that gives each request the next answer, the last again and again; after an empty one it closes."""
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                seen.append(await reader.readexactly(len(REQUEST)))
                answer = answers[min(len(seen), len(answers)) - 1]
                if not answer:
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], seen


async def run(
    answers: Sequence[bytes],
    *,
    limit: int,
    clients: int = 1,
    stream: bool = False,
    requests: Callable[[int, int], bytes] = lambda _client, _sent: REQUEST,
) -> tuple[Outcome, list[bytes]]:
    async with serving(answers) as (port, seen):
        return await load.run(Plan("127.0.0.1", port, requests, clients, 60.0, stream, limit)), seen


def test_a_request_is_whole() -> None:
    head, _, body = REQUEST.partition(b"\r\n\r\n")
    assert body == b"{}"
    assert head.split(b"\r\n")[0] == b"POST /v1/chat/completions HTTP/1.1"
    assert {b"X-A: b", b"Content-Length: 2", b"Host: 127.0.0.1:1"} <= set(head.split(b"\r\n"))


async def test_it_ends_at_its_limit_on_one_connection() -> None:
    outcome, seen = await run([OK], limit=5)
    assert (len(outcome.took), outcome.errors, len(seen)) == (5, 0, 5)
    assert all(took >= first > 0 for took, first in zip(outcome.took, outcome.first, strict=True))


async def test_all_clients_ask_and_count_what_they_sent() -> None:
    asked: list[tuple[int, int]] = []

    def requests(client: int, sent: int) -> bytes:
        asked.append((client, sent))
        return REQUEST

    outcome, _ = await run([OK], limit=40, clients=4, requests=requests)
    assert len(outcome.took) == len(asked) == 40
    assert {client for client, _ in asked} == {0, 1, 2, 3}
    assert [sent for client, sent in asked if client == 0] == list(range(sum(client == 0 for client, _ in asked)))


async def test_other_statuses_are_errors() -> None:
    outcome, _ = await run([OK, BUSY, OK], limit=3)
    assert (len(outcome.took), outcome.errors) == (2, 1)


async def test_degraded_answers_are_counted() -> None:
    outcome, _ = await run([DEGRADED, OK], limit=2)
    assert (len(outcome.took), outcome.degraded) == (2, 1)


async def test_a_stream_without_its_end_is_an_error() -> None:
    whole, cut = chunked(b"data: {}\n\n", DONE[:4], DONE[4:]), chunked(b"data: {}\n\n")
    outcome, _ = await run([whole, cut], limit=2, stream=True)
    assert (len(outcome.took), outcome.errors) == (1, 1)


async def test_a_connection_that_breaks_is_an_error_and_made_anew() -> None:
    asked: list[int] = []

    def requests(_client: int, sent: int) -> bytes:
        asked.append(sent)
        return REQUEST

    outcome, _ = await run([OK, b"", OK], limit=4, requests=requests)
    assert (len(outcome.took), outcome.errors) == (3, 1)
    assert asked == [0, 1, 2, 3]


async def test_it_gives_up_where_nothing_works() -> None:
    outcome, seen = await run([BUSY], limit=10_000)
    assert (len(outcome.took), outcome.errors, len(seen)) == (0, load.MAX_ERRORS, load.MAX_ERRORS)
