"""The benchmark's own SQL on the schema as it is: what it writes straight into the tables, and what it reads of the log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import asyncpg
import numpy as np
import pytest

from app.context.rank import TEXT_LEG, rank
from app.providers.embeddings import WordLlamaEmbedder
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from loadtests import crowd
from loadtests.crowd import Graph, Person
from loadtests.wal_reads import NOW, NOWHERE, log_between, values

PEOPLE = [Person("ana", 30, 40), Person("bo", 20, 20)]
INDEXES = """
SELECT c.relname, i.indisvalid, pg_get_indexdef(c.oid) AS definition FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid
WHERE c.relnamespace = 'agent_data'::regnamespace AND NOT c.relispartition ORDER BY 1
"""


@pytest.fixture
async def space(admin: asyncpg.Connection[Any]) -> int:
    sql = Queries.load()["turns.ensure_space"]
    number: int = await admin.fetchval(sql, WordLlamaEmbedder.space, WordLlamaEmbedder.dimensions)
    return number


async def stored(admin: asyncpg.Connection[Any], space: int) -> list[int]:
    told: list[int] = []
    await crowd.prepare(admin, datetime.now(UTC))
    with ThreadPoolExecutor(1) as executor:
        async with crowd.without_slow_indexes(admin, lambda _: None):
            await crowd.store(admin, PEOPLE, space, Graph(1, 0), executor, told.append)
    return told


async def test_a_crowd_is_found_as_if_it_had_talked(admin: asyncpg.Connection[Any], pool: Pool, space: int) -> None:
    before = await admin.fetch(INDEXES)
    assert await stored(admin, space) == [2]
    assert await admin.fetch(INDEXES) == before
    store, owner = TurnStore(pool, Queries.load()), PEOPLE[0].user_id
    asked = await admin.fetchrow("SELECT * FROM agent_data.memory_store WHERE user_id = $1 LIMIT 1", owner)
    assert asked is not None
    vector = (await WordLlamaEmbedder().embed([asked["content_text"]]))[0]
    scan = await store.retrieve(
        ids.LOCAL_TENANT, owner, query=asked["content_text"], vector=vector, space=space, confine=None, session=None,
        visible=1, ancestors=[], history=False, limits=(90, 50, 20),
    )  # fmt: skip
    ranking = rank(scan, asked["content_text"])
    rows = await store.fetch_items(
        ids.LOCAL_TENANT, owner, ranking.places(), confine=None, session=None, visible=1, ancestors=[], history=False
    )
    first = max(rows, key=lambda row: float(np.nan_to_num(ranking.similarity[row.n - 1])))
    assert first.item_id == asked["memory_id"]
    assert ranking.legs[first.n - 1] & TEXT_LEG
    assert (first.sources or [])[0]["message_id"] in {str(row.item_id) for row in rows if row.item_kind == 0}
    assert {row.item_kind for row in rows} == {0, 1}
    assert len(scan.sims) == 70


async def test_the_counts_are_those_that_the_worker_would_leave(admin: asyncpg.Connection[Any], space: int) -> None:
    await stored(admin, space)
    tables = ("lexemes", "user_stats")
    query = "SELECT * FROM agent_data.{} ORDER BY 1, 2, 3, 4"
    ours = {table: await admin.fetch(query.format(table)) for table in tables}
    for table in tables:
        await admin.execute(f"DELETE FROM agent_data.{table}")
    for person in PEOPLE:
        owner = person.user_id
        said = await admin.fetch("SELECT message_id FROM agent_data.conversation_history WHERE user_id = $1", owner)
        known = await admin.fetch("SELECT memory_id FROM agent_data.memory_store WHERE user_id = $1", owner)
        messages, memories = ([row[0] for row in rows] for rows in (said, known))
        await admin.execute(
            "SELECT agent_data.count_words($1, $2, $3, $4)", ids.LOCAL_TENANT, owner, messages, memories
        )
    assert {table: await admin.fetch(query.format(table)) for table in tables} == ours


async def test_the_log_is_told_table_by_table(admin: asyncpg.Connection[Any]) -> None:
    await admin.execute("CREATE EXTENSION pg_walinspect")
    tenants = "INSERT INTO agent_data.tenants (tenant_id, name) SELECT gen_random_uuid(), $1 || n FROM generate_series(1, 9) n"
    await admin.execute(tenants, "first")
    before, start = await values(admin), await admin.fetchval(NOW)
    await admin.execute("SET synchronous_commit = on")
    await admin.execute(tenants, "second")
    await admin.execute("UPDATE agent_data.tenants SET metadata = '{\"a\": 1}' WHERE name = 'first1'")
    end, after = await admin.fetchval(NOW), await values(admin)
    log = await log_between(admin, start, end, before, after)
    found = {each.table: each for each in log.tables}
    # Reading the others may have written pages of theirs, and nothing else.
    assert {name for name, each in found.items() if each.rows or each.updates} == {"tenants"}
    told = found["tenants"]
    assert (told.rows, told.updates) == (9, 1)
    assert told.heap > told.stored > 9 * 16
    assert told.indexes > 0
    assert sum(each.heap + each.indexes for each in log.tables) == log.plain
    assert found[NOWHERE].heap > 0  # the commits


async def test_values_are_more_before_compression(admin: asyncpg.Connection[Any]) -> None:
    long = "the same words again and again " * 1000
    await admin.execute(
        "INSERT INTO agent_data.tenant_profiles (tenant_id, profile) VALUES ($1, $2)", ids.LOCAL_TENANT, long
    )
    found = (await values(admin))["tenant_profiles"]
    assert found.rows == 1
    assert found.stored < len(long) < found.plain
