"""The transport port over httpx, for tests that mock it (respx): held to the same tests as the one that is shipped."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator

import httpx

from app.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable
from app.gateway.upstream import UpstreamBroke, UpstreamRequest, UpstreamResponse, check_status, is_bodyless
from app.tasks import Supervisor

CLOSE_S = 5.0
"""Seconds that answers which are being closed have at the end: none waits for anybody."""


class HttpxTransport:
    """The same port over httpx. It re-encodes odd URLs, and costs several times as much CPU.

    The client's timeouts count; pass `httpx.AsyncClient(timeout=httpx.Timeout(None, connect=…, read=…))`. Its read
    timeout is both the wait for the head and the longest silence.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._closing = Supervisor()

    async def aclose(self) -> None:
        await self._closing.close(CLOSE_S)
        await self._client.aclose()

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """See `Transport.send`. The one retry also happens when a kept-alive connection died inside a head."""
        try:
            return await self._send(request)
        except _DiedUnanswered as died:
            if not isinstance(request.body, bytes):
                raise UpstreamUnreachable(str(died)) from died
        try:
            response = await self._send(request)
        except _DiedUnanswered as died:
            raise UpstreamUnreachable(str(died)) from died
        response.attempts = 2
        return response

    async def _send(self, request: UpstreamRequest) -> UpstreamResponse:
        seen: set[str] = set()

        async def trace(event: str, _info: object) -> None:
            seen.add(event)

        # not build_request: it would add the client's own headers and cookies
        built = httpx.Request(
            request.method,
            request.url,
            headers=request.headers,
            content=(request.body or None) if isinstance(request.body, bytes) else request.body,
            extensions={"timeout": self._client.timeout.as_dict(), "trace": trace},
        )
        try:
            response = await self._client.send(built, stream=True, auth=None, follow_redirects=False)
        except httpx.TimeoutException as error:
            raise UpstreamTimeout from error
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError) as error:
            message = f"The upstream broke off before it answered: {error}"
            reused = "http11.send_request_headers.started" in seen and "connection.connect_tcp.started" not in seen
            raise (_DiedUnanswered if reused else UpstreamUnreachable)(message) from error
        except httpx.NetworkError as error:
            raise UpstreamUnreachable(f"The upstream cannot be reached: {error}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UpstreamError(f"No HTTP with this upstream: {error}") from error
        headers = list(response.headers.raw)
        try:
            status = check_status(response.status_code)
        except UpstreamError:
            await response.aclose()
            raise
        bodyless = is_bodyless(request.method, status, headers)
        return UpstreamResponse(
            status,
            response.reason_phrase,
            headers,
            _httpx_chunks(response),
            functools.partial(self._close, response),
            bodyless,
        )

    async def _close(self, response: httpx.Response) -> None:
        """To the end, whatever is cancelled: httpx, interrupted here, forgets the connection and leaves it open."""
        await asyncio.shield(self._closing.spawn(response.aclose(), "close an upstream's answer"))


class _DiedUnanswered(UpstreamUnreachable):
    """A kept-alive connection died before the head of an answer."""


async def _httpx_chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.aiter_raw():
            yield chunk
    except httpx.TimeoutException as error:
        raise UpstreamTimeout("The upstream was silent for too long.") from error
    except httpx.HTTPError as error:
        raise UpstreamBroke(f"The upstream broke off: {error}") from error
