"""One fact of a user: said, corrected, rated, taken away, and what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from app.ui.recall import PAGE, written
from app.ui.rendering import url
from app.ui.site import Entry
from app.ui.visit import Visit
from app.ui.within import Refused

EVENTS = {
    "created": ("Said for the first time", "good"),
    "changed": ("Changed", "info"),
    "rated": ("Rated", ""),
    "ended": ("Not true any more", "warn"),
    "deleted": ("Taken away", "bad"),
    "forgotten": ("Forgotten", "bad"),
}
"""What the history calls it: (in words, tone)."""
ACTORS = {"system": "Mneme", "api": "a client (API or page)"}


async def shown(visit: Visit) -> Response:
    """GET /ui/users/{user}/facts/{key}?category=…; of one that is gone its history."""
    return await page(visit)


async def page(visit: Visit, *, problem: Refused | None = None, given: Mapping[str, Any] | None = None) -> Response:
    """The page. `problem`: why what was `given` in a form was refused."""
    user, key, category = visit.segment("user"), visit.segment("key"), visit.query("category")
    fact, history = await asyncio.gather(
        _fact(visit, user, key, category),
        visit.api.get(
            "users", user, "facts", key, "history", category=category, limit=PAGE, cursor=visit.query("cursor")
        ),
    )
    return visit.render(
        "fact.html",
        status=problem.status if problem else 200,
        user=user,
        key=key,
        category=category,
        fact=fact,
        history=history["changes"],
        next=history["next"],
        problem=problem.message if problem else None,
        given=given,
        written=written,
        events=EVENTS,
        actors=ACTORS,
    )


async def _fact(visit: Visit, user: str, key: str, category: str | None) -> Any:
    try:
        return await visit.api.get("users", user, "facts", key, category=category)
    except Refused as refused:
        if refused.status != 404:
            raise
        return None


async def put(visit: Visit) -> Response:
    """POST /ui/users/{user}/facts: a fact by hand, new or corrected."""
    given = await visit.form()
    user, key = visit.segment("user"), str(given.get("key", "")).strip()
    if not key:
        raise Refused(400, "A fact has a key, such as lives_in.")
    body: dict[str, Any] = {"value": _value(str(given.get("value", "")), str(given.get("as", "text")))}
    if category := str(given.get("category", "")).strip():
        body["category"] = category
    if confidence := str(given.get("confidence", "")).strip():
        body["confidence"] = _whole(confidence)
    fact = await visit.api.send("PUT", "users", user, "facts", key, body=body)
    return visit.redirect(url("users", user, "facts", key, category=fact["category"]), "Said: it holds from now on.")


async def rate(visit: Visit) -> Response:
    """POST …/facts/{key}/rate."""
    given = await visit.form()
    user, key, category = visit.segment("user"), visit.segment("key"), str(given.get("category", ""))
    body = {"confidence": _whole(str(given.get("confidence", "")))}
    await visit.api.send("PATCH", "users", user, "facts", key, query={"category": category}, body=body)
    return visit.redirect(url("users", user, "facts", key, category=category), "Rated.")


async def delete(visit: Visit) -> Response:
    """POST …/facts/{key}/delete."""
    given = await visit.form()
    user, key, category = visit.segment("user"), visit.segment("key"), str(given.get("category", ""))
    await visit.api.send("DELETE", "users", user, "facts", key, query={"category": category})
    return visit.redirect(url("users", user, tab="facts"), "The fact is gone, with the words of its history.")


def _value(text: str, form: str) -> Any:
    if form != "json":
        if not text.strip():
            raise Refused(400, "A fact has a value; to take a fact away, delete it.")
        return text.strip()
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Refused(400, f"This value is not valid JSON: {error}.") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Refused(400, "Confidence is a whole number from 0 to 100.") from None


ROUTES = (
    Entry("/users/{user}/facts", put, ("POST",)),
    Entry("/users/{user}/facts/{key}", shown),
    Entry("/users/{user}/facts/{key}/rate", rate, ("POST",)),
    Entry("/users/{user}/facts/{key}/delete", delete, ("POST",)),
)
