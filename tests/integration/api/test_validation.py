"""/api/v1/memories/due and /validate: what to ask, and what the answer does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest

from app.memory.text import content_hash
from app.store import ids
from app.store.ids import LOCAL_TENANT
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.validation import Validation
from tests.support.lives import one, put, told
from tests.support.rows import count_rows, insert_row, read_memories, read_memory
from tests.support.wired_api import WiredApi, error_of

ANA = ids.user_id(LOCAL_TENANT, "ana")
LONG_AGO = timedelta(days=100)


async def _old(api: WiredApi, admin: asyncpg.Connection[Any], text: str = "Lives in Lisbon", **given: Any) -> UUID:
    """A statement of ana's of a hundred days ago."""
    at = api.clock.now() - LONG_AGO
    memory = await put(
        admin,
        **{
            "user_id": ANA, "tenant_id": LOCAL_TENANT, "content_text": text, "created_at": at, "last_validated_at": at,
            "is_validated": True, "validated_by": "user", "confidence": 0.85, "importance": 0.8,
        } | given,
    )  # fmt: skip
    user = given.get("user_id", ANA)
    await insert_row(admin, "routes", tenant_id=LOCAL_TENANT, id=memory, user_id=user, kind="memory", target=memory)
    return memory


async def _due(client: httpx.AsyncClient, **params: Any) -> list[dict[str, Any]]:
    answer = await client.get("/api/v1/memories/due", params={"user": "ana"} | params)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["memories"]
    return found


async def _say(client: httpx.AsyncClient, memory: UUID, **body: Any) -> httpx.Response:
    return await client.post(f"/api/v1/memories/{memory}/validate", json=body)


async def test_what_is_old_and_unconfirmed_is_asked_about(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    """Whether or not the sweep has been here; what matters most first."""
    lives = await _old(api, admin)
    drinks = await _old(api, admin, "Drinks tea", status="aging", importance=0.9)
    await _old(api, admin, "Has a dog", reinforcement_count=1)
    await _old(api, admin, "Is 40", last_validated_at=api.clock.now())
    await _old(api, admin, "Flew to Rome", kind="event")
    await _old(api, admin, "Likes jazz", status="invalidated")
    await _old(api, admin, "Is Bo", user_id=ids.user_id(LOCAL_TENANT, "bo"))
    found = await _due(client)
    assert [each["id"] for each in found] == [str(drinks), str(lives)]
    noted = api.clock.now() - LONG_AGO
    assert found[1]["question"] == (
        f"I have a note from {noted.day} {noted:%B %Y} that says “Lives in Lisbon”; is that still right?"
    )
    assert found[1]["confidence"] == pytest.approx(0.85 * 2.718281828**-1)
    assert len(await _due(client, limit=1)) == 1
    assert [each["text"] for each in await _due(client, user="bo")] == ["Is Bo"]


async def test_what_was_asked_is_not_asked_again_for_a_week(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any], pool: Pool
) -> None:
    memory = await _old(api, admin)
    await Validation(pool, Queries.load(), api.clock, space=None).asked(LOCAL_TENANT, ANA, [memory])
    assert await _due(client) == []
    assert await told(admin, memory) == ["asked"]
    api.clock.move(timedelta(days=7))
    assert len(await _due(client)) == 1
    await Validation(pool, Queries.load(), api.clock, space=None).asked(LOCAL_TENANT, ANA, [memory])
    api.clock.move(timedelta(days=13))
    assert await _due(client) == [], "nor a second time within two"
    api.clock.move(timedelta(days=1))
    assert len(await _due(client)) == 1
    assert (await _say(client, memory, answer="yes")).status_code == 200
    assert (await read_memory(admin, memory))["details"] == "{}"


