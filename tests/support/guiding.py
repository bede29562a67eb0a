"""A relay before a real model that calls nothing by itself: it changes requests as a test says, and keeps what went by."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import httpx
import orjson

ANSWERING = ("/v1/chat/completions", "/v1/messages")
"""Paths whose requests are guided."""
TIMEOUT_S = 60.0
_OWN = frozenset({"transfer-encoding", "content-length", "connection", "date", "server"})
"""Headers of a connection of its own."""

Guide = Callable[[dict[str, Any]], None]
"""Changes a request's body before the model gets it."""


@dataclass
class Exchange:
    """A request for an answer as it came to the relay, as the model got it, and what the model answered."""

    came: bytes
    guided: bytes
    status: int = 0
    answer: bytes = b""


@dataclass
class Relay:
    """Serves on `http://127.0.0.1:PORT/v1` what stands at `target` (ends in `/v1`), byte for byte. Use as a context manager.

    `guides`: for the next requests for an answer, in order; a request beyond them stays as it is.
    """

    target: str
    guides: list[Guide | None] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)

    def __enter__(self) -> Relay:
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                relay.pass_on(self)

            def do_POST(self) -> None:
                relay.pass_on(self)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._client = httpx.Client(base_url=self.target.removesuffix("/v1"), timeout=TIMEOUT_S, trust_env=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._client.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def pass_on(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("content-length") or 0))
        exchange = self._guided(body) if asked.path in ANSWERING else Exchange(body, body)
        headers = {name: value for name, value in asked.headers.items() if name.lower() not in (*_OWN, "host")}
        headers["accept-encoding"] = "identity"
        with self._client.stream(asked.command, asked.path, content=exchange.guided, headers=headers) as answer:
            exchange.status = answer.status_code
            asked.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name.lower() not in _OWN:
                    asked.send_header(name, value)
            asked.send_header("transfer-encoding", "chunked")
            asked.end_headers()
            for piece in answer.iter_raw():
                exchange.answer += piece
                asked.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                asked.wfile.flush()
            asked.wfile.write(b"0\r\n\r\n")

    def _guided(self, body: bytes) -> Exchange:
        guide = self.guides.pop(0) if self.guides else None
        exchange = Exchange(body, body)
        if guide is not None:
            document = orjson.loads(body)
            guide(document)
            exchange.guided = orjson.dumps(document)
        self.exchanges.append(exchange)
        return exchange
