"""Users: found, listed, one of them with what is known, one of their facts, and erasing a user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import orjson
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app.api.common import encode_cursor
from app.features.ui.memories import PAGE, STATUSES, TIERS, MemoryQuery, find, json_object, written
from app.features.ui.rendering import url
from app.features.ui.visit import Entry, Refused, Visit, or_none
from app.store.erasure import NOTE
from app.store.kinds import KINDS
from app.store.spaces import MOST_SPACES

COUNTED = 1000
"""Rows that are counted of each kind: the largest page of the API. More are “1,000 or more”."""
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

# --- all of them ---------------------------------------------------------------------------------------------------------


async def listed(visit: Visit) -> Response:
    """GET /ui/users. `id`: the user of that id, and those that come after it in the alphabet."""
    wanted = visit.query("id")
    cursor = visit.query("cursor")
    if wanted is not None and cursor is None:
        cursor = encode_cursor([wanted])
    page = await visit.api.get("users", limit=PAGE, cursor=cursor)
    named = None
    if wanted is not None and visit.query("cursor") is None:
        named = await or_none(visit.api.get("users", wanted), 400, 404)
    rows = [*([named] if named is not None else []), *(each for each in page["users"] if each != named)]
    return visit.render(
        "users.html", users=rows, next=page["next"], wanted=wanted, exact=named, address=visit.request.base_url
    )


# --- one: what is known of them, in tabs ---------------------------------------------------------------------------------

Tab = Callable[[Visit, str], Awaitable[dict[str, Any]]]


async def page(visit: Visit, *, problem: Refused | None = None, given: Mapping[str, Any] | None = None) -> Response:
    """GET /ui/users/{user}?tab=… `problem`: why what was `given` in a form was refused."""
    user = visit.segment("user")
    wanted = visit.query("tab") or ""
    tab = wanted if wanted in TABS else "profile"
    person, values = await asyncio.gather(visit.api.get("users", user), TABS[tab](visit, user))
    return visit.render(
        f"user_{tab}.html",
        status=problem.status if problem else 200,
        user=user,
        person=person,
        tab=tab,
        problem=problem.message if problem else None,
        given=given,
        written=written,
        **values,
    )


async def _profile(visit: Visit, user: str) -> dict[str, Any]:
    question = visit.query("question")
    if question is None:
        found = await visit.api.get("users", user, "profile")
        return {"profile": found["profile"], "question": None, "prompt": None}
    body = {"user": user, "messages": [{"role": "user", "content": question}]}
    found, compiled = await asyncio.gather(
        visit.api.get("users", user, "profile"), visit.api.send("POST", "context", body=body)
    )
    return {"profile": found["profile"], "question": question, "prompt": compiled}


async def _facts(visit: Visit, user: str) -> dict[str, Any]:
    category = visit.query("category")
    found = await visit.api.get("users", user, "facts", category=category, limit=PAGE, cursor=visit.query("cursor"))
    return {"facts": found["facts"], "next": found["next"], "category": category}


async def _memories(visit: Visit, user: str) -> dict[str, Any]:
    wanted = MemoryQuery.of(visit)
    return {
        "wanted": wanted,
        "found": await find(visit, user, wanted),
        "tiers": TIERS,
        "kinds": KINDS,
        "statuses": STATUSES,
    }


async def _sessions(visit: Visit, user: str) -> dict[str, Any]:
    found = await visit.api.get("sessions", user=user, limit=PAGE, cursor=visit.query("cursor"))
    return {"sessions": found["sessions"], "next": found["next"]}


async def _due(visit: Visit, user: str) -> dict[str, Any]:
    found = await visit.api.get("memories", "due", user=user, limit=PAGE)
    return {"due": found["memories"]}


async def _commands(visit: Visit, user: str) -> dict[str, Any]:
    found = await visit.api.get("commands", user=user, limit=PAGE, cursor=visit.query("cursor"))
    return {"commands": found["commands"], "next": found["next"]}


async def _spaces(visit: Visit, user: str) -> dict[str, Any]:
    """Which spaces the user has, and of the one that is wanted what is known there, with who said it."""
    listed = await visit.api.get("spaces", user=user, limit=MOST_SPACES)
    names = [each["name"] for each in listed["spaces"]]
    wanted = visit.query("space")
    values = {"spaces": listed["spaces"], "space": None, "items": [], "next": None}
    if wanted is None and names:
        wanted = names[0]
    if wanted is None:
        return values
    found = await visit.api.get("spaces", wanted, "items", user=user, limit=PAGE, cursor=visit.query("cursor"))
    return values | {"space": wanted, "items": found["items"], "next": found["next"]}


TABS: dict[str, Tab] = {
    "profile": _profile,
    "facts": _facts,
    "memories": _memories,
    "sessions": _sessions,
    "commands": _commands,
    "due": _due,
    "spaces": _spaces,
}


async def undo(visit: Visit) -> Response:
    """POST /ui/users/{user}/commands/{command}/undo: as it was before the user told memory to do something."""
    await visit.form()
    user = visit.segment("user")
    try:
        await visit.api.send("POST", "commands", visit.segment("command"), "undo", query={"user": user})
    except Refused as refused:
        if refused.status != 409:
            raise
        return visit.redirect(url("users", user, tab="commands"), refused.message)
    return visit.redirect(url("users", user, tab="commands"), "Undone.")


async def take_back(visit: Visit) -> Response:
    """POST /ui/users/{user}/spaces/{space}/items/{item}/take-back: what the user said in a space is not there any more."""
    await visit.form()
    user, space = visit.segment("user"), visit.segment("space")
    try:
        gone = await visit.api.send("DELETE", "spaces", space, "items", visit.segment("item"), query={"user": user})
    except Refused as refused:
        if refused.status not in (404, 409):
            raise
        return visit.redirect(url("users", user, tab="spaces", space=space), refused.message)
    told = "Others said it, too: it stays as theirs." if gone["stays"] else "Taken back, with what was learned from it."
    return visit.redirect(url("users", user, tab="spaces", space=space), told)


async def change(visit: Visit) -> Response:
    """POST /ui/users/{user}: name, e-mail address and metadata."""
    given = await visit.form()
    user = visit.segment("user")
    try:
        body: dict[str, Any] = {
            "name": str(given.get("name", "")).strip(),
            "metadata": json_object(str(given.get("metadata", ""))),
        }
        if email := str(given.get("email", "")).strip():
            body["email"] = email
        await visit.api.send("PATCH", "users", user, body=body)
    except Refused as refused:
        if refused.status not in (400, 409):
            raise
        return await page(visit, problem=refused, given=given)
    return visit.redirect(url("users", user), "Saved.")


async def export(visit: Visit) -> Response:
    """GET /ui/users/{user}/export: all that is stored of them, as a file."""
    user = visit.segment("user")
    await visit.api.get("users", user)
    return _File(visit.pass_on("users", user, "export"), f"{user}.jsonl")


class _File(Response):
    """An answer that a browser saves under this name."""

    def __init__(self, inner: Response, name: str) -> None:
        super().__init__()
        self._inner = inner
        self._disposition = f"attachment; filename=\"export.jsonl\"; filename*=UTF-8''{quote(name, safe='')}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def named(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                headers = [*message.get("headers", ()), (b"content-disposition", self._disposition)]
                message = {**message, "headers": headers}
            await send(message)

        await self._inner(scope, receive, named)


# --- erasing: what will go, whether it is meant, the receipt -------------------------------------------------------------


async def done(visit: Visit) -> Response:
    """POST /ui/users/{user}/erase, with the user's id typed."""
    given = await visit.form()
    user = visit.segment("user")
    if str(given.get("id", "")) != user:
        return await asked(visit, problem="What you typed is not this user's id: nothing was erased.")
    tombstones = given.get("tombstones") == "on"
    receipt = await visit.api.send("DELETE", "users", user, query={"tombstones": tombstones})
    return visit.render("erased.html", user=user, receipt=receipt)


