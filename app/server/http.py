"""uvicorn's HTTP/1.1, which also reads the body of a request that offers to upgrade the connection, and answers clients of
HTTP/1.0 without chunks.

Java's own HTTP client offers HTTP/2 (`Upgrade: h2c`) with every request that is not TLS. A server may ignore the offer
(RFC 9110 §7.8), but llhttp stops reading behind the head of such a request: uvicorn hands on an empty body, and takes the
body's bytes for the next request.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

MAX_HEAD_BYTES = 1 << 18
"""Of a request's line and headers: uvicorn itself has no bound with this parser, and whoever connects could fill the memory,
without a key. Four times what h11 and most proxies allow; checked whenever bytes came that did not end the head."""
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""`SO_LINGER` of 0 s, with which closing a socket resets its connection (socket(7))."""

_Application = Callable[[Any, Any, Any], Awaitable[None]]


class CloseDelimited:
    """An ASGI application for one request of an HTTP/1.0 client, which knows no chunks: closing the connection ends an answer
    of unknown length. If the answer broke off, the connection is reset, so that the client can tell."""

    def __init__(self, app: _Application, cycle: RequestResponseCycle) -> None:
        self._app = app
        self._cycle = cycle
        self._send = cycle.send
        self._is_delimited = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await self._app(scope, receive, self._send_delimited)
        finally:
            cycle = self._cycle
            if self._is_delimited and not cycle.response_complete and not cycle.disconnected:
                await asyncio.sleep(0)  # let uvloop write what was sent before the reset
                self._reset(cycle)

    async def _send_delimited(self, message: Any) -> None:
        cycle = self._cycle
        if message["type"] == "http.response.start":
            headers = [(name, value) for name, value in message["headers"] if name.lower() != b"transfer-encoding"]
            if not any(name.lower() == b"content-length" for name, _ in headers):
                self._is_delimited = True
                cycle.chunked_encoding = False
            message = {**message, "headers": headers}
        elif self._is_delimited:
            cycle.expected_content_length = len(message.get("body", b""))
        await self._send(message)

    def _reset(self, cycle: RequestResponseCycle) -> None:
        connection = cycle.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        cycle.transport.abort()


class Protocol(HttpToolsProtocol):
    """For `uvicorn.run(http=…)`."""

    _refilling = False
    """The head that a new parser reads is one that has been handled already."""

    _head_bytes = 0
    """Received of a head that has not ended, behind the read in which it began."""
    _in_head = False

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        self._unset_keepalive_if_required()
        received, in_head = len(data), self._in_head
        try:
            while data:
                data = self._fed(data)
        except httptools.HttpParserError:
            msg = "Invalid HTTP request received."
            self.logger.warning(msg)
            self.send_400_response(msg)
            return
        self._head_bytes = self._head_bytes + received if in_head and self._in_head else 0
        if self._head_bytes > MAX_HEAD_BYTES:
            msg = f"The head of a request is larger than {MAX_HEAD_BYTES} bytes."
            self.logger.warning(msg)
            self.send_400_response(msg)

    def _fed(self, data: bytes) -> bytes:
        """Parse `data`; what stands behind the head of an upgrade is left for a parser that knows of none."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._refill()
            return data[upgrade.args[0] :]
        return b""

    def _refill(self) -> None:
        """A new parser that stands where the old one stopped: behind the head, before the body that it announced."""
        framing = [name + b": " + value for name, value in self.headers if name in _FRAMING]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._refilling = True
        self.parser.feed_data(b"\r\n".join([b"POST / HTTP/1.1", *framing, b"", b""]))
        self._refilling = False

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        is_chunkless = cycle.scope["http_version"] == "1.0"
        super()._start_asgi_task(cycle, CloseDelimited(app, cycle) if is_chunkless else app)

    def on_message_begin(self) -> None:
        if not self._refilling:
            self._in_head = True
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._refilling:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._refilling:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._refilling:
            self._in_head = False
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """For an upgrade called at the end of its head, where the body is still to come."""
        if not self.parser.should_upgrade():
            super().on_message_complete()
