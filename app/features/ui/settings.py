"""The settings that this server runs with; secrets are not shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from msgspec import Struct
from pydantic import BaseModel, SecretStr
from starlette.responses import Response

from app.api.auth import Principal
from app.api.tenant import manages
from app.features.ui.visit import Entry, Refused, Visit
from app.settings import PREFIX, Settings
from app.store.ids import LOCAL_TENANT
from mneme_replay.secrets import FORMATS, is_secret, masked_path

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
    """Every setting under its heading, as it may be shown."""
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
