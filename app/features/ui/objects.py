"""What a paged session is made of: its objects at their fidelities, the pressure, and what was asked."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from app.features.ui.conversation import pretty
from app.features.ui.rendering import url
from app.features.ui.visit import Entry, Refused, Visit

ROWS = 50
EVENTS = 20
"""Faults and changes beside the list of objects; the rest is on the pages of the objects."""
LEVELS = ("In full", "Detailed", "Compact", "One line", "Evicted")
"""By fidelity; of what is evicted a handle stands."""
TYPES = (
    "conversation_phase", "design_decision", "debugging_session", "file_context", "tool_result", "plan", "error_context",
    "external_reference",
)  # fmt: skip
"""Of objects, as the API names them."""
BORDERS = {"normal": 0.0, "caution": 0.60, "warning": 0.75, "critical": 0.85, "emergency": 0.95}
"""Where each zone of pressure begins, tokens ÷ budget."""
WISHES = {
    "pin": "Pinned: shown shorter only when all others are.",
    "unpin": "Pinned no more.",
    "release": "Released: the session's next prompt shows its stub.",
}


def zones(share: float) -> list[tuple[str, float, float]]:
    """The zones of a gauge: name, where it begins, how wide it is; the last one goes to 1, or as far as `share` does."""
    ends = [*list(BORDERS.values())[1:], max(1.0, share)]
    return [(name, begin, end - begin) for (name, begin), end in zip(BORDERS.items(), ends, strict=True)]


async def listed(visit: Visit) -> Response:
    """GET /ui/sessions/{session}/objects."""
    api = visit.api
    session = await api.get("sessions", visit.segment("session"), user=visit.query("user"))
    at = ("sessions", session["id"])
    filters = {name: visit.query(name) for name in ("type", "fidelity", "pinned")}
    page, pressure, faults, moves = await asyncio.gather(
        api.get("objects", session=session["id"], **filters, limit=ROWS, cursor=visit.query("cursor")),
        api.get(*at, "pressure"),
        api.get(*at, "faults", limit=EVENTS),
        api.get(*at, "transitions", limit=EVENTS),
    )
    return visit.render(
        "session_objects.html",
        session=session,
        page=page,
        pressure=pressure,
        zones=zones(pressure["share"]),
        scale=max(1.0, pressure["share"]),
        faults=faults["faults"],
        moves=moves["transitions"],
        filters=filters,
        types=TYPES,
        levels=LEVELS,
        more=url(*at, "objects", **filters, cursor=page["next"]),
    )


async def one(visit: Visit) -> Response:
    """GET /ui/sessions/{session}/objects/{object}: its texts at each level, and what became of it."""
    session = await visit.api.get("sessions", visit.segment("session"), user=visit.query("user"))
    at = ("objects", visit.segment("object"))
    whole, history = await asyncio.gather(
        visit.api.get(*at, session=session["id"]),
        visit.api.get(*at, "history", session=session["id"], limit=ROWS, cursor=visit.query("cursor")),
    )
    return visit.render(
        "session_object.html",
        session=session,
        object=whole,
        history=history,
        levels=LEVELS,
        more=url("sessions", session["id"], *at, cursor=history["next"]),
        pretty=pretty,
    )


async def act(visit: Visit) -> Response:
    """POST /ui/sessions/{session}/objects/{object}/do: pin, unpin, release, restore, or ask a question."""
    given = await visit.form()
    session = await visit.api.get("sessions", visit.segment("session"), user=visit.query("user"))
    at = ("objects", visit.segment("object"))
    deed = str(given.get("do", ""))
    query = {"session": session["id"]}
    if deed in WISHES:
        await visit.api.send("POST", *at, deed, query=query)
        notice = WISHES[deed]
    elif deed == "restore":
        await visit.api.send("POST", *at, "fault", query=query, body={"restore": True})
        notice = "Restored: the session's next prompt shows it in full."
    elif deed == "ask":
        notice = await _ask(visit, at, query, str(given.get("question", "")).strip())
    else:
        raise Refused(400, "There is no such action.")
    page = ("sessions", session["id"], "objects")
    return visit.redirect(url(*page) if given.get("back") else url(*page, at[1]), notice)


async def _ask(visit: Visit, at: tuple[str, ...], query: dict[str, Any], question: str) -> str:
    if not question:
        raise Refused(400, "Say what is to be answered.")
    told = await visit.api.send("POST", *at, "fault", query=query, body={"question": question})
    return "Answered; the answer stands below." if told["answer"] else "Nothing in this object answers that."


ROUTES = (
    Entry("/sessions/{session}/objects", listed),
    Entry("/sessions/{session}/objects/{object}", one),
    Entry("/sessions/{session}/objects/{object}/do", act, ("POST",)),
)
