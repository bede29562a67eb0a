"""Users: found and listed."""

from __future__ import annotations

from starlette.responses import Response

from app.api.common import encode_cursor
from app.ui import erase, facts, user
from app.ui.recall import PAGE
from app.ui.site import Entry
from app.ui.visit import Visit
from app.ui.within import Refused


async def listed(visit: Visit) -> Response:
    """GET /ui/users. `id`: the user of that id, and those that come after it in the alphabet."""
    wanted = visit.query("id")
    cursor = visit.query("cursor")
    if wanted is not None and cursor is None:
        cursor = encode_cursor([wanted])
    page = await visit.doors.get("users", limit=PAGE, cursor=cursor)
    named = None
    if wanted is not None and visit.query("cursor") is None:
        try:
            named = await visit.doors.get("users", wanted)
        except Refused as refused:
            if refused.status not in (400, 404):
                raise
    rows = [*([named] if named is not None else []), *(each for each in page["users"] if each != named)]
    return visit.render(
        "users.html", users=rows, next=page["next"], wanted=wanted, exact=named, address=visit.request.base_url
    )


ROUTES = (
    Entry("/users", listed),
    *erase.ROUTES,
    *facts.ROUTES,
    *user.ROUTES,
)
