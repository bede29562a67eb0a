"""The work that memory still has to do, and what failed."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from app.ui.rendering import url
from app.ui.site import Entry
from app.ui.visit import Visit
from app.ui.within import Refused

PAGE = 50


async def listed(visit: Visit) -> Response:
    """GET /ui/jobs. What is left may be known to a key of one user, what failed belongs to the whole tenant."""
    counts, dead = await asyncio.gather(visit.api.get("queue"), _dead(visit))
    return visit.render("jobs.html", counts=counts, dead=dead)


async def _dead(visit: Visit) -> object:
    try:
        return await visit.api.get("queue", "dead", limit=PAGE, cursor=visit.query("cursor"))
    except Refused as refused:
        if refused.status != 403:
            raise
        return {"dead": [], "next": None, "refused": refused.message}


async def retried(visit: Visit) -> Response:
    """POST /ui/jobs/{job}/retry."""
    job = visit.segment("job")
    await visit.api.send("POST", "queue", "dead", job, "retry")
    return visit.redirect(url("jobs"), f"Job {job} is tried again.")


ROUTES = (Entry("/jobs", listed), Entry("/jobs/{job}/retry", retried, ("POST",)))
