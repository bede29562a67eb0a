"""Calls: what was asked, how it went, what memory had to do with it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from app.ui import call, call_words
from app.ui.site import Entry
from app.ui.visit import Visit
from app.ui.within import Refused

PAGE = 50
FILTERS = (
    "user", "session", "model", "status", "outcome", "label", "tools", "has_error", "min_latency_ms", "since", "until", "legs",
)  # fmt: skip
"""What GET /api/v1/calls takes."""


async def listed(visit: Visit) -> Response:
    """GET /ui/calls."""
    given = {name: value for name in FILTERS if (value := visit.query(name)) is not None}
    page: dict[str, Any] = {"calls": [], "next": None}
    problem = None
    try:
        page = await visit.api.get("calls", **asked(given), limit=PAGE, cursor=visit.query("cursor"))
    except Refused as refused:
        if refused.status not in (400, 404, 422):
            raise
        problem = refused.message
    return visit.render(
        "calls.html",
        status=200 if problem is None else 400,
        page=page,
        given=given,
        problem=problem,
        words=call_words,
        first=visit.query("cursor") is None,
        base=str(visit.request.base_url).rstrip("/"),
    )


def asked(given: dict[str, str]) -> dict[str, Any]:
    """The form's values as the route takes them: labels one by one, moments without a zone in UTC."""
    made: dict[str, Any] = dict(given)
    if "label" in given:
        made["label"] = [each.strip() for each in given["label"].split(",") if each.strip()]
    for name in ("since", "until"):
        if name in given:
            made[name] = moment(given[name])
    return made


def moment(text: str) -> str:
    """As a form has it ("2026-11-22T19:00"), in UTC; what is no moment goes on, to be refused."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return found.isoformat() if found.tzinfo is not None else found.replace(tzinfo=UTC).isoformat()


ROUTES = (Entry("/calls", listed), *call.ROUTES)
