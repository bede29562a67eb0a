"""Seed 002 as views: its own example queries (§2.1 to 2.6), run as the application's role, with what they find.

Each stands as the seed has it, but that what it leaves open (`$1`, `$query_embedding`) is bound.
"""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from app.clock import SystemClock
from app.features.paging.store import PagingStore
from app.features.paging.values import Fidelity
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.paged import made, whole_record
from tests.support.seeded import literal, scans, session_of
from tests.support.teller import ANA, OTHER_TENANT, TENANT, Teller, talk
from tests.support.wired_api import HashEmbedder, make_space

Admin = asyncpg.Connection
BO = ids.user_id(OTHER_TENANT, "ana")
"""Of another tenant, and called alike."""
SESSION, THEIRS = session_of(0x1000), session_of(0x2000)
ONE, TWO = made(SESSION, "one", "the error code of expired tokens"), made(SESSION, "two", "another thing")
VIEWS = {
    "sessions", "semantic_objects", "object_relationships", "fault_history", "fidelity_transitions", "admission_scores",
}  # fmt: skip


@pytest.fixture
async def filled(teller: Teller, pool: Pool, admin: Admin) -> Admin:
    """Two tenants with a paged session each: an object at its stub, and one in full that depends on it."""
    store, space = PagingStore(pool, Queries.load(), SystemClock()), await make_space(admin)
    for tenant, user, session, objects in (
        (TENANT, ANA, SESSION, (ONE, TWO)),
        (OTHER_TENANT, BO, THEIRS, (made(THEIRS, "one", "theirs"), made(THEIRS, "two", "theirs"))),
    ):
        await teller.tell(talk("hello"), "hi", session=session, user=user, tenant=tenant)
        await store.keep(tenant, user, teller.calls[-1], whole_record(session, objects))
        vectors = await HashEmbedder().embed([each.content for each in objects])
        await store.store_levels(
            tenant, user, [], dict(zip([each.id for each in objects], vectors, strict=True)), space
        )
    await admin.execute("UPDATE agent_data.semantic_objects SET pinned = true WHERE object_id = $1", TWO.id)
    return admin


async def run(pool: Pool, query: str, *bound: Any) -> list[dict[str, Any]]:
    """What a query finds, as the application's role, for TENANT."""
    async with pool.transaction(TENANT) as connection:
        await connection.execute("SET LOCAL search_path = seed_002, public")
        return [dict(row) for row in await connection.fetch(query, *bound)]


async def vector(text: str) -> str:
    (found,) = await HashEmbedder().embed([text])
    return literal(found)


async def test_context_assembly(pool: Pool, filled: Admin) -> None:
    """§2.1."""
    found = await run(
        pool,
        """
        SELECT
            id, object_type, current_fidelity, pinned,
            CASE current_fidelity
                WHEN 0 THEN content_full
                WHEN 1 THEN summary_detailed
                WHEN 2 THEN summary_compact
                WHEN 3 THEN stub
            END AS context_content,
            losses_l1, losses_l2, can_answer_l1, can_answer_l2, fault_when,
            tokens_l0, tokens_l1, tokens_l2, tokens_l3,
            key_entities, tags
        FROM semantic_objects
        WHERE session_id = $1
          AND current_fidelity < 4
        ORDER BY
            pinned DESC,
            current_fidelity ASC,
            last_accessed DESC
        """,
        SESSION,
    )
    assert [(each["id"], each["context_content"]) for each in found] == [(TWO.id, TWO.content), (ONE.id, ONE.stub)]


async def test_semantic_search(pool: Pool, filled: Admin) -> None:
    """§2.2."""
    found = await run(
        pool,
        """
        SELECT
            id, object_type, current_fidelity,
            content_full,
            stub,
            key_entities,
            1 - (embedding <=> $3::text::vector) AS similarity
        FROM semantic_objects
        WHERE session_id = $1
        ORDER BY embedding <=> $3::text::vector
        LIMIT $2
        """,
        SESSION,
        3,
        await vector(ONE.content),
    )
    assert [each["id"] for each in found] == [ONE.id, TWO.id]
    assert found[0]["similarity"] == pytest.approx(1.0, abs=1e-3)
    assert found[0]["content_full"] == ONE.content


