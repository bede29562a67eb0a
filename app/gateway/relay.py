"""The two sides of an answer. The client: its body, whether it is still there, how it is refused (`Inbound`, `Outbound`). The
upstream: its answer goes to the client byte for byte, and is recorded on the way (`relay`, `Tape`)."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any, Literal
from uuid import UUID

import orjson
from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import ClientDisconnect

from app.errors import MnemeError, RateLimited, TooLarge, UpgradeRefused, UpstreamError
from app.gateway.dialects.base import Guard
from app.gateway.dialects.sse import EndGuard, EventParser
from app.gateway.encodings import find_codings
from app.gateway.headers import Headers, find, response_headers
from app.gateway.upstream import UpstreamResponse
from app.store.records import StreamRecord

log = logging.getLogger("mneme.turn")

# --- the client ----------------------------------------------------------------------------------------------------------

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
        if isinstance(error, RateLimited | UpgradeRefused):
            headers += error.headers
        elif error.retry_after_s is not None:
            headers.append((b"retry-after", str(math.ceil(error.retry_after_s)).encode()))
        try:
            await self({"type": "http.response.start", "status": error.status, "headers": headers})
            await self({"type": "http.response.body", "body": body})
        except OSError:
            log.info("client gone before the error", extra={"call_id": str(call_id)})


# --- the upstream's answer -----------------------------------------------------------------------------------------------
#
# Bytes go out as soon as they come in. Only the very end of the answer waits until `seal` has made it durable: for events
# the line `data: [DONE]` (or a dialect's own last event) and what follows, for a body of known length or of JSON its last
# byte, for any other body the end itself, for an answer without a body its head. An answer that could not be sealed never
# ends: the client sees a break, as it does when the upstream broke.
#
# A break is made by returning from the ASGI application without the last `http.response.body`: uvicorn then closes the
# connection, and says so at level error. `app.logs` keeps that line out.

LINGER_S = 0.25
"""Seconds that an upstream may take to end its answer after `[DONE]`. Nothing of meaning can follow, and the client
waits for `[DONE]`."""


class Ending(Struct, frozen=True):
    """How an answer ended.

    complete: to its last byte; broken: the upstream broke off, or was silent for too long; gone: the client went away;
    cancelled: the server is stopping.
    """

    kind: Literal["complete", "broken", "gone", "cancelled"]
    error: UpstreamError | None = None
    """Why it broke."""
    stored: bool | None = None
    """What `seal` said; None before it was asked."""
    started: bool = False
    """The head has been sent: nothing else can be answered any more."""


_Seal = Callable[[Ending], Awaitable[bool]]
"""Makes the answer durable; False: it could not."""


class Tape:
    """The record of one answer: its exact bytes, and when each chunk and each event was here.

    Times are microseconds since `started_ns`, the request's start on the clock `now_ns`. An event's offset is where it
    begins, its time is when it was whole; events cover the body (see `EventParser`). Beyond `limit` bytes only the
    size is kept.
    """

    def __init__(
        self,
        started_ns: int,
        *,
        limit: int | None = None,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.chunk_offsets: array[int] = array("Q")
        self.chunk_times: array[int] = array("Q")
        self.event_offsets: array[int] = array("Q")
        self.event_times: array[int] = array("Q")
        self.size = 0
        self.truncated = False
        self._started_ns = started_ns
        self._limit = limit
        self._now_ns = now_ns
        self._chunks: list[bytes] = []
        self._parser: EventParser | None = None

    def listen_for_events(self) -> None:
        """The body that follows is one of server-sent events."""
        self._parser = EventParser()

    def add(self, chunk: bytes) -> None:
        """Record a chunk that has just arrived."""
        now = (self._now_ns() - self._started_ns) // 1000
        if self._limit is not None and self.size + len(chunk) > self._limit:
            self.truncated = True
        if not self.truncated:
            self._chunks.append(chunk)
            self.chunk_offsets.append(self.size)
            self.chunk_times.append(now)
            if self._parser is not None:
                for start, _ in self._parser.feed(chunk):
                    self.event_offsets.append(start)
                    self.event_times.append(now)
        self.size += len(chunk)

    def finish(self) -> None:
        """No more bytes will come: what is left over is an event too."""
        if self._parser is not None and (last := self._parser.finish()) is not None:
            self.event_offsets.append(last[0])
            self.event_times.append(self.chunk_times[-1])

    @property
    def body(self) -> bytes:
        """The recorded bytes: all of them, unless truncated."""
        if len(self._chunks) > 1:
            self._chunks = [b"".join(self._chunks)]
        return self._chunks[0] if self._chunks else b""

    def record(self) -> StreamRecord:
        """What came, as it came."""
        return StreamRecord(
            body=self.body,
            truncated=self.truncated,
            chunk_offsets=list(self.chunk_offsets),
            chunk_times=list(self.chunk_times),
            event_offsets=list(self.event_offsets),
            event_times=list(self.event_times),
        )


async def relay(
    response: UpstreamResponse,
    send: Send,
    *,
    head: Headers,
    gone: DisconnectEvent,
    tape: Tape | None = None,
    seal: _Seal | None = None,
    end: Callable[[], Guard] = EndGuard,
) -> Ending:
    """Relay an answer; `head` is added to its headers. Closes the response, however it ends. `end`: makes what holds
    back the end of a stream.

    Without `seal` nothing waits and nothing is held back. When the result says `started=False` and `stored=False`,
    nothing was sent and the caller can still answer an error. A cancellation is sealed and then goes on.
    """
    own = {name for name, _ in head}  # what Mneme says takes the place of what the upstream says
    passed = [each for each in response_headers(response.headers, response.status) if each[0].lower() not in own]
    start: Message = {"type": "http.response.start", "status": response.status, "headers": passed + head}
    guard = _guard_for(passed, tape, seal, end)
    started = False
    ending = Ending("complete")
    cancelled: asyncio.CancelledError | None = None
    try:
        with gone.interrupts():
            if seal is None or not response.bodyless:
                await _sent(send, start)
                started = True
            await _pump(response.chunks, send, guard, tape)
    except UpstreamError as error:
        ending = Ending("gone") if gone.is_set else Ending("broken", error)
    except ClientGone:
        gone.set()
        ending = Ending("gone")
    except asyncio.CancelledError as error:
        ending, cancelled = Ending("cancelled"), error
    finally:
        await response.aclose()
    ending = replace(ending, started=started)
    if tape is not None:
        tape.finish()
    if seal is not None:
        stored, stopped = await _to_the_end(seal(ending))
        ending, cancelled = replace(ending, stored=stored), cancelled or stopped
    if ending.stored is not False and ending.kind in ("complete", "broken"):
        ending = await _send_end(send, ending, start, guard.rest())
    if cancelled is not None:
        raise cancelled
    return ending


async def collect(response: UpstreamResponse, limit: int) -> bytes:
    """A small body, as far as it came and not beyond `limit` bytes; closes the response."""
    try:
        seen, _ = await _beginning(response, limit)
    finally:
        await response.aclose()
    return b"".join(seen)[:limit]


async def peek(response: UpstreamResponse, limit: int) -> tuple[bytes, UpstreamResponse]:
    """The beginning of a body, at least `limit` bytes or all there is, and the same response with its body still whole.

    For a look at an error before it is relayed. A break in these bytes is raised where it was, not here.
    """
    seen, broke = await _beginning(response, limit)

    async def again() -> AsyncIterator[bytes]:
        for chunk in seen:
            yield chunk
        if broke is not None:
            raise broke
        async for chunk in response.chunks:
            yield chunk

    return b"".join(seen), replace(response, chunks=again())


async def _beginning(response: UpstreamResponse, limit: int) -> tuple[list[bytes], UpstreamError | None]:
    """The first chunks of a body, at least `limit` bytes or all there are; and what it broke off with."""
    seen: list[bytes] = []
    size = 0
    try:
        async for chunk in response.chunks:
            seen.append(chunk)
            size += len(chunk)
            if size >= limit:
                break
    except UpstreamError as error:
        return seen, error
    return seen, None


# --- what is held back ---------------------------------------------------------------------------------------------------


class _HoldNothing:
    ended = False

    def feed(self, chunk: bytes) -> bytes:
        return chunk

    def rest(self) -> bytes:
        return b""


class _HoldLastByte:
    """For a body of `length` bytes. Of one of unknown length (None) any byte may be the last."""

    ended = False

    def __init__(self, length: int | None, inner: Guard) -> None:
        self._left = length
        self._inner = inner
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        chunk = self._inner.feed(chunk)
        if not chunk:
            return chunk
        if self._left is not None:
            self._left -= len(chunk)
            if self._left > 0:
                return chunk
        chunk = self._held + chunk
        self._held = chunk[-1:]
        return chunk[:-1]

    def rest(self) -> bytes:
        held, self._held = self._held, b""
        return held + self._inner.rest()


def is_event_stream(headers: Headers) -> bool:
    """Tell whether the body that follows is one of server-sent events that can be read as it comes: it is not compressed."""
    return has_events(headers) and not find_codings(headers)


def has_events(headers: Headers) -> bool:
    """Tell whether a body is one of server-sent events, compressed or not."""
    return (find(headers, b"content-type") or b"").lower().startswith(b"text/event-stream")


def _guard_for(headers: Headers, tape: Tape | None, seal: _Seal | None, end: Callable[[], Guard]) -> Guard:
    is_events = is_event_stream(headers)
    if is_events and tape is not None:
        tape.listen_for_events()
    if seal is None:
        return _HoldNothing()
    guard: Guard = end() if is_events else _HoldNothing()
    length = find(headers, b"content-length")
    if length is not None and length.isdigit():
        return _HoldLastByte(int(length), guard)
    media_type = (find(headers, b"content-type") or b"").lower().partition(b";")[0].strip()
    is_json = media_type == b"application/json" or media_type.endswith(b"+json")  # and not lines of JSON
    return _HoldLastByte(None, guard) if is_json else guard


# --- moving bytes --------------------------------------------------------------------------------------------------------


async def _pump(chunks: AsyncIterator[bytes], send: Send, guard: Guard, tape: Tape | None) -> None:
    async for chunk in chunks:
        if tape is not None:
            tape.add(chunk)
        ready = guard.feed(chunk)
        if ready:
            await _sent(send, {"type": "http.response.body", "body": ready, "more_body": True})
        if guard.ended:
            break
    else:
        return
    with suppress(TimeoutError):  # it has said all it had to say
        async with asyncio.timeout(LINGER_S):
            async for chunk in chunks:
                if tape is not None:
                    tape.add(chunk)
                guard.feed(chunk)


async def _sent(send: Send, message: Message) -> None:
    try:
        await send(message)
    except (OSError, ClientDisconnect) as error:
        raise ClientGone from error


async def _send_end(send: Send, ending: Ending, start: Message, rest: bytes) -> Ending:
    """What was held back, and the end, if there is one."""
    try:
        if not ending.started:
            await _sent(send, start)
            ending = replace(ending, started=True)
        whole = ending.kind == "complete"
        if whole or rest:
            await _sent(send, {"type": "http.response.body", "body": rest, "more_body": not whole})
    except ClientGone:
        return ending  # it is on disk, and whoever wanted to read it is not there
    return ending


async def _to_the_end(work: Awaitable[bool]) -> tuple[bool, asyncio.CancelledError | None]:
    """Await `work` even if this task is cancelled meanwhile; the cancellation is given back."""

    async def awaited() -> bool:
        return await work

    # supervised right here: this function does not end before the task does
    task = asyncio.get_running_loop().create_task(awaited())
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    return task.result(), cancelled
