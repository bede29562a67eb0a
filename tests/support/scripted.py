"""A scripted HTTP/1.1 upstream on a raw socket, for tests of any kind.

It runs in a thread with a loop of its own, so that it serves asynchronous tests, synchronous tests and subprocesses
alike. What it sends is said in steps (`replies.py`); what it got is recorded as it came.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from tests.support.replies import Fin, Pause, Recorded, Reply, Rst, Script, Send, Stall, Step, Until, reply_json
from tests.support.sockets import DEADLINE_S


class ScriptedUpstream:
    """Serves a script on `http://127.0.0.1:PORT`. Use as a context manager, in any test.

    A script is one reply for all requests, replies in order (the last one again and again), replies by path, or a
    function of the request. Change `script` at any time.
    """

    def __init__(self, script: Script, *, port: int = 0) -> None:
        self.script = script
        self.requests: list[Recorded] = []
        self.discoveries: list[Recorded] = []
        """Mneme's own questions for the models, which come beside a request, at any time."""
        self.connections = 0
        """Connections accepted so far."""
        self.open_connections = 0
        self._port = port
        self._served = 0
        self._loop = asyncio.new_event_loop()
        self._peers: set[_Peer] = set()
        self._server: asyncio.Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> ScriptedUpstream:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(DEADLINE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """The base URL, with `/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

    def close_idle(self) -> None:
        """Close every open connection, as a server does with those that idled for too long."""
        for peer in list(self._peers):
            self._loop.call_soon_threadsafe(peer.close)

    def wait_until(self, condition: Callable[[], bool], what: str = "") -> None:
        """For synchronous tests."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"timed out waiting: {what}"
            time.sleep(0.002)

    def reply_to(self, request: Recorded) -> Reply:
        script, count = self.script, self._served
        self._served += 1
        if isinstance(script, Reply):
            return script
        if isinstance(script, Mapping):
            return script.get(request.path) or reply_json({"detail": "Not Found"}, "404 Not Found")
        if isinstance(script, Sequence):
            return script[min(count, len(script) - 1)]
        return script(request)

    def _run(self, ready: threading.Event) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        self._server = loop.run_until_complete(loop.create_server(lambda: _Peer(self), "127.0.0.1", self._port))
        self._port = self._server.sockets[0].getsockname()[1]
        ready.set()
        loop.run_forever()
        self._server.close()
        for peer in list(self._peers):
            peer.abort()
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


class _Peer(asyncio.Protocol):
    """One connection: reads a request, plays its reply, reads the next."""

    def __init__(self, upstream: ScriptedUpstream) -> None:
        self._upstream = upstream
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()
        self._requests: list[Recorded] = []
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._upstream._peers.add(self)
        self._number = self._upstream.connections
        self._upstream.connections += 1
        self._upstream.open_connections += 1
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:
        self._upstream._peers.discard(self)
        self._upstream.open_connections -= 1
        self._closed.set()
        self._news.set()
        self._writable.set()
        for request in self._requests:
            request.peer_closed.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._news.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """Close with RST: without lingering, and with whatever is unsent lost."""
        assert self._transport is not None
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    async def _serve(self) -> None:
        while not self._closed.is_set():
            request = await self._request()
            if request is None:
                return
            self._requests.append(request)
            own = request.path == "/v1/models" and request.header("user-agent") is None
            (self._upstream.discoveries if own else self._upstream.requests).append(request)
            for step in self._upstream.reply_to(request).steps:
                if self._closed.is_set():
                    return
                await self._do(step)

    async def _do(self, step: Step) -> None:
        assert self._transport is not None
        match step:
            case Send(data):
                self._transport.write(data)
                await self._writable.wait()
            case Pause(seconds):
                if seconds == 0:  # enough for what was written to arrive as a piece of its own, mostly
                    await asyncio.sleep(0)
                else:
                    await self._until_closed(seconds)
            case Stall():
                await self._closed.wait()
            case Until(event):
                while not event.is_set() and not self._closed.is_set():
                    await self._until_closed(0.002)
            case Fin():
                self._transport.close()
                await self._closed.wait()
            case Rst():
                self.reset()
                await self._closed.wait()

    async def _until_closed(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return

    async def _request(self) -> Recorded | None:
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if not await self._more():
                return None
        head = bytes(self._buffer[: end + 4])
        del self._buffer[: end + 4]
        first, *lines = head[:-4].split(b"\r\n")
        method, target, _ = first.decode("latin-1").split(" ")
        headers = [(name, value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)]
        body = await self._body({name.lower(): value for name, value in headers})
        return None if body is None else Recorded(method, target, headers, body, head, self._number)

    async def _body(self, headers: dict[bytes, bytes]) -> bytes | None:
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            return await self._chunked_body()
        return await self._exactly(int(headers.get(b"content-length", b"0")))

    async def _chunked_body(self) -> bytes | None:
        whole = b""
        while True:
            while (end := self._buffer.find(b"\r\n")) < 0:
                if not await self._more():
                    return None
            size = int(self._buffer[:end], 16)
            del self._buffer[: end + 2]
            piece = await self._exactly(size + 2)
            if piece is None:
                return None
            if size == 0:
                return whole
            whole += piece[:-2]

    async def _exactly(self, count: int) -> bytes | None:
        while len(self._buffer) < count:
            if not await self._more():
                return None
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def _more(self) -> bool:
        self._news.clear()
        if not self._closed.is_set():
            await self._news.wait()
        return not self._closed.is_set()