async def asked(visit: Visit, *, problem: str | None = None) -> Response:
    """GET /ui/users/{user}/erase. `problem`: why nothing was."""
    api, user = visit.api, visit.segment("user")
    person, memories, facts, sessions, calls = await asyncio.gather(
        api.get("users", user),
        api.get("memories", user=user, status="all", limit=COUNTED),
        or_none(api.get("users", user, "facts", limit=COUNTED)),  # where features list them
        api.get("sessions", user=user, limit=COUNTED),
        or_none(api.get("calls", user=user, limit=COUNTED)),
    )
    pages = {"memories": memories, "facts": facts, "sessions": sessions, "calls": calls}
    counts = [(name, len(page[name]), page["next"] is not None) for name, page in pages.items() if page]
    return visit.render(
        "erase.html",
        status=400 if problem else 200,
        user=user,
        person=person,
        counts=counts,
        problem=problem,
        note=NOTE,
    )


# --- one fact ------------------------------------------------------------------------------------------------------------


async def fact_page(
    visit: Visit, *, problem: Refused | None = None, given: Mapping[str, Any] | None = None
) -> Response:
    """GET /ui/users/{user}/facts/{key}?category=…; of one that is gone its history. `problem`: why what was `given` in a form
    was refused."""
    user, key, category = visit.segment("user"), visit.segment("key"), visit.query("category")
    fact, history = await asyncio.gather(
        or_none(visit.api.get("users", user, "facts", key, category=category), 404),
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
    Entry("/users", listed),
    Entry("/users/{user}/erase", asked),
    Entry("/users/{user}/erase", done, ("POST",)),
    Entry("/users/{user}/facts", put, ("POST",)),
    Entry("/users/{user}/facts/{key}", fact_page),
    Entry("/users/{user}/facts/{key}/rate", rate, ("POST",)),
    Entry("/users/{user}/facts/{key}/delete", delete, ("POST",)),
    Entry("/users/{user}", page),
    Entry("/users/{user}", change, ("POST",)),
    Entry("/users/{user}/commands/{command}/undo", undo, ("POST",)),
    Entry("/users/{user}/spaces/{space}/items/{item}/take-back", take_back, ("POST",)),
    Entry("/users/{user}/export", export),
)
