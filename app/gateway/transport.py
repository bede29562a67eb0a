"""The transport over real connections: aiohttp."""

from __future__ import annotations

import asyncio
import functools
import io
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from msgspec import Struct
from yarl import URL

from app.capture.facts import header_text
from app.errors import UpstreamError, UpstreamTimeout, UpstreamUnreachable
from app.gateway.upstream import UpstreamBroke, UpstreamRequest, UpstreamResponse, check_status, is_bodyless

if TYPE_CHECKING:
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

CONNECT_TIMEOUT_S = 10.0
"""Seconds to open a connection to an upstream: TCP sends its first packet again after 1, 3 and 7."""
KEEP_ALIVE_S = 15.0
"""Seconds that an idle connection is kept: aiohttp's own default. Servers close theirs after 5 s (uvicorn) and more;
the race this leaves is what the one retry is for."""
MAX_HEAD_LINE = 64 * 1024
"""Bytes of one header of an answer; aiohttp's default of 8,190 is less than some gateways send."""
MAX_HEADERS = 1000
LARGE_BODY = 1024 * 1024
"""Bytes from which aiohttp wants a body as a file, and warns otherwise."""
_NO_BODY_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_NEVER_ADD = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class _Attempt(Struct):
    """What a request learns about the connection that it got."""

    handler: _Handler | None = None
    transport: asyncio.Transport | None = None
    reused: bool = False
    deadline: asyncio.Timeout | None = None

    def connected(self, connection: Connection, handler: _Handler, head_s: float) -> None:
        """The connection is there: the time for the head begins."""
        self.handler, self.transport, self.reused = handler, connection.transport, handler.used
        if self.deadline is not None:
            self.deadline.reschedule(asyncio.get_running_loop().time() + head_s)


_ATTEMPT: ContextVar[_Attempt] = ContextVar("_ATTEMPT")
"""The attempt that this task is making: aiohttp tells a request nothing about its connection."""


