"""What statements did: auto_explain tells the plans of a connection as the server's, those inside of functions as well."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from app.features.paging.state import PagingPartRecord
from app.store import ids
from app.store.pools import set_codecs
from app.store.queries import Queries
from tests.support.paged import whole_record
from tests.support.teller import NOW, TENANT, Teller, recipe_of, talk

SQL = Queries.load()
S1, S2 = UUID(int=0x51), UUID(int=0x52)


@dataclass(frozen=True)
class Scan:
    """One scan that was really made. `by_words`: for whatever message holds some words."""

    statement: str
    kind: str
    table: str
    partition: str
    index: str | None
    by_words: bool


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", []):
        yield from nodes(each)


class Watch:
    """A connection as the server's, which tells what its statements did."""

    def __init__(self, connection: asyncpg.Connection[Any], parents: dict[str, str]) -> None:
        self.connection = connection
        self._parents = parents
        self.plans: list[dict[str, Any]] = []
        connection.add_log_listener(self._listen)

    def _listen(self, _: Any, message: Any) -> None:
        text = str(message.message)
        if "plan:" in text:
            self.plans.append(json.loads(text[text.index("{") :]))

    def _root(self, name: str) -> str:
        while name in self._parents:
            name = self._parents[name]
        return name

    async def scans(self, work: Callable[[], Awaitable[Any]]) -> list[Scan]:
        """The scans that `work` made, each time it was executed."""
        self.plans.clear()
        await work()
        await self.connection.fetchval("SELECT 1")  # notices come before this
        return [
            self._scan(" ".join(logged["Query Text"].split())[:200], node)
            for logged in self.plans
            for node in nodes(logged["Plan"])
            if "Scan" in node["Node Type"] and node.get("Actual Loops") and of_a_table(node)
        ]

    def _scan(self, statement: str, node: dict[str, Any]) -> Scan:
        name, index, told = node["Relation Name"], index_of(node), str(node)
        by_words = "content_tsv" in told and "session_id =" not in told
        return Scan(
            statement, node["Node Type"], self._root(name), name, self._root(index) if index else None, by_words
        )


def of_a_table(node: dict[str, Any]) -> bool:
    """Not of a function, nor of a CTE, and not the driver's own look at types."""
    return not str(node.get("Relation Name", "pg_")).startswith("pg_")


def index_of(node: dict[str, Any]) -> str | None:
    """The index that a scan uses, in the bitmap below it, too."""
    return next((each["Index Name"] for each in nodes(node) if "Index Name" in each), None)


@asynccontextmanager
async def watching(database: str) -> AsyncIterator[Watch]:
    """A connection as the server's, whose plans are told."""
    connection: asyncpg.Connection[Any] = await asyncpg.connect(database, statement_cache_size=0)
    rows = await connection.fetch(
        "SELECT c.relname AS child, p.relname AS parent FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " JOIN pg_class p ON p.oid = i.inhparent JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = 'agent_data'"
    )
    await set_codecs(connection, "public")
    await connection.execute(
        "LOAD 'auto_explain';"
        "SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;"
        "SET auto_explain.log_analyze = on; SET auto_explain.log_timing = off; SET auto_explain.log_format = 'json';"
        "SET search_path = agent_data, public; SET jit = off;"
        # A few rows are read faster without an index: what counts is that there is one.
        "SET enable_seqscan = off; SET ROLE mneme_app; SET client_min_messages = log"
    )
    try:
        yield Watch(connection, {row["child"]: row["parent"] for row in rows})
    finally:
        await connection.close()


FILLER = """
WITH said AS (
    INSERT INTO agent_data.conversation_history (message_id, session_id, user_id, tenant_id, turn_index, role, content,
                                                 token_count, created_at)
    SELECT gen_random_uuid(), md5($1::uuid::text || n / 30)::uuid, $1::uuid, $2, n % 30, 1, 'word' || n, 3,
           $3
    FROM generate_series(1, 1500) AS n
), asked AS (
    INSERT INTO agent_data.fault_history (user_id, tenant_id, session_id, fault_id, object_id, fault_type, turn_number,
                                          question)
    SELECT $1::uuid, $2, md5($1::uuid::text || n / 30)::uuid, gen_random_uuid(), gen_random_uuid(), 'micro_fault', n % 30,
           'why?'
    FROM generate_series(1, 600) AS n
)
INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text, content_hash,
                                     provenance_type, token_count)
SELECT gen_random_uuid(), $1::uuid, $2, 3, 1, 'word' || n, sha256(n::text::bytea), 0, 3
FROM generate_series(1, 500) AS n
"""
"""So much else that a look at all of it costs more than an index."""


async def fill(teller: Teller) -> None:
    """Two users with two sessions each, memories, vectors; this month and the next."""
    await teller.admin.execute("SELECT agent_data.ensure_history_partitions($1, $2)", NOW, NOW + timedelta(days=40))
    for name in ("ana", "bob", "carl", "dora"):
        user = ids.user_id(TENANT, name)
        facts = {"user_id": user, "request": recipe_of(b"1")[1]}
        given: dict[str, Any] = {"user": user, "facts": facts}
        keyed = given | {"facts": facts | {"repeat_key": b"k"}}
        one, two = (ids.session_id(TENANT, user, each) for each in "12")
        sessions = (S1, S2) if name == "ana" else (one, two)
        keyed["facts"] |= {"part": PagingPartRecord(whole_record(sessions[0]))}
        await teller.tell(talk("cats q1"), "cats a1", session=sessions[0], system_prompt="Be kind.", **keyed)
        await teller.tell(talk("cats q1", "cats a1", "cats q2"), "cats a2", session=sessions[0], new=1, **given)
        await teller.tell(
            talk("cats x"), "cats y", session=sessions[1], parent_session_id=sessions[0], branch_turn_index=2, **given
        )
        for n in range(20):
            await teller.admin.execute(
                "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope,"
                " content_text, content_hash, provenance_type, token_count) VALUES ($1, $2, $3, 3, 1, $4, $5, 0, 5)",
                ids.uuid7(NOW), user, TENANT, f"cats fact {n}", bytes([n]),
            )  # fmt: skip
        await teller.admin.execute(FILLER, user, TENANT, NOW)
        await teller.admin.execute(
            "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, 'forgotten')",
            user, TENANT, UUID(int=1),
        )  # fmt: skip
    for table in (
        "conversation_history",
        "memory_store",
        "embeddings",
        "sessions",
        "session_heads",
        "fault_history",
    ):
        await teller.admin.execute(f"ANALYZE agent_data.{table}")
