"""Keys: made, limited, revoked."""

from __future__ import annotations

from starlette.responses import Response

from app.ui.site import Entry
from app.ui.visit import Visit


async def listed(visit: Visit) -> Response:
    """GET /ui/keys."""
    return visit.render("keys.html")


ROUTES = (Entry("/keys", listed),)
