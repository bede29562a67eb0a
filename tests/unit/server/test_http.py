"""Requests that offer to upgrade the connection, and clients of HTTP/1.0, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.server.http import MAX_HEAD_BYTES, Protocol
from tests.support.sockets import AsgiServer, RawClient

OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
GET = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"
SMUGGLED = b"DELETE /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"


async def told(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers with the method, the path and the body of the request."""
    assert scope["type"] == "http"
    body, more = b"", True
    while more:
        message = await receive()
        assert message["type"] == "http.request"
        body += message["body"]
        more = message["more_body"]
    said = f"{scope['method']} {scope['path']} ".encode() + body
    headers = [(b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


@pytest.fixture(scope="module")
def server() -> Iterator[AsgiServer]:
    with AsgiServer(told, http=Protocol, lifespan="off") as running:
        yield running


def post(body: bytes, framing: bytes) -> bytes:
    return b"POST /chat HTTP/1.1\r\nHost: x\r\n" + OFFER + framing + b"\r\n\r\n" + body


def sized(body: bytes) -> bytes:
    return post(body, b"Content-Length: %d" % len(body))


def in_chunks(body: bytes) -> bytes:
    return post(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body), b"Transfer-Encoding: chunked")


async def answers(server: AsgiServer, pieces: list[bytes], count: int) -> list[bytes]:
    async with RawClient(server.port) as client:
        for each in pieces:
            await client.write(each)
        return [(await client.response()).body for _ in range(count)]


@pytest.mark.parametrize("write", [sized, in_chunks])
@pytest.mark.parametrize("body", [b"{}", b"long " * 100_000, SMUGGLED], ids=["short", "long", "a request"])
async def test_the_body_behind_an_offer_is_the_requests(server: AsgiServer, write: Any, body: bytes) -> None:
    assert await answers(server, [write(body)], 1) == [b"POST /chat " + body]


@pytest.mark.parametrize("write", [sized, in_chunks])
async def test_wherever_it_is_cut(server: AsgiServer, write: Any) -> None:
    whole = write(b"hello") + GET
    for at in range(1, len(whole), 7):
        assert await answers(server, [whole[:at], whole[at:]], 2) == [b"POST /chat hello", b"GET /next "]


async def test_requests_go_on_after_an_offer(server: AsgiServer) -> None:
    offer = b"GET /first HTTP/1.1\r\nHost: x\r\n" + OFFER + b"\r\n"
    assert await answers(server, [offer + GET + sized(b"1") + in_chunks(b"2") + GET], 5) == [
        b"GET /first ",
        b"GET /next ",
        b"POST /chat 1",
        b"POST /chat 2",
        b"GET /next ",
    ]


async def test_a_web_socket_is_none_here(server: AsgiServer) -> None:
    offer = b"GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    assert await answers(server, [offer, GET], 2) == [b"GET /socket ", b"GET /next "]


async def test_a_body_without_sense_is_refused(server: AsgiServer) -> None:
    async with RawClient(server.port) as client:
        await client.write(post(b"no chunk\r\n", b"Transfer-Encoding: chunked"))
        assert (await client.response()).status == 400


async def test_a_head_without_end_is_refused(server: AsgiServer) -> None:
    async with RawClient(server.port) as client:
        await client.write(b"GET /next HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * (3 * MAX_HEAD_BYTES))
        assert (await client.response()).status == 400


async def test_heads_and_bodies_are_counted_apart(server: AsgiServer) -> None:
    long = b"GET /next HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * (MAX_HEAD_BYTES // 2)
    pieces = [piece for _ in range(3) for piece in (long, b"\r\n\r\n", sized(b"b" * MAX_HEAD_BYTES))]
    assert len(await answers(server, pieces, 6)) == 6


# --- HTTP/1.0 ---------------------------------------------------------------------------------------------------------------


async def answer_in_pieces(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Answers in two pieces; the path says how."""
    path = scope["path"]
    headers = [(b"content-length", b"10")] if path.startswith("/sized") else []
    status = 204 if path == "/empty" else 500 if path == "/error" else 200
    if path == "/raising":
        raise RuntimeError("on purpose")
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if path == "/empty":
        await send({"type": "http.response.body"})
        return
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
    if path.endswith("/broken"):
        return
    if path == "/raising-late":
        raise RuntimeError("on purpose")
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    await send({"type": "http.response.body", "body": b"again"})


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def piecemeal(request: pytest.FixtureRequest) -> Iterator[AsgiServer]:
    with AsgiServer(answer_in_pieces, http=Protocol, lifespan="off", loop=request.param) as running:
        yield running


@pytest.mark.parametrize(
    ("target", "method", "keep", "body", "ended"),
    [
        ("/stream", "GET", "", b"firstagain", "whole"),
        ("/stream", "GET", "Connection: keep-alive\r\n", b"firstagain", "whole"),
        ("/stream", "GET", "Connection: close\r\n", b"firstagain", "whole"),
        ("/stream", "POST", "Content-Length: 0\r\n", b"firstagain", "whole"),
        ("/stream", "HEAD", "", b"", "whole"),
        ("/error", "GET", "", b"firstagain", "whole"),
        ("/empty", "GET", "", b"", "whole"),
        ("/sized", "GET", "", b"firstagain", "whole"),
        ("/raising", "GET", "", b"Internal Server Error", "whole"),
        ("/broken", "GET", "", b"first", "reset"),
        ("/broken", "GET", "Connection: keep-alive\r\n", b"first", "reset"),
        ("/raising-late", "GET", "", b"first", "reset"),
        ("/sized/broken", "GET", "", b"first", "eof"),
    ],
)
async def test_a_client_of_http_1_0_gets_no_chunks(
    piecemeal: AsgiServer, target: str, method: str, keep: str, body: bytes, ended: str
) -> None:
    async with RawClient(piecemeal.port) as client:
        await client.write(f"{method} {target} HTTP/1.0\r\nHost: x\r\n{keep}\r\n".encode())
        answer = await client.response(method)
        assert answer.header("transfer-encoding") is None
        assert answer.header("connection") == "close"
        assert (answer.body, answer.ended) == (body, ended)
        if ended == "whole":
            assert await client.read() == b""


async def test_a_client_of_http_1_1_gets_chunks_and_keeps_its_connection(piecemeal: AsgiServer) -> None:
    async with RawClient(piecemeal.port) as client:
        for _ in range(2):
            await client.send("GET", "/stream")
            answer = await client.response()
            assert (answer.header("transfer-encoding"), answer.body) == ("chunked", b"firstagain")
