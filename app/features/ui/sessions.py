"""Conversations as they were: the list, one of them, its cards, and what can be done with it; and what a paged session is made
of: its objects at their fidelities, the pressure, and what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from app.features.ui.rendering import MarkedWords, count, plain, pretty, turns, url, whole
from app.features.ui.visit import Entry, Refused, Visit, or_none, or_refused, whole_number

ROWS = 50
"""Of a list, and messages of a page of a conversation."""

STATUSES = ("active", "paused", "closed", "expired")
DEEDS = {
    "close": "The session is closed.",
    "end": "The session is ended; its summary is being written.",
    "compact": "The session waits for its compaction.",
    "consolidate": "What was said waits to be drawn together.",
}
PAGING = {"on": "Requests are paged from the next one on.", "off": "Requests are not paged any more.", "auto": ""}


async def listed(visit: Visit) -> Response:
    filters = {name: visit.query(name) for name in ("user", "status", "query")}
    empty: dict[str, Any] = {"sessions": [], "next": None}
    asked = visit.api.get("sessions", **filters, limit=ROWS, cursor=visit.query("cursor"))
    page, refused = await or_refused(asked, empty)
    problem = refused.message if refused else None
    if refused and refused.param == "user" and filters["query"] and not filters["user"]:
        problem = "A search looks through the sessions of one user: say whose."
    return visit.render(
        "sessions.html",
        status=400 if problem else 200,
        page=page,
        filters=filters,
        problem=problem,
        statuses=STATUSES,
        more=url("sessions", **filters, cursor=page["next"]),
    )


async def found(visit: Visit) -> Any:
    """The session that the path names, by Mneme's id or by the application's name of it."""
    return await visit.api.get("sessions", visit.segment("session"), user=visit.query("user"))


async def one(visit: Visit) -> Response:
    """GET /ui/sessions/{session}: the conversation, its end first. `before`: what was said before this turn; `turn`: what was
    said around it; `marked`: words of a message to be marked (`MarkedWords.parse`)."""
    session = await found(visit)
    at = ("sessions", session["id"])
    before = whole_number(visit.query("before")) or None
    if (turn := whole_number(visit.query("turn"))) and turn + ROWS // 2 <= session["message_count"]:
        before = turn + ROWS // 2
    api = visit.api
    history, branches, summary, working, parent = await asyncio.gather(
        api.get(*at, "history", last=ROWS + 1, before=before),
        api.get("sessions", parent=session["id"], limit=ROWS),
        or_none(api.get(*at, "summary")),
        api.get(*at, "working"),
        _parent(visit, session),
    )
    messages, earlier = whole(history["messages"], ROWS)
    shown = turns(
        messages,
        session["id"],
        before=earlier - 1 if earlier is not None else 0,
        branches=branches["sessions"],
        marked=MarkedWords.parse(visit.query("marked")),
    )
    last = shown[-1].index if shown else 0
    return visit.render(
        "session.html",
        session=session,
        turns=shown,
        earlier=earlier,
        later=before + ROWS if before is not None and before + ROWS <= session["message_count"] else None,
        before=before,
        missing=max(0, (before - 1 if before is not None else session["message_count"]) - last),
        branches=branches,
        parent=parent,
        summary=summary,
        working=working,
        pretty=pretty,
        plain=plain,
    )


async def cards(visit: Visit) -> Response:
    """GET /ui/sessions/{session}/cards: all, of a type, or those that a sentence means."""
    session = await found(visit)
    at = ("sessions", session["id"], "cards")
    filters = {name: visit.query(name) for name in ("query", "type")}
    empty: dict[str, Any] = {"cards": [], "next": None}
    if filters["query"]:
        asked = visit.api.get(*at, "find", query=filters["query"])
    else:
        asked = visit.api.get(*at, type=filters["type"], limit=ROWS, cursor=visit.query("cursor"))
    page, refused = await or_refused(asked, empty)
    return visit.render(
        "session_cards.html",
        status=400 if refused else 200,
        session=session,
        page=empty | page,
        filters=filters,
        problem=refused.message if refused else None,
        more=url(*at, **filters, cursor=page.get("next")),
        pretty=pretty,
        plain=plain,
    )


async def act(visit: Visit) -> Response:
    """POST /ui/sessions/{session}/do: end or delete it, or have its jobs done now; choose whether it is paged."""
    given = await visit.form()
    session = await found(visit)
    at = ("sessions", session["id"])
    deed, paging = str(given.get("do", "")), str(given.get("paging", ""))
    if paging in PAGING:
        chosen = {"paging": None if paging == "auto" else paging}
        await visit.api.send("PATCH", *at, body={"config": chosen})
        notice = PAGING[paging] or "Key and server say again whether requests are paged."
        return visit.redirect(url(*at, "objects"), notice)
    if deed == "delete":
        gone = await visit.api.send("DELETE", *at)
        told = f"The session is deleted, with {count(gone['messages'], 'message')}; {_went(gone)}."
        return visit.redirect(url("sessions", user=session["user"]), told)
    if deed not in DEEDS:
        raise Refused(400, "There is no such action.")
    body = None
    if deed == "compact" and (target := str(given.get("target_tokens", "")).strip()):
        if (tokens := whole_number(target)) is None:
            raise Refused(400, "How many tokens may stay is a number.")
        body = {"target_tokens": tokens}
    await visit.api.send("POST", *at, deed, body=body)
    return visit.redirect(url(*at), DEEDS[deed])


async def delete(visit: Visit) -> Response:
    """POST /ui/sessions/{session}/messages/{message}/delete. `owner`: where it was said, of a branch its parent."""
    given = await visit.form()
    session = await found(visit)
    owner = str(given.get("owner", "")) or session["id"]
    gone = await visit.api.send("DELETE", "sessions", owner, "messages", visit.segment("message"))
    page = whole_number(str(given.get("before", ""))) or None
    return visit.redirect(url("sessions", session["id"], before=page), f"The message is deleted; {_went(gone)}.")


def _went(gone: Mapping[str, Any]) -> str:
    """What a deletion did to memories, in words."""
    lost, kept = len(gone["forgotten"]), len(gone["kept"])
    told = f"{count(lost, 'memory that came', 'memories that came')} from it alone {'is' if lost == 1 else 'are'} forgotten"
    if not lost:
        told = "no memory came from it alone"
    if kept:
        told += f", {count(kept, 'memory', 'memories')} with other sources {'stays' if kept == 1 else 'stay'}"
    return told


async def _parent(visit: Visit, session: dict[str, Any]) -> Any:
    if session["parent_session_id"] is None:
        return None
    try:
        return await visit.api.get("sessions", session["parent_session_id"])
    except Refused:
        return None  # gone since


# --- a paged session -----------------------------------------------------------------------------------------------------

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


async def object_list(visit: Visit) -> Response:
    api = visit.api
    session = await found(visit)
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


async def object_page(visit: Visit) -> Response:
    """GET /ui/sessions/{session}/objects/{object}: its texts at each level, and what became of it."""
    session = await found(visit)
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


async def object_act(visit: Visit) -> Response:
    """POST /ui/sessions/{session}/objects/{object}/do: pin, unpin, release, restore, or ask a question."""
    given = await visit.form()
    session = await found(visit)
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
    Entry("/sessions", listed),
    Entry("/sessions/{session}", one),
    Entry("/sessions/{session}/cards", cards),
    Entry("/sessions/{session}/do", act, ("POST",)),
    Entry("/sessions/{session}/messages/{message}/delete", delete, ("POST",)),
    Entry("/sessions/{session}/objects", object_list),
    Entry("/sessions/{session}/objects/{object}", object_page),
    Entry("/sessions/{session}/objects/{object}/do", object_act, ("POST",)),
)