async def test_hybrid_search(pool: Pool, filled: Admin) -> None:
    """§2.3."""
    found = await run(
        pool,
        """
        WITH vector_results AS (
            SELECT id, 1 - (embedding <=> $3::text::vector) AS vec_score
            FROM semantic_objects
            WHERE session_id = $1
            ORDER BY embedding <=> $3::text::vector
            LIMIT 20
        ),
        text_results AS (
            SELECT id, ts_rank(to_tsvector('english', content_full),
                               plainto_tsquery('english', $4)) AS text_score
            FROM semantic_objects
            WHERE session_id = $1
              AND to_tsvector('english', content_full) @@ plainto_tsquery('english', $4)
            LIMIT 20
        )
        SELECT
            COALESCE(v.id, t.id) AS id,
            COALESCE(v.vec_score, 0) * 0.7 + COALESCE(t.text_score, 0) * 0.3 AS combined_score
        FROM vector_results v
        FULL OUTER JOIN text_results t ON v.id = t.id
        ORDER BY combined_score DESC
        LIMIT $2
        """,
        SESSION,
        3,
        await vector(ONE.content),
        "expired tokens",
    )
    assert [each["id"] for each in found] == [ONE.id, TWO.id]
    assert found[0]["combined_score"] > 0.7, "it is found both ways"


async def test_pressure(pool: Pool, filled: Admin) -> None:
    """§2.4."""
    (found,) = await run(
        pool,
        """
        SELECT
            SUM(CASE current_fidelity
                WHEN 0 THEN tokens_l0
                WHEN 1 THEN COALESCE(tokens_l1, 0)
                WHEN 2 THEN COALESCE(tokens_l2, 0)
                WHEN 3 THEN tokens_l3
                ELSE 0
            END) AS total_context_tokens,
            COUNT(*) FILTER (WHERE current_fidelity = 0) AS objects_at_l0,
            COUNT(*) FILTER (WHERE current_fidelity = 1) AS objects_at_l1,
            COUNT(*) FILTER (WHERE current_fidelity = 2) AS objects_at_l2,
            COUNT(*) FILTER (WHERE current_fidelity = 3) AS objects_at_l3,
            COUNT(*) FILTER (WHERE current_fidelity = 4) AS objects_evicted,
            COUNT(*) FILTER (WHERE pinned) AS objects_pinned
        FROM semantic_objects
        WHERE session_id = $1
        """,
        SESSION,
    )
    assert tuple(found.values()) == (TWO.tokens_l0 + ONE.tokens_l3, 1, 0, 0, 1, 0, 1)


async def test_deduplication(pool: Pool, filled: Admin) -> None:
    """§2.5."""
    (found,) = await run(
        pool,
        """
        SELECT id, content_full, current_fidelity
        FROM semantic_objects
        WHERE session_id = $1
          AND source_key = $2
          AND object_type = 'file_context'
        ORDER BY created_at DESC
        LIMIT 1
        """,
        SESSION,
        "src/one.py",
    )
    assert found == {"id": ONE.id, "content_full": ONE.content, "current_fidelity": int(Fidelity.STUB)}


async def test_related_objects(pool: Pool, filled: Admin) -> None:
    """§2.6: what the second depends on stands at its stub, and could be upgraded with it."""
    found = await run(
        pool,
        """
        WITH RECURSIVE related AS (
            SELECT target_id AS id, relationship, 1 AS depth
            FROM object_relationships
            WHERE source_id = $1
              AND relationship IN ('depends_on', 'references', 'caused_by')
            UNION ALL
            SELECT r.target_id, r.relationship, rel.depth + 1
            FROM object_relationships r
            JOIN related rel ON r.source_id = rel.id
            WHERE rel.depth < 2
        )
        SELECT DISTINCT so.*
        FROM related r
        JOIN semantic_objects so ON so.id = r.id
        WHERE so.current_fidelity > 1
        """,
        TWO.id,
    )
    assert [each["id"] for each in found] == [ONE.id]


