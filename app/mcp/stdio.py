"""`mneme mcp`: the same tools over standard input and output, for a running server elsewhere."""

from __future__ import annotations

import asyncio
import signal

import httpx
from mcp.server.stdio import stdio_server

from app.mcp.asking import Asker
from app.mcp.server import build_server

TIMEOUT_S = 30.0
"""Seconds for one answer of the server: it waits at most five for a connection, and as long again for a statement."""


def run(base: str, key: str | None, user: str | None) -> None:
    """Serve until standard input ends. `base`: of the server that is asked; it need not run yet."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a thread waits for input, which nothing else can wake
    asyncio.run(_serve(base, key, user))


async def _serve(base: str, key: str | None, user: str | None) -> None:
    headers = [(b"x-mneme-key", key.encode())] if key is not None else []
    async with httpx.AsyncClient(base_url=base, timeout=TIMEOUT_S) as client:
        server = build_server(lambda _: Asker(client, headers, user))
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
