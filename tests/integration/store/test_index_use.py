"""Every index that a seed asks for is the one by which its statement reads, and what is to stay out of the WAL does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from app.store import ids
from app.store.queries import Queries
from tests.support.plans import S1, Watch, fill, nodes, watching
from tests.support.teller import ANA, NOW, TENANT, Teller

pytestmark = pytest.mark.heavy

SQL = Queries.load()
OLD = UUID(int=7)

FILLING = """
UPDATE agent_data.memory_store SET
    expires_at = CASE WHEN content_text LIKE 'word7_' THEN $2::timestamptz END,
    tags = CASE WHEN content_text = 'word77' THEN ARRAY['rare'] WHEN content_text LIKE 'word%' THEN ARRAY['usual']
           ELSE '{}' END,
    metadata = CASE WHEN content_text = 'word78' THEN '{"sku": "A7", "n": 1}' WHEN content_text LIKE 'word%' THEN '{"n": 1}'
               ELSE '{}' END::jsonb,
    superseded_by = CASE WHEN content_text = 'word79' THEN $3::uuid END,
    subject_entity_id = CASE WHEN content_text LIKE 'word%' THEN 'customer:' || content_text END, predicate = 'city'
WHERE user_id = $1
"""
FACTS = """
INSERT INTO agent_data.user_facts (fact_id, user_id, tenant_id, category, fact_key, is_many, fact_value,
                                   confidence_score, said_at, first_mentioned, last_updated)
SELECT gen_random_uuid(), $1, $2, CASE WHEN n < 3 THEN 'personal' ELSE 'other' END, 'key' || n, false,
       jsonb_build_object('sku', 'A' || n), 90, now(), now(), now()
FROM generate_series(1, 2000) AS n
"""
THINGS = """
INSERT INTO agent_data.canonical_entities (entity_id, user_id, tenant_id, entity_type, canonical_name, name_norm,
                                           last_referenced)
SELECT 'customer:' || n, '00000000-0000-0000-0000-000000000000', $1, CASE WHEN n < 3 THEN 'order' ELSE 'customer' END,
       'Name ' || n, 'name ' || n, now()
FROM generate_series(1, 2000) AS n
"""
OBJECTS = """
INSERT INTO agent_data.semantic_objects (user_id, tenant_id, session_id, object_id, ordinal, object_type, kind, content_full,
    content_hash, content_tsv, shrunk_at, stub, parts, tags, source_key, tokens_l0, tokens_l3, source_turn_start,
    source_turn_end, current_fidelity, accessed_turn)
SELECT o.user_id, o.tenant_id, o.session_id, gen_random_uuid(), 100 + n, o.object_type, o.kind, 'entry' || n, o.content_hash,
       agent_data.object_words('file' || n, 'some entry' || n || ' of the log'), now(), 'stub', o.parts,
       ARRAY['tag' || n], 'file' || n, 9, 3, 1, 1, 0, 1
FROM (SELECT * FROM agent_data.semantic_objects WHERE user_id = $1 AND session_id = $2 LIMIT 1) o, generate_series(1, 4000) AS n
"""
LOOKED_UP = "SELECT * FROM agent_data.look_up_mentions($1, $2, $3, $4, $5)"
CARDS = "SELECT * FROM agent_data.ui_cards_shown WHERE user_id = $1 AND session_id = $2 AND turn_index = 1"

ALIASES = """
INSERT INTO agent_data.entity_aliases (tenant_id, alias_norm, entity_id, alias_text, alias_source)
SELECT $1, 'alias ' || n, 'customer:' || n, 'Alias ' || n, 'learned' FROM generate_series(1, 2000) AS n
"""
CARDS_SHOWN = """
INSERT INTO agent_data.ui_cards_shown (card_id, user_id, tenant_id, session_id, turn_index, message_id, question, card_type,
                                       card_data, display_order, source, token_count)
SELECT gen_random_uuid(), $1, $2, $3, n, gen_random_uuid(), 1, 't', '{}', 1, 'api', 1 FROM generate_series(1, 2000) AS n
"""
RELATED = """
WITH made AS (INSERT INTO agent_data.ontologies (tenant_id, domain, source, version) VALUES ($1, 'erp', '', 1))
INSERT INTO agent_data.domain_ontology (tenant_id, domain, from_entity_type, relation_type, to_entity_type, cardinality,
                                        relation_semantics, join_spec)