async def test_yes(api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    """Seed 004: active, the timer anew, 0.05 more, one more confirmation; a memory that had fallen rises again."""
    memory = await _old(api, admin, status="aging", memory_tier=2, expires_at=api.clock.now() + timedelta(days=1))
    answer = await _say(client, memory, answer="yes")
    assert answer.status_code == 200, answer.text
    shown = answer.json()["memory"]
    assert answer.json()["correction"] is None
    assert (shown["status"], shown["tier"], shown["expires_at"], shown["reinforcement_count"]) == ("active", 3, None, 1)
    assert shown["confidence"] == pytest.approx(0.9)
    life = await one(admin, memory)
    assert life.last_validated_at == api.clock.now()
    assert await _due(client) == []
    history = (await client.get(f"/api/v1/memories/{memory}/history")).json()["events"]
    assert [(each["event"], each["actor"]) for each in history] == [("confirmed", "api")]
    assert history[0]["before"] == {"status": "aging", "tier": 2, "confidence": pytest.approx(0.85)}
    assert history[0]["after"] == {"status": "active", "tier": 3, "confidence": pytest.approx(0.9)}


async def test_yes_to_what_happened_leaves_it_where_it_is(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    memory = await _old(api, admin, kind="event", memory_tier=2, expires_at=api.clock.now() + timedelta(days=1))
    shown = (await _say(client, memory, answer="yes")).json()["memory"]
    assert shown["tier"] == 2
    assert (await one(admin, memory)).expires_at == api.clock.now() + timedelta(days=90)


async def test_no(api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]) -> None:
    """Invalidated, with confidence 0 (seed 004); restored, it is believed as before and not taken at once again."""
    memory = await _old(api, admin, status="aging")
    shown = (await _say(client, memory, answer="no")).json()["memory"]
    assert (shown["status"], shown["confidence"]) == ("invalidated", 0.0)
    assert shown["valid_to"] is not None
    refused = await _say(client, memory, answer="yes")
    assert refused.status_code == 409
    assert "invalidated" in error_of(refused)["message"]
    back = (await client.post(f"/api/v1/memories/{memory}/restore")).json()
    assert (back["status"], back["validated_by"], back["confidence_factors"]) == ("active", "user", {})
    assert back["confidence"] == pytest.approx(0.85)
    assert (await one(admin, memory)).last_validated_at == api.clock.now()


async def test_a_correction_takes_its_place(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    """Seed 004: superseded, and a new one of 0.85 about the same."""
    memory = await _old(
        api, admin, "Prefers Friday deliveries", kind="preference", memory_tier=2, status="aging", tags=["orders"],
        subject_entity_id="customer:gai_123", predicate="delivery_day_preference", object_value="Friday",
        entity_ids=["customer:gai_123"],
    )  # fmt: skip
    answer = await _say(client, memory, answer="no", correction="Prefers Thursday deliveries", object="Thursday")
    assert answer.status_code == 200, answer.text
    old, new = answer.json()["memory"], answer.json()["correction"]
    assert (old["status"], old["superseded_by"]) == ("superseded", new["id"])
    assert (new["text"], new["status"], new["tier"], new["scope"]) == (
        "Prefers Thursday deliveries",
        "active",
        4,
        "global",
    )
    assert (new["kind"], new["predicate"], new["object"]) == ("preference", "delivery_day_preference", "Thursday")
    assert (new["subject"], new["tags"], new["entity_ids"]) == ("customer:gai_123", ["orders"], ["customer:gai_123"])
    assert (new["confidence"], new["validated_by"], new["expires_at"]) == (pytest.approx(0.85), "user", None)
    # It is reachable as any other: by its id and its vector.
    assert (await client.get(f"/api/v1/memories/{new['id']}")).json()["text"] == new["text"]
    assert await count_rows(admin, "embeddings", item_id=UUID(new["id"])) == 1
    assert await told(admin, UUID(new["id"])) == ["created"]
    assert await told(admin, memory) == ["superseded"]


async def test_a_correction_that_is_known_already_confirms_that(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    made = (await client.post("/api/v1/memories", json={"user": "ana", "text": "Lives in Porto"})).json()
    memory = await _old(api, admin)
    answer = (await _say(client, memory, answer="no", correction="Lives in Porto")).json()
    assert answer["memory"]["superseded_by"] == answer["correction"]["id"] == made["id"]
    assert answer["correction"]["reinforcement_count"] == 1


async def test_of_two_answers_at_once_one_is_taken(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    memory = await _old(api, admin)
    answers = await asyncio.gather(
        *(_say(client, memory, answer="no", correction=f"Lives in {place}") for place in ("Porto", "Faro", "Braga"))
    )
    assert sorted(each.status_code for each in answers) == [200, 409, 409]
    assert len(await read_memories(admin, is_active=True)) == 1
    other = await _old(api, admin, "Drinks tea")
    both = await asyncio.gather(*(_say(client, other, answer="yes") for _ in range(2)))
    assert [each.status_code for each in both] == [200, 200]
    assert (await one(admin, other)).reinforcement_count == 2


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"answer": "no", "correction": "lives in  LISBON."}, 400),
        ({"answer": "yes", "correction": "Lives in Porto"}, 400),
        ({"answer": "no", "object": "Porto"}, 400),
        ({"answer": "maybe"}, 400),
        ({"answer": "no", "correction": "  "}, 400),
        ({}, 400),
    ],
    ids=str,
)
async def test_an_answer_that_says_nothing_changes_nothing(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any], body: dict[str, Any], status: int
) -> None:
    memory = await _old(api, admin, content_hash=content_hash("Lives in Lisbon"))
    refused = await _say(client, memory, **body)
    assert refused.status_code == status, refused.text
    error_of(refused)
    assert (await one(admin, memory)).status == "active"
    assert await told(admin, memory) == []


async def test_a_memory_that_is_none_or_over(
    api: WiredApi, client: httpx.AsyncClient, admin: asyncpg.Connection[Any]
) -> None:
    assert (await _say(client, UUID(int=5), answer="yes")).status_code == 404
    over = await _old(api, admin, memory_tier=2, expires_at=api.clock.now())
    refused = await _say(client, over, answer="yes")
    assert refused.status_code == 409
    assert "expired" in error_of(refused)["message"]


async def test_a_key_of_one_user_judges_only_his(locked: WiredApi, admin: asyncpg.Connection[Any]) -> None:
    memory = await _old(locked, admin)
    key, _ = await locked.tenancy.create_key("local", "laptop", user="bo")
    async with locked.client(key) as bo:
        assert (await _say(bo, memory, answer="no")).status_code == 404
        assert (await bo.get("/api/v1/memories/due", params={"user": "ana"})).status_code == 403
        assert await _due(bo, user="bo") == []
