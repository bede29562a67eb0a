"""Mneme's MCP server as a host sees it: the SDK's own client, over either transport."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
from mcp import Client, StdioServerParameters, types
from mcp.client.streamable_http import streamable_http_client

from tests.support.server import START_S

Mode = Literal["auto", "legacy"]


@asynccontextmanager
async def over_http(url: str, mode: Mode = "auto", **headers: str) -> AsyncIterator[Client]:
    """A client of `/mcp` at `url`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        httpx2.AsyncClient(headers=named, timeout=START_S, trust_env=False) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(
    url: str, folder: Path, *options: str, mode: Mode = "auto", key: str | None = None
) -> AsyncIterator[Client]:
    """A client of the real command, as a process of its own."""
    env = {"NO_PROXY": "*", "PYTHONPATH": str(Path(__file__).parents[2])} | ({"MNEME_KEY": key} if key else {})
    arguments = ["-m", "app.cli", "mcp", "--base", url, *options]
    command = StdioServerParameters(command=sys.executable, args=arguments, env=env, cwd=folder)
    async with Client(command, mode=mode) as client:
        yield client


async def told(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """What a tool answered; it must have."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refused(client: Client, tool: str, /, **arguments: Any) -> str:
    """What a tool said that did not do it."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    assert result.structured_content is None
    return text_of(result)


def text_of(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text
