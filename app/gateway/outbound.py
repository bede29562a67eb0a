"""The way back to the client: whether an answer has begun, and what is said where there is none."""

from __future__ import annotations

import logging
import math
from uuid import UUID

import orjson

from app.errors import MnemeError, RateLimited
from app.gateway.inbound import Message, Send

log = logging.getLogger("mneme.turn")


class Outbound:
    """`send`, which remembers whether the answer has begun."""

    __slots__ = ("_send", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
        await self._send(message)

    async def refuse(self, call_id: UUID, error: MnemeError) -> None:
        """An error of Mneme's own, in OpenAI's shape; nothing where an answer has begun."""
        if self.started:
            return
        body = orjson.dumps(error.body())
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"x-mneme-call-id", str(call_id).encode()),
        ]
        if isinstance(error, RateLimited):
            headers += error.headers
        elif error.retry_after_s is not None:
            headers.append((b"retry-after", str(math.ceil(error.retry_after_s)).encode()))
        try:
            await self({"type": "http.response.start", "status": error.status, "headers": headers})
            await self({"type": "http.response.body", "body": body})
        except OSError:
            log.info("client gone before the error", extra={"call_id": str(call_id)})
