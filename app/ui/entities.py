"""What things are called."""

from __future__ import annotations

from starlette.responses import Response

from app.ui.site import Entry
from app.ui.visit import Visit


async def listed(visit: Visit) -> Response:
    """GET /ui/entities."""
    return visit.render("entities.html")


ROUTES = (Entry("/entities", listed),)
