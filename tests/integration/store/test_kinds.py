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


async def test_sql_says_the_same_of_each(admin: asyncpg.Connection) -> None:
    told = [tuple(row) for row in await admin.fetch(TRAITS, list(KINDS))]
    assert told == [(each.type, each.doubtable, each.drawn, each.behaviour) for each in KINDS.values()]
