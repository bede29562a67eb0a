"""A real HTTP server for an application: in the foreground, or in a thread of a test run."""

from __future__ import annotations

import logging
import socket
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import uvicorn

STOP_S = 5
"""Seconds that answers in flight have when the server stops; then they are cut off."""
BACKLOG = 2048
"""Connections that wait to be accepted: uvicorn's own default."""
LOOPBACK = "127.0.0.1"


def bound(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock


def url_of(sock: socket.socket) -> str:
    """The address of a bound socket, without a path."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(app: Any) -> uvicorn.Server:
    """A uvicorn for the application. What it breaks off it breaks off on purpose: no log line says so."""
    import uvicorn

    logging.getLogger("uvicorn.error").addFilter(_quiet)
    config = uvicorn.Config(
        app,
        access_log=False,
        date_header=False,
        http="httptools",
        lifespan="off",
        log_config=None,
        loop="asyncio",
        server_header=False,
        timeout_graceful_shutdown=STOP_S,
        ws="none",
    )
    return uvicorn.Server(config)


def _quiet(record: logging.LogRecord) -> bool:
    return record.msg != "ASGI callable returned without completing response."


class Background:
    """A server in a thread. Use as a context manager."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.url = ""
        """Its address, without a path."""

    def __enter__(self) -> Background:
        sock = bound(LOOPBACK, 0)
        self.url = url_of(sock)
        self._server = server_of(self._app)
        # Connections wait in the socket until the server is there: nobody has to wait for it here.
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [sock]}, name="mneme-replay", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(STOP_S * 2)
