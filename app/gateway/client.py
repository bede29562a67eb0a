"""The client's side of a request: its body, whether it is still there, whether an answer has begun, and how it is refused."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import orjson

from app.errors import MnemeError, RateLimited, TooLarge

log = logging.getLogger("mneme.turn")

# The client's side of a request: its body, and whether it is still there.

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class ClientGone(MnemeError):
    """The client went away."""

    status = 499


class DisconnectEvent:
    """Becomes set when the client goes away; what is waiting inside `interrupts()` is then interrupted at once."""

    __slots__ = ("_waiting", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: list[Callable[[], object]] = []

    def set(self) -> None:
        self.is_set = True
        waiting, self._waiting = self._waiting, []
        for interrupt in waiting:
            interrupt()

    def then(self, call: Callable[[], object]) -> None:
        """Call this once, when the client goes."""
        self._waiting.append(call)

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """Raises `ClientGone` out of whatever the block awaits, as `asyncio.timeout` does when the time is up."""
        if self.is_set:
            raise ClientGone
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        interrupted = False

        def interrupt() -> None:
            nonlocal interrupted
            if asyncio.current_task() is not task:  # whoever finds out itself needs no interruption
                interrupted = True
                task.cancel()

        self._waiting.append(interrupt)
        try:
            yield
        except asyncio.CancelledError as error:
            if interrupted and task.cancelling() - 1 <= before:
                raise ClientGone from error
            raise
        finally:
            if interrupted:
                task.uncancel()
            elif not self.is_set:
                self._waiting.remove(interrupt)


class Inbound:
    """The client's side of one request: its body, and then whether it is still there.

    `watch` must run beside the answer (in a supervised task): only whoever awaits `receive` learns of a disconnect. It
    ends when the client is gone or has its whole answer; for an answer given before the body was read, set `gone`.
    """

    __slots__ = ("_receive", "_whole", "gone", "size")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.size = 0
        """Bytes of the body that have come."""
        self._whole = asyncio.Event()
        self.gone = DisconnectEvent()
        self.gone.then(self._whole.set)

    async def read(self, limit: int) -> bytes:
        """The whole body. Raises TooLarge beyond `limit` bytes, and ClientGone."""
        parts: list[bytes] = []
        async for part in self.chunks():
            parts.append(part)
            if self.size > limit:
                raise TooLarge(f"The body is larger than {limit} bytes (MNEME_MAX_BODY_BYTES).")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises ClientGone."""
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.gone.set()
                raise ClientGone
            more = message.get("more_body", False)
            if body := message.get("body", b""):
                self.size += len(body)
                yield body
        self._whole.set()

    async def watch(self) -> None:
        """Wait for the client to go, and set `gone`. Begins when the body has been read."""
        await self._whole.wait()
        while not self.gone.is_set:
            if (await self._receive())["type"] == "http.disconnect":
                self.gone.set()


class Outbound:
    """`send`, which remembers whether the answer has begun."""

    __slots__ = ("_refusal", "_send", "started")

    def __init__(self, send: Send, refusal: Callable[[MnemeError], dict[str, Any]]) -> None:
        """`refusal`: an error in the shape of the client's API."""
        self._send = send
        self._refusal = refusal
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
        await self._send(message)

    async def refuse(self, call_id: UUID, error: MnemeError) -> None:
        """An error of Mneme's own; nothing where an answer has begun."""
        if self.started:
            return
        body = orjson.dumps(self._refusal(error))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"x-mneme-call-id", str(call_id).encode()),
        ]
        if isinstance(error, RateLimited):
            headers += error.headers
        elif error.retry_after_s is not None:
            headers.append((b"retry-after", str(math.ceil(error.retry_after_s)).encode()))
        try:
            await self({"type": "http.response.start", "status": error.status, "headers": headers})
            await self({"type": "http.response.body", "body": body})
        except OSError:
            log.info("client gone before the error", extra={"call_id": str(call_id)})
