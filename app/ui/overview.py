"""What happens here, in a minute."""

from __future__ import annotations

from starlette.responses import Response

from app.ui.site import Entry
from app.ui.visit import Visit


async def listed(visit: Visit) -> Response:
    """GET /ui."""
    return visit.render("overview.html")


ROUTES = (Entry("", listed),)
