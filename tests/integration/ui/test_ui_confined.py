"""Every page and every form, from the table of routes: of a key made for one user, of nothing, and of nonsense."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from app.features.ui.site import Site
from app.features.ui.visit import Entry
from app.store.ids import LOCAL_TENANT
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.calls import CapturedCall, capture
from tests.support.ui_forms import post, sign_in
from tests.support.ui_page import Page

CANARY = "c4n4ry"
NOBODY = "01a2059e-0000-7000-8000-000000000000"
FORM = {
    "user": "ana", "text": "planted", "key": "planted", "value": "x", "name": "planted", "category": "personal",
    "confidence": "1", "correction": "planted", "do": "close", "mention": CANARY, "alias": "planted", "type": "customer",
    "id": "ana", "labels": "planted", "outcome": "negative", "keep": "memory", "scopes": "admin", "metadata": "{}",
}  # fmt: skip
"""Fields of all forms at once; whose they are named says `user`."""


def pages(site: Site, method: str) -> list[Entry]:
    """All that the site is made of, but for signing in and out."""
    return [
        each for each in site.entries if method in each.methods and each.path not in ("/login", "/logout", "/theme")
    ]


def filled(path: str, values: dict[str, str]) -> str:
    return "/ui" + re.sub(r"{(\w+)}", lambda found: quote(values.get(found[1], NOBODY), safe=""), path)


async def _of_ana(page: Page, api: httpx.AsyncClient, pool: Pool) -> dict[str, str]:
    """What a path can name of another user."""
    said = {"messages": [{"role": "user", "content": f"{CANARY} said"}]}
    await api.post("/api/v1/sessions/talk/messages", json=said, params={"user": "ana"})
    session = (await api.get("/api/v1/sessions/talk", params={"user": "ana"})).json()["id"]
    message = (await api.get(f"/api/v1/sessions/{session}/history")).json()["messages"][0]["id"]
    memory = await api.post("/api/v1/memories", json={"user": "ana", "text": f"{CANARY} likes tea"})
    await api.put("/api/v1/users/ana/facts/home", json={"value": CANARY, "category": "personal"})
    thing = {"type": "customer", "name": CANARY, "user": "ana"}
    entity = (await api.post("/api/v1/entities", json=thing)).json()["id"]
    call = await capture(TurnStore(pool, Queries.load()), CapturedCall(page.api.clock.now(), user="ana"))
    key = (await api.get("/api/v1/keys")).json()["keys"][0]["id"]
    return {
        "user": "ana", "session": session, "message": message, "memory": memory.json()["id"], "entity": entity, "key": key,
        "call": str(call), "job": "1", "alias": CANARY,
    }  # fmt: skip


async def _state(api: httpx.AsyncClient) -> list[Any]:
    paths = (
        "keys", "memories?status=all&user=ana", "sessions?user=ana", "sessions/talk/history?user=ana", "users/ana",
        "users/ana/facts", "entities?user=ana", "calls?user=ana",
    )  # fmt: skip
    answers = [await api.get(f"/api/v1/{each}") for each in paths]
    assert all(each.is_success for each in answers), [each.text for each in answers]
    return [each.json() for each in answers]


async def test_a_key_of_one_user_reaches_nothing_of_another(locked: Page, pool: Pool) -> None:
    whole, _ = await locked.api.tenancy.create_key(LOCAL_TENANT, "whole")
    own, _ = await locked.api.tenancy.create_key(LOCAL_TENANT, "own", user="bruno")
    async with locked.api.client(whole) as api, locked.browser() as client:
        values = await _of_ana(locked, api, pool)
        await sign_in(client, own)
        before = await _state(api)
        assert CANARY in str(before)
        for each in pages(locked.site, "GET"):
            for query in ({}, {"user": "ana"}, {"user": "ana", "q": CANARY, "query": CANARY}):
                address = filled(each.path, values | {"key": "home" if "facts" in each.path else values["key"]})
                answer = await client.get(address, params=query)
                assert answer.status_code < 500, f"{address}: {answer.text}"
                words = answer.text.replace(f"={CANARY}", "").replace(f'value="{CANARY}"', "")
                assert f"{CANARY} " not in words, f"{address} {query}"
        for each in pages(locked.site, "POST"):
            address = filled(each.path, values | {"key": "home" if "facts" in each.path else values["key"]})
            for fields in (FORM, {name: value for name, value in FORM.items() if name != "user"}):
                answer = await post(client, address, **fields, entity=values["entity"], owner=values["session"])
                assert answer.status_code < 500, f"{address}: {answer.text}"
                assert CANARY + " " not in answer.text, address
        assert await _state(api) == before


@pytest.mark.heavy
@pytest.mark.parametrize("value", [NOBODY, "\0", "a/../b", "9" * 5000])
async def test_a_page_of_nothing_or_nonsense_says_so(page: Page, value: str) -> None:
    """An empty database, and whatever a path and its parameters may hold."""
    names = ("user", "q", "query", "type", "status", "since", "tab", "from", "before", "tier", "turn", "keep", "part")
    async with page.browser() as client:
        for each in pages(page.site, "GET"):
            address = filled(each.path, dict.fromkeys(re.findall(r"{(\w+)}", each.path), value))
            for query in ({}, {"cursor": value}, dict.fromkeys(names, value)):
                answer = await client.get(address, params=query)
                assert answer.status_code in (200, 400, 403, 404), f"{address} {query}: {answer.status_code}"
                assert answer.headers["content-type"] == "text/html; charset=utf-8", f"{address} {query}"
                assert "went wrong" not in answer.text
        for each in pages(page.site, "POST"):
            address = filled(each.path, dict.fromkeys(re.findall(r"{(\w+)}", each.path), value))
            answer = await post(client, address, **dict.fromkeys(FORM, value))
            assert answer.status_code < 500, f"{address}: {answer.text[-400:]}"
