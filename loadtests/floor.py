"""The floor: a bare pass-through, raw ASGI and aiohttp, which does nothing but hand on bytes.

What a proxy in this language costs at least; every other figure is told as a multiple of it. Run by hand:
`python -m loadtests.floor http://127.0.0.1:PORT`; it prints its port.
"""

from __future__ import annotations

import sys

import aiohttp

from loadtests.serving import Gone, Receive, Scope, Send, read_body, serve

NOT_SENT = frozenset({b"host", b"connection", b"keep-alive", b"transfer-encoding", b"content-length"})
NOT_RELAYED = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"date", b"server"})


class Floor:
    """The ASGI application before the upstream at `base` (scheme, host and port)."""

    def __init__(self, base: str) -> None:
        self._base = base
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._relay(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _relay(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._session is not None, "the server starts the lifespan first"
        try:
            body = await read_body(receive)
        except Gone:
            return
        headers = [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"] if name not in NOT_SENT]
        async with self._session.request(
            scope["method"], self._base + scope["path"], data=body, headers=headers
        ) as answer:
            raw = [(name.lower(), value) for name, value in answer.raw_headers]
            relayed = [(name, value) for name, value in raw if name not in NOT_RELAYED]
            await send({"type": "http.response.start", "status": answer.status, "headers": relayed})
            if answer.content_type != "text/event-stream":
                await send({"type": "http.response.body", "body": await answer.read()})
                return
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    serve(Floor(sys.argv[1]))
