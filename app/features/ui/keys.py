"""Keys: made, limited, revoked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from starlette.responses import Response

from app.api.common import encode_cursor
from app.features.ui.rendering import url
from app.features.ui.visit import Entry, Refused, Visit
from app.store.limits import PERIODS
from app.store.tenancy import SCOPES

PAGE = 50
USED_SINCE = ((0, "today"), (6, "within 7 days"), (29, "within 30 days"))
"""Days back, and how that is called; days are UTC's."""
ORDER = ("proxy", "read", "write", "admin")
MOST_GROUPS = 1000
"""Keys whose use is looked at: as many as a page of /api/v1/spend has."""


async def listed(visit: Visit) -> Response:
    """GET /ui/keys."""
    page, *spent = await asyncio.gather(
        visit.api.get("keys", limit=PAGE, cursor=visit.query("cursor")),
        *(_spent(visit, days) for days, _ in USED_SINCE),
    )
    used = {key: words for (_, words), found in reversed(list(zip(USED_SINCE, spent, strict=True))) for key in found}
    return visit.render("keys.html", page=page, used=used, spent=spent[-1], now=datetime.now(UTC).isoformat())


async def _spent(visit: Visit, days: int) -> dict[str, Any]:
    """What each key spent since so many days ago; nothing where nobody counts it."""
    since = datetime.now(UTC).date() - timedelta(days=days)
    try:
        told = await visit.api.get("spend", **{"by": "key", "from": since.isoformat(), "limit": MOST_GROUPS})
    except Refused as refused:
        if refused.status != 404:
            raise
        return {}
    return {each["id"]: each for each in told["spend"] if each["id"] is not None}


async def new(visit: Visit) -> Response:
    """GET /ui/keys/new, for those who may."""
    await visit.api.get("keys", limit=1)
    return _form(visit, None, {"capture": "on"})


async def made(visit: Visit) -> Response:
    """POST /ui/keys: the key is on the page that answers, and nowhere else: not in a cookie, not in an address."""
    form = await visit.form()
    given = {name: str(value) for name, value in form.items()}
    scopes = [str(each) for each in form.getlist("scopes")]
    try:
        body = {"name": given.get("name", "").strip(), "scopes": scopes, **_limits(given)}
        if user := given.get("user", "").strip():
            body["user"] = user
        key = await visit.api.send("POST", "keys", body=body)
    except Refused as refused:
        if refused.status != 400:
            raise
        return _form(visit, None, given | {"scopes": scopes}, refused)
    return visit.render("key_made.html", key=key)


async def shown(visit: Visit) -> Response:
    """GET /ui/keys/{key}."""
    key = await _one(visit)
    return _form(visit, key, _values(key))


async def changed(visit: Visit) -> Response:
    """POST /ui/keys/{key}."""
    given = {name: str(value) for name, value in (await visit.form()).items()}
    try:
        await visit.api.send("PATCH", "keys", visit.segment("key"), body=_limits(given))
    except Refused as refused:
        if refused.status != 400:
            raise
        return _form(visit, await _one(visit), given, refused)
    return visit.redirect(url("keys"), "The key was changed; servers notice within seconds.")


async def revoked(visit: Visit) -> Response:
    """POST /ui/keys/{key}/revoke."""
    await visit.api.send("DELETE", "keys", visit.segment("key"))
    return visit.redirect(url("keys"), "The key was revoked; servers notice within seconds.")


async def _one(visit: Visit) -> Mapping[str, Any]:
    """The key of the path: the first of the list behind the place where it would stand."""
    try:
        wanted = UUID(visit.segment("key"))
        behind = encode_cursor([str(UUID(int=wanted.int + 1))])
    except ValueError:
        raise Refused(404, "There is no such key.") from None
    for each in (await visit.api.get("keys", limit=1, cursor=behind))["keys"]:
        if each["id"] == str(wanted):
            return dict(each)
    raise Refused(404, "There is no such key.")


def _form(
    visit: Visit, key: Mapping[str, Any] | None, values: Mapping[str, Any], refused: Refused | None = None
) -> Response:
    return visit.render(
        "key.html",
        key=key,
        values=values,
        refused=refused,
        periods=PERIODS,
        scopes=sorted(SCOPES, key=ORDER.index),
        status=200 if refused is None else 400,
    )


def _values(key: Mapping[str, Any]) -> dict[str, str]:
    """A key's limits as fields of the form."""
    limits = key["limits"]
    told = {name: "" if value is None else str(value) for name, value in limits.items()}
    paging = {None: "", True: "on", False: "off"}[limits["paging"]]
    return told | {
        "models": "\n".join(limits["models"]),
        "capture": "on" if limits["capture"] else "",
        "paging": paging,
        "expires_at": (key["expires_at"] or "")[:16],
    }


def _limits(given: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the form as the route takes them. Raises Refused (400), naming the field."""
    limits: dict[str, Any] = {
        name: _number(given, name, int) for name in ("requests_per_minute", "tokens_per_minute", "token_budget")
    }
    limits["money_budget_usd"] = _number(given, "money_budget_usd", float)
    for name in ("token_period", "money_period"):
        if given.get(name):
            limits[name] = given[name]
    limits["models"] = [each for line in given.get("models", "").splitlines() if (each := line.strip())]
    limits["capture"] = given.get("capture") == "on"
    limits["paging"] = {"on": True, "off": False}.get(given.get("paging", ""))
    body: dict[str, Any] = {"limits": limits}
    if expires := given.get("expires_at", "").strip():
        body["expires_at"] = expires
    return body


def _number(given: Mapping[str, str], name: str, kind: type[int] | type[float]) -> int | float | None:
    text = given.get(name, "").strip()
    try:
        found = kind(text) if text else None
        if found is None or math.isfinite(found):
            return found
    except (ValueError, OverflowError):
        pass
    raise Refused(400, f"“{text[:40]}” is no number that this can be.", f"limits.{name}")


ROUTES = (
    Entry("/keys", listed),
    Entry("/keys", made, ("POST",)),
    Entry("/keys/new", new),
    Entry("/keys/{key}", shown),
    Entry("/keys/{key}", changed, ("POST",)),
    Entry("/keys/{key}/revoke", revoked, ("POST",)),
)
