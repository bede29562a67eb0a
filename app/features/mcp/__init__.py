"""The MCP server: Mneme's memory as tools of an agent, over stdio and over HTTP.

It is a client of `/api/v1` and nothing else: whatever a tool does, a route does, with its keys, tenants, scopes and bounds.
Over stdio (`mneme mcp`) it asks a running server by HTTP; at `/mcp` of that server it asks the same routes from within.

The SDK is an extra (`pip install 'mneme-proxy[mcp]'`): only `server` imports it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from app import logs
from app.console import base_of, failing_clearly, load_settings
from app.errors import NotReady
from app.features import Feature
from app.settings import KEY

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


# --- `mneme mcp` ---------------------------------------------------------------------------------------------------------


@click.command()
@click.option("--base", help="A running Mneme; by default the one at MNEME_HOST and MNEME_PORT.")
@click.option("--key", envvar=KEY, help="A Mneme key, where the server asks for one; better in MNEME_KEY.")
@click.option("--user", help="Whose memory it is; needed unless the key was made for one user, or the server is open.")
@failing_clearly
def mcp(base: str | None, key: str | None, user: str | None) -> None:
    """Offer the memory of a running Mneme as an MCP server, on standard input and output."""
    check_sdk()
    from app.features.mcp.server import run

    if base is not None and not re.fullmatch(r"https?://[^\s/]+(/\S*)?", base):
        raise click.BadParameter("a URL such as http://127.0.0.1:8080", param_hint="--base")
    if key is not None and not re.fullmatch(r"[!-~]+", key):
        raise click.BadParameter("not what a key looks like", param_hint="--key")
    if user is not None and re.search("[\ud800-\udfff]", user):
        raise click.BadParameter("not valid Unicode", param_hint="--user")
    settings = load_settings()
    logs.set_up(settings.log_level, settings.log_format)
    run(base or base_of(settings), key, user)
