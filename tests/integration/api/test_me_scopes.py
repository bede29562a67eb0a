"""GET /api/v1/me names the scope `admin` only for who may manage something."""

from tests.support.wired_api import WiredApi


async def test_a_key_of_one_user_administers_nothing(locked: WiredApi) -> None:
    own, _ = await locked.tenancy.create_key("acme", "ana", user="ana")
    whole, _ = await locked.tenancy.create_key("acme", "app")
    for key, expected in ((own, 403), (whole, 200)):
        async with locked.client(key) as client:
            assert (await client.get("/api/v1/keys")).status_code == expected
            told = (await client.get("/api/v1/me")).json()["scopes"]
            assert set(told) == {"proxy", "read", "write"} | ({"admin"} if expected == 200 else set())
