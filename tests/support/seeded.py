"""Everything that the example queries of seeds 003 and 004 ask for, of users called ana."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np

from tests.support.teller import ANA, NOW, TENANT, Teller, said
from tests.support.wired_api import HashEmbedder

Admin = asyncpg.Connection
S1 = UUID(int=0x51)
NIL = UUID(int=0)
GAI = "customer:gai_123"
SEPTEMBER = datetime(2024, 9, 10, 14, 30, tzinfo=UTC)


def session_of(base: int) -> UUID:
    """The session that `fill` makes."""
    return UUID(int=S1.int + base)


async def memory(
    admin: Admin, number: int, kind: str, text: str, *, user: UUID = ANA, tenant: UUID = TENANT, **given: Any
) -> UUID:
    """A memory with a vector."""
    fields: dict[str, Any] = {
        "memory_id": UUID(int=number), "user_id": user, "tenant_id": tenant, "memory_tier": 3, "memory_scope": 1,
        "kind": kind, "content_text": text, "content_hash": text.encode(), "provenance_type": 0, "token_count": 5,
        "created_at": NOW,
    } | given  # fmt: skip
    places = ", ".join(f"${n}" for n in range(1, len(fields) + 1))
    await admin.execute(
        f"INSERT INTO agent_data.memory_store ({', '.join(fields)}) VALUES ({places})", *fields.values()
    )
    (vector,) = await HashEmbedder().embed([text])
    await admin.execute(
        "INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, vector)"
        " VALUES ($1, $2, (SELECT max(space) FROM agent_data.embedding_spaces), $3, 1, $4, $5::text::halfvec)",
        user, tenant, UUID(int=number), NOW, literal(vector),
    )  # fmt: skip
    return UUID(int=number)


def literal(vector: Sequence[float] | np.ndarray[Any, Any]) -> str:
    return "[" + ",".join(str(float(each)) for each in vector) + "]"


async def query_vector(text: str) -> str:
    (vector,) = await HashEmbedder().embed([text])
    return literal(vector)


async def fill(teller: Teller, admin: Admin, tenant: UUID, user: UUID, base: int, word: str) -> None:
    """Everything that the examples ask for, of one user called ana; every text has `word` in it."""
    session = session_of(base)
    talk = []
    for n in range(1, 5):
        talk.append(said("user", f"{word} question {n}"))
        await teller.tell(
            talk, f"{word} answer {n}", session=session, user=user, tenant=tenant, new=1 if n > 1 else None
        )
        talk.append(said("assistant", f"{word} answer {n}"))
    messages = await teller.rows(
        "SELECT message_id, turn_index, created_at FROM agent_data.conversation_history WHERE session_id = $1"
        " ORDER BY turn_index",
        session,
    )
    for question in (1, 2, 3):
        for order in (1, 2):
            await admin.execute(
                "INSERT INTO agent_data.ui_cards_shown (card_id, user_id, tenant_id, session_id, turn_index, message_id,"
                " question, card_type, card_data, display_order, source, token_count)"
                " VALUES ($1, $2, $3, $4, $5, $6, $7, 'product_card',"
                " $8, $9, 'api', 3)",
                UUID(int=base + 100 * question + order), user, tenant, session, 2 * question,
                messages[2 * question - 1]["message_id"], question,
                json.dumps({"title": f"{word} card {order} of {question}"}), order,
            )  # fmt: skip
    await memory(
        admin, base + 1, "preference", f"{word}: Gai Media prefers Friday", user=user, tenant=tenant,
        subject_entity_id=GAI, predicate="delivery_preference", predicate_type="preference", object_value="Friday",
        entity_ids=[GAI], confidence=0.85, importance=0.7, reinforcement_count=3, provenance_turn_id=messages[0]["message_id"],
    )  # fmt: skip
    await memory(admin, base + 2, "fact", f"{word} likes numbers", user=user, tenant=tenant, object_value="42")
    await memory(
        admin, base + 3, "fact", f"{word} was wrong", user=user, tenant=tenant, status="superseded",
        superseded_by=UUID(int=base + 1), subject_entity_id=GAI, predicate="delivery_preference", object_value="Monday",
    )  # fmt: skip
    await memory(
        admin, base + 4, "procedure", f"{word}: after delivery, invoices", user=user, tenant=tenant,
        details=json.dumps({
            "trigger": {"pattern": "When the user asks about delivery", "intent": "question", "topics": ["delivery"]},
            "action": {"action_type": "augment_retrieval", "topics": ["invoices"]}, "observed_count": 5,
        }),
    )  # fmt: skip
    await memory(
        admin, base + 5, "summary", f"{word}: profile of Gai Media", user=user, tenant=tenant,
        details=json.dumps({
            "scope_type": "entity", "scope_identifier": GAI, "key_facts": {"payment_terms": {"value": "NET30"}},
            "source_data": {"sessions": 5},
        }),
    )  # fmt: skip
    await memory(
        admin,
        base + 6,
        "event",
        f"{word}: met Gai Media",
        user=user,
        tenant=tenant,
        created_at=SEPTEMBER,
        entity_ids=[GAI],
    )
    await memory(admin, base + 7, "fact", "", user=user, tenant=tenant, status="forgotten")
    await admin.execute(
        "INSERT INTO agent_data.episodes (user_id, tenant_id, message_id, session_id, at, event_type, entities, things)"
        " VALUES ($1, $2, $3, $4, $5, 'question', $6, $7)",
        user, tenant, messages[0]["message_id"], session, messages[0]["created_at"], [GAI, "gai-media"],
        json.dumps([{"canonical_id": GAI, "canonical_name": "Gai Media Entertainment", "mentions": [
            {"text": "Gai", "position": 0, "is_coreference": False}, {"text": "they", "position": 9, "is_coreference": True},
        ]}]),
    )  # fmt: skip
    for owner, alias, count in ((user, "Gai", 4), (NIL, "Gai", 90), (NIL, "SO-1045", 1)):
        await admin.execute(
            "INSERT INTO agent_data.entity_aliases (user_id, tenant_id, alias_norm, entity_id, alias_text, alias_source,"
            " use_count, confidence) VALUES ($1, $2, lower($3), $4, $3, 'learned', $5, 0.95)",
            owner, tenant, alias, GAI if owner != NIL else "order:so_1045", count,
        )  # fmt: skip
    await admin.execute(
        "INSERT INTO agent_data.canonical_entities (tenant_id, entity_id, entity_type, canonical_name, name_norm,"
        " external_ref, properties) VALUES ($1, $2, 'customer', 'Gai Media Entertainment', 'gai media entertainment', $3, $4)",
        tenant, GAI, json.dumps({"customer_id": "gai_123"}), json.dumps({"industry": word}),
    )  # fmt: skip
    await admin.execute(
        "INSERT INTO agent_data.memory_conflicts (conflict_id, user_id, tenant_id, detected_at_message, conflict_type,"
        " conflict_data, resolution_strategy, entity_id) VALUES ($1, $2, $3, $4, 'memory_vs_db', $5, 'trust_db', $6)",
        UUID(int=base + 8), user, tenant, messages[0]["message_id"], json.dumps({"word": word}), GAI,
    )  # fmt: skip
    await admin.execute(
        "INSERT INTO agent_data.ontologies (tenant_id, domain, source) VALUES ($1, 'erp', $2)", tenant, word
    )
    await admin.execute(
        "INSERT INTO agent_data.domain_ontology (tenant_id, domain, from_entity_type, relation_type, to_entity_type,"
        " cardinality, relation_semantics, join_spec)"
        " VALUES ($1, 'erp', 'customer', 'has', 'sales_order', 'one_to_many', $2, '{}')",
        tenant, word,
    )  # fmt: skip
    await admin.execute(
        "INSERT INTO agent_data.user_facts (fact_id, user_id, tenant_id, category, fact_key, fact_value, confidence_score,"
        " said_at, first_mentioned, last_updated) VALUES ($1, $2, $3, 'professional', 'role', $4, 95, now(), now(), now())",
        UUID(int=base + 9), user, tenant, json.dumps({"title": word}),
    )  # fmt: skip
    await admin.execute("UPDATE agent_data.users SET name = $2 WHERE user_id = $1", user, word)


async def others(admin: Admin, users: int = 500, each: int = 20) -> None:
    """So many users with so many rows that what a plan does with all of them would show."""
    of_users = "(SELECT gen_random_uuid() AS u, n FROM generate_series(1, $2::int) n) x"
    of_rows = f"{of_users}, generate_series(1, $3::int) i"
    for table, columns, values, source in (
        ("users", "external_id", "'user ' || n", of_users),
        ("sessions", "session_id, expires_at", "gen_random_uuid(), now()", of_rows),
        ("memory_store", "memory_id, memory_tier, memory_scope, content_text, content_hash, provenance_type, token_count",
         "gen_random_uuid(), 3, 1, 'text', int8send(i), 0, 5", of_rows),
        ("conversation_history", "message_id, session_id, turn_index, role, content, token_count",
         "gen_random_uuid(), gen_random_uuid(), i, 1, 'text', 5", of_rows),
        ("episodes", "message_id, session_id, at, event_type",
         "gen_random_uuid(), gen_random_uuid(), now(), 'question'", of_rows),
        ("job_effects", "job_key, at", "'learn:' || gen_random_uuid(), now()", of_rows),
        ("memory_conflicts", "conflict_id, conflict_type, conflict_data", "gen_random_uuid(), 'temporal', '{}'", of_rows),
        ("ui_cards_shown", "card_id, session_id, turn_index, message_id, question, card_type, card_data, display_order, source,"
         " token_count", "gen_random_uuid(), gen_random_uuid(), i, gen_random_uuid(), i, 'x', '{}', 1, 'api', 1", of_rows),
        ("routes", "id, kind, target", "gen_random_uuid(), 'session', gen_random_uuid()", of_rows),
        ("user_facts", "fact_id, category, fact_key, fact_value, confidence_score, said_at, first_mentioned, last_updated",
         "gen_random_uuid(), 'personal', 'k' || i, '1', 50, now(), now(), now()", of_rows),
    ):  # fmt: skip
        bound = [TENANT, users, *([each] if source is of_rows else [])]
        await admin.execute(
            f"INSERT INTO agent_data.{table} (user_id, tenant_id, {columns}) SELECT u, $1::uuid, {values} FROM {source}",
            *bound,
        )
    await admin.execute("ANALYZE")


def scans(plan: dict[str, Any]) -> list[tuple[str, str]]:
    """(relation, how it is read) of what was really read."""
    own = []
    if plan.get("Relation Name") and plan.get("Actual Loops", 0):
        own = [(plan["Relation Name"], plan["Node Type"])]
    return own + [each for child in plan.get("Plans", []) for each in scans(child)]