async def test_the_columns_of_the_seeds_tables(pool: Pool, filled: Admin) -> None:
    """§1.1 to 1.6."""
    (session,) = await run(pool, "SELECT * FROM sessions WHERE id = $1", SESSION)
    assert session | {"created_at": 0, "last_active_at": 0, "model": ""} == {
        "id": SESSION, "external_id": None, "model": "", "created_at": 0, "last_active_at": 0, "total_turns": 1,
        "total_objects": 2, "total_faults": 0, "total_micro_faults": 1, "status": "active", "config": session["config"],
    }  # fmt: skip
    (fault,) = await run(pool, "SELECT * FROM fault_history WHERE session_id = $1", SESSION)
    assert (fault["object_id"], fault["fault_type"], fault["question"], fault["answer"]) == (
        ONE.id, "micro_fault", "where?", "there",
    )  # fmt: skip
    assert (fault["content_hash"], fault["answer_tokens"], fault["avoided_tokens"], fault["latency_ms"]) == (
        ONE.content_hash.hex(), 5, 295, 3,
    )  # fmt: skip
    (moved,) = await run(pool, "SELECT * FROM fidelity_transitions WHERE session_id = $1", SESSION)
    assert (moved["object_id"], moved["from_fidelity"], moved["to_fidelity"], moved["trigger"]) == (
        ONE.id,
        0,
        3,
        "pressure",
    )
    assert (moved["turn_number"], moved["pressure_zone"], moved["token_count"]) == (1, "warning", 8000)
    scores = await run(pool, "SELECT * FROM admission_scores WHERE session_id = $1 ORDER BY admitted", SESSION)
    assert [(each["admitted"], each["object_id"] is None) for each in scores] == [
        (False, True),
        (True, False),
        (True, False),
    ]
    assert {"score_total", "score_type", "score_novelty", "score_utility", "score_recency", "threshold"} <= scores[
        0
    ].keys()
    (edge,) = await run(pool, "SELECT * FROM object_relationships WHERE session_id = $1", SESSION)
    assert (edge["source_id"], edge["target_id"], edge["relationship"]) == (TWO.id, ONE.id, "depends_on")


async def test_a_view_shows_nothing_of_another_tenant(pool: Pool, filled: Admin) -> None:
    for view in sorted(VIEWS):
        rows = await run(pool, f"SELECT * FROM {view}")
        assert rows, "there is something of one's own"
        assert "theirs" not in repr(rows)
        key = "id" if view == "sessions" else "session_id"
        assert {row[key] for row in rows} == {SESSION}, view
        assert await run(pool, f"SELECT * FROM {view} WHERE {key} = $1", THEIRS) == []


async def test_views_are_read_only_and_run_as_who_asks(pool: Pool, filled: Admin) -> None:
    options = await filled.fetch(
        "SELECT c.relname, c.reloptions, pg_get_userbyid(c.relowner) AS owner FROM pg_class c"
        " WHERE c.relnamespace = 'seed_002'::regnamespace AND c.relkind = 'v' AND c.relname = ANY ($1)",
        list(VIEWS),
    )
    assert len(options) == len(VIEWS)
    assert all(each["reloptions"] == ["security_invoker=true"] and each["owner"] == "mneme_owner" for each in options)
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="cannot delete from view"):
        await run(pool, "DELETE FROM fault_history")


async def test_one_sessions_data_is_read_in_one_partition(pool: Pool, filled: Admin) -> None:
    """With as few rows as here it is cheaper to read all partitions at once: that is forbidden, as thousands of rows do."""
    for table in sorted(VIEWS):
        key = "id" if table == "sessions" else "session_id"
        async with pool.transaction(TENANT) as connection:
            await connection.execute("SET LOCAL enable_hashjoin = off")
            await connection.execute("SET LOCAL enable_mergejoin = off")
            query = f"EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM seed_002.{table} WHERE {key} = $1"
            told = await connection.fetchval(query, SESSION)
        plan = (json.loads(told) if isinstance(told, str | bytes) else told)[0]["Plan"]
        read = {name for name, _ in scans(plan) if name.startswith(f"{table}_p")}
        assert len(read) == 1, read
