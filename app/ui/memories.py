"""Memories: read, searched, corrected, confirmed, forgotten."""

from __future__ import annotations

from starlette.responses import Response

from app.ui.site import Entry
from app.ui.visit import Visit


async def listed(visit: Visit) -> Response:
    """GET /ui/memories."""
    return visit.render("memories.html")


ROUTES = (Entry("/memories", listed),)
