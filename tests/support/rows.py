"""Rows of Mneme's tables that no public method shows, read and written by name.

Outside `tests/integration/store` no other module states SQL on the schema (`tests/unit/test_no_raw_sql.py`), so
a change of the schema touches this one. Readers return whole rows, jsonb columns as text; pass columns to keep only the rows
with these values.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Protocol, TypeAlias
from uuid import UUID

import asyncpg
import orjson
from asyncpg.pool import PoolConnectionProxy

from app.store.pools import Pool

Admin: TypeAlias = "asyncpg.Connection[Any]"
Row: TypeAlias = dict[str, Any]


class RowReader(Protocol):
    """Return the rows of one table in its order, or those whose columns have these values."""

    async def __call__(self, admin: Admin, /, **columns: object) -> list[Row]: ...


def _build_reader(table: str, order_by: str = "1") -> RowReader:
    async def read(admin: Admin, /, **columns: object) -> list[Row]:
        records = await admin.fetch(f"SELECT * FROM agent_data.{table} ORDER BY {order_by}")
        rows = [dict(record) for record in records]
        return [row for row in rows if all(row[name] == value for name, value in columns.items())]

    return read


read_aliases = _build_reader("entity_aliases", "user_id, entity_id")
read_cards = _build_reader("ui_cards_shown")
read_commands = _build_reader("memory_commands")
read_compactions = _build_reader("compactions", "first_turn, summary_id")
read_conflicts = _build_reader("memory_conflicts", "created_at, conflict_id")
read_consolidation = _build_reader("consolidation_state")
read_derivations = _build_reader("derivations")
read_effects = _build_reader("job_effects")
read_embeddings = _build_reader("embeddings")
read_entities = _build_reader("canonical_entities")
read_episodes = _build_reader("episodes", "at")
read_facts = _build_reader("user_facts")
read_index_items = _build_reader("index_items")
read_jobs = _build_reader("pgqueuer", "id")
read_memories = _build_reader("memory_store", "created_at, content_text")
read_memory_events = _build_reader("memory_events", "at")
read_messages = _build_reader("conversation_history", "turn_index, created_at")
read_objects = _build_reader("semantic_objects", "ordinal")
read_paged_sessions = _build_reader("paged_sessions")
read_relations = _build_reader("domain_ontology")
read_routes = _build_reader("routes")
read_session_work = _build_reader("session_work")
read_sessions = _build_reader("sessions")
read_suppressions = _build_reader("suppressions", "reason, item_id")
read_ticks = _build_reader("ticks")
read_users = _build_reader("users")
read_working_memory = _build_reader("memory_store_working")


async def read_persistent_objects(pool: Pool, tenant: UUID) -> list[Row]:
    """Return what a tenant sees in the table of seed 002."""
    async with pool.transaction(tenant) as connection:
        return [dict(record) for record in await connection.fetch("SELECT * FROM seed_002.persistent_objects")]


async def count_rows_of_user(admin: Admin, user: UUID, *, besides: Iterable[str]) -> dict[str, int]:
    """Return how many rows each table holds of a user, tables without any and those of `besides` left out."""
    tables = await admin.fetch(
        "SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'user_id'"
        " AND NOT a.attisdropped WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p')"
        " AND NOT c.relispartition AND c.relname <> ALL ($1)",
        list(besides),
    )
    counts = {
        name: await admin.fetchval(f"SELECT count(*) FROM agent_data.{name} WHERE user_id = $1", user)
        for (name,) in tables
    }
    return {name: count for name, count in counts.items() if count}


# --- what an operator, a clock or a fault does -------------------------------------------------------------------------


async def set_config(admin: Admin, key: str, value: object) -> None:
    """Set a parameter; a dictionary is merged into what is there."""
    merged = "value || $2::jsonb" if isinstance(value, dict) else "$2::jsonb"
    await admin.execute(
        f"UPDATE agent_data.system_config SET value = {merged} WHERE key = $1", key, orjson.dumps(value).decode()
    )


async def ensure_space(admin: Admin, name: str, dimensions: int) -> int:
    """Return the number of an embedding space, made if there is none."""
    number: int = await admin.fetchval("SELECT agent_data.ensure_embedding_space($1, $2)", name, dimensions)
    return number


async def count_use(connection: Admin | PoolConnectionProxy[Any], memory: UUID, now: datetime, gain: float) -> None:
    """Count one use of a memory, as the recording of a turn does."""
    await connection.execute(
        "UPDATE agent_data.memory_store SET access_count = access_count + 1, last_accessed_at = $2,"
        " relevance_accumulator = relevance_accumulator + $3 WHERE memory_id = $1",
        memory, now, gain,
    )  # fmt: skip


async def count_alias(connection: PoolConnectionProxy[Any], tenant: UUID, alias: str, metadata: object) -> None:
    """Keep a tenant's alias of the thing `x`, or count one use of it."""
    await connection.execute(
        "INSERT INTO agent_data.entity_aliases (tenant_id, alias_norm, entity_id, alias_text, alias_source, metadata)"
        " VALUES ($1, $2, 'x', $2, 'learned', $3) ON CONFLICT (user_id, tenant_id, alias_norm, entity_id)"
        " DO UPDATE SET use_count = entity_aliases.use_count + 1",
        tenant, alias, metadata,
    )  # fmt: skip


