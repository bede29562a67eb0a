"""Seeds 003 and 004 as views: the seeds' own example queries, run as the application's role, with what they find.

Each query stands as its seed has it, but for three things: the schema `app.` is left out, and found by the search path; what
the seed leaves open (`:session_id`, `$mention`, 'user_123') is bound; and arms of a UNION with an ORDER BY of their own stand
in brackets, without which the seed's text is no SQL. What the seeds write (INSERT, UPDATE) is not the views' to do.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from app.capture.record import Recorder
from app.providers.tokens import CountCache
from app.store import ids
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.seeded import GAI, fill, others, query_vector, scans, session_of
from tests.support.teller import ANA, OTHER_TENANT, TENANT, Teller
from tests.support.wired_api import HashEmbedder, WordCounter, make_space

Admin = asyncpg.Connection
SQL = Queries.load()
BO = ids.user_id(OTHER_TENANT, "ana")
"""Of another tenant, and called alike."""
MINE, THEIRS = 0x1000, 0x2000
VIEWS = {
    "seed_001": {"ai_memory"},
    "seed_003": {"users", "sessions", "session_messages", "ui_cards_shown", "user_memories", "user_facts"},
    "seed_004": {
        "chat_events", "canonical_entities", "entity_aliases", "episodic_memories", "semantic_memories",
        "procedural_memories", "memory_summaries", "domain_ontology", "memory_conflicts", "system_config",
    },
}  # fmt: skip


@pytest.fixture
async def filled(pool: Pool, admin: Admin) -> Admin:
    """Two tenants who have the same things, each with its own words."""
    await make_space(admin)
    store = TurnStore(pool, SQL)
    teller = Teller(store, Recorder(store, HashEmbedder(), CountCache(), WordCounter()), admin)
    await fill(teller, admin, TENANT, ANA, MINE, "mine")
    await fill(teller, admin, OTHER_TENANT, BO, THEIRS, "theirs")
    return admin


SESSION = session_of(MINE)


async def run(pool: Pool, seed: str, query: str, *bound: Any) -> list[dict[str, Any]]:
    """What a query finds, as the application's role, for TENANT."""
    async with pool.transaction(TENANT) as connection:
        await connection.execute(f"SET LOCAL search_path = {seed}, public")
        return [dict(row) for row in await connection.fetch(query, *bound)]


# --- seed 003 -------------------------------------------------------------------------------------------------------------


async def test_the_second_card_from_three_questions_ago(pool: Pool, filled: Admin) -> None:
    """Seed 003, table 4: of four questions the first is three ago."""
    found = await run(
        pool,
        "seed_003",
        """
        SELECT card_data
        FROM ui_cards_shown
        WHERE session_id = $1
          AND turn_number = (SELECT MAX(turn_number) - 3 FROM session_messages WHERE session_id = $1)
          AND display_order = 2
        """,
        SESSION,
    )
    assert [each["card_data"] for each in found] == [{"title": "mine card 2 of 1"}]


async def test_candidates_of_the_tri_layer_memory(pool: Pool, filled: Admin) -> None:
    """Seed 001 §3.3, step 2."""
    found = await run(
        pool,
        "seed_001",
        """
        SELECT id, content, memory_type, importance, access_count,
        entity_ids, accessed_at, created_at,
        1 - (embedding <=> $1::text::vector) AS similarity
        FROM ai_memory
        WHERE tenant_id = $2
        AND (expires_at IS NULL OR expires_at > NOW())
        AND importance >= 0.1
        ORDER BY embedding <=> $1::text::vector
        LIMIT 30
        """,
        await query_vector("mine likes numbers"),
        TENANT,
    )
    assert found[0]["content"] == "mine likes numbers"
    assert found[0]["similarity"] == pytest.approx(1.0, abs=1e-3)
    assert {each["memory_type"] for each in found} <= {"fact", "preference", "pattern", "episode", "entity"}
    assert len({each["memory_type"] for each in found}) > 1
    assert all(each["accessed_at"] >= each["created_at"] for each in found)
    assert "mine was wrong" not in [each["content"] for each in found]


