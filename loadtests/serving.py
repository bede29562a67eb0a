"""Serves a small ASGI application for the benchmark: on a free loopback port, which it prints, until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

HOST = "127.0.0.1"
BACKLOG = 1024
"""Connections that may wait to be accepted: more than any number of clients here."""


class Gone(Exception):
    """The client closed the connection."""


def serve(app: Application) -> None:
    """Serve until SIGINT or SIGTERM. Prints `port N` once it listens."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, 0))
        listening.listen(BACKLOG)
        print(f"port {listening.getsockname()[1]}", flush=True)
        config = uvicorn.Config(
            app, loop="uvloop", http="httptools", log_level="warning", access_log=False, timeout_graceful_shutdown=1
        )
        uvicorn.Server(config).run(sockets=[listening])


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request. Raises Gone."""
    pieces = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)