async def rate_call(admin: Admin, tenant: UUID, user: UUID, call: UUID, score: float, at: datetime) -> None:
    """Rate the answer of a call, or rate it anew."""
    await admin.execute(
        "INSERT INTO agent_data.answer_outcomes (user_id, tenant_id, call_id, score, answered_at, created_at, updated_at)"
        " VALUES ($1, $2, $3, $4, $5, $5, $5) ON CONFLICT (user_id, call_id) DO UPDATE SET score = $4",
        user, tenant, call, score, at,
    )  # fmt: skip


async def give_vectors_to_messages(admin: Admin, like: UUID) -> None:
    """Give every message a copy of the vector of this item, as a remote embedder's job does."""
    await admin.execute(
        "INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, vector)"
        " SELECT e.user_id, e.tenant_id, e.space, h.message_id, 0, h.created_at, e.vector"
        " FROM agent_data.embeddings e, agent_data.conversation_history h WHERE e.item_id = $1",
        like,
    )


async def ensure_history_partitions(admin: Admin, first: str, end: str) -> None:
    """Make the partitions of the months from `first` to before `end`, both as YYYY-MM-DD."""
    await admin.execute(f"SELECT agent_data.ensure_history_partitions('{first}', '{end}')")


async def take_jobs(admin: Admin, entrypoint: str | None = None) -> list[Row]:
    """Remove the jobs of the queue, or those of one entrypoint, and return them, the oldest first."""
    rows = await admin.fetch(
        "DELETE FROM agent_data.pgqueuer WHERE $1::text IS NULL OR entrypoint = $1 RETURNING *", entrypoint
    )
    return sorted(map(dict, rows), key=lambda row: row["id"])


async def delete_job(admin: Admin, job: int) -> None:
    await admin.execute("DELETE FROM agent_data.pgqueuer WHERE id = $1", job)


async def delete_jobs(admin: Admin) -> None:
    await admin.execute("DELETE FROM agent_data.pgqueuer")


async def make_jobs_due(admin: Admin) -> None:
    """Let every job begin now that is scheduled for later."""
    await admin.execute("UPDATE agent_data.pgqueuer SET execute_after = now()")


async def abandon_jobs(admin: Admin, tries: int) -> None:
    """Leave every job as a worker leaves it that died with it `tries` times, the last time an hour ago."""
    await admin.execute(
        "UPDATE agent_data.pgqueuer SET status = 'picked', heartbeat = now() - interval '1 hour',"
        " queue_manager_id = gen_random_uuid()"
    )
    await admin.execute(
        "INSERT INTO agent_data.pgqueuer_log (job_id, status, priority, entrypoint)"
        " SELECT id, 'picked', 0, 'test' FROM agent_data.pgqueuer, generate_series(1, $1)",
        tries,
    )


