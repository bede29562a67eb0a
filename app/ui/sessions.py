"""Conversations as they were."""

from __future__ import annotations

from starlette.responses import Response

from app.ui.site import Entry
from app.ui.visit import Visit


async def listed(visit: Visit) -> Response:
    """GET /ui/sessions."""
    return visit.render("sessions.html")


ROUTES = (Entry("/sessions", listed),)