class _Handler(ResponseHandler):
    """aiohttp's connection, which also notices what a retry and a break depend on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.used = False
        self.received = False
        """A byte has arrived since the last request."""

    def data_received(self, data: bytes) -> None:
        if not self.received:
            self.received = True
            end = data.find(b"\r\n\r\n") + 4
            if 4 <= end < len(data):
                # in one go, nonsense in the body would take the head with it
                super().data_received(data[:end])
                data = data[end:]
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        payload = self._payload
        is_open = payload is not None and not payload.is_eof() and payload.exception() is None
        if payload is not None and is_open and exc is not None:
            # a body without a length ends with its connection, but a reset is no end
            payload.set_exception(aiohttp.ClientPayloadError(f"connection lost: {exc!r}"))
        super().connection_lost(exc)
        if payload is not None and is_open and not payload.is_eof() and payload.exception() is None:
            # after nonsense in mid-body nobody tells the reader
            payload.set_exception(aiohttp.ClientPayloadError("not HTTP"))


class _Connector(aiohttp.TCPConnector):
    def __init__(self, head_s: float, *, force_close: bool = False) -> None:
        self._head_s = head_s
        keep_alive: dict[str, Any] = {} if force_close else {"keepalive_timeout": KEEP_ALIVE_S}
        super().__init__(limit=0, force_close=force_close, **keep_alive)
        # the one place where aiohttp can be given its protocol; a test fails should it ever look elsewhere
        self._factory = cast("functools.partial[ResponseHandler]", functools.partial(_Handler, loop=self._loop))

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        connection = await super().connect(req, traces, timeout)
        handler = connection.protocol
        assert isinstance(handler, _Handler)
        _ATTEMPT.get().connected(connection, handler, self._head_s)
        handler.used, handler.received = True, False
        return connection


class AiohttpTransport:
    """The production transport. Create it inside the running event loop's thread; it opens itself when first used.

    Seconds: `connect_timeout_s` for the connection, `head_timeout_s` from there on, for sending the request and getting
    the status line (waiting for a body that the client streams is not counted), `idle_timeout_s` for silence inside an
    answer. There is no other limit.
    """

    def __init__(
        self, *, head_timeout_s: float, idle_timeout_s: float, connect_timeout_s: float = CONNECT_TIMEOUT_S
    ) -> None:
        self._connect_s = connect_timeout_s
        self._head_s = head_timeout_s
        self._idle_s = idle_timeout_s
        self._pooled: aiohttp.ClientSession | None = None
        self._unpooled: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        for session in (self._pooled, self._unpooled):
            if session is not None:
                await session.close()
        self._pooled = self._unpooled = None

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """See `Transport.send`. A connection from the pool that died unanswered is replaced by a fresh one, once."""
        if self._pooled is None:
            self._pooled = self._open(_Connector(self._head_s))
        attempt = _Attempt()
        try:
            return await self._send(self._pooled, request, attempt)
        except UpstreamUnreachable:
            # A kept-alive connection, and not one byte of an answer: the server had closed it before it read us.
            unanswered = attempt.reused and attempt.handler is not None and not attempt.handler.received
            if not unanswered or not isinstance(request.body, bytes):
                raise
        if self._unpooled is None:
            self._unpooled = self._open(_Connector(self._head_s, force_close=True))
        response = await self._send(self._unpooled, request, _Attempt())
        response.attempts = 2
        return response

    def _open(self, connector: _Connector) -> aiohttp.ClientSession:
        session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_field_size=MAX_HEAD_LINE,
            max_headers=MAX_HEADERS,
            max_line_size=MAX_HEAD_LINE,
            skip_auto_headers=_NEVER_ADD,
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_s),
            trust_env=False,
        )
        # aiohttp repeats GET and its like on any lost connection, a fresh one too; its own test client sets this as well
        session._retry_connection = False
        return session

    async def _send(
        self, session: aiohttp.ClientSession, request: UpstreamRequest, attempt: _Attempt
    ) -> UpstreamResponse:
        token = _ATTEMPT.set(attempt)
        response = None
        try:
            async with asyncio.timeout(None) as deadline:
                attempt.deadline = deadline
                response = await session.request(
                    request.method,
                    URL(request.url, encoded=True),
                    # aiohttp writes UTF-8: exact but for bytes that are none (they become so)
                    headers=[(name.decode("latin-1"), header_text(value)) for name, value in request.headers],
                    data=self._data(request, deadline),
                    allow_redirects=False,
                )
        except (aiohttp.ConnectionTimeoutError, TimeoutError) as error:
            where = "connect" if isinstance(error, aiohttp.ConnectionTimeoutError) else "answer"
            raise UpstreamTimeout(f"The upstream did not {where} in time.") from error
        except (aiohttp.ClientConnectionError, aiohttp.InvalidURL, OSError) as error:
            raise UpstreamUnreachable(f"The upstream cannot be reached: {error}") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise UpstreamError(f"No HTTP with this upstream: {error}") from error
        finally:
            _ATTEMPT.reset(token)
            if response is None and attempt.transport is not None:
                attempt.transport.abort()  # now, without waiting for what is still to be written
        headers = list(response.raw_headers)
        body = _AiohttpBody(response, self._idle_s)
        try:
            status = check_status(response.status)
        except UpstreamError:
            await body.aclose()
            raise
        bodyless = is_bodyless(request.method, status, headers)
        return UpstreamResponse(status, response.reason or "", headers, body, body.aclose, bodyless)

    def _data(self, request: UpstreamRequest, deadline: asyncio.Timeout) -> object:
        body = request.body
        if not isinstance(body, bytes):
            return self._streamed(body, deadline)
        if not body and request.method in _NO_BODY_METHODS:
            return None
        return body if len(body) < LARGE_BODY else io.BytesIO(body)

    async def _streamed(self, body: AsyncIterator[bytes], deadline: asyncio.Timeout) -> AsyncIterator[bytes]:
        """The body as it comes; the deadline stands still while the client is the one to wait for."""

        def until(when: float | None) -> None:
            try:
                deadline.reschedule(when)
            except RuntimeError:
                return  # the head came, or the time was up, before the body was through

        until(None)
        async for piece in body:
            until(asyncio.get_running_loop().time() + self._head_s)
            yield piece
            until(None)
        until(asyncio.get_running_loop().time() + self._head_s)


class _AiohttpBody:
    """The chunks of an answer, to the last byte that arrived."""

    __slots__ = ("_content", "_error", "_idle_s", "_loop", "_response", "_timer", "_waiting_since")

    def __init__(self, response: aiohttp.ClientResponse, idle_s: float) -> None:
        self._response = response
        self._content = response.content
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._error: UpstreamError | None = None
        self._waiting_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __aiter__(self) -> _AiohttpBody:
        return self

    async def __anext__(self) -> bytes:
        content = self._content
        if self._error is not None:
            raise self._error
        if self._timer is None and not content.is_eof():
            self._timer = self._loop.call_later(self._idle_s, self._look_whether_idle)
        self._waiting_since = self._loop.time()
        try:
            chunk = await content.readany()
        except (aiohttp.ClientError, OSError) as error:
            chunk = self._salvage(error)
        finally:
            self._waiting_since = None
        if chunk:
            return chunk
        if self._error is not None:
            raise self._error
        self._stop_timer()
        raise StopAsyncIteration

    def _salvage(self, error: Exception) -> bytes:
        """What had arrived before the answer broke: aiohttp keeps it, but shows only the exception."""
        if isinstance(error, TimeoutError):
            self._error = UpstreamTimeout(f"The upstream was silent for {self._idle_s:g} s.")
        else:
            self._error = UpstreamBroke(f"The upstream broke off: {error}")
        self._error.__cause__ = error
        self._stop_timer()
        content = self._content
        content.set_exception(None)  # type: ignore[arg-type]  # None is how "no exception" is kept there
        return content.read_nowait()

    def _look_whether_idle(self) -> None:
        """One timer per answer, not one per chunk; only time spent waiting for the upstream counts."""
        now = self._loop.time()
        since = self._waiting_since if self._waiting_since is not None else now
        if now - since >= self._idle_s:
            self._content.set_exception(aiohttp.SocketTimeoutError("idle"))
        else:
            self._timer = self._loop.call_at(since + self._idle_s, self._look_whether_idle)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def aclose(self) -> None:
        self._stop_timer()
        connection = self._response.connection  # None when the answer was whole: it is back in the pool by then
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()
