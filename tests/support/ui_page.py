"""The page before the real api, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from app.features.ui.site import Site, open_site
from app.settings import Settings
from tests.support.wired_api import WiredApi

SECRET = "a secret of the tests' own"


class Page:
    """A site, what stands behind it, and browsers before it."""

    def __init__(self, api: WiredApi, **settings: Any) -> None:
        self.api = api
        self.site: Site = open_site(
            Settings(ui_secret=SECRET, _env_file=None, **settings), api.authenticator, api.app, api.app
        )

    @asynccontextmanager
    async def browser(self, base: str = "http://127.0.0.1:8080", **headers: str) -> AsyncIterator[httpx.AsyncClient]:
        """Keeps cookies; follows no redirects. A surprise inside is answered, as a server would."""
        transport = httpx.ASGITransport(self.site, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers) as client:
            yield client
