"""The page at /ui (docs/how-to/ui.md): everything that a key may see and do under /api/v1, for people."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from app.features import Feature

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from app.api.auth import Authenticator
    from app.gateway.turn import Application


class Ui(Feature):
    """Asks the API and the gateway from within, as each visitor."""

    @asynccontextmanager
    async def mounts(
        self, authenticator: Authenticator, api: ASGIApp, gateway: Application
    ) -> AsyncIterator[Mapping[str, Callable[[], ASGIApp]]]:
        def site() -> ASGIApp:
            from app.features.ui.site import open_site

            return open_site(self.settings, authenticator, api, gateway)

        yield {"/ui": site}


FEATURE = Ui
