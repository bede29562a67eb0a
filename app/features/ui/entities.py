"""What things are called: their aliases, what a mention means, and what the tables of the business's own database mean."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.datastructures import FormData
from starlette.responses import Response

from app.features.ui.rendering import pretty, url
from app.features.ui.visit import Entry, Visit, or_refused

ROWS = 50
STAGES = (
    ("exact", "Exact name", "1.0"),
    ("known_alias", "Known alias", "rank of the alias, at most 0.95"),
    ("fuzzy", "Nearly spelled so", "0.70 to 0.85, by the likeness of the letters"),
    ("domain_db", "In the business's own database", "0.95 by its key, 0.80 by its name"),
    ("coreference", "Named before (they, it, the customer)", "0.60, less the longer ago"),
    ("disambiguation", "Chosen by the user", "0.85"),
)
"""Seed 004's stages in their order: method, what it looks for, how sure it is."""


async def listed(visit: Visit) -> Response:
    filters = {name: visit.query(name) for name in ("query", "type", "user")}
    empty: dict[str, Any] = {"entities": [], "next": None}
    asked = visit.api.get("entities", **filters, limit=ROWS, cursor=visit.query("cursor"))
    page, refused = await or_refused(asked, empty)
    problem = refused.message if refused else None
    if refused and refused.param == "type":
        problem = "A type is one word in lower case, such as customer."
    return visit.render(
        "entities.html",
        status=400 if problem else 200,
        page=page,
        filters=filters,
        problem=problem,
        more=url("entities", **filters, cursor=page["next"]),
    )


async def create(visit: Visit) -> Response:
    """POST /ui/entities/new: a thing by hand."""
    given = await visit.form()
    body = {name: _text(given, name) for name in ("type", "name", "key", "user")}
    made = await visit.api.send("POST", "entities", body=_said(body))
    return visit.redirect(url("entities", made["id"], user=body["user"]), f"{made['name']} is known now.")


async def one(visit: Visit) -> Response:
    """GET /ui/entities/{entity}: a thing, and what it is called. `user`: also by whom."""
    entity, user = visit.segment("entity"), visit.query("user")
    found, aliases, conflicts = await asyncio.gather(
        visit.api.get("entities", entity, user=user),
        visit.api.get("entities", entity, "aliases", user=user, limit=ROWS, cursor=visit.query("cursor")),
        visit.api.get("conflicts", entity=entity, user=user, status="open", limit=ROWS),
    )
    return visit.render(
        "entity.html",
        entity=found,
        user=user,
        aliases=aliases,
        conflicts=conflicts,
        more=url("entities", entity, user=user, cursor=aliases["next"]),
        pretty=pretty,
    )


async def add_alias(visit: Visit) -> Response:
    given = await visit.form()
    entity, user = visit.segment("entity"), _text(given, "user")
    body = _said({"alias": _text(given, "alias"), "user": user})
    made = await visit.api.send("POST", "entities", entity, "aliases", body=body)
    return visit.redirect(url("entities", entity, user=user), f"“{made['alias']}” means it from now on.")


async def delete_alias(visit: Visit) -> Response:
    given = await visit.form()
    entity, user = visit.segment("entity"), _text(given, "user")
    await visit.api.send("DELETE", "entities", entity, "aliases", visit.segment("alias"), query={"user": user})
    return visit.redirect(url("entities", entity, user=user), "It is not called that any more.")


async def delete(visit: Visit) -> Response:
    given = await visit.form()
    await visit.api.send("DELETE", "entities", visit.segment("entity"), query={"user": _text(given, "user")})
    return visit.redirect(
        url("entities"), "The thing and what it was called are gone; what was remembered of it stays."
    )


async def resolve(visit: Visit) -> Response:
    """GET and POST /ui/entities/resolve: what a mention means, and by which stage. It learns, so it is sent."""
    wanted = {name: visit.query(name) for name in ("mention", "user", "session", "text")}
    found = problem = None
    if visit.request.method == "POST":
        given = await visit.form()
        wanted = {name: _text(given, name) for name in wanted}
        found, refused = await or_refused(visit.api.send("POST", "entities", "resolve", body=_said(wanted)), None)
        problem = refused.message if refused else None
    return visit.render(
        "entity_resolve.html",
        status=400 if problem else 200,
        wanted=wanted,
        found=found,
        problem=problem,
        stages=STAGES,
    )


async def choose(visit: Visit) -> Response:
    """POST /ui/entities/choose: what the user meant."""
    given = await visit.form()
    body = {name: _text(given, name) for name in ("mention", "entity", "user")}
    made = await visit.api.send("POST", "entities", "choose", body=_said(body))
    notice = f"“{made['alias']}” means this to {body['user'] or 'the user'} from now on."
    return visit.redirect(url("entities", body["entity"], user=body["user"]), notice)


async def ontology(visit: Visit) -> Response:
    """GET /ui/entities/ontology: read-only."""
    return visit.render("ontology.html", domains=(await visit.api.get("ontology"))["domains"], pretty=pretty)


def _text(given: FormData, name: str) -> str | None:
    return str(given.get(name, "")).strip() or None


def _said(fields: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value is not None}


ROUTES = (
    Entry("/entities", listed),
    Entry("/entities/new", create, ("POST",)),
    Entry("/entities/resolve", resolve, ("GET", "POST")),
    Entry("/entities/choose", choose, ("POST",)),
    Entry("/entities/ontology", ontology),
    Entry("/entities/{entity}", one),
    Entry("/entities/{entity}/delete", delete, ("POST",)),
    Entry("/entities/{entity}/aliases", add_alias, ("POST",)),
    Entry("/entities/{entity}/aliases/{alias}/delete", delete_alias, ("POST",)),
)
