"""What sweeps and lists look for is found by the index that is there for it: of seed 000 §4, those that no turn reads."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from tests.support.jobs import SQL
from tests.support.teller import ANA, NOW, TENANT, Teller, talk

USED = """
SELECT COALESCE(sum(pg_stat_get_xact_numscans(i.inhrelid)), 0)::int FROM pg_inherits i
WHERE i.inhparent = $1::text::regclass
"""


@pytest.mark.parametrize(
    ("index", "statement", "arguments"),
    [
        ("sessions_expiry", "SELECT agent_data.expire_sessions($1, 100)", (NOW,)),
        ("memory_expiry", "SELECT agent_data.expire_memories($1, 100)", (NOW,)),
        ("sessions_user_all", SQL["sessions.list_of_user"], (TENANT, ANA, None, None, None, 20, None)),
    ],
    ids=lambda each: each if isinstance(each, str) and " " not in each else "",
)
async def test_the_index_is_used(
    teller: Teller, admin: asyncpg.Connection[Any], index: str, statement: str, arguments: tuple[Any, ...]
) -> None:
    await teller.tell(talk("q"), "a", session=ANA)
    async with admin.transaction():
        await admin.execute("SET LOCAL enable_seqscan = off")  # of a table with a row it would be the cheaper
        await admin.fetch(statement, *arguments)
        assert await admin.fetchval(USED, f"agent_data.{index}") > 0
