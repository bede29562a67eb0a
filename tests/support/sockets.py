"""A raw HTTP/1.1 client that shows every byte, and a real uvicorn in a thread."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

import uvicorn

DEADLINE_S = 20.0
"""Seconds after which a test that waits for something fails."""


@dataclass
class RawResponse:
    """A response as it came over the socket."""

    status: int
    reason: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    """Without the transfer encoding; what had come of the last chunk too."""
    chunks: list[bytes]
    """The chunks of the transfer encoding; for a body with a length, what each read brought."""
    ended: Literal["whole", "eof", "reset"]
    """`whole`: to the end its framing announced (or, without any framing, to the end of the connection)."""
    times: list[float] = field(default_factory=list)
    """Of each of `chunks`: seconds from the request to when it was here."""

    def add(self, chunk: bytes, at: float) -> None:
        self.chunks.append(chunk)
        self.times.append(at)

    def header(self, name: str) -> str | None:
        for given, value in self.headers:
            if given.lower() == name.lower().encode():
                return value.decode("latin-1")
        return None

    def json(self) -> Any:
        return json.loads(self.body)


class RawClient:
    """One connection to a server; every byte in both directions is the test's. Use as an async context manager."""

    def __init__(self, port: int, *, host: str = "127.0.0.1", receive_buffer: int | None = None) -> None:
        self._host = host
        self._port = port
        self._receive_buffer = receive_buffer
        self._buffer = b""
        self._began = 0.0

    async def __aenter__(self) -> RawClient:
        sock = socket.socket()
        if self._receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (self._host, self._port))
        except OSError:
            sock.close()
            raise
        self._sock = sock
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._sock.close()

    def reset(self) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()

    async def send(
        self, method: str, target: str, headers: Sequence[tuple[bytes, bytes]] = (), body: bytes = b""
    ) -> None:
        """Write a request; `Host` and, for a body, its length are added."""
        lines = [f"{method} {target} HTTP/1.1".encode(), b"host: test"]
        lines += [name + b": " + value for name, value in headers]
        if body:
            lines.append(b"content-length: %d" % len(body))
        self._began = time.perf_counter()
        await self.write(b"\r\n".join([*lines, b"", b""]) + body)

    async def write(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def read(self, most: int = 65536) -> bytes:
        """What has come, at least a byte; empty at the end. Raises ConnectionResetError."""
        if self._buffer:
            data, self._buffer = self._buffer[:most], self._buffer[most:]
            return data
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.get_running_loop().sock_recv(self._sock, most)

    async def read_until(self, needle: bytes) -> bytes:
        """Everything up to and with `needle`; the rest is kept for the next read."""
        data = b""
        while (at := data.find(needle)) < 0:
            piece = await self.read()
            if not piece:
                raise EOFError(data)
            data += piece
        at += len(needle)
        self._buffer = data[at:] + self._buffer
        return data[:at]

    async def response(self, method: str = "GET") -> RawResponse:
        """Read one response to its end."""
        first, *lines = (await self.read_until(b"\r\n\r\n"))[:-4].split(b"\r\n")
        _, status, reason = (first.decode("latin-1") + " ").split(" ", 2)
        headers = [(name, value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]
        low = {name.lower(): value for name, value in headers}
        answer = RawResponse(int(status), reason.strip(), headers, b"", [], "whole")
        try:
            if method == "HEAD" or int(status) < 200 or int(status) in (204, 304):
                pass
            elif low.get(b"transfer-encoding") == b"chunked":
                await self._read_chunks(answer)
            else:
                await self._read_plain(answer, int(low[b"content-length"]) if b"content-length" in low else None)
        except ConnectionResetError:
            answer.ended = "reset"
        answer.body = b"".join(answer.chunks)
        return answer

    async def _read_plain(self, answer: RawResponse, length: int | None) -> None:
        left = length
        while left is None or left > 0:
            piece = await self.read(65536 if left is None else min(left, 65536))
            if not piece:
                answer.ended = "whole" if left is None else "eof"
                return
            answer.add(piece, self._elapsed())
            left = None if left is None else left - len(piece)

    async def _read_chunks(self, answer: RawResponse) -> None:
        while True:
            try:
                size = int(await self.read_until(b"\r\n"), 16)
            except EOFError:
                answer.ended = "eof"
                return
            piece = b""
            while len(piece) < size + 2:
                more = await self.read(size + 2 - len(piece))
                if not more:
                    answer.add(piece[:size], self._elapsed())
                    answer.ended = "eof"
                    return
                piece += more
            if size == 0:
                return
            answer.add(piece[:-2], self._elapsed())

    def _elapsed(self) -> float:
        return time.perf_counter() - self._began


async def fetch(
    port: int, method: str, target: str, headers: Sequence[tuple[bytes, bytes]] = (), body: bytes = b""
) -> RawResponse:
    """One request on a connection of its own."""
    async with RawClient(port) as client:
        await client.send(method, target, headers, body)
        return await client.response(method)


async def eventually(condition: Callable[[], bool], what: str = "") -> None:
    """Wait until `condition` holds; fails after a while."""
    began = looked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now - began < DEADLINE_S, f"timed out waiting: {what}"
        # A look that takes a request is not taken without a pause: what is waited for needs the cores more.
        await asyncio.sleep(max(0.002, 2 * (now - looked)))
        looked = time.monotonic()


# --- a server ---------------------------------------------------------------------------------------------------------


class AsgiServer:
    """A real uvicorn with an ASGI application, in a thread. Use as a context manager."""

    def __init__(self, app: Any, **config: Any) -> None:
        settings: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": 0,
            "http": "httptools",
            "loop": "uvloop",
            "ws": "none",
            "log_config": None,
            "access_log": False,
            "server_header": False,
            "date_header": False,
            "timeout_graceful_shutdown": 5,
        }
        self.server = uvicorn.Server(uvicorn.Config(app, **{**settings, **config}))
        self._thread = threading.Thread(target=self.server.run, daemon=True)

    def __enter__(self) -> AsgiServer:
        self._thread.start()
        deadline = time.monotonic() + DEADLINE_S
        while not self.server.started:
            assert self._thread.is_alive(), "the server did not start"
            assert time.monotonic() < deadline, "the server did not start in time"
            time.sleep(0.002)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the server did not stop"

    @property
    def port(self) -> int:
        port: int = self.server.servers[0].sockets[0].getsockname()[1]
        return port
