"""Asking `/api/v1` for one caller: over a socket, or from within."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
import orjson

PREFIX = "/api/v1"

NOBODY = "Say whose memory: `mneme mcp --user …` over stdio, the header X-Mneme-User over HTTP, or a key of one user."

Headers = list[tuple[bytes, bytes]]


class Refused(Exception):
    """Mneme said no, or nothing: the message is for the model to read. `status`: of the answer; 0: there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def check_sayable(value: object) -> None:
    """Raises Refused for a lone surrogate, a nesting without end, a number without measure: the SDK's parser takes them all."""
    try:
        orjson.dumps(value)
    except TypeError as error:
        raise Refused(f"This cannot be said in JSON: {error}.", 400) from error


class Asker:
    """Mneme's API as one caller sees it: with their key, about one user.

    The user is the connection's, never an argument of a tool: a model that could name another user would be talked into it.
    """

    def __init__(self, client: httpx.AsyncClient, headers: Headers, user: str | None = None) -> None:
        """`headers`: those that say who calls. `user`: beside what they say."""
        self._client = client
        self._headers = headers
        self._user = user

    async def whose(self) -> str:
        """The user that this is about. Raises Refused where nobody is named: a whole tenant's memory is no one's to show."""
        told = await self._send("GET", ("me",), {"user": self._user}, None)
        if told["user"] is None:
            raise Refused(NOBODY, 400)
        return str(told["user"])

    async def ask(
        self, method: str, *path: str, query: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """One request about that user; `path` in segments, of any text. Raises Refused."""
        user = await self.whose()
        segments = tuple(user if each is USER else each for each in path)
        return await self._send(method, segments, {**(query or {}), "user": user}, body)

    async def _send(
        self, method: str, path: tuple[str, ...], query: Mapping[str, Any], body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        headers = list(self._headers)
        content = None
        if body is not None:
            headers.append((b"content-type", b"application/json"))
            content = orjson.dumps({name: value for name, value in body.items() if value is not None})
        url = "/".join((PREFIX, *(quote(each, safe="") for each in path)))
        given = {name: value for name, value in query.items() if value is not None}
        try:
            answer = await self._client.request(method, url, params=given, headers=headers, content=content)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise Refused(
                f"Mneme at {self._client.base_url} cannot be reached: {reason}. Is `mneme serve` running?"
            ) from error
        if answer.is_success:
            told: dict[str, Any] = orjson.loads(answer.content)
            return told
        raise Refused(_reason(answer), answer.status_code)


USER = "\0user"
"""Stands in a path for the user whom this is about: no user's name has a U+0000."""


def _reason(answer: httpx.Response) -> str:
    try:
        return str(orjson.loads(answer.content)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"{answer.request.url.host} answered with HTTP {answer.status_code}: is this a Mneme server?"