async def test_similar_memories(pool: Pool, filled: Admin) -> None:
    """Seed 003, table 5."""
    found = await run(
        pool,
        "seed_003",
        """
        SELECT
            memory_text,
            1 - (embedding <=> $2::text::vector) AS similarity
        FROM user_memories
        WHERE user_id = $1
        ORDER BY embedding <=> $2::text::vector
        LIMIT 5
        """,
        ANA,
        await query_vector("mine likes numbers"),
    )
    assert len(found) == 5
    assert found[0]["memory_text"] == "mine likes numbers"
    alike = [each["similarity"] for each in found]
    assert alike == sorted(alike, reverse=True)
    assert len(set(alike)) > 1
    assert found[0]["similarity"] == pytest.approx(1.0, abs=1e-3)
    assert "mine was wrong" not in [each["memory_text"] for each in found], "what was superseded is not in force"


async def test_the_patterns_of_the_index_table(pool: Pool, filled: Admin) -> None:
    """Seed 003, "Index Strategy Summary": the query patterns that its indexes are for."""
    (session,) = await run(pool, "seed_003", "SELECT * FROM sessions WHERE user_id = $1 AND is_active = true", ANA)
    assert session["session_id"] == SESSION
    assert {"session_type", "metadata", "started_at", "ended_at"} <= session.keys()
    messages = await run(
        pool,
        "seed_003",
        "SELECT * FROM session_messages WHERE session_id = $1 ORDER BY turn_number, turn_index",
        SESSION,
    )
    assert [(each["turn_number"], each["role"], each["content"]) for each in messages] == [
        (n, role, f"mine {what} {n}")
        for n in range(1, 5)
        for role, what in (("user", "question"), ("assistant", "answer"))
    ]
    cards = await run(
        pool, "seed_003", "SELECT * FROM ui_cards_shown WHERE session_id = $1 AND turn_number = $2", SESSION, 2
    )
    assert {each["display_order"] for each in cards} == {1, 2}
    (fact,) = await run(
        pool, "seed_003", "SELECT * FROM user_facts WHERE user_id = $1 AND category = $2", ANA, "professional"
    )
    assert (fact["fact_key"], fact["fact_value"], fact["confidence_score"]) == ("role", {"title": "mine"}, 95)
    (user,) = await run(pool, "seed_003", "SELECT * FROM users WHERE metadata @> '{}' ORDER BY last_active DESC")
    assert (user["user_id"], user["external_id"], user["name"]) == (ANA, "ana", "mine")


async def test_what_was_forgotten_still_counts_as_a_question(pool: Pool, filled: Admin) -> None:
    gone = await filled.fetchval(
        "SELECT message_id FROM agent_data.conversation_history WHERE session_id = $1 AND turn_index = 3", SESSION
    )
    await filled.execute(
        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, 'deleted')",
        ANA, TENANT, gone,
    )  # fmt: skip
    found = await run(
        pool, "seed_003", "SELECT * FROM session_messages WHERE session_id = $1 ORDER BY turn_index", SESSION
    )
    assert [each["turn_number"] for each in found] == [1, 1, 2, 3, 3, 4, 4]
    assert gone not in [each["message_id"] for each in found]
    assert gone not in [each["event_id"] for each in await run(pool, "seed_004", "SELECT event_id FROM chat_events")]


# --- seed 004 -------------------------------------------------------------------------------------------------------------


async def test_entities_by_their_name(pool: Pool, filled: Admin) -> None:
    """Seed 004, resolution, stage 1."""
    found = await run(
        pool,
        "seed_004",
        """
        SELECT entity_id, canonical_name
        FROM canonical_entities
        WHERE LOWER(canonical_name) = LOWER($1)
        """,
        "gai media ENTERTAINMENT",
    )
    assert found == [{"entity_id": GAI, "canonical_name": "Gai Media Entertainment"}]


