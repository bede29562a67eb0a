"""The settings that this server runs with; secrets are not shown."""

from __future__ import annotations

from starlette.responses import Response

from app.settings import Settings
from app.ui.site import Entry
from app.ui.visit import Visit


def routes(settings: Settings) -> tuple[Entry, ...]:
    """GET /ui/settings."""

    async def shown(visit: Visit) -> Response:
        return visit.render("settings.html", settings=settings)

    return (Entry("/settings", shown),)
