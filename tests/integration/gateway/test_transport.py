"""The transport against a scripted socket: every byte that arrived comes out, and what breaks is seen to break."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Protocol

import pytest

from app.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable
from app.gateway.headers import Headers
from app.gateway.transport import AiohttpTransport
from app.gateway.upstream import Transport, UpstreamBroke, UpstreamRequest, UpstreamResponse
from tests.support.replies import (
    CAPTURES,
    Fin,
    Pause,
    Reply,
    Rst,
    Send,
    Stall,
    Step,
    Until,
    chunked,
    head_of,
    reply_bytes,
    reply_capture,
    reply_events,
    reply_json,
)
from tests.support.scripted import ScriptedUpstream
from tests.support.sockets import eventually, fetch

CHUNKED = [("transfer-encoding", "chunked")]
ABANDONED = 50
CAPTURED_SILENCE = "sigterm_midstream"
"""The one capture that ended by the capturing client's patience: the upstream never closed."""


class Make(Protocol):
    def __call__(self, *, connect_s: float = 10, head_s: float = 10, idle_s: float = 10) -> Transport: ...


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Makes transports, and closes them after the test."""
    async with AsyncExitStack() as opened:

        def make(*, connect_s: float = 10, head_s: float = 10, idle_s: float = 10) -> Transport:
            transport = AiohttpTransport(connect_timeout_s=connect_s, head_timeout_s=head_s, idle_timeout_s=idle_s)
            opened.push_async_callback(transport.aclose)
            return transport

        yield make


@contextmanager
def upstream(reply: Reply | Sequence[Reply]) -> Iterator[ScriptedUpstream]:
    with ScriptedUpstream(reply) as running:
        yield running


def request_to(
    running: ScriptedUpstream,
    method: str = "POST",
    path: str = "/v1/x",
    headers: Headers | None = None,
    body: bytes | AsyncIterator[bytes] = b"",
) -> UpstreamRequest:
    return UpstreamRequest(method, f"http://127.0.0.1:{running.port}{path}", headers or [], body)


async def drain(response: UpstreamResponse) -> tuple[bytes, UpstreamError | None]:
    """All bytes, and how it broke, if it did."""
    got = b""
    try:
        async for chunk in response.chunks:
            assert chunk
            got += chunk
    except UpstreamError as error:
        return got, error
    finally:
        await response.aclose()
    return got, None


def body_of(raw: bytes) -> tuple[bytes, bytes, bool]:
    """Head, body and wholeness of a captured response, by the book."""
    head, _, rest = raw.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head:
        return head, rest, True
    body = b""
    while b"\r\n" in rest:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            return head, body, True
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return head, body, False


# --- what comes back --------------------------------------------------------------------------------------------------


STREAM = "chat_stream_usage_continuous"


@pytest.mark.parametrize("last", [Fin(), Rst()])
async def test_a_stream_cut_anywhere_keeps_every_byte_that_arrived(make: Make, last: Step) -> None:
    raw = (CAPTURES / f"{STREAM}.response.raw").read_bytes()
    _, whole, _ = body_of(raw)
    begin = raw.index(b"\r\n\r\n") + 4
    transport = make()
    for cut in [*range(begin, len(raw) - 5, 311), len(raw) - 5, len(raw) - 1]:
        seen = threading.Event()
        expected = partial_body(raw[begin:cut])
        steps = reply_bytes(raw[:cut], cuts=[begin, (begin + cut) // 2], after=[Until(seen), last])
        with upstream(steps) as running:
            response = await transport.send(request_to(running))
            got, error = b"", None
            if not expected:
                seen.set()
            try:
                async for chunk in response.chunks:
                    got += chunk
                    if len(got) == len(expected):  # a reset may overtake what is unread
                        seen.set()
            except UpstreamBroke as broke:
                error = broke
            await response.aclose()
        assert got == expected
        assert whole.startswith(got)
        assert error is not None, cut


def partial_body(data: bytes) -> bytes:
    """The body bytes in a chunked body that may end anywhere."""
    body = b""
    while b"\r\n" in data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        body, data = body + data[:length], data[length + 2 :]
    return body


@pytest.mark.parametrize(
    "case", ["client_abort_stream", "sigterm_midstream", "chat_stream", "tool_auto_stream", "chat"]
)
async def test_what_arrived_before_anyone_read_it_is_not_lost(case: str, make: Make) -> None:
    """Bytes and break are both here when the reader comes: aiohttp by itself would only show the break."""
    raw = (CAPTURES / f"{case}.response.raw").read_bytes()
    cut = raw[:-7] if raw.endswith((b"0\r\n\r\n", b"}")) else raw
    begin = cut.index(b"\r\n\r\n") + 4
    expected = partial_body(cut[begin:]) if b"chunked" in cut[:begin] else cut[begin:]
    transport = make()
    with upstream(Reply([Send(cut), Fin()])) as running:
        response = await transport.send(request_to(running))
        await eventually(lambda: running.open_connections == 0)
        await fetch(running.port, "GET", "/")  # a round trip later the break has been seen here, too
        got, error = await drain(response)
    assert got == expected
    assert isinstance(error, UpstreamBroke)


@pytest.mark.parametrize("case", ["chat", "chat_logprobs"])
async def test_a_body_shorter_than_its_length_breaks(case: str, make: Make) -> None:
    raw = (CAPTURES / f"{case}.response.raw").read_bytes()
    transport = make()
    for missing in (1, 100):
        with upstream(reply_bytes(raw[:-missing], after=[Fin()])) as running:
            got, error = await drain(await transport.send(request_to(running)))
        assert got == raw[raw.index(b"\r\n\r\n") + 4 : -missing]
        assert isinstance(error, UpstreamBroke)


async def test_a_body_without_framing_ends_with_its_connection(make: Make) -> None:
    transport = make()
    with upstream(Reply([Send(head_of("200 OK", []) + b"abc"), Fin()])) as running:
        assert await drain(await transport.send(request_to(running))) == (b"abc", None)


async def test_but_not_with_a_reset(make: Make) -> None:
    transport = make()
    seen = threading.Event()
    with upstream(Reply([Send(head_of("200 OK", []) + b"abc"), Until(seen), Rst()])) as running:
        response = await transport.send(request_to(running))
        assert await anext(aiter(response.chunks)) == b"abc"
        seen.set()
        got, error = await drain(response)
    assert (got, type(error)) == (b"", UpstreamBroke)


async def test_nonsense_in_the_middle_of_a_body_breaks_it(make: Make) -> None:
    transport = make()
    for nonsense in (b"zz\r\n", b"-1\r\n", b"\r\n\r\n"):
        with upstream(Reply([Send(head_of("200 OK", CHUNKED) + chunked(b"abc") + nonsense), Stall()])) as running:
            got, error = await drain(await transport.send(request_to(running)))
            await eventually(running.requests[0].peer_closed.is_set)
        assert (got, type(error)) == (b"abc", UpstreamBroke)


async def test_a_slow_reader_holds_the_upstream_up_and_loses_nothing(make: Make) -> None:
    data = bytes(range(256)) * 4096  # a megabyte, several times what is buffered on the way
    steps = [Send(chunked(data))] * 24
    transport = make()
    with upstream(Reply([Send(head_of("200 OK", CHUNKED)), *steps, Fin()])) as running:  # and no terminating chunk
        response = await transport.send(request_to(running))
        first = await anext(aiter(response.chunks))
        await asyncio.sleep(0.2)  # as a slow reader does; nothing is asserted about it
        rest, error = await drain(response)
    assert first + rest == data * 24
    assert isinstance(error, UpstreamBroke)
    assert len(first) < len(data)


@pytest.mark.parametrize(
    ("method", "status", "headers"),
    [
        ("HEAD", "200 OK", [("content-length", "10")]),
        ("GET", "204 No Content", []),
        ("GET", "304 Not Modified", [("content-length", "10")]),
        ("POST", "200 OK", [("content-length", "0")]),
    ],
)
async def test_answers_without_a_body(make: Make, method: str, status: str, headers: list[tuple[str, str]]) -> None:
    transport = make()
    with upstream(Reply([Send(head_of(status, headers))])) as running:
        for _ in range(2):
            response = await transport.send(request_to(running, method))
            assert response.bodyless
            assert await drain(response) == (b"", None)
        assert running.connections == 1


async def test_heads_of_all_sorts(make: Make) -> None:
    transport = make()
    odd = [("X-Twice", "1"), ("x-twice", "2"), ("Set-Cookie", "a=b"), ("X-Long", "y" * 20_000), ("Location", "/else")]
    interim = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"
    gzip = [("content-encoding", "gzip"), ("content-length", "3")]
    with upstream(Reply([Send(interim + head_of("307 Odd Reason", [*odd, *gzip]) + b"abc")])) as running:
        for _ in range(2):
            response = await transport.send(request_to(running, "GET"))
            assert (response.status, response.reason) == (307, "Odd Reason")
            assert response.headers == [(name.encode(), value.encode()) for name, value in [*odd, *gzip]]
            assert await drain(response) == (b"abc", None)  # not followed, not decompressed
        assert running.requests[0].head == running.requests[1].head  # the cookie was not kept


# --- what goes out ----------------------------------------------------------------------------------------------------


async def test_the_request_is_what_was_given(make: Make) -> None:
    transport = make()
    with upstream(reply_json({})) as running:
        headers = [(b"x-b", b"1"), (b"X-A", "größe".encode()), (b"x-b", b" 2 "), (b"cookie", b"a=b; c=d")]
        path = "/v1/a%2Fb%7e/%C3%BC//c;d=1/..?x=%20+&y=a%26b&z&q=[{}]|^"
        await drain(await transport.send(request_to(running, "PUT", path, headers, b'{"n": 1.0}')))
        assert running.requests[0].head == (
            b"PUT "
            + path.encode()
            + b" HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nx-b: 1\r\n" % running.port
            + "X-A: größe\r\n".encode()
            + b"x-b:  2 \r\ncookie: a=b; c=d\r\nContent-Length: 10\r\n\r\n"
        )
        assert running.requests[0].body == b'{"n": 1.0}'
        await drain(await transport.send(request_to(running, "GET")))
        assert running.requests[1].head == b"GET /v1/x HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % running.port


async def test_large_bodies_and_streamed_ones(make: Make) -> None:
    transport = make()
    large = b"x" * (3 * 1024 * 1024)

    async def parts() -> AsyncIterator[bytes]:
        yield b"ab"
        await asyncio.sleep(0)
        yield b"cd"

    with upstream(reply_json({})) as running:
        await drain(await transport.send(request_to(running, body=large)))
        await drain(await transport.send(request_to(running, body=parts())))
        await drain(await transport.send(request_to(running, headers=[(b"content-length", b"4")], body=parts())))
        first, second, third = running.requests
        assert (first.body, first.header("content-length")) == (large, str(len(large)))
        assert (second.body, second.header("transfer-encoding")) == (b"abcd", "chunked")
        assert (third.body, third.header("content-length"), third.header("transfer-encoding")) == (b"abcd", "4", None)


# --- the connection ---------------------------------------------------------------------------------------------------


async def test_a_whole_answer_gives_its_connection_back_and_any_other_closes_it(make: Make) -> None:
    transport = make()
    with upstream([reply_json({}), reply_json({}), reply_events([b"data: x\n\n"], end=[Stall()])]) as running:
        await drain(await transport.send(request_to(running)))
        await drain(await transport.send(request_to(running)))
        assert running.connections == 1
        response = await transport.send(request_to(running))
        assert await anext(aiter(response.chunks)) == b"data: x\n\n"
        await response.aclose()
        await eventually(running.requests[2].peer_closed.is_set)
        await eventually(lambda: running.open_connections == 0)


@pytest.mark.parametrize("last", [Fin(), Rst()])
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_kept_connection_that_died_unanswered_is_replaced_once(make: Make, last: Step, method: str) -> None:
    transport = make()
    with upstream([reply_json(1), Reply([last]), reply_json(2), Reply([last]), Reply([last])]) as running:
        for expected in (b"1", b"2"):
            response = await transport.send(request_to(running, method, body=b"{}" if method == "POST" else b""))
            assert response.attempts == int(expected)
            assert await drain(response) == (expected, None)
        assert len(running.requests) == 3
        assert running.connections == 2
        assert running.requests[1].body == running.requests[2].body
        # a fresh connection that dies is not replaced: put one back into the pool first
        running.script = [Reply([last])]
        with pytest.raises(UpstreamUnreachable):
            await transport.send(request_to(running, method))
        assert len(running.requests) in (4, 5)


async def test_the_replacement_is_never_another_old_connection(make: Make) -> None:
    transport = make()
    both = threading.Event()
    waiting = Reply([Until(both), *reply_json(0).steps])
    with upstream([waiting, waiting, Reply([Fin()]), reply_json(2)]) as running:

        async def first() -> None:
            await drain(await transport.send(request_to(running)))

        async with asyncio.TaskGroup() as group:
            group.create_task(first())
            group.create_task(first())
            await eventually(lambda: len(running.requests) == 2)
            both.set()
        assert running.connections == 2
        assert await drain(await transport.send(request_to(running))) == (b"2", None)
        assert running.connections == 3


@pytest.mark.parametrize("answer", [b"H", b"HTTP/1.1 200 OK\r\ncontent-le"])
async def test_a_connection_that_died_in_its_answer_is_not_replaced(make: Make, answer: bytes) -> None:
    transport = make()
    with upstream([reply_json(1), Reply([Send(answer), Fin()]), reply_json(2)]) as running:
        await drain(await transport.send(request_to(running)))
        with pytest.raises(UpstreamError):
            await transport.send(request_to(running))
        assert len(running.requests) == 2


async def test_a_streamed_body_is_not_sent_twice(make: Make) -> None:
    transport = make()

    async def body() -> AsyncIterator[bytes]:
        yield b"once"

    with upstream([reply_json(1), Reply([Fin()]), reply_json(2)]) as running:
        await drain(await transport.send(request_to(running)))
        with pytest.raises(UpstreamUnreachable):
            await transport.send(request_to(running, body=body()))
        assert len(running.requests) == 2


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_nobody_there(make: Make) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    transport = make()
    with pytest.raises(UpstreamUnreachable):
        await transport.send(UpstreamRequest("GET", f"http://127.0.0.1:{port}/", []))
    with pytest.raises(UpstreamUnreachable):
        await transport.send(UpstreamRequest("GET", "http://nowhere.invalid/", []))


@pytest.mark.parametrize("nonsense", [b"220 smtp ready\r\n\r\n", b"HTTP/1.1 ??? x\r\n\r\n", b"\x16\x03\x01\x00"])
async def test_what_is_not_http(make: Make, nonsense: bytes) -> None:
    transport = make()
    with upstream(Reply([Send(nonsense), Pause(0.05), Fin()])) as running:
        with pytest.raises(UpstreamError):
            await transport.send(request_to(running))
        assert len(running.requests) == 1


async def test_a_status_that_http_does_not_have(make: Make) -> None:
    transport = make()
    for status in ("999 Odd", "600 Odd"):
        with upstream(Reply([Send(head_of(status, [("content-length", "1")]))])) as running:
            with pytest.raises(UpstreamError, match="status"):
                await transport.send(request_to(running))
            await eventually(running.requests[0].peer_closed.is_set)


async def test_no_connection_in_time(make: Make) -> None:
    with socket.socket() as silent:  # accepts, and never shakes hands
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        transport = make(connect_s=0.2, head_s=0.01)  # the head's time begins with the connection
        with pytest.raises(UpstreamTimeout, match="connect"):
            await transport.send(UpstreamRequest("GET", f"https://127.0.0.1:{silent.getsockname()[1]}/", []))


async def test_no_head_in_time(make: Make) -> None:
    transport = make(connect_s=600, head_s=0.05, idle_s=10)
    with upstream(Reply([Stall()])) as running:
        with pytest.raises(UpstreamTimeout, match="answer"):
            await transport.send(request_to(running))
        await eventually(running.requests[0].peer_closed.is_set)


async def test_silence_inside_an_answer(make: Make) -> None:
    transport = make(idle_s=0.1)
    with upstream(reply_capture(CAPTURED_SILENCE)) as running:
        running.script = Reply([*reply_capture(CAPTURED_SILENCE).steps[:-1], Stall()])
        got, error = await drain(await transport.send(request_to(running)))
        await eventually(running.requests[0].peer_closed.is_set)
    assert got == body_of((CAPTURES / f"{CAPTURED_SILENCE}.response.raw").read_bytes())[1]
    assert isinstance(error, UpstreamTimeout)


async def test_a_slow_reader_is_no_silence(make: Make) -> None:
    transport = make(connect_s=5, head_s=5, idle_s=0.15)
    more = threading.Event()
    with upstream(reply_events([b"a"], end=[Until(more), Send(chunked(b"b") + b"0\r\n\r\n")])) as running:
        response = await transport.send(request_to(running))
        iterator = aiter(response.chunks)
        assert await anext(iterator) == b"a"
        await asyncio.sleep(0.4)  # the reader is busy for longer than the upstream may be silent
        more.set()
        assert await drain(response) == (b"b", None)


async def test_a_client_that_uploads_slowly_is_not_timed_out(make: Make) -> None:
    transport = make(connect_s=0.05, head_s=0.15, idle_s=5)

    async def slow() -> AsyncIterator[bytes]:
        yield b"a"
        await asyncio.sleep(0.5)
        yield b"b"

    with upstream(reply_json(1)) as running:
        assert await drain(await transport.send(request_to(running, body=slow()))) == (b"1", None)
        assert running.requests[0].body == b"ab"
        running.script = Reply([Stall()])
        with pytest.raises(UpstreamTimeout):
            await transport.send(request_to(running, body=slow()))


async def test_calls_that_are_abandoned_leave_no_connection(make: Make) -> None:
    transport = make()
    with upstream(reply_events([b"data: 1\n\n"], end=[Stall()])) as running:

        async def abandoned(number: int) -> None:
            response = await transport.send(request_to(running))
            try:
                if number % 2:
                    await anext(aiter(response.chunks))
            finally:
                await response.aclose()

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(abandoned(number)) for number in range(ABANDONED)]
            await eventually(lambda: len(running.requests) > ABANDONED // 2)
            for task in tasks[::3]:
                task.cancel()
        await eventually(lambda: running.open_connections == 0)
        running.script = reply_json(1)
        assert await drain(await transport.send(request_to(running))) == (b"1", None)


async def test_a_cancelled_upload_to_an_upstream_that_does_not_read_closes_the_connection(make: Make) -> None:
    size = 20_000_000  # far more than the kernel takes: the rest waits in the transport's own buffer

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * size

    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        deaf.settimeout(10)
        transport = make()
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        async with asyncio.TaskGroup() as group:
            task = group.create_task(transport.send(UpstreamRequest("POST", url, [], body())))
            peer, _ = await asyncio.to_thread(deaf.accept)
            peer.settimeout(10)
            assert await asyncio.to_thread(peer.recv, 1)
            task.cancel()
        with peer:
            assert await asyncio.to_thread(read_to_the_end, peer) < size


def read_to_the_end(peer: socket.socket) -> int:
    total = 0
    try:
        while data := peer.recv(1 << 20):
            total += len(data)
    except ConnectionResetError:
        pass
    return total
