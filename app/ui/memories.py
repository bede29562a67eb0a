"""Memories of all users: listed, searched, added by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from app.ui import memory, recall
from app.ui.recall import Wanted, json_object, words
from app.ui.rendering import url
from app.ui.site import Entry
from app.ui.visit import Visit
from app.ui.within import Refused


async def listed(visit: Visit) -> Response:
    """GET /ui/memories."""
    wanted = Wanted.of(visit)
    user = visit.query("user") or (visit.principal.user_external_id if visit.principal else None)
    return visit.render(
        "memories.html",
        user=user,
        wanted=wanted,
        found=await recall.find(visit, user, wanted),
        tiers=recall.TIERS,
        kinds=recall.KINDS,
        statuses=recall.STATUSES,
    )


async def blank(visit: Visit) -> Response:
    """GET /ui/memories/new."""
    return _form(visit, None, {})


async def add(visit: Visit) -> Response:
    """POST /ui/memories/new."""
    given = await visit.form()
    said = {name: str(value).strip() for name, value in given.items()}
    try:
        body: dict[str, Any] = {
            "text": said.get("text", ""),
            "kind": said.get("kind", "fact"),
            "tags": words(said.get("tags", "")),
            "metadata": json_object(said.get("metadata", "")),
        }
        for name in ("user", "session"):
            if said.get(name):
                body[name] = said[name]
        if said.get("tier"):
            body["tier"] = recall.tier(said["tier"])
        if said.get("importance"):
            body["importance"] = memory.share(said["importance"])
        made = await visit.api.send("POST", "memories", body=body)
    except Refused as refused:
        if refused.status not in (400, 404, 409):
            raise
        return _form(visit, refused, said)
    return visit.redirect(
        url("memories", made["id"]),
        "Remembered." if made["created"] else "This was known already: it counts one more time.",
    )


def _form(visit: Visit, problem: Refused | None, given: Mapping[str, str]) -> Response:
    return visit.render(
        "memory_new.html",
        status=problem.status if problem else 200,
        problem=problem.message if problem else None,
        given=given,
        user=given.get("user") or visit.query("user") or "",
        confined=visit.principal is not None and visit.principal.user_external_id is not None,
        tiers=recall.TIERS,
        kinds=recall.KINDS,
    )


ROUTES = (
    Entry("/memories", listed),
    Entry("/memories/new", blank),
    Entry("/memories/new", add, ("POST",)),
    *memory.ROUTES,
)
