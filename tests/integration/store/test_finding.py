"""What is known of memories beside their words: what they are about, from when they hold, how sure they are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from tests.support.teller import ANA, NOW, OTHER_TENANT, TENANT, Teller


async def memory(teller: Teller, number: int, text: str, **given: Any) -> UUID:
    values: dict[str, Any] = {
        "memory_id": UUID(int=1000 + number), "user_id": ANA, "tenant_id": TENANT, "memory_tier": 3, "memory_scope": 1,
        "content_text": text, "content_hash": number.to_bytes(4, "big"), "provenance_type": 0, "token_count": 5,
        "created_at": NOW,
    } | given  # fmt: skip
    columns = ", ".join(values)
    marks = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    await teller.admin.execute(f"INSERT INTO agent_data.memory_store ({columns}) VALUES ({marks})", *values.values())
    found: UUID = values["memory_id"]
    return found


async def test_memories_about_an_entity(teller: Teller) -> None:
    lisbon = await memory(teller, 1, "Lives in Lisbon", entity_ids=["lisbon", "flat"])
    await memory(teller, 2, "Lives in Porto", entity_ids=["porto"])
    await memory(teller, 3, "Lived in Lisbon", entity_ids=["lisbon"], status="superseded")
    later = await memory(teller, 4, "Works in Lisbon", entity_ids=["lisbon"], created_at=NOW + timedelta(days=1))
    assert await teller.store.tied(TENANT, ANA, ["lisbon"], 9) == [later, lisbon]
    assert await teller.store.tied(TENANT, ANA, ["lisbon"], 1) == [later]
    assert await teller.store.tied(TENANT, ANA, [], 9) == []
    assert await teller.store.tied(OTHER_TENANT, ANA, ["lisbon"], 9) == []


async def test_a_memorys_place_is_from_when_it_holds(teller: Teller) -> None:
    since = datetime(2024, 5, 1, tzinfo=UTC)
    await memory(teller, 1, "Lives in Lisbon", valid_from=since)
    (row,) = await teller.rows("SELECT place, item_at FROM agent_data.index_items")
    at = int.from_bytes(row["place"][32:40], "big")
    assert datetime(2000, 1, 1, tzinfo=UTC) + timedelta(microseconds=at) == since
    assert row["item_at"] == NOW


async def test_how_sure_a_memory_is(teller: Teller) -> None:
    validated = NOW - timedelta(days=3)
    one = await memory(teller, 1, "Lives in Lisbon", reinforcement_count=3, last_validated_at=validated)
    two = await memory(teller, 2, "Likes tea")
    rows = await teller.admin.fetch(
        "SELECT item_id, reinforcements, sure_since"
        " FROM agent_data.fetch_chosen($1, $2, $3, $4, $5, NULL, NULL, 0, '{}', false)",
        TENANT, ANA, [one, two], [1, 1], [0, 0],
    )  # fmt: skip
    assert {tuple(each) for each in rows} == {(one, 3, validated), (two, 0, NOW)}


async def test_the_strategies_of_the_database(teller: Teller) -> None:
    assert '"factual_entity_focused"' in await teller.store.strategies()
    await teller.admin.execute("DELETE FROM agent_data.system_config WHERE key = 'retrieval_strategy_weights'")
    assert await teller.store.strategies() == ""
