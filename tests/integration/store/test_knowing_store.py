from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg

from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.records import Claim, ResolutionStore
from tests.support.teller import ANA, OTHER_TENANT, TENANT, Teller

SQL = Queries.load()
NOBODY = UUID(int=0)
BOB = ids.user_id(TENANT, "bob")


async def thing(admin: asyncpg.Connection[Any], tenant: UUID, user: UUID = NOBODY) -> None:
    await admin.execute(
        "INSERT INTO agent_data.canonical_entities (user_id, tenant_id, entity_id, entity_type, canonical_name, name_norm)"
        " VALUES ($1, $2, 'customer:gai_123', 'customer', 'Gai Media', 'gai media')",
        user,
        tenant,
    )


async def test_whether_there_is_anything_to_know(pool: Pool, teller: Teller) -> None:
    store = ResolutionStore(pool, SQL)
    assert not await store.has_things(TENANT, ANA)
    await thing(teller.admin, OTHER_TENANT)
    await thing(teller.admin, TENANT, BOB)
    assert not await store.has_things(TENANT, ANA)
    assert not await store.has_things(TENANT, None)
    assert await store.has_things(TENANT, BOB)
    await thing(teller.admin, TENANT)
    assert await store.has_things(TENANT, ANA)
    assert await store.has_things(TENANT, None)


async def test_what_memories_say_of_things(pool: Pool, teller: Teller) -> None:
    """Of this tenant's user alone, and nothing of what was forgotten, or is no triple."""
    made = {}
    for number, (tenant, user, triple, status) in enumerate(
        [
            (TENANT, ANA, ("customer:gai_123", "payment_terms", "NET30"), "active"),
            (TENANT, ANA, ("customer:gai_123", "payment_terms", "NET60"), "invalidated"),
            (TENANT, ANA, (None, None, None), "active"),
            (TENANT, ANA, ("customer:gai_123", "industry", "film"), "forgotten"),
            (TENANT, BOB, ("customer:gai_123", "payment_terms", "NET45"), "active"),
            (OTHER_TENANT, ANA, ("customer:gai_123", "payment_terms", "NET90"), "active"),
        ]
    ):
        made[number] = memory = UUID(int=100 + number)
        await teller.admin.execute(
            "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text,"
            " content_hash, provenance_type, token_count, subject_entity_id, predicate, object_value, status, confidence,"
            " created_at)"
            " VALUES ($1::uuid, $2, $3, 3, 1, $1::uuid::text, sha256($1::uuid::text::bytea), 0, 5, $4, $5, $6,"
            " $7, 0.75, '2024-08-01Z')",
            memory, user, tenant, *triple, status,
        )  # fmt: skip
    store = ResolutionStore(pool, SQL)
    found = await store.claims(TENANT, ANA, list(made.values()))
    assert {each.memory_id for each in found} == {made[0], made[1]}
    (first,) = [each for each in found if each.memory_id == made[0]]
    assert first == Claim(made[0], "customer:gai_123", "payment_terms", "NET30", first.stated_at, 0.75)
    assert first.stated_at.isoformat() == "2024-08-01T00:00:00+00:00"
    assert await store.claims(TENANT, ANA, []) == []
