"""/api/v1/keys: who may manage keys, and what is taken."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx

from app.store.tenancy import KeyLimits
from tests.support.cases import cases
from tests.support.wired_api import WiredApi, all_pages, error_of

KEYS = "/api/v1/keys"


async def test_a_key_is_made_shown_once_limited_and_ended(client: httpx.AsyncClient) -> None:
    limits = {
        "requests_per_minute": 30,
        "money_budget_usd": 2.5,
        "money_period": "day",
        "models": ["gpt-*"],
        "capture": False,
        "paging": True,
    }
    made = await client.post(KEYS, json={"name": "app", "user": "ana", "scopes": ["proxy"], "limits": limits})
    assert made.status_code == 201, made.text
    body = made.json()
    assert body["key"].startswith(body["hint"])
    assert (body["user"], body["scopes"]) == ("ana", ["proxy"])
    unset = {"tokens_per_minute": None, "token_budget": None, "token_period": "month", "price": None}
    assert body["limits"] == limits | unset
    changed = await client.patch(
        f"{KEYS}/{body['id']}", json={"limits": {"requests_per_minute": None, "token_budget": 9}}
    )
    assert changed.json()["limits"]["requests_per_minute"] is None
    assert changed.json()["limits"]["token_budget"] == 9
    assert changed.json()["limits"]["money_budget_usd"] == 2.5
    listed = await client.get(KEYS)
    assert listed.json()["keys"] == [changed.json()]
    assert body["key"] not in listed.text
    assert (await client.delete(f"{KEYS}/{body['id']}")).json() == {"id": body["id"], "revoked": True}
    assert (await client.delete(f"{KEYS}/{body['id']}")).status_code == 404


async def test_keys_are_listed_page_by_page(client: httpx.AsyncClient) -> None:
    for n in range(5):
        await client.post(KEYS, json={"name": f"k{n}"})
    rows = await all_pages(client, KEYS, "keys", limit=2)
    assert {each["name"] for each in rows} == {f"k{n}" for n in range(5)}
    assert len(rows) == 5


@cases(
    "limits",
    [
        {"requests_per_minute": 0}, {"requests_per_minute": -1}, {"requests_per_minute": 1e3}, {"tokens_per_minute": 10**16},
        {"tokens_per_minute": 10**400}, {"token_budget": -1}, {"token_budget": "5"}, {"token_budget": True},
        {"money_budget_usd": -0.01}, {"money_budget_usd": 1e300}, {"money_budget_usd": "NaN"}, {"token_period": "week"},
        {"money_period": None}, {"models": [""]}, {"models": ["x"] * 101}, {"models": "gpt"}, {"capture": "maybe"}, {"rpm": 3},
        {"paging": "maybe"},
    ],
)  # fmt: skip
async def test_hostile_limits(client: httpx.AsyncClient, limits: dict[str, Any]) -> None:
    answer = await client.post(KEYS, json={"name": "k", "limits": limits})
    assert answer.status_code == 400, answer.text
    error_of(answer)
    raw = b'{"name": "k", "limits": {"money_budget_usd": NaN}}'
    answer = await client.post(KEYS, content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert (await client.get(KEYS)).json()["keys"] == []


@cases("expires_at", ["2001-01-01T00:00:00Z", "9999-12-31T00:00:00Z", "soon", "0", "4102444800"])
async def test_an_expiry_is_in_the_future(client: httpx.AsyncClient, expires_at: str) -> None:
    assert (await client.post(KEYS, json={"name": "k", "expires_at": expires_at})).status_code == 400


@cases(
    ("scopes", "user", "limits", "status"),
    [
        ([], None, None, 200), (["admin", "read"], None, None, 200), (["admin", "read"], None, KeyLimits(token_budget=1), 200),
        ([], None, KeyLimits(token_budget=1), 403), (["read", "write"], None, None, 403), ([], "ana", None, 403),
        ([], None, KeyLimits(paging=True), 200),
        (["admin", "read"], "ana", None, 403),
    ],
)  # fmt: skip
async def test_who_may_manage_keys(
    locked: WiredApi, scopes: list[str], user: str | None, limits: KeyLimits | None, status: int
) -> None:
    """A key with limits must not lift them."""
    key, _ = await locked.tenancy.create_key("t", "k", scopes=scopes, user=user, limits=limits or KeyLimits())
    async with locked.client(key) as client:
        assert (await client.get(KEYS)).status_code == status


async def test_another_tenants_keys_are_not_there(locked: WiredApi) -> None:
    key, _ = await locked.tenancy.create_key("one", "k")
    _, other = await locked.tenancy.create_key("two", "other", limits=KeyLimits(token_budget=1))
    async with locked.client(key) as client:
        assert [each["name"] for each in (await client.get(KEYS)).json()["keys"]] == ["k"]
        path = f"{KEYS}/{other.key_id}"
        assert (await client.patch(path, json={"limits": {"token_budget": None}})).status_code == 404
        assert (await client.delete(path)).status_code == 404
        assert (await client.patch(f"{KEYS}/{UUID(int=1)}", json={})).status_code == 404
    assert [each.limits for each in await locked.tenancy.list_keys("two")] == [KeyLimits(token_budget=1)]
