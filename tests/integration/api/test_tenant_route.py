"""/api/v1/tenant/instructions over real Postgres."""

from __future__ import annotations

from typing import Any

import httpx

from tests.support.wired_api import WiredApi, error_of

PATH = "/api/v1/tenant/instructions"


async def test_instructions_are_written_read_and_taken_away(client: httpx.AsyncClient) -> None:
    assert (await client.get(PATH)).json() == {"instructions": None, "updated_at": None}

    for text, kept in (("  Remember products.  ", "Remember products."), ("Nothing else.", "Nothing else.")):
        answer = await client.put(PATH, json={"instructions": text})
        assert answer.status_code == 200
        assert answer.json()["instructions"] == kept
        assert (await client.get(PATH)).json() == answer.json()
    for nothing in (None, "  "):
        await client.put(PATH, json={"instructions": "x"})
        assert (await client.put(PATH, json={"instructions": nothing})).json()["instructions"] is None


async def test_what_is_no_instruction_is_refused(client: httpx.AsyncClient) -> None:
    bodies: list[Any] = [{}, {"instructions": 1}, {"instructions": "x" * 8001}, {"instructions": "x", "more": 1}, []]
    for body in bodies:
        answer = await client.put(PATH, json=body)
        assert answer.status_code == 400
        error_of(answer)


async def test_only_who_manages_the_tenant_changes_them_and_only_its_own(locked: WiredApi) -> None:
    managing, _ = await locked.tenancy.create_key("acme", "k")
    writing, _ = await locked.tenancy.create_key("acme", "k", scopes=["read", "write"])
    bobs, _ = await locked.tenancy.create_key("acme", "k", user="bob")
    strange, _ = await locked.tenancy.create_key("other", "k")
    async with locked.client(managing) as client:
        assert (await client.put(PATH, json={"instructions": "Acme's"})).status_code == 200
    async with locked.client(writing) as client:
        assert (await client.put(PATH, json={"instructions": "mine"})).status_code == 403
        assert (await client.get(PATH)).json()["instructions"] == "Acme's"
    async with locked.client(bobs) as client:
        assert (await client.get(PATH)).status_code == 403
        assert (await client.put(PATH, json={"instructions": "mine"})).status_code == 403
    async with locked.client(strange) as client:
        assert (await client.get(PATH)).json()["instructions"] is None
        await client.put(PATH, json={"instructions": "Other's"})
    async with locked.client(managing) as client:
        assert (await client.get(PATH)).json()["instructions"] == "Acme's"


PROFILE = "/api/v1/tenant/profile"


async def test_a_profile_is_written_read_and_taken_away(client: httpx.AsyncClient) -> None:
    assert (await client.get(PROFILE)).json() == {"profile": None, "updated_at": None}
    await client.put(PATH, json={"instructions": "Remember products."})
    answer = await client.put(PROFILE, json={"profile": "  - Business: bakery\n- Plan: Pro  "})
    assert answer.status_code == 200
    assert answer.json()["profile"] == "- Business: bakery\n- Plan: Pro"
    assert (await client.get(PROFILE)).json() == answer.json()
    assert (await client.get(PATH)).json()["instructions"] == "Remember products."
    for nothing in (None, " "):
        assert (await client.put(PROFILE, json={"profile": nothing})).json()["profile"] is None
    assert (await client.get(PATH)).json()["instructions"] == "Remember products."


async def test_what_is_no_profile_is_refused(client: httpx.AsyncClient) -> None:
    bodies: list[Any] = [{}, {"profile": 1}, {"profile": "x" * 4001}, {"profile": "x", "more": 1}, []]
    for body in bodies:
        answer = await client.put(PROFILE, json=body)
        assert answer.status_code == 400
        error_of(answer)


async def test_only_who_manages_the_tenant_changes_its_profile(locked: WiredApi) -> None:
    managing, _ = await locked.tenancy.create_key("acme", "k")
    writing, _ = await locked.tenancy.create_key("acme", "k", scopes=["read", "write"])
    bobs, _ = await locked.tenancy.create_key("acme", "k", user="bob")
    async with locked.client(managing) as client:
        assert (await client.put(PROFILE, json={"profile": "Acme"})).status_code == 200
    async with locked.client(writing) as client:
        assert (await client.put(PROFILE, json={"profile": "mine"})).status_code == 403
        assert (await client.get(PROFILE)).json()["profile"] == "Acme"
    async with locked.client(bobs) as client:
        assert (await client.get(PROFILE)).status_code == 403