SELECT $1, 'erp', 'a' || n, 'has', 'b' || n, 'one_to_many', '', '{}' FROM generate_series(1, 2000) AS n
"""


@pytest.fixture
async def watch(database: str, teller: Teller) -> AsyncIterator[Watch]:
    await fill(teller)
    admin = teller.admin
    await admin.execute(FILLING, ANA, NOW - timedelta(days=1), OLD)
    await admin.execute(FACTS, ANA, TENANT)
    await admin.execute(THINGS, TENANT)
    await admin.execute(ALIASES, TENANT)
    await admin.execute(CARDS_SHOWN, ANA, TENANT, S1)
    await admin.execute(RELATED, TENANT)
    await admin.execute(OBJECTS, ANA, S1)
    await admin.execute(
        "UPDATE agent_data.sessions SET expires_at = $2 WHERE session_id = $1", S1, NOW - timedelta(days=1)
    )
    for table in (
        "memory_store", "user_facts", "canonical_entities", "entity_aliases", "semantic_objects", "sessions",
        "ui_cards_shown", "domain_ontology",
    ):  # fmt: skip
        await admin.execute(f"ANALYZE agent_data.{table}")
    async with watching(database) as found:
        await found.connection.execute("SELECT set_config('mneme.tenant', $1, false)", str(TENANT))
        yield found


LISTED: tuple[Any, ...] = (TENANT, NOW, ANA, None, None, ["active"])
OBJECT: tuple[Any, ...] = (TENANT, ANA, S1, None, None)
AFTER: tuple[Any, ...] = (None, None, None, 9, None)
NAMED = ["name 77"], ["name seventy"]
FROM_A_TYPE = "domain_ontology_tenant_id_from_entity_type_relation_type_to_key"
RELATIONS = "SELECT * FROM agent_data.domain_ontology WHERE tenant_id = $1"
READS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("sessions_user_all", SQL["sessions.list_of_user"], (TENANT, ANA, None, None, None, 9, None)),
    ("memory_tags", SQL["memories.list_of_user"], (*LISTED, ["rare"], None, None, None, None, 9)),
    ("memory_metadata", SQL["memories.list_of_user"], (*LISTED, None, {"sku": "A7"}, None, None, None, 9)),
    ("memory_superseded", SQL["memories.list_of_user"], (*LISTED, None, None, OLD, None, None, 9)),
    ("memory_claims", SQL["checking.claims"], (ANA, ids.NIL, "customer:word7", ["city"], NOW)),
    ("user_facts_value", SQL["facts.page"], (TENANT, ANA, None, None, None, 9, {"sku": "A7"})),
    ("user_facts_user_id_category_fact_key_key", SQL["facts.page"], (TENANT, ANA, "personal", None, None, 9, None)),
    ("objects_found", SQL["paging.search"], (TENANT, ANA, S1, "entry77", None, None, 0.3, 0.7, 1.2, 3)),
    ("objects_found", SQL["objects.list"], (*OBJECT, "tag77", None, None, *AFTER)),
    ("objects_source_key", SQL["objects.list"], (*OBJECT, None, "file77", None, *AFTER)),
    ("entities_type", SQL["entities.page"], (TENANT, ids.NIL, "order", None, None, 9)),
    ("entities_prefix", LOOKED_UP, (TENANT, ANA, *NAMED, 4)),
    ("entities_trigram", LOOKED_UP, (TENANT, ANA, *NAMED, 4)),
    ("aliases_trigram", LOOKED_UP, (TENANT, ANA, *NAMED, 4)),
    ("aliases_entity", SQL["entities.aliases"], (TENANT, ids.NIL, "customer:77", None, None, 9)),
    ("ui_cards_shown_user_id_session_id_turn_index_sibling_displa_key", CARDS, (ANA, S1)),
    (
        "domain_ontology_tenant_id_from_entity_type_relation_type_to_key",
        f"{RELATIONS} AND from_entity_type = $2",
        (TENANT, "a7"),
    ),
    ("ontology_to", f"{RELATIONS} AND to_entity_type = $2", (TENANT, "b7")),
]
"""By which index a server reads, by which statement, of what."""
SWEEPS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("sessions_expiry", SQL["schedule.expire_sessions"], (NOW, 9)),
    ("memory_expiry", SQL["schedule.expire_memories"], (NOW, 9)),
    ("memory_validated", SQL["lifecycle.age"], (NOW, 9)),
]


async def test_each_is_read_by_its_index(watch: Watch) -> None:
    missed: dict[str, set[str | None]] = {}
    for role, reads in (("mneme_app", READS), ("mneme_owner", SWEEPS)):
        await watch.connection.execute(f"RESET ROLE; SET ROLE {role}")
        for index, statement, asked in reads:
            scans = await watch.scans(lambda s=statement, a=asked: watch.connection.fetch(s, *a))  # type: ignore[misc]
            used = {scan.index for scan in scans}
            if index not in used:
                missed[index] = used
    assert not missed


async def test_a_search_unpacks_only_the_objects_that_have_a_word(watch: Watch) -> None:
    """Of four thousand, one: the others are compared by their vectors alone."""
    asked = (TENANT, ANA, S1, "entry77", None, None, 0.3, 0.7, 1.2, 3)
    await watch.scans(lambda: watch.connection.fetch(SQL["paging.search"], *asked))
    (plan,) = [each["Plan"] for each in watch.plans if "spoken AS" in each["Query Text"]]
    found = [each for each in nodes(plan) if "@@" in str(each.get("Recheck Cond")) and each["Actual Loops"]]
    assert [each["Actual Rows"] for each in found] == [1]


async def test_working_memory_stays_out_of_the_log(teller: Teller) -> None:
    """Seed 000 §1.1: L0 is UNLOGGED, and nothing else that is remembered is."""
    kinds = await teller.rows(
        "SELECT relname, relpersistence FROM pg_class WHERE relnamespace = 'agent_data'::regnamespace"
        " AND relkind = 'r' AND relname LIKE 'memory%'"
    )
    unlogged = {row["relname"] for row in kinds if row["relpersistence"] == b"u"}
    assert unlogged == {"memory_store_working"}