async def test_known_aliases_the_users_own_first(pool: Pool, filled: Admin) -> None:
    """Seed 004, resolution, stage 2."""
    query = """
        SELECT canonical_entity_id,
        confidence, use_count
        FROM entity_aliases
        WHERE alias_text = $1
        AND (user_id = $2
        OR user_id IS NULL)
        ORDER BY
        user_id DESC NULLS LAST,
        confidence * (1 + log(1 +
        use_count) * 0.1) DESC
        LIMIT 1
    """
    (own,) = await run(pool, "seed_004", query, "Gai", "ana")
    assert (own["canonical_entity_id"], own["use_count"]) == (GAI, 4)
    (known,) = await run(pool, "seed_004", query, "Gai", "somebody else")
    assert (known["canonical_entity_id"], known["use_count"]) == ("order:so_1045", 90)


async def test_entities_of_similar_names(pool: Pool, filled: Admin) -> None:
    """Seed 004, resolution, stage 3."""
    (found,) = await run(
        pool,
        "seed_004",
        """
        WITH candidates AS (
        SELECT
        ce.entity_id,
        ce.canonical_name,
        similarity(
        ce.canonical_name,
        $1
        ) AS text_sim
        FROM canonical_entities
        ce
        WHERE ce.canonical_name
        % $1
        )
        SELECT * FROM candidates
        WHERE text_sim > 0.7
        ORDER BY text_sim DESC
        LIMIT 5
        """,
        "Gai Media Entertainmant",
    )
    assert found["entity_id"] == GAI


async def test_semantic_search_over_all_four(pool: Pool, filled: Admin) -> None:
    """Seed 004, retrieval, source 1."""
    found = await run(
        pool,
        "seed_004",
        """
        SELECT
          memory_id,
          memory_type,
          summary_text,
          entities,
          importance,
          created_at,
          1 - (embedding <=> $1::text::vector) AS cosine_similarity
          FROM (
          SELECT memory_id, 'episodic' AS memory_type,
          summary AS summary_text, entities, importance,
          embedding, created_at
          FROM episodic_memories
          WHERE user_id = $2

          UNION ALL

          SELECT memory_id, 'semantic' AS memory_type,
          subject_entity_id || ' ' || predicate || ' ' ||
          (object_value->>'value') AS summary_text,
          jsonb_build_array(
          jsonb_build_object('canonical_id', subject_entity_id)
          ) AS entities,
          importance, embedding, created_at
          FROM semantic_memories
          WHERE user_id = $2
          AND status = 'active'

          UNION ALL

          SELECT memory_id, 'procedural' AS memory_type,
          trigger_pattern || ': ' || action_heuristic AS summary_text,
          NULL AS entities,
          0.8 AS importance,
          embedding, created_at
          FROM procedural_memories
          WHERE user_id = $2

          UNION ALL

          SELECT summary_id AS memory_id, 'summary' AS memory_type,
          summary_text, NULL AS entities,
          0.9 AS importance,
          embedding, created_at
          FROM memory_summaries
          WHERE user_id = $2
          ) AS all_memories
          WHERE embedding IS NOT NULL
          ORDER BY embedding <=> $1::text::vector
          LIMIT 50
        """,
        await query_vector("mine: Gai Media prefers Friday"),
        "ana",
    )
    assert {each["memory_type"] for each in found} == {"episodic", "semantic", "procedural", "summary"}
    assert len(found) == 6, "an exchange, an event, two facts in force, a procedure, a summary"
    assert found[0]["summary_text"] == f"{GAI} delivery_preference Friday"
    assert found[0]["cosine_similarity"] == pytest.approx(1.0, abs=1e-3)
    assert "theirs" not in str(found)


