"""Statements about one user open one hash partition of each table, whatever plan they have."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.store import ids
from app.store.pools import set_codecs
from app.store.queries import Queries

SQL = Queries.load()
NOW = datetime(2026, 11, 20, tzinfo=UTC)
TENANT, USER, OTHER = ids.LOCAL_TENANT, ids.user_id(ids.LOCAL_TENANT, "ana"), UUID(int=1)

STATEMENTS: list[tuple[str, list[Any], set[str]]] = [
    ("facts.page", [TENANT, USER, None, None, None, 10, None], {"user_facts"}),
    ("facts.named", [TENANT, USER, "k", None], {"user_facts"}),
    ("facts.history", [TENANT, USER, [OTHER], 0, 10], {"user_fact_changes"}),
    ("facts.ids_of", [USER, None, "k"], {"user_facts"}),
    ("outcomes.page", [TENANT, USER, None, 10, None], {"answer_outcomes"}),
    ("outcomes.report", [TENANT, USER, None, None, 10], {"answer_outcomes", "memory_outcomes", "memory_store"}),
    ("memories.matching", [TENANT, USER, [OTHER], ["t"], None, [], []], {"memory_store"}),
    ("cards.shown_with", [TENANT, USER, OTHER, 2, 0], {"ui_cards_shown"}),
    ("cards.of_messages", [TENANT, USER, [OTHER]], {"ui_cards_shown"}),
    ("cards.page", [TENANT, USER, [OTHER], [0], [None], *[None] * 7, 10], {"ui_cards_shown"}),
    ("cards.index", [TENANT, USER, [OTHER], [0], [None], 10], {"ui_cards_shown"}),
    ("cards.by_id", [TENANT, USER, [OTHER]], {"ui_cards_shown"}),
    ("deleting.cards", [TENANT, USER, OTHER], {"ui_cards_shown"}),
    ("conflicts.list_of_user", [TENANT, None, None, None, None, None, 10, USER], {"memory_conflicts"}),
    ("conflicts.of_entities", [TENANT, USER, ["customer:gai_123"], NOW, 10], {"memory_conflicts"}),
    ("checking.claims", [USER, OTHER, "customer:gai_123", ["payment_terms"], NOW], {"memory_store"}),
    ("checking.preferred_days", [USER, OTHER, ["customer:gai_123"]], {"memory_store"}),
    ("reembed.lacking", [USER, 1, None, None, None, 10], {"memory_store", "embeddings"}),
]


def scanned(plan: dict[str, Any], found: list[str]) -> list[str]:
    if "Relation Name" in plan:
        found.append(plan["Relation Name"])
    for each in plan.get("Plans", []):
        scanned(each, found)
    return found


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(("name", "arguments", "tables"), STATEMENTS, ids=[each[0] for each in STATEMENTS])
async def test_one_partition_of_each_table(
    admin: asyncpg.Connection[Any], mode: str, name: str, arguments: list[Any], tables: set[str]
) -> None:
    await set_codecs(admin, "public")
    await admin.execute(f"SET plan_cache_mode = {mode}")
    plan = await admin.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {SQL[name]}", *arguments)
    top = json.loads(plan) if isinstance(plan, str) else plan
    # What is pruned when it is executed is not in the plan, or was never executed.
    opened = {each for each in scanned(top[0]["Plan"], []) if "_p" in each}
    parents = Counter(each.rpartition("_p")[0] for each in opened if "history" not in each)
    assert tables <= set(parents), parents
    assert set(parents.values()) <= {1}, opened