async def delete_effects(admin: Admin, prefix: str = "") -> None:
    """Forget that jobs whose key begins so were done."""
    await admin.execute("DELETE FROM agent_data.job_effects WHERE starts_with(job_key, $1)", prefix)


async def set_session(admin: Admin, session: UUID, **columns: object) -> None:
    await _update(admin, "sessions", "session_id", session, columns)


async def set_memories(admin: Admin, memories: Iterable[Row], **columns: object) -> None:
    """Change columns of these memories, as sweeps and operators do."""
    for memory in memories:
        await _update(admin, "memory_store", "memory_id", memory["memory_id"], columns)


async def set_object(admin: Admin, object_id: UUID, **columns: object) -> None:
    await _update(admin, "semantic_objects", "object_id", object_id, columns)


async def touch_paged_session(admin: Admin, session: UUID) -> None:
    """Let a paged session go on for a minute."""
    await admin.execute(
        "UPDATE agent_data.paged_sessions SET updated_at = updated_at + interval '1 minute' WHERE session_id = $1",
        session,
    )


async def set_message(admin: Admin, message: UUID, **columns: object) -> None:
    """Change a message of the history, which no code may do, as the recording of its call would have written it."""
    await admin.execute("SET session_replication_role = replica")
    await _update(admin, "conversation_history", "message_id", message, columns)
    await admin.execute("RESET session_replication_role")


async def _update(admin: Admin, table: str, key: str, value: object, columns: dict[str, object]) -> None:
    assignments = ", ".join(f"{name} = ${n}" for n, name in enumerate(columns, 2))
    await admin.execute(f"UPDATE agent_data.{table} SET {assignments} WHERE {key} = $1", value, *columns.values())


async def clear_due_users(admin: Admin) -> None:
    """Leave no user due for consolidation."""
    await admin.execute("UPDATE agent_data.consolidation_state SET due_at = NULL")


async def clear_memories(admin: Admin) -> None:
    await admin.execute("DELETE FROM agent_data.memory_store; DELETE FROM agent_data.embeddings")


async def clear_aliases(admin: Admin) -> None:
    await admin.execute("DELETE FROM agent_data.entity_aliases")


async def lose_working_memory(admin: Admin) -> None:
    """Empty the unlogged table as a crash of Postgres does."""
    await admin.execute("TRUNCATE agent_data.memory_store_working")


async def advance_erasure_epoch(admin: Admin) -> None:
    """Do to every user what an erasure does first, so that running jobs find their user erased."""
    await admin.execute("UPDATE agent_data.users SET erasure_epoch = erasure_epoch + 1")


async def delete_users(admin: Admin) -> None:
    await admin.execute("DELETE FROM agent_data.users")


async def age_memories(admin: Admin, now: datetime) -> None:
    await admin.execute("SELECT agent_data.age_memories($1, 1000)", now)


async def expire_memories(admin: Admin, now: datetime) -> None:
    await admin.execute("SELECT agent_data.expire_memories($1, 100)", now)


async def note_asked(admin: Admin, tenant: UUID, user: UUID, session: UUID, memory: UUID, at: datetime) -> None:
    """Note that a session's prompt asked about a memory in doubt."""
    await admin.execute(
        "SELECT agent_data.note_asked($1, $2, $3, ARRAY[$4::uuid], $5)", tenant, user, session, memory, at
    )


# --- rows that other processes would have written ----------------------------------------------------------------------


async def insert_row(admin: Admin, table: str, **columns: object) -> None:
    """Insert one row, or nothing where it is there already."""
    places = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    await admin.execute(
        f"INSERT INTO agent_data.{table} ({', '.join(columns)}) VALUES ({places}) ON CONFLICT DO NOTHING",
        *columns.values(),
    )
