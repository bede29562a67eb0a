"""The MCP server: Mneme's memory as tools of an agent, over stdio and over HTTP.

It is a client of `/api/v1` and nothing else: whatever a tool does, a route does, with its keys, tenants, scopes and bounds.
Over stdio (`mneme mcp`) it asks a running server by HTTP; at `/mcp` of that server it asks the same routes from within.

The SDK is an extra (`pip install 'mneme-proxy[mcp]'`): only `server` and `http` import it.
"""

from __future__ import annotations

from importlib.util import find_spec

from app.errors import NotReady


def check_sdk() -> None:
    """Raises NotReady where the SDK is not installed."""
    if find_spec("mcp") is None:
        raise NotReady("The MCP server needs the MCP SDK: pip install 'mneme-proxy[mcp]'.")
