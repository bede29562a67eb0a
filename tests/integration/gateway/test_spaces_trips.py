"""What shared spaces cost those who are in none: no further question to the database, and none of another kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from app.clock import SystemClock
from app.settings import Settings
from app.store import ids
from app.store.pools import FromPool, Pool
from app.store.queries import Queries
from app.store.spaces import SharedSpaces
from app.store.tenancy import UserRef
from app.store.turns import TurnStore
from tests.support.journey import UPSTREAM, Journey, build_journey, user
from tests.support.wired_api import PATIENT_MS, HashEmbedder, make_space

SQL = Queries.load()
SAID, ASKED = "We deploy the billing service on Thursdays.", "On which day do we deploy the billing service?"


class Counted(FromPool):
    """Notes what is asked."""

    def __init__(self, pool: Pool, queries: Queries) -> None:
        super().__init__(pool, queries)
        self.names: list[str] = []

    async def one(self, name: str, *rest: Any) -> dict[str, Any] | None:
        self.names.append(name)
        return await super().one(name, *rest)

    async def many(self, name: str, *rest: Any) -> Sequence[Sequence[Any]]:
        self.names.append(name)
        return await super().many(name, *rest)


async def asked_of(journey: Journey, counted: Counted, name: str) -> list[str]:
    headers = {"x-mneme-user": name}
    await journey.ask([user(SAID)], headers=headers)
    await journey.ask([user(ASKED)], headers=headers)
    await journey.settled()
    counted.names.clear()
    answer = await journey.ask([user(ASKED)], headers=headers)
    assert "memories=0" not in answer.headers["x-mneme-context"]
    return list(counted.names)


async def test_who_is_in_no_space_is_asked_nothing_more(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await make_space(admin)
    counted = Counted(pool, SQL)
    store = TurnStore(pool, SQL, history=counted, memory=counted)
    settings = Settings(upstream_base_url=UPSTREAM, retrieval_deadline_ms=PATIENT_MS)
    journey = build_journey(store, embedder=HashEmbedder(), settings=settings)
    before = await asked_of(journey, counted, "ana")
    assert [before.count(each) for each in ("turns.recognise", "turns.fetch_items", "turns.fetch_shared")] == [1, 1, 0]
    spaces = SharedSpaces(pool, SQL, SystemClock())
    await spaces.create(ids.LOCAL_TENANT, "ops", kind="team")
    await spaces.join(ids.LOCAL_TENANT, "ops", UserRef(ids.user_id(ids.LOCAL_TENANT, "bob"), "bob"))
    assert await asked_of(journey, counted, "eve") == before
    member = await asked_of(journey, counted, "bob")
    assert [member.count(each) for each in ("turns.recognise", "turns.fetch_items", "turns.fetch_shared")] == [1, 0, 1]
