"""The work that memory still has to do, and what failed."""

from __future__ import annotations

from starlette.responses import Response

from app.ui.site import Entry
from app.ui.visit import Visit


async def listed(visit: Visit) -> Response:
    """GET /ui/jobs."""
    return visit.render("jobs.html")


ROUTES = (Entry("/jobs", listed),)