async def test_memories_about_an_entity(pool: Pool, filled: Admin) -> None:
    """Seed 004, retrieval, source 2."""
    found = await run(
        pool,
        "seed_004",
        """
          (SELECT memory_id, 'episodic' AS memory_type, summary, entities,
          importance, created_at
          FROM episodic_memories
          WHERE user_id = $1
          AND entities @> $2::jsonb
          ORDER BY created_at DESC
          LIMIT 30)

          UNION ALL

          (SELECT memory_id, 'semantic' AS memory_type,
          subject_entity_id || ' ' || predicate AS summary,
          jsonb_build_array(
          jsonb_build_object('canonical_id', subject_entity_id)
          ) AS entities,
          importance, created_at
          FROM semantic_memories
          WHERE user_id = $1
          AND subject_entity_id = $3
          AND status = 'active'
          ORDER BY created_at DESC
          LIMIT 30)
        """,
        "ana",
        [{"canonical_id": GAI}],
        GAI,
    )
    assert [each["summary"] for each in found] == [
        "User asked: mine question 1",
        "mine: met Gai Media",
        f"{GAI} delivery_preference",
    ]
    assert found[0]["entities"] == [
        {
            "canonical_id": GAI,
            "canonical_name": "Gai Media Entertainment",
            "type": "customer",
            "mentions": [
                {"text": "Gai", "position": 0, "is_coreference": False},
                {"text": "they", "position": 9, "is_coreference": True},
            ],
        },
        {"canonical_id": "gai-media", "canonical_name": "gai-media", "type": None},
    ]
    assert found[0]["importance"] == pytest.approx(0.6)


async def test_how_important_an_exchange_is(filled: Admin) -> None:
    for event, importance in (("question", 0.6), ("statement", 0.7), ("request", 0.5)):
        await filled.execute("UPDATE agent_data.episodes SET event_type = $1", event)
        shown = await filled.fetch("SELECT importance FROM seed_004.episodic_memories WHERE summary LIKE 'User %'")
        assert shown
        assert [each["importance"] for each in shown] == [pytest.approx(importance)] * len(shown), event


async def test_memories_of_a_time(pool: Pool, filled: Admin) -> None:
    """Seed 004, retrieval, source 3 (whose column memory_type is the table's name there)."""
    found = await run(
        pool,
        "seed_004",
        """
          SELECT memory_id, summary, entities, importance,
          created_at
          FROM episodic_memories
          WHERE user_id = $1
          AND created_at BETWEEN $2 AND $3
          ORDER BY created_at DESC
          LIMIT 30
        """,
        "ana",
        datetime(2024, 9, 1, tzinfo=UTC),
        datetime(2024, 9, 30, tzinfo=UTC),
    )
    assert [each["summary"] for each in found] == ["mine: met Gai Media"]


async def test_where_the_ontology_leads(pool: Pool, filled: Admin) -> None:
    """Seed 004, ontology expansion."""
    (found,) = await run(
        pool,
        "seed_004",
        """
        SELECT relation_type, to_entity_type, join_spec
        FROM domain_ontology
        WHERE from_entity_type = 'customer'
        """,
    )
    assert (found["relation_type"], found["to_entity_type"]) == ("has", "sales_order")


async def test_a_number_with_its_unit(pool: Pool, filled: Admin) -> None:
    """Seed 004, table 5: {"type": "numeric", "value": 30, "unit": "days"}; a day of a month is no unit."""
    values = {
        "30 days": {"type": "numeric", "value": 30, "unit": "days"},
        "1.74 m": {"type": "numeric", "value": 1.74, "unit": "m"},
        "82 kilos": {"type": "numeric", "value": 82, "unit": "kilos"},
        "4 May": {"type": "string", "value": "4 May"},
        "900 euros a month": {"type": "string", "value": "900 euros a month"},
    }
    for given, shown in values.items():
        await filled.execute(
            "UPDATE agent_data.memory_store SET object_value = $1 WHERE object_value IS NOT NULL", given
        )
        rows = await run(pool, "seed_004", "SELECT object_value FROM semantic_memories")
        assert shown in [each["object_value"] for each in rows], given


