"""The MCP server: Mneme's memory as tools of an agent, over stdio and over HTTP.

It is a client of `/api/v1` and nothing else: whatever a tool does, a route does, with its keys, tenants, scopes and bounds.
Over stdio (`mneme mcp`) it asks a running server by HTTP; at `/mcp` of that server it asks the same routes from within.

The SDK is an extra (`pip install 'mneme-proxy[mcp]'`): only `server` imports it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from app.errors import NotReady
from app.features import Feature

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from app.api.auth import Authenticator
    from app.gateway.turn import Application


def check_sdk() -> None:
    """Raises NotReady where the SDK is not installed."""
    if find_spec("mcp") is None:
        raise NotReady("The MCP server needs the MCP SDK: pip install 'mneme-proxy[mcp]'.")


class Mcp(Feature):
    """`/mcp` of a running server."""

    def check(self) -> None:
        check_sdk()

    @asynccontextmanager
    async def mounts(
        self, authenticator: Authenticator, api: ASGIApp, gateway: Application
    ) -> AsyncIterator[Mapping[str, Callable[[], ASGIApp]]]:
        from app.features.mcp.server import McpApp

        app = McpApp(authenticator, api, [self.settings.host, *self.settings.hosts], self.settings.cors_origins)
        async with app.open():
            yield {"/mcp": lambda: app}


FEATURE = Mcp
