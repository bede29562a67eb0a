"""`/mcp` of a running server: streamable HTTP without sessions, so that any server process may answer any request."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import httpx
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.auth import Authenticator
from app.api.common import error_response
from app.api.origin import check_origin, known_hosts
from app.errors import MnemeError
from app.features.mcp.server import Context, build_server
from app.features.mcp.tools import Asker

PATH = "/mcp"
MAX_BODY_BYTES = 1024 * 1024
"""Largest request, bytes: thirty times the longest memory. The SDK's own bound is 4 MiB, read before it is refused."""

_WHO = frozenset({b"authorization", b"x-mneme-key", b"x-mneme-user"})
"""Headers that say who calls, and about whom."""


class McpApp:
    """Plain ASGI. First where a request comes from, then whose it is; only then its body is read."""

    def __init__(
        self, authenticator: Authenticator, api: ASGIApp, hosts: Iterable[str], origins: Iterable[str] = ()
    ) -> None:
        """`api`: what answers under /api/v1. `hosts`: names by which this server may be asked, beside loopback; `origins`: of
        pages that may ask."""
        self._authenticator = authenticator
        self._api = api
        self._hosts = known_hosts(hosts)
        self._origins = frozenset(origins)
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=api, raise_app_exceptions=False), base_url="http://mneme"
        )
        self._manager = StreamableHTTPSessionManager(
            build_server(self._asker),
            json_response=True,
            stateless=True,
            # Checked here, where the answer can say what to do about it.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=MAX_BODY_BYTES,
        )

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """For as long as the server runs."""
        async with self._client, self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:  # the API knows how to say that nothing is there
            await self._api(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            check_origin(headers.get("host"), headers.get("origin"), self._hosts, self._origins)
            await self._authenticator.check(headers)
        except MnemeError as error:
            refusal: ASGIApp = error_response(error)
            await refusal(scope, receive, send)
            return
        if scope["method"] != "POST":
            # Nothing is ever sent unasked, and there is no session to end.
            refusal = Response(status_code=405, headers={"allow": "POST"})
            await refusal(scope, receive, send)
            return
        await self._manager.handle_request(scope, receive, send)

    def _asker(self, context: Context) -> Asker:
        request = context.request
        if request is None:  # else the API would see a caller without a key, whom `open` mode lets in
            raise RuntimeError("a request over HTTP without its headers")
        return Asker(self._client, [(name, value) for name, value in request.headers.raw if name.lower() in _WHO])
