"""Where a check plays: the scripted upstream behind the proxy, and a client that sees every byte before it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.conformance.checks import Seen, short
from tests.support.clients import around_messages
from tests.support.replies import Recorded, Reply, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.sockets import RawClient, RawResponse

UPSTREAM_PREFIX = "/v1"
CHAT = "/chat/completions"
KEY = "Bearer sk-conformance"
MODEL = "tiny"
STREAM = '"stream": true'

Lines = Sequence[tuple[str, str]]


class NotForwarded(Exception):
    """The proxy did not ask the upstream; the message says what it answered instead."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a proxy is asked.

    `prefix`: its base URL's path. `headers`: what it wants to be told with every request. `model`: what clients call the model
    that the upstream knows as MODEL. `messages_may_grow`: it adds to `messages`, which is what it is for.
    """

    host: str
    port: int
    prefix: str = "/v1"
    headers: Lines = ()
    model: str = MODEL
    messages_may_grow: bool = False


@dataclass
class Exchange:
    """One request and what came of it."""

    sent: bytes
    requests: list[Recorded]
    response: RawResponse

    @property
    def request(self) -> Recorded:
        """As the upstream got it."""
        if not self.requests:
            raise NotForwarded(f"the upstream was not asked; {told(self.response)}")
        return self.requests[0]

    def answered(self, status: int = 200) -> RawResponse:
        """The answer, if it is the upstream's."""
        assert self.request
        if self.response.status != status:
            raise NotForwarded(told(self.response))
        return self.response


def told(response: RawResponse) -> str:
    """An answer in a line."""
    return f"answered {response.status} {short(response.body, 160)}"


@dataclass
class Stage:
    """`closes_within_s`: seconds in which the upstream's connection is to be closed when the client has gone."""

    upstream: ScriptedUpstream
    way: Way
    closes_within_s: float = 1.0
    patience_s: float = 5.0
    """Seconds that are waited to see whether it is closed at all."""
    large: int = 10_000_000
    """Bytes of the largest answers; the largest request has half as many."""
    grown: int = field(default=0, init=False)
    """Requests whose `messages` were added to."""

    # --- asking -------------------------------------------------------------------------------------------------------

    def play(self, reply: Reply, path: str, method: str) -> list[Recorded]:
        """Answer what asks for `path` like this, and whatever else a proxy asks of its own accord as a plain server would.
        What asks for `path` is put into the list that is returned."""
        asked: list[Recorded] = []

        def script(request: Recorded) -> Reply:
            if request.path == UPSTREAM_PREFIX + path.partition("?")[0] and request.method == method:
                asked.append(request)
                return reply
            if request.path == "/v1/models":
                return reply_json(
                    {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 32768}]}
                )
            return reply_json({}, "200 OK" if request.path.startswith(("/health", "/get_")) else "404 Not Found")

        self.upstream.script = script
        return asked

    def lines(self, headers: Lines, *, json_body: bool) -> list[tuple[bytes, bytes]]:
        """The headers of a request; those given take the place of the usual ones."""
        usual = [("authorization", KEY), *([("content-type", "application/json")] if json_body else [])]
        given = {name.lower() for name, _ in headers}
        lines = [*self.way.headers, *(each for each in usual if each[0] not in given), *headers]
        return [(name.encode(), value.encode()) for name, value in lines]

    def body(self, template: bytes) -> bytes:
        return template.replace(b'"MODEL"', json.dumps(self.way.model).encode())

    async def exchange(
        self, reply: Reply, body: bytes = b"", *, path: str = CHAT, method: str = "POST", headers: Lines = ()
    ) -> Exchange:
        """One request on a connection of its own, and its whole answer."""
        asked = self.play(reply, path, method)
        async with self.client() as client:
            sent = self.body(body)
            await client.send(method, self.way.prefix + path, self.lines(headers, json_body=bool(body)), sent)
            return Exchange(sent, asked, await final(client, method))

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RawClient]:
        """A connection to the proxy."""
        async with RawClient(self.way.port, host=self.way.host) as client:
            yield client

    async def closed_after(self, request: Recorded) -> float | None:
        """Seconds from now until the proxy closes the connection of this request; None where it does not."""
        began = time.monotonic()
        while not request.peer_closed.is_set():
            if time.monotonic() - began > max(self.patience_s, self.closes_within_s):
                return None
            await asyncio.sleep(0.005)
        return time.monotonic() - began

    # --- comparing ----------------------------------------------------------------------------------------------------

    def right_body(self, sent: bytes) -> bytes:
        """What the upstream is to get."""
        return sent.replace(json.dumps(self.way.model).encode(), json.dumps(MODEL).encode(), 1)

    def same_bytes(self, seen: Seen, exchange: Exchange) -> None:
        """The body is the client's, to the byte; but for `messages`, where a proxy may add to them."""
        right, got = self.right_body(exchange.sent), exchange.request.body
        if right == got:
            return
        if not self.way.messages_may_grow:
            seen.differs(f"{len(got)} bytes instead of {len(right)}: {first_difference(right, got)}")
            return
        self.grown += 1
        try:
            before, behind = around_messages(got)
        except (AssertionError, ValueError):
            seen.differs(f"no chat request: {short(got)}")
            return
        was_before, was_behind = around_messages(right)
        seen.equal("bytes before the messages", was_before, before)
        seen.equal("bytes behind the messages", was_behind, behind)


async def final(client: RawClient, method: str) -> RawResponse:
    """The answer, after any that only announce it (RFC 9110 §15.2)."""
    while True:
        response = await client.response(method)
        if not 100 <= response.status < 200:
            return response


def first_difference(right: bytes, got: bytes) -> str:
    """Where two bodies part, and how they go on."""
    at = next((i for i, (a, b) in enumerate(zip(right, got, strict=False)) if a != b), min(len(right), len(got)))
    return f"from byte {at} on {short(got[at : at + 30])!r}, not {short(right[at : at + 30])!r}"
