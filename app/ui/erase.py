"""Erasing a user: what will go, whether it is meant, and the receipt."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from app.store.erasure import NOTE
from app.ui.site import Entry
from app.ui.visit import Visit

COUNTED = 1000
"""Rows that are counted of each kind: the largest page of the doors. More are “1,000 or more”."""


async def asked(visit: Visit) -> Response:
    """GET /ui/users/{user}/erase."""
    return await _ask(visit, visit.segment("user"), None)


async def done(visit: Visit) -> Response:
    """POST /ui/users/{user}/erase, with the user's id typed."""
    given = await visit.form()
    user = visit.segment("user")
    if str(given.get("id", "")) != user:
        return await _ask(visit, user, "What you typed is not this user's id: nothing was erased.")
    tombstones = given.get("tombstones") == "on"
    receipt = await visit.doors.send("DELETE", "users", user, query={"tombstones": tombstones})
    return visit.render("erased.html", user=user, receipt=receipt)


async def _ask(visit: Visit, user: str, problem: str | None) -> Response:
    doors = visit.doors
    person, memories, facts, sessions, calls = await asyncio.gather(
        doors.get("users", user),
        doors.get("memories", user=user, status="all", limit=COUNTED),
        doors.get("users", user, "facts", limit=COUNTED),
        doors.get("sessions", user=user, limit=COUNTED),
        doors.get("calls", user=user, limit=COUNTED),
    )
    pages = {"memories": memories, "facts": facts, "sessions": sessions, "calls": calls}
    counts = [(name, len(page[name]), page["next"] is not None) for name, page in pages.items()]
    return visit.render(
        "erase.html",
        status=400 if problem else 200,
        user=user,
        person=person,
        counts=counts,
        problem=problem,
        note=NOTE,
    )


ROUTES = (
    Entry("/users/{user}/erase", asked),
    Entry("/users/{user}/erase", done, ("POST",)),
)
