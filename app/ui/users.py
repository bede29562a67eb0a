"""Users, and what is known of one."""

from __future__ import annotations

from starlette.responses import Response

from app.ui.site import Entry
from app.ui.visit import Visit


async def listed(visit: Visit) -> Response:
    """GET /ui/users."""
    return visit.render("users.html")


ROUTES = (Entry("/users", listed),)