async def test_the_columns_of_the_ten_tables(pool: Pool, filled: Admin) -> None:
    """Seed 004, "Complete Phase 1 Schema", table by table, and what stands there."""
    columns = {
        "chat_events": "event_id session_id user_id role content content_hash metadata created_at",
        "canonical_entities": "entity_id entity_type canonical_name external_ref properties last_referenced created_at "
        "updated_at",
        "entity_aliases": "alias_id canonical_entity_id alias_text alias_source user_id confidence use_count metadata "
        "created_at",
        "episodic_memories": "memory_id user_id session_id summary event_type source_event_ids entities domain_facts_ref "
        "importance embedding created_at",
        "semantic_memories": "memory_id user_id subject_entity_id predicate predicate_type object_value confidence "
        "confidence_factors reinforcement_count last_validated_at source_type source_memory_id extracted_from_event_id status "
        "superseded_by_memory_id embedding importance created_at updated_at",
        "procedural_memories": "memory_id user_id trigger_pattern trigger_features action_heuristic action_structure "
        "observed_count confidence embedding created_at updated_at",
        "memory_summaries": "summary_id user_id scope_type scope_identifier summary_text key_facts source_data "
        "supersedes_summary_id confidence embedding created_at",
        "domain_ontology": "relation_id from_entity_type relation_type to_entity_type cardinality relation_semantics join_spec "
        "constraints created_at",
        "memory_conflicts": "conflict_id detected_at_event_id conflict_type conflict_data resolution_strategy "
        "resolution_outcome resolved_at created_at",
        "system_config": "config_key config_value updated_at",
    }
    for view, names in columns.items():
        assert await run(pool, "seed_004", f"SELECT {', '.join(names.split())} FROM {view}"), view
    rows = await run(pool, "seed_004", "SELECT * FROM semantic_memories ORDER BY memory_id")
    assert [each["status"] for each in rows] == ["active", "active", "superseded"], "what was forgotten is not there"
    friday, number, wrong = rows
    assert friday["object_value"] == {"type": "string", "value": "Friday"}
    assert number["object_value"] == {"type": "numeric", "value": 42}
    assert wrong["superseded_by_memory_id"] == friday["memory_id"]
    assert friday["extracted_from_event_id"] in [
        each["event_id"] for each in await run(pool, "seed_004", "SELECT event_id FROM chat_events WHERE role = 'user'")
    ]
    (procedure,) = await run(pool, "seed_004", "SELECT * FROM procedural_memories")
    assert procedure["trigger_pattern"] == "When the user asks about delivery"
    assert procedure["trigger_features"]["topics"] == ["delivery"]
    assert procedure["action_structure"]["action_type"] == "augment_retrieval"
    assert procedure["observed_count"] == 5
    (summary,) = await run(pool, "seed_004", "SELECT * FROM memory_summaries")
    assert (summary["scope_type"], summary["scope_identifier"]) == ("entity", GAI)
    assert summary["key_facts"] == {"payment_terms": {"value": "NET30"}}
    (conflict,) = await run(pool, "seed_004", "SELECT * FROM memory_conflicts WHERE resolved_at IS NULL")
    assert (conflict["user_id"], conflict["conflict_data"]) == ("ana", {"word": "mine"})


async def test_the_configuration_without_its_secrets(pool: Pool, filled: Admin) -> None:
    found = {
        each["config_key"]: each["config_value"] for each in await run(pool, "seed_004", "SELECT * FROM system_config")
    }
    assert found["retrieval_strategy_weights"]["factual_entity_focused"]["entity_overlap"] == 0.40
    assert found["embedding"] == {"model": "test-8", "dimensions": 8}
    assert not [key for key in found if "secret" in key or key.endswith("_key")]


