"""Keys: made, limited, revoked. And the settings that this server runs with."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import orjson
from msgspec import Struct
from pydantic import BaseModel, SecretStr
from starlette.responses import Response

from app.api.auth import Principal
from app.api.common import encode_cursor
from app.api.tenant import manages
from app.features.ui.rendering import url
from app.features.ui.visit import Entry, Refused, Visit, or_none
from app.settings import PREFIX, Settings
from app.store.ids import LOCAL_TENANT
from app.store.tenancy import PERIODS, SCOPES
from mneme_replay.secrets import FORMATS, is_secret, masked_path

# --- keys ----------------------------------------------------------------------------------------------------------------

PAGE = 50
USED_SINCE = ((0, "today"), (6, "within 7 days"), (29, "within 30 days"))
"""Days back, and how that is called; days are UTC's."""
ORDER = ("proxy", "read", "write", "admin")
MOST_GROUPS = 1000
"""Keys whose use is looked at: as many as a page of /api/v1/spend has."""


async def listed(visit: Visit) -> Response:
    page, *spent = await asyncio.gather(
        visit.api.get("keys", limit=PAGE, cursor=visit.query("cursor")),
        *(_spent(visit, days) for days, _ in USED_SINCE),
    )
    used = {key: words for (_, words), found in reversed(list(zip(USED_SINCE, spent, strict=True))) for key in found}
    return visit.render("keys.html", page=page, used=used, spent=spent[-1], now=datetime.now(UTC).isoformat())


async def _spent(visit: Visit, days: int) -> dict[str, Any]:
    """What each key spent since so many days ago; nothing where nobody counts it."""
    since = datetime.now(UTC).date() - timedelta(days=days)
    told = await or_none(visit.api.get("spend", **{"by": "key", "from": since.isoformat(), "limit": MOST_GROUPS}), 404)
    return {each["id"]: each for each in told["spend"] if each["id"] is not None} if told else {}


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
    key = await _one(visit)
    return _form(visit, key, _values(key))


async def changed(visit: Visit) -> Response:
    given = {name: str(value) for name, value in (await visit.form()).items()}
    try:
        await visit.api.send("PATCH", "keys", visit.segment("key"), body=_limits(given))
    except Refused as refused:
        if refused.status != 400:
            raise
        return _form(visit, await _one(visit), given, refused)
    return visit.redirect(url("keys"), "The key was changed; servers notice within seconds.")


async def revoked(visit: Visit) -> Response:
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


# --- the settings: secrets are not shown ---------------------------------------------------------------------------------

GROUPS = (
    ("The database", "database_url"),
    ("Upstreams", "upstream_base_url"),
    ("Memory", "placement"),
    ("Paging", "paging"),
    ("Knowledge", "domains"),
    ("Server", "host"),
    ("Recording", "durability"),
)
"""Headings, as docs/reference/settings.md has them, and the first setting under each."""

LINE_CHARS = 60
"""Of JSON that stands in one line."""
HIDDEN = "set, not shown"
MASK = "•••"

_USER_INFO = re.compile(r"://\S*@")
_NAMED = re.compile(r"([\w-]*(?:password|passwd|secret|token|api[_-]?key)[\w-]*\s*[=:]\s*)[^\s,;&]+", re.IGNORECASE)
_KEYS = re.compile(FORMATS, re.VERBOSE)


class SettingRow(Struct, frozen=True):
    """`changed`: it is not as it comes."""

    name: str
    value: str
    changed: bool
    meaning: str


def rows(settings: Settings) -> list[tuple[str, list[SettingRow]]]:
    starts = {first: title for title, first in GROUPS}
    found: list[tuple[str, list[SettingRow]]] = []
    for name, field in Settings.model_fields.items():
        if name in starts:
            found.append((starts[name], []))
        value = getattr(settings, name)
        found[-1][1].append(
            SettingRow(
                str(field.validation_alias or PREFIX + name.upper()),
                written(value),
                value != field.get_default(call_default_factory=True),
                field.description or "",
            )
        )
    return found


def written(value: object) -> str:
    """A value without its secrets, as people read it."""
    told = without_secrets(value)
    if told is None:
        return "unset"
    if isinstance(told, str):
        return told
    if not told and not isinstance(told, bool | int | float):
        return "none"
    if not isinstance(told, dict | list):
        return str(told)
    line = orjson.dumps(told).decode()
    return line if len(line) <= LINE_CHARS else orjson.dumps(told, option=orjson.OPT_INDENT_2).decode()


def without_secrets(value: object, name: str = "") -> Any:
    """The same with everything taken out that is a secret by its type, by its name, or by its look."""
    if isinstance(value, SecretStr):
        return HIDDEN
    if isinstance(value, BaseModel):
        return {each: without_secrets(getattr(value, each), each) for each in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(key): without_secrets(each, str(key)) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [without_secrets(each, name) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return MASK if is_secret(name) else _without_keys(str(value))


def _without_keys(text: str) -> str:
    text = _USER_INFO.sub(f"://{MASK}@", text)
    return _KEYS.sub(MASK, _NAMED.sub(rf"\g<1>{MASK}", masked_path(text)))


def is_operator(principal: Principal) -> bool:
    """Anybody in `open` mode; else a key of the tenant `local` that may manage keys, made for no single user."""
    return principal.tenant_id == LOCAL_TENANT and manages(principal)


def routes(settings: Settings) -> tuple[Entry, ...]:
    """GET /ui/settings."""

    async def shown(visit: Visit) -> Response:
        if visit.principal is None or not is_operator(visit.principal):
            raise Refused(
                403, "Settings are the operator's: they are shown to keys of the tenant `local` that manage keys."
            )
        return visit.render("settings.html", groups=rows(settings))

    return (Entry("/settings", shown),)
