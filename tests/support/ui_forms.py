"""Forms of the page, filled in over HTTP."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import httpx

_TOKEN = re.compile(r'name="csrf" value="([^"]+)"')


async def token(client: httpx.AsyncClient, path: str = "/ui/login") -> str:
    """The token of this browser's session."""
    found = _TOKEN.search((await client.get(path)).text)
    assert found, f"no form on {path}"
    return unescape(found[1])


async def post(client: httpx.AsyncClient, path: str, **fields: Any) -> httpx.Response:
    """A form, sent with the token."""
    return await client.post(path, data={"csrf": await token(client, "/ui/404"), **fields})


async def sign_in(client: httpx.AsyncClient, key: str, **fields: Any) -> httpx.Response:
    return await client.post("/ui/login", data={"csrf": await token(client), "key": key, **fields})
