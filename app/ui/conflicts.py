"""What contradicts what, and what stands."""

from __future__ import annotations

from starlette.responses import Response

from app.ui.site import Entry
from app.ui.visit import Visit


async def listed(visit: Visit) -> Response:
    """GET /ui/conflicts."""
    return visit.render("conflicts.html")


ROUTES = (Entry("/conflicts", listed),)
