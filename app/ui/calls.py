"""Calls, and one call: why the model was told what it was told."""

from __future__ import annotations

from starlette.responses import Response

from app.ui.site import Entry
from app.ui.visit import Visit


async def listed(visit: Visit) -> Response:
    """GET /ui/calls."""
    return visit.render("calls.html")


ROUTES = (Entry("/calls", listed),)
