"""Byte order marks, answers that are compressed unasked, WebSocket, HTTP/1.0."""

from __future__ import annotations

import gzip
import itertools
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from app.gateway.encodings import MAX_DECODED_BYTES, MAX_DECODED_LINES
from tests.support.clients import Api, call_of, post, session_of
from tests.support.replies import Recorded, Reply, Rst, Script, Send, chunked, head_of
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import RawClient

PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "responses": {"model": "m", "input": "hi"},
    "messages": {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
}
WHOLE: dict[str, dict[str, Any]] = {
    "chat": {
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "first, second"}}]
    },
    "responses": {
        "id": "r",
        "status": "completed",
        "output": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "first, second"}]}
        ],
    },
    "messages": {"stop_reason": "end_turn", "content": [{"type": "text", "text": "first, second"}]},
}
EVENTS: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"choices": [{"index": 0, "delta": {"content": "first"}}]},
        {"choices": [{"index": 0, "delta": {"content": ", second"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ],
    "responses": [
        {"type": "response.output_text.delta", "output_index": 0, "delta": "first"},
        {"type": "response.output_text.delta", "output_index": 0, "delta": ", second"},
        {"type": "response.completed", "response": {"id": "r", "status": "completed"}},
    ],
    "messages": [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "first"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": ", second"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ],
}
BOM = b"\xef\xbb\xbf"
NUMBERS = itertools.count()


def answer_bytes(dialect: str, stream: bool) -> bytes:
    if not stream:
        return json.dumps(WHOLE[dialect]).encode()
    events = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in EVENTS[dialect])
    return events + (b"data: [DONE]\n\n" if dialect == "chat" else b"")


def reply(body: bytes, stream: bool, coding: str | None = None, size: int = 1 << 20, end: bool = True) -> Reply:
    """An answer in chunks of `size` bytes."""
    kind = "text/event-stream" if stream else "application/json"
    lines = [("content-type", kind), ("transfer-encoding", "chunked")]
    lines += [("content-encoding", coding)] if coding is not None else []
    pieces = [Send(chunked(body[at : at + size])) for at in range(0, len(body), size)]
    return Reply([Send(head_of("200 OK", lines)), *pieces, Send(b"0\r\n\r\n") if end else Rst()])


@pytest.fixture(scope="module")
def script() -> Script:
    def answer(request: Recorded) -> Reply:
        dialect = next((name for name, path in PATHS.items() if path == request.path), None)
        return reply(answer_bytes(dialect, False) if dialect is not None else b"{}", False)

    return answer


class Asked:
    """One request, its answer's raw bytes, and what became of it."""

    def __init__(self, mneme: MnemeServer, dialect: str, stream: bool, body: bytes | None = None) -> None:
        name = f"odd {next(NUMBERS)}"
        asked = BODIES[dialect] | ({"stream": True} if stream else {})
        headers = {"content-type": "application/json", "x-mneme-user": name}
        content = body if body is not None else json.dumps(asked).encode()
        with mneme.http.stream("POST", PATHS[dialect], content=content, headers=headers) as response:
            self.raw = b"".join(response.iter_raw())
        self.head = response.headers
        self.api = Api(mneme, user=name)
        self.said = self.api.said(session_of(response))
        self.call = self.api.call(call_of(response))


# --- byte order marks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("size", [1 << 20, 1], ids=["one chunk", "bytes"])
def test_a_byte_order_mark_before_an_answer_loses_nothing(
    mneme: MnemeServer, upstream: ScriptedUpstream, dialect: str, stream: bool, size: int
) -> None:
    body = BOM + answer_bytes(dialect, stream)
    upstream.script = reply(body, stream, size=size)
    asked = Asked(mneme, dialect, stream)
    assert asked.raw == body
    assert asked.said == [("user", "hi"), ("assistant", "first, second")]
    assert asked.call["memory_status"] == "ok"


@pytest.mark.parametrize("dialect", PATHS)
def test_a_byte_order_mark_before_a_request_is_understood(
    mneme: MnemeServer, upstream: ScriptedUpstream, dialect: str
) -> None:
    body = BOM + json.dumps(BODIES[dialect]).encode()
    asked = Asked(mneme, dialect, False, body)
    assert asked.head["x-mneme-status"] == "ok"
    assert asked.said == [("user", "hi"), ("assistant", "first, second")]
    assert [request.body for request in upstream.requests if request.path == PATHS[dialect]] == [body]


# --- compressed answers -----------------------------------------------------------------------------------------------------


def deflate(body: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(body) + engine.flush()


CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", deflate),
    "gzip in gzip": ("gzip, gzip", lambda body: gzip.compress(gzip.compress(body))),
}


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", CODINGS)
@pytest.mark.parametrize("size", [1 << 20, 3], ids=["one chunk", "chunks"])
def test_a_compressed_answer_is_history(
    mneme: MnemeServer, upstream: ScriptedUpstream, dialect: str, stream: bool, name: str, size: int
) -> None:
    coding, compress = CODINGS[name]
    body = compress(answer_bytes(dialect, stream))
    upstream.script = reply(body, stream, coding, size)
    asked = Asked(mneme, dialect, stream)
    assert (asked.raw, asked.head["content-encoding"]) == (body, coding)
    assert asked.said == [("user", "hi"), ("assistant", "first, second")]
    assert (asked.call["memory_status"], asked.call["error"]) == ("ok", None)
    assert asked.api.raw(asked.call["id"]) == body


GZIPPED = gzip.compress(answer_bytes("chat", True) + b": \n\n" * 100)
UNREADABLE = {
    "brotli": ("br", answer_bytes("chat", True), "unknown coding"),
    "zstd": ("zstd", answer_bytes("chat", True), "unknown coding"),
    "truncated": ("gzip", GZIPPED[:-12], "truncated"),
    "corrupt": ("gzip", GZIPPED[:30] + b"\xff" * 30 + GZIPPED[60:], "corrupt"),
    "not compressed": ("gzip", answer_bytes("chat", True), "corrupt"),
    "a bomb": ("gzip", gzip.compress(b" " * (MAX_DECODED_BYTES + 1)), "too large"),
    "a bomb of lines": ("gzip", gzip.compress(b":\n\n" * MAX_DECODED_LINES), "too large"),
}


@pytest.mark.parametrize("name", UNREADABLE)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_cannot_be_decoded_is_told(
    mneme: MnemeServer, upstream: ScriptedUpstream, name: str, stream: bool
) -> None:
    coding, body, problem = UNREADABLE[name]
    upstream.script = reply(body, stream, coding)
    asked = Asked(mneme, "chat", stream)
    assert asked.raw == body
    outcome = (asked.call["memory_status"], asked.call["reason"], asked.call["outcome"])
    assert outcome == ("degraded", "unreadable-answer", "complete")
    assert problem in asked.call["error"]
    if problem == "unknown coding":
        assert (asked.head["x-mneme-status"], asked.head["x-mneme-reason"]) == ("degraded", "unreadable-answer")
    assert asked.said[0] == ("user", "hi")
    upstream.script = reply(answer_bytes("chat", False), False)
    assert post(mneme, json.dumps(BODIES["chat"]).encode()).headers["x-mneme-status"] == "ok"
    metrics = mneme.http.get("/metrics").text
    assert 'reason="unreadable-answer"' in metrics


# --- WebSocket --------------------------------------------------------------------------------------------------------------

SOCKET = b"Connection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


@pytest.mark.parametrize(
    "path", ["/v1/responses", "/v1/realtime?model=m", "/v1/chat/completions", "/v1/messages", "/v1/x"]
)
@pytest.mark.parametrize("offer", [b"websocket", b"WebSocket", b"h2c, websocket", b"websocket/13"])
async def test_a_websocket_is_refused_at_once(
    mneme: MnemeServer, upstream: ScriptedUpstream, path: str, offer: bytes
) -> None:
    upstream.requests.clear()
    async with RawClient(mneme.port) as client:
        await client.write(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n" % (path.encode(), SOCKET % offer))
        answer = await client.response()
        assert answer.status == 426
        assert (answer.header("upgrade"), answer.header("connection")) == ("HTTP/1.1", "Upgrade")
        message = answer.json()["error"]["message"]
        assert "WebSocket" in message
        assert '"stream": true' in message
        await client.write(b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await client.response()).status == 200
    assert not [request for request in upstream.requests if request.path != "/v1/models"]


async def test_an_offer_of_http_2_is_ignored(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    async with RawClient(mneme.port) as client:
        await client.write(b"GET /v1/files HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        assert (await client.response()).status == 200
    assert upstream.requests[-1].path == "/v1/files"


# --- HTTP/1.0 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [b"", b"Connection: keep-alive\r\n"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "broken"])
async def test_a_client_of_http_1_0(
    mneme: MnemeServer, upstream: ScriptedUpstream, keep: bytes, stream: bool, whole: bool
) -> None:
    body = answer_bytes("chat", stream)
    upstream_bytes = body if whole else body[:60]
    upstream.script = reply(upstream_bytes, stream, end=whole)
    asked = json.dumps(BODIES["chat"] | ({"stream": True} if stream else {})).encode()
    head = b"POST /v1/chat/completions HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    async with RawClient(mneme.port) as client:
        await client.write(head + keep + b"Content-Length: %d\r\n\r\n" % len(asked) + asked)
        answer = await client.response()
    assert answer.header("transfer-encoding") is None
    assert answer.header("connection") == "close"
    assert answer.ended == ("whole" if whole else "reset")
    assert answer.body == upstream_bytes if whole else upstream_bytes.startswith(answer.body)
