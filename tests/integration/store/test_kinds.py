"""A kind of memory is the same in Python and in SQL."""

from __future__ import annotations

import re

import asyncpg

from app.store.kinds import KINDS
from app.store.memories import STATUSES

CHECK = """
SELECT pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = 'agent_data.memory_store'::regclass AND conname = 'memory_store_' || $1 || '_check'
"""
TRAITS = """
SELECT agent_data.memory_type(kind), agent_data.doubtable(kind), agent_data.drawn(kind), agent_data.of_behaviour(kind)
FROM unnest($1::text[]) AS kind
"""


async def test_the_table_lets_in_these_alone(admin: asyncpg.Connection) -> None:
    for column, known in (("kind", set(KINDS)), ("status", set(STATUSES))):
        assert set(re.findall(r"'(\w+)'", await admin.fetchval(CHECK, column))) == known


async def test_a_role_and_a_status_are_such_as_have_a_name(admin: asyncpg.Connection) -> None:
    for enumeration, table, column in (
        ("session_status", "sessions", "status"),
        ("role", "conversation_history", "role"),
    ):
        check = await admin.fetchval(
            "SELECT pg_get_expr(conbin, conrelid) FROM pg_constraint WHERE conrelid = $1::text::regclass AND conname = $2",
            f"agent_data.{table}",
            f"{table}_{column}_check",
        )
        named = await admin.fetch("SELECT value FROM agent_data.enumerations WHERE enumeration = $1", enumeration)
        let_in = await admin.fetch(f"SELECT {column} AS value FROM generate_series(-1, 99) AS {column} WHERE {check}")
        assert {row["value"] for row in let_in} == {row["value"] for row in named}, column


async def test_sql_says_the_same_of_each(admin: asyncpg.Connection) -> None:
    told = [tuple(row) for row in await admin.fetch(TRAITS, list(KINDS))]
    assert told == [(each.type, each.doubtable, each.drawn, each.behaviour) for each in KINDS.values()]
