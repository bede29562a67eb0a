"""Asking Mneme's own gateway from within: the very pipeline of /v1, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote

from fastapi import Request

from app.gateway.call import Call
from app.gateway.inbound import Message
from app.gateway.turn import WITNESS, Application

Headers = list[tuple[bytes, bytes]]

_OWN_FRAMING = frozenset({b"content-length", b"content-type", b"transfer-encoding", b"accept-encoding", b"expect"})
"""Headers that speak of the outer request's body, or of how its answer is to come."""


class Answered(NamedTuple):
    """What came back. `whole`: the answer came to its end. `call`: None where the gateway refused it at the door."""

    status: int
    headers: Headers
    body: bytes
    whole: bool
    call: Call | None


class Caller:
    """Whoever asked the door, and whether they are still there."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.gone = asyncio.Event()

    def headers(self, without: Iterable[bytes] = ()) -> Headers:
        """The caller's headers for a request of the door's own: the key and all that it says to Mneme."""
        leave = _OWN_FRAMING.union(without)
        return [(name, value) for name, value in self._request.headers.raw if name.lower() not in leave]

    async def ask(self, gateway: Application, method: str, path: str, headers: Headers, body: bytes = b"") -> Answered:
        """One request; when the caller goes away, it ends as one that came from outside would."""
        calls: list[Call] = []
        started: dict[str, Any] = {}
        parts: list[bytes] = []
        asked, whole = False, False

        async def receive() -> Message:
            nonlocal asked
            if not asked:
                asked = True
                return {"type": "http.request", "body": body, "more_body": False}
            message = await self._request.receive()
            while message["type"] != "http.disconnect":
                message = await self._request.receive()
            self.gone.set()
            return message

        async def send(message: Message) -> None:
            nonlocal whole
            if message["type"] == "http.response.start":
                started.update(message)
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))
                whole = not message.get("more_body", False)

        own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())] if body else []
        scope = dict(self._request.scope) | {
            "method": method,
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": b"",
            "headers": [*headers, *own],
            WITNESS: calls.append,
        }
        await gateway(scope, receive, send)
        return Answered(
            started.get("status", 0),
            list(started.get("headers", ())),
            b"".join(parts),
            whole,
            calls[0] if calls else None,
        )
