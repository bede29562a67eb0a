"""The ASGI application that answers from cassettes: over a socket, in the recorded pieces, in the recorded time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Protocol

from mneme_replay.cassette import Cassette, CassetteError
from mneme_replay.deck import Deck, Miss
from mneme_replay.requests import Asked
from mneme_replay.timing import error_body, failure_of, headers_to_play, latency_s, left_in_silence, pieces, silence_s

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CASSETTE_HEADER = "x-mneme-cassette"
"""What an answer has besides what was recorded: the id of its call."""
HEALTH = "/healthz"
MAX_BODY_BYTES = 256 * 1024 * 1024
"""Largest request that is read, a guard for the test's machine."""


class Answerer(Protocol):
    """Answers one request; `rest` is its path and query behind the mount."""

    async def answer(self, asked: Asked, receive: Receive, send: Send) -> None:
        """Answer it."""


class Player:
    """Answers from a deck."""

    def __init__(
        self,
        deck: Deck,
        *,
        speed: float = 0.0,
        on_miss: Callable[[Miss], None] | None = None,
        answered: Callable[[Cassette], Cassette] | None = None,
    ) -> None:
        """`speed`: 1 as recorded, 2 twice as fast, 0 without waiting. `on_miss` hears of each request without a cassette.
        `answered` gives a cassette of the deck its answer, where the deck has none: in a thread; it may raise CassetteError."""
        self.deck = deck
        self._answered = answered
        self._speed = speed
        self._on_miss = on_miss

    async def answer(self, asked: Asked, receive: Receive, send: Send) -> None:
        """Play the cassette of a request, or say that there is none."""
        found = self.deck.play(asked)
        if isinstance(found, Miss):
            if self._on_miss is not None:
                self._on_miss(found)
            await send_error(send, 404, error_body(found.told, "not_found_error", "no_cassette"))
        else:
            await self.play(found, receive, send)

    async def play(self, cassette: Cassette, receive: Receive, send: Send) -> None:
        """Send the answer of a cassette."""
        started = asyncio.get_running_loop().time()
        if self._answered is not None:
            try:
                cassette = await asyncio.to_thread(self._answered, cassette)
            except CassetteError as error:
                await send_error(send, 500, error_body(str(error), "server_error", "bad_cassette"))
                return
        await _play(cassette, send, _Waiter(receive, started), self._speed)


async def _play(cassette: Cassette, send: Send, waiter: _Waiter, speed: float) -> None:
    """One that broke off breaks off: the connection is closed in the middle of it. Where its client left, it stays silent."""
    response = cassette.response
    own = (CASSETTE_HEADER.encode(), cassette.id.encode("latin-1", "replace"))
    if response is None:
        failure = failure_of(cassette)
        played_s = latency_s(cassette) / speed if speed else 0.0
        if await waiter.until(silence_s(cassette) if left_in_silence(cassette) else played_s):
            await send_error(send, failure.status, failure.body, own)
        return
    parts = list(pieces(response, speed))
    if parts and not await waiter.until(parts[0].at_s):
        return
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers_to_play(response)]
    await send({"type": "http.response.start", "status": response.status, "headers": [*headers, own]})
    for part in parts:
        if not await waiter.until(part.at_s):
            return
        await send({"type": "http.response.body", "body": part.data, "more_body": True})
    if cassette.whole:
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    elif left_in_silence(cassette):
        await waiter.until(silence_s(cassette))
    # Else: an application that returns without the end of its answer makes uvicorn close the connection.


class _Waiter:
    """Waits until a moment of an answer, or until its client is gone."""

    def __init__(self, receive: Receive, started: float) -> None:
        self._receive = receive
        self._started = started

    async def until(self, at_s: float) -> bool:
        """Wait until `at_s` seconds after the request; False: the client went away."""
        left = self._started + at_s - asyncio.get_running_loop().time()
        if at_s <= 0 or left <= 0:
            return True
        try:
            async with asyncio.timeout(left):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            return True
        return False


async def send_error(send: Send, status: int, body: Mapping[str, Any], *headers: tuple[bytes, bytes]) -> None:
    """Send an error of our own."""
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    own = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": data, "more_body": False})


class App:
    """The application: answerers, each under the first part of the path that it is mounted at (`""`: at the root)."""

    def __init__(self) -> None:
        self._mounts: dict[str, Answerer] = {}

    def mount(self, name: str, answerer: Answerer) -> None:
        """Requests to `/name/…` go to `answerer`."""
        self._mounts[name] = answerer

    def unmount(self, name: str) -> None:
        """They do no longer."""
        self._mounts.pop(name, None)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        first, _, _ = path.removeprefix("/").partition("/")
        mounted = first if first in self._mounts else ""
        answerer = self._mounts.get(mounted)
        if mounted == "" and path == HEALTH:
            await send_error(send, 200, {"status": "ok"})
            return
        body = await _body(receive)
        if body is None:
            return
        if answerer is None:
            told = "There is no test behind this address: it may be that of one that has ended."
            await send_error(send, 404, error_body(told, "not_found_error", "no_cassette"))
            return
        rest = path.removeprefix(f"/{mounted}") if mounted else path
        query = scope["query_string"].decode("latin-1")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        await answerer.answer(
            Asked(scope["method"], rest + ("?" + query if query else ""), headers, body), receive, send
        )


async def _body(receive: Receive) -> bytes | None:
    """The body of a request; None: the client went away, or sends without end."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY_BYTES:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)