# --- all of them ------------------------------------------------------------------------------------------------------------


async def test_a_view_shows_nothing_of_another_tenant(pool: Pool, filled: Admin) -> None:
    known = {
        seed: {
            row["viewname"] for row in await filled.fetch("SELECT viewname FROM pg_views WHERE schemaname = $1", seed)
        }
        for seed in VIEWS
    }
    assert known == VIEWS
    for seed, views in VIEWS.items():
        for view in views - {"system_config"}:
            query = f"SELECT to_jsonb(v)::text AS line FROM {view} v"
            lines = [row["line"] for row in await run(pool, seed, query)]
            assert lines, view
            assert not [line for line in lines if "theirs" in line], view
            async with pool.transaction(None) as connection:
                assert not await connection.fetch(f"SELECT FROM {seed}.{view}"), (
                    f"{view}: without a tenant there is nothing"
                )


async def test_views_are_read_only_and_run_as_who_asks(pool: Pool, filled: Admin) -> None:
    options = await filled.fetch(
        "SELECT c.relname, c.reloptions, pg_get_userbyid(c.relowner) AS owner FROM pg_class c"
        " WHERE c.relnamespace::regnamespace::text = ANY ($1) AND c.relkind = 'v'",
        list(VIEWS),
    )
    assert len(options) == sum(map(len, VIEWS.values()))
    for each in options:
        assert each["reloptions"] == ["security_invoker=true"], each["relname"]
        assert each["owner"] == "mneme_owner", each["relname"]
    for statement in (
        "DELETE FROM users",
        "UPDATE user_facts SET confidence_score = 1",
        "INSERT INTO users (name) VALUES ('x')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await run(pool, "seed_003", statement)


async def test_the_vectors_are_of_one_space(pool: Pool, filled: Admin) -> None:
    await filled.execute("SELECT agent_data.ensure_embedding_space('new', 4)")
    query = "SELECT count(embedding) AS n FROM user_memories"
    (newest,) = await run(pool, "seed_003", query)
    assert newest["n"] == 0, "nothing has a vector in the newest space yet"
    async with pool.transaction(TENANT) as connection:
        await connection.execute("SET LOCAL mneme.space = 'test-8'")
        assert await connection.fetchval("SELECT count(embedding) FROM seed_003.user_memories") == 5


ONE_USERS = (
    ("seed_003.user_memories WHERE user_id", ANA, "memory_store"),
    ("seed_003.user_facts WHERE user_id", ANA, "user_facts"),
    ("seed_003.sessions WHERE user_id", ANA, "sessions"),
    ("seed_003.sessions WHERE session_id", SESSION, "sessions"),
    ("seed_003.session_messages WHERE session_id", SESSION, "conversation_history"),
    ("seed_003.ui_cards_shown WHERE session_id", SESSION, "ui_cards_shown"),
    ("seed_004.semantic_memories WHERE user_id", "ana", "memory_store"),
    ("seed_004.episodic_memories WHERE user_id", "ana", "memory_store"),
    ("seed_004.episodic_memories WHERE user_id", "ana", "episodes"),
    ("seed_004.chat_events WHERE user_id", "ana", "conversation_history"),
    ("seed_004.memory_conflicts WHERE user_id", "ana", "memory_conflicts"),
)
"""A view's rows of one user, and the table whose partitions they stand in."""


async def test_one_users_data_is_read_in_one_partition(pool: Pool, filled: Admin) -> None:
    await others(filled)
    for query, bound, parent in ONE_USERS:
        async with pool.transaction(TENANT) as connection:
            told = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM {query} = $1", bound)
        plan = (json.loads(told) if isinstance(told, str | bytes) else told)[0]["Plan"]
        read = {name for name, _ in scans(plan) if name.startswith(f"{parent}_p")}
        assert len({name.removeprefix(f"{parent}_p").partition("_")[0] for name in read}) == 1, (query, read)
