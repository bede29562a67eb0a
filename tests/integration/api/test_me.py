"""GET /api/v1/me: whom a request is about that names nobody."""

from __future__ import annotations

from app.store.ids import LOCAL_TENANT
from app.store.tenancy import SCOPES
from tests.support.wired_api import WiredApi, error_of


async def test_an_open_server_is_about_its_local_user(api: WiredApi) -> None:
    async with api.client() as client:
        told = (await client.get("/api/v1/me")).json()
        assert told == {"tenant": str(LOCAL_TENANT), "user": "local", "scopes": sorted(SCOPES), "commands": []}
        assert (await client.get("/api/v1/me", params={"user": "ana"})).json()["user"] == "ana"
        header = {b"X-Mneme-User": "Zoë".encode()}
        assert (await client.get("/api/v1/me", headers=header)).json()["user"] == "Zoë"


async def test_a_key_says_who_and_what_it_may(locked: WiredApi) -> None:
    whole, of = await locked.tenancy.create_key("acme", "app", scopes=["read"])
    own, _ = await locked.tenancy.create_key("acme", "ana", user="ana")
    async with locked.client(whole) as client:
        assert (await client.get("/api/v1/me")).json() == {
            "tenant": str(of.tenant_id),
            "user": None,
            "scopes": ["read"],
            "commands": [],
        }
    async with locked.client(own) as client:
        assert (await client.get("/api/v1/me")).json()["user"] == "ana"
        answer = await client.get("/api/v1/me", params={"user": "ben"})
        assert answer.status_code == 403
        assert "another" in error_of(answer)["message"]
