"""Settings as they are shown: every one, and no secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel, SecretStr

from app.api.auth import Principal
from app.features.ui.settings import GROUPS, HIDDEN, is_operator, rows, without_secrets, written
from app.settings import Settings
from app.store.ids import LOCAL_TENANT
from app.store.tenancy import KeyLimits
from tests.support.tables import each_of

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"
CANARY = "c4n4ry-9f8e7d6c5b4a"
TENANT = UUID(int=7)


def test_every_setting_stands_where_the_documents_have_it() -> None:
    heading, told = "", dict[str, str]()
    for line in DOCS.read_text().splitlines():
        heading = line[3:] if line.startswith("## ") else heading
        if found := re.match(r"\| `([A-Z_]+)` \|", line):
            told[found[1]] = heading
    shown = {row.name: title for title, of in rows(Settings(_env_file=None)) for row in of}
    assert shown == told
    assert [title for title, _ in rows(Settings(_env_file=None))] == [title for title, _ in GROUPS]


def secrets_of(settings: Settings) -> dict[str, Any]:
    """A value with the canary in it for each setting that may hold a secret, whatever its type."""
    given: dict[str, Any] = {}
    for name, field in Settings.model_fields.items():
        kind = str(field.annotation)
        if "SecretStr" in kind:
            given[name] = f"postgresql://u:{CANARY}@h/db" if name.startswith("database") else f"{CANARY}-and-more"
        elif name.endswith("_url"):
            given[name] = f"https://u:{CANARY}@h/v1?api_key={CANARY}"
    return given | {
        "upstreams": [{"name": "a", "base_url": f"https://{CANARY}@h/v1?token={CANARY}", "api_key": CANARY}],
        "domains": {"erp": {"dsn": f"postgresql://r:{CANARY}@h/erp"}},
        "embedded_settings": {"primary_conninfo": f"host=h password={CANARY} user=u", "my.secret": CANARY},
    }


def test_no_secret_is_shown_whatever_setting_holds_it() -> None:
    settings = Settings(_env_file=None, **{
        {"openai_api_key": "OPENAI_API_KEY"}.get(name, name): value for name, value in secrets_of(Settings()).items()
    })  # fmt: skip
    held = repr({name: _plain(getattr(settings, name)) for name in Settings.model_fields})
    assert held.count(CANARY) >= 12, "the canaries sing"
    shown = [row for _, of in rows(settings) for row in of]
    assert CANARY not in repr(shown)
    values = {row.name: row for row in shown}
    assert values["MNEME_DATABASE_URL"].value == HIDDEN
    assert values["MNEME_HELPER_BASE_URL"].value.startswith("https://•••@h/v1?api_key=")
    assert values["MNEME_DATABASE_URL"].changed
    assert not values["MNEME_HOST"].changed


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


def test_a_new_kind_of_setting_that_holds_secrets_is_noticed() -> None:
    """Types of settings that the page has no rule for would be shown as they are."""
    for name, field in Settings.model_fields.items():
        value = without_secrets(field.get_default(call_default_factory=True))
        assert value is None or isinstance(value, bool | int | float | str | list | dict), name


@each_of(
    ("value", "told"),
    [
        (None, "unset"), ([], "none"), ({}, "none"), (0, "0"), (False, "False"), ("x", "x"), (Path("a/b"), "a/b"),
        ("key sk-proj-abcdefghij0123456789", "key •••"), ({"a_token": "x"}, '{"a_token":"•••"}'),
    ],
)  # fmt: skip
def test_values_as_people_read_them(value: object, told: str) -> None:
    assert written(value) == told


@each_of(
    ("principal", "may"),
    [
        (Principal(LOCAL_TENANT, None, None, frozenset(), "open"), True),
        (Principal(LOCAL_TENANT, TENANT, None, frozenset({"admin"}), "keys"), True),
        (Principal(LOCAL_TENANT, TENANT, None, frozenset(), "keys"), True),
        (Principal(LOCAL_TENANT, TENANT, None, frozenset({"read"}), "keys"), False),
        (Principal(LOCAL_TENANT, TENANT, "ana", frozenset(), "keys"), False),
        (Principal(LOCAL_TENANT, TENANT, None, frozenset(), "keys", KeyLimits(requests_per_minute=1)), False),
        (Principal(TENANT, TENANT, None, frozenset({"admin"}), "keys"), False),
    ],
)
def test_settings_are_the_operators(principal: Principal, may: bool) -> None:
    assert is_operator(principal) is may
