"""A TCP proxy between two processes, in a thread of the test's: it passes bytes until it is told to hurt the connection."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

from tests.support.sockets import DEADLINE_S

READ_BYTES = 65536

T = TypeVar("T")


class TcpProxy:
    """Listens on `127.0.0.1:port` and connects to `target`, a port of this machine or the path of a socket. Use as a context
    manager.

    Every method may be called from any thread, and what it says holds when it returns.
    """

    def __init__(self, target: int | str) -> None:
        self.port = 0
        self._target = target
        self.asked = 0
        """Pieces that ever came from clients."""
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = None
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._delay_s = 0.0
        self._answers = True
        self._flowing = asyncio.Event()
        self._flowing.set()

    def __enter__(self) -> TcpProxy:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._thread is not None
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._pairs)

    # --- what can go wrong ----------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Reset every connection; new ones are served."""
        self._do(self._cut())

    def refuse(self) -> None:
        """Reset every connection, and refuse new ones as a machine does where nothing listens."""
        self._do(self._refuse())

    def stall(self) -> None:
        """Pass nothing in either direction; connections stay open and new ones are taken: a route that drops packets."""
        self._do(self._set(flowing=False))

    def swallow_answers(self) -> None:
        """Pass what clients say and nothing of what they are answered: they cannot know what was done."""
        self._do(self._set(answers=False))

    def delay(self, seconds: float) -> None:
        """Pass every piece so many seconds later."""
        self._do(self._set(delay_s=seconds))

    def heal(self) -> None:
        """Serve as at the start. Connections of which something was swallowed are reset: they can make no sense."""
        self._do(self._heal())

    # --- inside -----------------------------------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _cut(self) -> None:
        for pair in list(self._pairs):
            pair.reset()

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _set(self, *, flowing: bool = True, answers: bool = True, delay_s: float = 0.0) -> None:
        self._answers, self._delay_s = answers, delay_s
        if flowing:
            self._flowing.set()
        else:
            self._flowing.clear()

    async def _heal(self) -> None:
        for pair in list(self._pairs):
            if pair.lost:
                pair.reset()
        await self._set()
        await self._listen()

    async def _end(self) -> None:
        await self._refuse()
        await self._set()
        for pair in list(self._pairs):
            await pair.ended.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await (
                asyncio.open_unix_connection(self._target)
                if isinstance(self._target, str)
                else asyncio.open_connection("127.0.0.1", self._target)
            )
        except OSError:
            _reset(writer)
            return
        pair = _Pair(writer, far_writer)
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(pair, reader, far_writer, answers=False))
                group.create_task(self._pass(pair, far_reader, writer, answers=True))
        except* OSError:
            pair.reset()
        except* _Ended:
            pass
        finally:
            self._pairs.discard(pair)
            writer.close()
            far_writer.close()
            pair.ended.set()

    async def _pass(
        self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        while data := await reader.read(READ_BYTES):
            self.asked += not answers
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            await self._until_flowing(pair)
            if answers and not self._answers:
                pair.lost = True
                continue
            writer.write(data)
            await writer.drain()
        await self._until_flowing(pair)
        raise _Ended

    async def _until_flowing(self, pair: _Pair) -> None:
        while not self._flowing.is_set() and not pair.broken:
            try:
                async with asyncio.timeout(0.05):
                    await self._flowing.wait()
            except TimeoutError:
                continue


class _Ended(Exception):
    """One side has closed: neither Postgres nor its clients go on with half a connection."""


class _Pair:
    """One connection of a client, and the one made for it."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.lost = False
        self.broken = False
        self.ended = asyncio.Event()
        self._both = (near, far)

    def reset(self) -> None:
        self.broken = True
        for writer in self._both:
            _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
