"""A small relay that records: requests go on to a real upstream, answers come back, and a cassette is made of both.

Nothing else stands between a client and its upstream here: no memory, no database.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from mneme_replay.cassette import Cassette, Chunk, Headers, Outcome, Request, Response
from mneme_replay.player import Receive, Send, send_error
from mneme_replay.requests import Asked
from mneme_replay.timing import CONNECTION, error_body, headers_to_play

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 600.0
"""Seconds of silence that an upstream is given: the OpenAI SDK's own default."""
_NOT_SENT_ON = CONNECTION | {"host", "content-length", "accept-encoding", "expect"}
_MOUNT = "/v1"
_DONE = b"data: [DONE]"
_Made = TypeVar("_Made")


@dataclass(slots=True)
class _Tape:
    """An answer while it comes."""

    started: float
    parts: list[bytes] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    held: list[bytes] = field(default_factory=list)
    """What the client gets when the call is kept: the last piece, and all from `[DONE]` on. It may take either for the end,
    and a test that has its answer may be over."""

    def add(self, data: bytes) -> None:
        at = asyncio.get_running_loop().time() - self.started
        self.parts.append(data)
        self.chunks.append(Chunk(int(at * 1e6), len(data)))


class Recorder:
    """Sends requests on, and hands each call to `keep` when it has ended."""

    def __init__(self, upstream: str, keep: Callable[[int, Cassette], None]) -> None:
        """`upstream`: a base URL, with `/v1`, or whatever stands there. `keep` gets the number of the request, from 0."""
        self._upstream = upstream.rstrip("/")
        self._keep = keep
        self._asked = 0
        self._running = 0
        self._ended = threading.Condition()

    async def answer(self, asked: Asked, receive: Receive, send: Send) -> None:
        """Relay one request. One that finds no upstream is told so, and not recorded."""
        with self._ended:
            self._running += 1
        try:
            await self._answer(asked, receive, send)
        finally:
            with self._ended:
                self._running -= 1
                self._ended.notify_all()

    def settle(self, seconds: float) -> bool:
        """Wait so long for the calls that are under way, from another thread; whether none is. A client that left is seen to
        have left a moment later."""
        with self._ended:
            return self._ended.wait_for(lambda: not self._running, seconds)

    async def _answer(self, asked: Asked, receive: Receive, send: Send) -> None:
        import httpx

        number, self._asked = self._asked, self._asked + 1
        # A client of its own: nothing is left open when the loop ends, and each call stands for itself.
        async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
            at, tape = datetime.now(UTC), _Tape(asyncio.get_running_loop().time())
            try:
                response = await _until_gone(receive, client.send(self._request(client, asked), stream=True))
            except (httpx.TransportError, httpx.InvalidURL) as error:
                told = f"The upstream {self._upstream} cannot be reached: {error!r}. Nothing was recorded."
                await send_error(send, 502, error_body(told, "upstream_error"))
                return
            outcome, told = await _relayed(response, receive, send, tape) if response is not None else ("gone", "")
            took_ms = int((asyncio.get_running_loop().time() - tape.started) * 1000)
        cassette = Cassette(
            id=new_id(at),
            recorded_at=at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            outcome=outcome,
            error=told or None,
            request=Request(method=asked.method, path=asked.path, headers=tuple(asked.headers), body=asked.body),
            response=_answered(response, tape) if response is not None else None,
            # As Mneme has it: how long a client had waited when it left. Else the pieces say when it was over.
            call={"latency_ms": took_ms} if outcome == "gone" else {},
        )
        self._keep(number, cassette)
        if outcome != "gone":
            for data in tape.held:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        if outcome == "complete":
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _request(self, client: httpx.AsyncClient, asked: Asked) -> httpx.Request:
        headers = [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in asked.headers
            if name.lower() not in _NOT_SENT_ON
        ]
        url = self._upstream + asked.path.removeprefix(_MOUNT)
        headers.append((b"accept-encoding", b"identity"))
        return client.build_request(asked.method, url, headers=headers, content=asked.body)


def _answered(response: httpx.Response, tape: _Tape) -> Response:
    return Response(
        status=response.status_code,
        headers=_headers(response),
        body=b"".join(tape.parts),
        chunks=tuple(tape.chunks),
    )


def _headers(response: httpx.Response) -> Headers:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw)


async def _relayed(response: httpx.Response, receive: Receive, send: Send, tape: _Tape) -> tuple[Outcome, str]:
    """Pass the answer on but for its end, which waits until the call is kept. A client that goes away ends it.

    How it ended, and why it broke.
    """
    import httpx

    headers = headers_to_play(Response(status=response.status_code, headers=_headers(response)))
    start = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    await send({"type": "http.response.start", "status": response.status_code, "headers": start})
    try:
        left = await _until_gone(receive, _pump(response, send, tape)) is None
    except httpx.TransportError as error:
        return "broken", f"The upstream broke off: {error!r}"
    finally:
        await response.aclose()
    return ("gone" if left else "complete"), ""


async def _pump(response: httpx.Response, send: Send, tape: _Tape) -> bool:
    done = False
    async for data in response.aiter_raw():
        tape.add(data)
        done = done or _DONE in data
        if not done or (len(tape.held) == 1 and _DONE not in tape.held[0]):
            for piece in tape.held:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            tape.held.clear()
        tape.held.append(data)
    return True


async def _until_gone(receive: Receive, work: Coroutine[Any, Any, _Made]) -> _Made | None:
    """What the work makes; None: the client went away before, which ends it. Raises what the work raises."""
    try:
        async with asyncio.TaskGroup() as group:
            working = group.create_task(work)
            watching = group.create_task(_watch(receive, working))
            working.add_done_callback(lambda _: watching.cancel())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return None if working.cancelled() else working.result()


async def _watch(receive: Receive, working: asyncio.Task[Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    working.cancel()


def new_id(at: datetime) -> str:
    """An id as Mneme's calls have them (uuid version 7): it begins with its time."""
    value = int(at.timestamp() * 1000) << 80 | 7 << 76 | 0b10 << 62
    noise = int.from_bytes(os.urandom(10), "big")
    text = f"{value | (noise >> 62 & 0xFFF) << 64 | noise & (1 << 62) - 1:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
