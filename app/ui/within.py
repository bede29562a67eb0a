"""Asking `/api/v1` from within: no socket, and who asks is known already.

So the page can show and do exactly what its key may, by the very rules that hold for everybody else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import orjson
from msgspec import Struct
from starlette.types import ASGIApp, Message, Receive, Send

from app.api.auth import Principal
from app.api.common import PREFIX
from app.api.scope import PRINCIPAL

WENT_WRONG = "This went wrong; the server's log says why."


class Refused(Exception):
    """The API said no. `message` is for people; `param`: the name of what was wrong, where there is one."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param


class ApiClient(Struct, frozen=True):
    """What answers under /api/v1, as one caller sees it."""

    app: ASGIApp
    principal: Principal

    async def get(self, *path: str, **query: Any) -> Any:
        """The JSON of GET /api/v1/…; `path` in segments of any text, without `None`s in `query`. Raises Refused."""
        return await self.send("GET", *path, query=query)

    async def send(
        self, method: str, *path: str, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        """The JSON of any request; None where the answer has no body. Raises Refused."""
        status, content = await self._ask(method, path, query or {}, body)
        if status < 300:
            return orjson.loads(content) if content else None
        raise _refusal(status, content)

    async def content(self, *path: str, **query: Any) -> bytes:
        """The bytes of GET /api/v1/…, whatever they are. Raises Refused."""
        status, content = await self._ask("GET", path, query, None)
        if status >= 300:
            raise _refusal(status, content)
        return content

    async def pass_on(self, receive: Receive, send: Send, *path: str, **query: Any) -> None:
        """Answer a request with what GET /api/v1/… answers, as it comes: for downloads of any size."""
        await self.app(self._scope("GET", path, query, []), receive, send)

    async def _ask(
        self, method: str, path: tuple[str, ...], query: Mapping[str, Any], body: Mapping[str, Any] | None
    ) -> tuple[int, bytes]:
        try:
            content = b"" if body is None else orjson.dumps(body)
        except TypeError as error:  # a number without measure, half a character
            raise Refused(400, f"This cannot be sent: {error}.") from error
        headers = [] if body is None else [(b"content-type", b"application/json")]
        requests: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
        status, chunks = 500, list[bytes]()

        async def receive() -> Message:
            return requests.pop() if requests else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                chunks.append(message.get("body", b""))

        await self.app(self._scope(method, path, query, headers), receive, send)
        return status, b"".join(chunks)

    def _scope(
        self, method: str, path: tuple[str, ...], query: Mapping[str, Any], headers: list[tuple[bytes, bytes]]
    ) -> dict[str, Any]:
        given = {name: _said(value) for name, value in query.items() if value is not None and value != ""}
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": method,
            "path": "/".join((PREFIX, *path)),
            "raw_path": "/".join((PREFIX, *(quote(each, safe="") for each in path))).encode(),
            "root_path": "",
            "query_string": urlencode(given, doseq=True).encode(),
            "headers": [(b"host", b"mneme"), *headers],
            "client": None,
            "server": None,
            PRINCIPAL: self.principal,
        }


def _refusal(status: int, content: bytes) -> Refused:
    try:
        error = orjson.loads(content)["error"]
        return Refused(status, str(error["message"]), error["param"])
    except (ValueError, LookupError, TypeError):
        return Refused(status, WENT_WRONG)


def _said(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value
