"""Through a real server: scripted socket → transport → relay → uvicorn → raw client, byte for byte."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from app.errors import MnemeError, StoreUnavailable
from app.gateway.dialects.sse import EventParser
from app.gateway.headers import HOP_BY_HOP, request_headers
from app.gateway.relay import ClientGone, DisconnectEvent, Ending, Inbound, Receive, Send, Tape, relay
from app.gateway.transport import AiohttpTransport
from app.gateway.upstream import UpstreamRequest
from app.logs import QuietBreaks
from tests.support.replies import (
    CAPTURES,
    Fin,
    Reply,
    Rst,
    Script,
    Stall,
    Step,
    Until,
    captured_cases,
    captured_request,
    chunked,
    head_of,
    reply_bytes,
    reply_capture,
    reply_events,
    reply_json,
)
from tests.support.replies import Send as Write
from tests.support.scripted import ScriptedUpstream
from tests.support.sockets import DEADLINE_S, AsgiServer, RawClient, RawResponse, eventually, fetch

OURS = [(b"x-mneme-status", b"ok")]
CHAT = "/v1/chat/completions"
EVENTS = [b'data: {"a":%d}\n\n' % i for i in range(3)]
DONE = b"data: [DONE]\n\n"


class Proxy:
    """The least application there can be: transport, relay and a seal that tests hold in their hands."""

    def __init__(self, upstream: ScriptedUpstream) -> None:
        self.upstream = upstream
        self.records = True
        """With tape and seal; else a bare pass-through."""
        self.may_seal = threading.Event()
        self.may_seal.set()
        self.stores = True
        self.idle_s = 10.0
        self.sealed: list[Ending] = []
        self.tapes: list[Tape] = []
        self.endings: list[Ending] = []
        self.gone_before_head = 0
        self.sealing = 0
        self._transport: AiohttpTransport | None = None

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                if step == "shutdown" and self._transport is not None:
                    await self._transport.aclose()
                await send({"type": f"lifespan.{step}.complete"})
            return
        inbound = Inbound(receive)
        try:
            body = await inbound.read(1 << 26)
        except ClientGone:
            return
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(inbound.watch())
            try:
                await self._answer(scope, body, inbound.gone, send)
            except ClientGone:
                self.gone_before_head += 1
            except MnemeError as error:
                text = error.message.encode()
                headers = [(b"content-length", b"%d" % len(text))]
                await send({"type": "http.response.start", "status": error.status, "headers": headers})
                await send({"type": "http.response.body", "body": text})
            finally:
                watch.cancel()

    async def _answer(self, scope: dict[str, Any], body: bytes, gone: DisconnectEvent, send: Send) -> None:
        started = time.perf_counter_ns()
        if self._transport is None:
            self._transport = AiohttpTransport(connect_timeout_s=10, head_timeout_s=10, idle_timeout_s=self.idle_s)
        url = f"http://127.0.0.1:{self.upstream.port}{scope['raw_path'].decode()}"
        headers = request_headers(scope["headers"], api_key=None)
        with gone.interrupts():
            response = await self._transport.send(UpstreamRequest(scope["method"], url, headers, body))
        if not self.records:
            self.endings.append(await relay(response, send, head=OURS, gone=gone))
            return
        tape = Tape(started)
        self.tapes.append(tape)

        async def seal(ending: Ending) -> bool:
            self.sealing += 1
            await asyncio.to_thread(self.may_seal.wait, DEADLINE_S)
            self.sealed.append(ending)
            return self.stores

        ending = await relay(response, send, head=OURS, gone=gone, tape=tape, seal=seal)
        self.endings.append(ending)
        if ending.stored is False and not ending.started:
            raise StoreUnavailable


@contextmanager
def running(script: Script, **config: Any) -> Iterator[tuple[Proxy, int, AsgiServer]]:
    with ScriptedUpstream(script) as upstream:
        proxy = Proxy(upstream)
        with AsgiServer(proxy, **config) as server:
            yield proxy, server.port, server


@asynccontextmanager
async def client(port: int, *, receive_buffer: int | None = None) -> AsyncIterator[RawClient]:
    async with RawClient(port, receive_buffer=receive_buffer) as connected:
        await connected.send("POST", CHAT, [], b"{}")
        yield connected


async def read_size(connected: RawClient, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = await connected.read(size - len(data))
        assert piece, data
        data += piece
    return data


async def read_events(connected: RawClient, until: bytes) -> bytes:
    """The body of a chunked answer, up to and with `until`."""
    body = b""
    while not body.endswith(until):
        size = int(await connected.read_until(b"\r\n"), 16)
        body += (await read_size(connected, size + 2))[:-2]
    return body


def silent(reply: Reply) -> Reply:
    """The same, but at its end nothing more is said."""
    return Reply([step if not isinstance(step, Fin) else Stall() for step in reply.steps])


def event_spans(tape: Tape) -> list[tuple[int, int]]:
    ends = [*tape.event_offsets[1:], tape.size]
    return list(zip(tape.event_offsets, ends, strict=True))


def expected_spans(body: bytes) -> list[tuple[int, int]]:
    parser = EventParser()
    spans = parser.feed(body)
    last = parser.finish()
    return [*spans, last] if last else spans


# --- every capture ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def captures() -> Iterator[tuple[Proxy, int]]:
    """One server for all captures; the script answers by the case that the client names."""

    with running(lambda request: reply_capture(request.header("x-case") or "")) as (proxy, port, _):
        yield proxy, port


async def direct(proxy: Proxy, case: str) -> RawResponse:
    method, path, headers, body = captured_request(case)
    return await fetch(proxy.upstream.port, method, path, [*headers, (b"x-case", case.encode())], body)


@pytest.mark.parametrize("case", [case for case in captured_cases() if case != "sigterm_midstream"])
async def test_every_capture_arrives_as_from_the_upstream(case: str, captures: tuple[Proxy, int]) -> None:
    proxy, port = captures
    proxy.sealed.clear()
    method, path, headers, body = captured_request(case)
    expected = await direct(proxy, case)
    got = await fetch(port, method, path, [*headers, (b"x-case", case.encode())], body)
    assert (got.status, got.reason) == (expected.status, expected.reason)
    assert got.body == expected.body
    assert got.ended == expected.ended
    kept = [(name, value) for name, value in expected.headers if name.lower() not in HOP_BY_HOP]
    assert [(name, value) for name, value in got.headers if name.lower() not in HOP_BY_HOP] == kept + OURS
    sent, through = proxy.upstream.requests[-2:]
    assert (through.method, through.target, through.body) == (sent.method, sent.target, sent.body)
    await eventually(lambda: len(proxy.endings) > 0 and len(proxy.sealed) == 1)
    assert proxy.sealed[0].kind == ("complete" if expected.ended == "whole" else "broken")
    tape = proxy.tapes[-1]
    assert tape.body == expected.body
    assert tape.size == len(expected.body)
    if (expected.header("content-type") or "").startswith("text/event-stream"):
        assert event_spans(tape) == expected_spans(expected.body)
    assert list(tape.chunk_times) == sorted(tape.chunk_times)
    assert list(tape.event_times) == sorted(tape.event_times)


async def test_a_capture_that_ends_in_silence() -> None:
    with running(silent(reply_capture("sigterm_midstream"))) as (proxy, port, _):
        proxy.idle_s = 0.2
        got = await fetch(port, "POST", CHAT, [], b"{}")
        raw = (CAPTURES / "sigterm_midstream.response.raw").read_bytes()
        assert got.ended == "eof"
        assert b"".join(chunked(chunk) for chunk in split_events(got.body)) == raw[raw.index(b"\r\n\r\n") + 4 :]
        await eventually(lambda: proxy.upstream.requests[0].peer_closed.is_set())
        assert proxy.sealed[0].kind == "broken"


def split_events(body: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in body.split(b"\n\n")[:-1]]


# --- the end waits, and nothing else does -----------------------------------------------------------------------------


async def test_events_pass_at_once_and_only_done_waits_for_the_seal() -> None:
    gates = [threading.Event() for _ in range(4)]
    steps: list[Step] = [Write(head_of("200 OK", [("content-type", "text/event-stream")]))]
    for gate, event in zip(gates, [*EVENTS, DONE], strict=True):
        steps += [Until(gate), Write(event)]
    with running(Reply([*steps, Fin()])) as (proxy, port, _):
        proxy.may_seal.clear()
        async with client(port) as connected:
            head = await connected.read_until(b"\r\n\r\n")
            assert b"x-mneme-status: ok" in head
            for gate, event in zip(gates, EVENTS, strict=False):
                gate.set()  # only now does the upstream go on: so what was read before was not held up
                assert await read_events(connected, event) == event
            gates[3].set()
            await eventually(lambda: proxy.tapes[0].size == len(b"".join(EVENTS) + DONE))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await connected.read()
            proxy.may_seal.set()
            assert await connected.read_until(b"0\r\n\r\n") == chunked(DONE) + b"0\r\n\r\n"
    assert [ending.kind for ending in proxy.sealed] == ["complete"]
    assert proxy.endings == [Ending("complete", None, True, True)]
    (tape,) = proxy.tapes
    assert event_spans(tape) == expected_spans(b"".join(EVENTS) + DONE)
    assert [offset for offset, _ in event_spans(tape)] == list(tape.chunk_offsets)
    assert len(set(tape.event_times)) == 4
    assert list(tape.event_times) == list(tape.chunk_times)


FRAMINGS = {
    "json with a length": (
        reply_json({"a": 1}),
        b'{"a": 1}',
        b'{"a": 1',
    ),
    "json in chunks": (
        reply_bytes(
            head_of("200 OK", [("content-type", "application/json"), ("transfer-encoding", "chunked")])
            + chunked(b'{"a"')
            + chunked(b": 1}")
            + b"0\r\n\r\n",
            cuts=[90, 100],
        ),
        b'{"a": 1}',
        b'{"a": 1',
    ),
    "anything else in chunks": (
        Reply([Write(head_of("200 OK", [("transfer-encoding", "chunked")]) + chunked(b"abc") + b"0\r\n\r\n")]),
        b"abc",
        b"abc",
    ),
    "anything else without framing": (Reply([Write(head_of("200 OK", []) + b"abc"), Fin()]), b"abc", b"abc"),
    "events with a length": (
        Reply(
            [
                Write(head_of("200 OK", [("content-type", "text/event-stream"), ("content-length", "25")])),
                Write(b"data: x\n\n: no more of it\n\n"[:25]),
            ]
        ),
        b"data: x\n\n: no more of it\n\n"[:25],
        b"data: x\n\n: no more of it\n\n"[:24],
    ),
    "events": (reply_events([*EVENTS, DONE]), b"".join(EVENTS) + DONE, b"".join(EVENTS)),
    "events without done": (reply_events(EVENTS), b"".join(EVENTS), b"".join(EVENTS)),
}


@pytest.mark.parametrize("name", FRAMINGS)
async def test_without_a_seal_no_answer_ends(name: str) -> None:
    reply, whole, without_end = FRAMINGS[name]
    with running(reply) as (proxy, port, _):
        got = await fetch(port, "POST", CHAT, [], b"{}")
        assert (got.body, got.ended) == (whole, "whole")
        proxy.stores = False
        got = await fetch(port, "POST", CHAT, [], b"{}")
        assert (got.body, got.ended) == (without_end, "eof")
        proxy.records = False
        got = await fetch(port, "POST", CHAT, [], b"{}")
        assert (got.body, got.ended) == (whole, "whole")
        await eventually(lambda: len(proxy.endings) == 3)
    assert [ending.stored for ending in proxy.endings] == [True, False, None]


@pytest.mark.parametrize(
    ("method", "reply"),
    [
        ("HEAD", Reply([Write(head_of("200 OK", [("content-length", "10")]))])),
        ("DELETE", Reply([Write(head_of("204 No Content", []))])),
        ("GET", Reply([Write(head_of("304 Not Modified", [("etag", "x")]))])),
        ("POST", Reply([Write(head_of("200 OK", [("content-length", "0")]))])),
    ],
)
async def test_without_a_body_the_head_is_the_end(method: str, reply: Reply) -> None:
    with running(reply) as (proxy, port, _):
        expected = await fetch(proxy.upstream.port, method, "/v1/x")
        async with RawClient(port) as connected:
            for _ in range(2):
                await connected.send(method, "/v1/x")
                got = await connected.response(method)
                assert (got.status, got.body, got.ended) == (expected.status, b"", "whole")
                assert got.headers == expected.headers + OURS
            proxy.stores = False
            await connected.send(method, "/v1/x")
            refused = await connected.response(method)
            assert refused.status == 503
        assert proxy.endings[-1] == Ending("complete", None, False, False)


# --- breaks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "body"),
    [
        ([Fin()], EVENTS),
        ([Write(b"10\r\ndata: half"), Fin()], [*EVENTS, b"data: half"]),
        ([Write(chunked(b"dat")), Fin()], [*EVENTS, b"dat"]),
        ([Write(chunked(DONE)), Fin()], [*EVENTS, DONE]),
        ([Write(b"nonsense\r\n"), Stall()], EVENTS),
    ],
)
async def test_a_stream_that_breaks_arrives_broken_and_to_the_last_byte(end: list[Step], body: list[bytes]) -> None:
    with running(reply_events(EVENTS, end=end)) as (proxy, port, _):
        got = await fetch(port, "POST", CHAT, [], b"{}")
        assert (got.body, got.ended) == (b"".join(body), "eof")
        await eventually(lambda: len(proxy.endings) == 1)
        assert proxy.tapes[0].body == got.body
        assert (proxy.endings[0].kind, proxy.endings[0].stored) == ("broken", True)
        assert proxy.endings[0].error is not None
        proxy.stores = False
        got = await fetch(port, "POST", CHAT, [], b"{}")
        assert got.ended == "eof"
        assert not got.body.endswith(DONE)


@pytest.mark.parametrize("last", [Fin(), Rst()])
async def test_a_json_body_that_breaks(last: Step) -> None:
    seen = threading.Event()
    head = head_of("200 OK", [("content-type", "application/json"), ("content-length", "100")])
    with running(Reply([Write(head + b'{"a": '), Until(seen), last])) as (proxy, port, _):
        async with client(port) as connected:
            await connected.read_until(b'{"a": ')
            seen.set()
            assert await connected.read() == b""
        assert [ending.kind for ending in proxy.sealed] == ["broken"]


async def test_the_break_is_not_logged_as_an_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(logger, "filters", [])  # a command that ran in this process has made it quiet already
    quiet = QuietBreaks()
    with running(reply_events(EVENTS, end=[Fin()])) as (_, port, _server):
        await fetch(port, "POST", CHAT, [], b"{}")
        assert "ASGI callable returned without completing response." in caplog.messages
        caplog.clear()
        logger.addFilter(quiet)
        try:
            assert (await fetch(port, "POST", CHAT, [], b"{}")).ended == "eof"
        finally:
            logger.removeFilter(quiet)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# --- the client goes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_gone_before_the_head(how: str) -> None:
    with running(Reply([Stall()])) as (proxy, port, _):
        async with client(port) as connected:
            await eventually(lambda: len(proxy.upstream.requests) == 1)
            getattr(connected, how)()
            await eventually(proxy.upstream.requests[0].peer_closed.is_set)
        await eventually(lambda: proxy.gone_before_head == 1)
        assert proxy.sealed == []


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("events", [[], EVENTS])
async def test_gone_in_mid_stream(how: str, events: list[bytes]) -> None:
    """While the upstream says nothing: nobody would notice by writing."""
    with running(reply_events(events, end=[Stall()])) as (proxy, port, _):
        async with client(port) as connected:
            await connected.read_until(b"\r\n\r\n")
            if events:
                await read_events(connected, events[-1])
            getattr(connected, how)()
            await eventually(proxy.upstream.requests[0].peer_closed.is_set)
        await eventually(lambda: len(proxy.endings) == 1)
        assert [ending.kind for ending in proxy.sealed] == ["gone"]
        assert proxy.tapes[0].body == b"".join(events)
        assert proxy.upstream.open_connections == 0


async def test_gone_while_a_fast_upstream_fills_the_buffers() -> None:
    endless = [chunked(b"data: " + b"x" * 65536 + b"\n\n")] * 2000
    reply = reply_events([], end=[Write(b"".join(endless[:10])), *(Write(event) for event in endless), Stall()])
    with running(reply) as (proxy, port, _):
        async with client(port, receive_buffer=4096) as connected:
            await connected.read_until(b"\r\n\r\n")
            await eventually(lambda: len(proxy.tapes) == 1 and proxy.tapes[0].size > 100_000)
            connected.reset()
            await eventually(proxy.upstream.requests[0].peer_closed.is_set)
        await eventually(lambda: len(proxy.sealed) == 1)
        assert proxy.sealed[0].kind == "gone"


async def test_a_client_that_goes_while_the_answer_is_sealed_changes_nothing() -> None:
    with running(reply_events([*EVENTS, DONE])) as (proxy, port, _):
        proxy.may_seal.clear()
        async with client(port) as connected:
            await connected.read_until(b"\r\n\r\n")
            await read_events(connected, EVENTS[-1])
            await eventually(lambda: proxy.sealing == 1)
            connected.reset()
        proxy.may_seal.set()
        await eventually(lambda: len(proxy.endings) == 1)
    assert proxy.endings == [Ending("complete", None, True, True)]


# --- a slow client, a stopping server ---------------------------------------------------------------------------------


async def test_a_stopping_server_saves_what_it_has_and_breaks_off() -> None:
    with ScriptedUpstream(reply_events(EVENTS, end=[Stall()])) as upstream:
        proxy = Proxy(upstream)
        server = AsgiServer(proxy, timeout_graceful_shutdown=1)
        with server:
            async with client(server.port) as connected:
                await connected.read_until(b"\r\n\r\n")
                await read_events(connected, EVENTS[-1])
                stopping = asyncio.create_task(asyncio.to_thread(server.stop))  # noqa: TID251 - awaited below
                with pytest.raises((EOFError, ConnectionResetError)):
                    await connected.read_until(b"0\r\n\r\n")
                await stopping
        assert [ending.kind for ending in proxy.sealed] == ["cancelled"]
        assert proxy.tapes[0].body == b"".join(EVENTS)
        upstream.wait_until(upstream.requests[0].peer_closed.is_set)
