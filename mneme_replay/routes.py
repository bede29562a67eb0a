"""Cassettes without a socket: routes for respx, for clients that use httpx in the same process."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import httpx

from mneme_replay.cassette import Cassette
from mneme_replay.deck import Deck, Miss
from mneme_replay.player import CASSETTE_HEADER
from mneme_replay.requests import Asked
from mneme_replay.timing import Piece, error_body, failure_of, headers_to_play, left_in_silence, pieces

if TYPE_CHECKING:
    import respx

SILENCE = "the client of this recording went away here: nothing more came"


def add_routes(router: respx.Router, deck: Deck, base_url: str, *, speed: float = 0.0) -> respx.Route:
    """Have `router` answer everything under `base_url` (with its `/v1`) from a deck; the route."""
    prefix = httpx.URL(base_url).path.rstrip("/")

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode("latin-1")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw]
        # What stands before /v1 is the address's, and not the request's.
        rest = path.removeprefix(prefix.removesuffix("/v1"))
        found = deck.play(Asked(request.method, rest, headers, request.content))
        return _missed(found) if isinstance(found, Miss) else response_of(found, speed)

    return router.route(url__startswith=base_url).mock(side_effect=answer)


def response_of(cassette: Cassette, speed: float = 0.0) -> httpx.Response:
    """The answer of a cassette as httpx has it, to be read once. Raises httpx.ReadTimeout where a client gave up waiting."""
    own = (CASSETTE_HEADER, cassette.id)
    if cassette.response is None:
        if left_in_silence(cassette):
            raise httpx.ReadTimeout(SILENCE)
        status, body = failure_of(cassette)
        return httpx.Response(status, json=body, headers=[own])
    headers = [*headers_to_play(cassette.response), own]
    stream = Played(list(pieces(cassette.response, speed)), whole=cassette.whole, silent=left_in_silence(cassette))
    encoded = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers]
    return httpx.Response(cassette.response.status, headers=encoded, stream=stream)


class Played(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The pieces of an answer in their time; one that broke off breaks off, as httpx tells it. `silent`: nothing more comes,
    which httpx would tell when its time is over."""

    def __init__(self, parts: list[Piece], *, whole: bool, silent: bool = False) -> None:
        self._parts = parts
        self._whole = whole
        self._silent = silent
        self._started = time.monotonic()

    def __iter__(self) -> Iterator[bytes]:
        for part in self._parts:
            time.sleep(max(0.0, self._left(part)))
            yield part.data
        self._end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            await asyncio.sleep(max(0.0, self._left(part)))
            yield part.data
        self._end()

    def _left(self, part: Piece) -> float:
        return self._started + part.at_s - time.monotonic() if part.at_s else 0.0

    def _end(self) -> None:
        if self._silent:
            raise httpx.ReadTimeout(SILENCE)
        if not self._whole:
            raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


def _missed(miss: Miss) -> httpx.Response:
    body = json.dumps(error_body(miss.told, "not_found_error", "no_cassette"))
    return httpx.Response(404, content=body, headers={"content-type": "application/json"})
