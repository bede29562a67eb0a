"""Rows of Mneme's tables that no public method shows, read and written by name.

Outside `tests/integration/store` no other module states SQL on the schema (`tests/unit/test_no_raw_sql.py`), so
a change of the schema touches this one. Readers return whole rows, jsonb columns as text; pass columns to keep only the rows
with these values.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import orjson
from asyncpg.pool import PoolConnectionProxy

from app.store.ids import LOCAL_TENANT
from app.store.pools import Pool

Admin: TypeAlias = "asyncpg.Connection[Any]"
Row: TypeAlias = dict[str, Any]


class RowReader(Protocol):
    """Return the rows of one table in its order, or those whose columns have these values."""

    async def __call__(self, admin: Admin, /, **columns: object) -> list[Row]: ...


def _build_reader(table: str, order_by: str = "1") -> RowReader:
    async def read(admin: Admin, /, **columns: object) -> list[Row]:
        return await read_rows(admin, table, order_by, **columns)

    return read


async def read_rows(admin: Admin, table: str, order_by: str = "1", /, **columns: object) -> list[Row]:
    """Return the rows of a table, or those whose columns have these values."""
    records = await admin.fetch(f"SELECT * FROM agent_data.{table} ORDER BY {order_by}")
    rows = [dict(record) for record in records]
    return [row for row in rows if all(row[name] == value for name, value in columns.items())]


read_aliases = _build_reader("entity_aliases", "user_id, entity_id")
read_blocks = _build_reader("context_blocks", "created_at")
read_calls = _build_reader("upstream_calls", "call_id")
read_cards = _build_reader("ui_cards_shown")
read_commands = _build_reader("memory_commands")
read_compilations = _build_reader("compilations", "call_id")
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
read_spend = _build_reader("spend_entries", "call_id")
read_streams = _build_reader("streams", "call_id")
read_suppressions = _build_reader("suppressions", "reason, item_id")
read_ticks = _build_reader("ticks")
read_users = _build_reader("users", "user_id")
read_working_memory = _build_reader("memory_store_working")


async def read_memory(admin: Admin, memory: UUID | str) -> Row:
    (row,) = await read_memories(admin, memory_id=UUID(str(memory)))
    return row


async def read_audit(admin: Admin) -> Row:
    """Return the explanation of the newest call's context."""
    audit: Row = orjson.loads((await read_compilations(admin))[-1]["audit"])
    return audit


async def read_ended(admin: Admin, tenant: UUID, user: UUID, items: Iterable[UUID]) -> list[Row]:
    """Return what these items said and is so no more."""
    query = "SELECT to_jsonb(e) FROM agent_data.ended_since($1, $2, $3) e"
    return [orjson.loads(row[0]) for row in await admin.fetch(query, tenant, user, list(items))]


async def read_index_of_user(admin: Admin, name: str) -> list[Row]:
    """Return what the index has of each item of a user, with the bytes of its vector, and what was said."""
    rows = await admin.fetch(
        "SELECT i.place, public.halfvec_send(e.vector) AS vector, i.terms, vector_dims(e.vector) AS dimensions, h.content"
        " FROM agent_data.users u JOIN agent_data.index_items i USING (user_id)"
        " LEFT JOIN agent_data.embeddings e USING (user_id, item_id)"
        " LEFT JOIN agent_data.conversation_history h ON h.user_id = i.user_id AND h.message_id = i.item_id"
        " WHERE u.external_id = $1",
        name,
    )
    return [dict(row) for row in rows]


async def count_rows(admin: Admin, *tables: str, **columns: object) -> int:
    """Return how many rows these tables have in all, or those whose columns have these values."""
    return sum([len(await read_rows(admin, table, **columns)) for table in tables])


async def find_tables(admin: Admin, *words: str) -> set[str]:
    """Return the tables in which one of these words stands, as text or as bytes."""
    patterns = [f"%{form}%" for word in words for form in (word, word.encode().hex())]
    tables = await admin.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'agent_data'::regnamespace AND relkind IN ('r', 'p')"
        " AND NOT relispartition"
    )
    return {
        name
        for (name,) in tables
        if await admin.fetchval(
            f"SELECT EXISTS (SELECT FROM agent_data.{name} t WHERE t::text ILIKE ANY ($1::text[]))", patterns
        )
    }


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


async def abandon_jobs(admin: Admin) -> None:
    """Leave every job as a worker leaves it that ended an hour ago."""
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    await update_rows(admin, "pgqueuer", {}, status="picked", heartbeat=hour_ago, queue_manager_id=uuid4())


async def update_rows(admin: Admin, table: str, conditions: Row, /, **columns: object) -> None:
    """Change columns of the rows of a table that have these values, or of all."""
    assignments = ", ".join(f"{name} = ${n}" for n, name in enumerate(columns, 1))
    condition, values = _build_condition(conditions, len(columns))
    await admin.execute(f"UPDATE agent_data.{table} SET {assignments}{condition}", *columns.values(), *values)


async def delete_rows(admin: Admin, table: str, /, **columns: object) -> None:
    """Delete the rows of a table whose columns have these values, or all."""
    condition, values = _build_condition(columns, 0)
    await admin.execute(f"DELETE FROM agent_data.{table}{condition}", *values)


def _build_condition(conditions: Row, before: int) -> tuple[str, list[object]]:
    """Return a WHERE clause and its values, which follow `before` other parameters."""
    condition = " AND ".join(f"{name} = ${n}" for n, name in enumerate(conditions, before + 1))
    return f" WHERE {condition}" if conditions else "", list(conditions.values())


async def suppress(admin: Admin, user: UUID, item: UUID | str, reason: str) -> None:
    """Keep an item of a user of the local tenant from being shown."""
    columns = {"user_id": user, "tenant_id": LOCAL_TENANT, "item_id": UUID(str(item)), "reason": reason}
    await insert_row(admin, "suppressions", **columns)


async def set_summary(admin: Admin, name: str, text: str, vector: Iterable[float], space: int) -> None:
    """Give a session a summary and its vector, as closing the session does."""
    await admin.execute(
        "UPDATE agent_data.sessions SET summary_text = $2, summary_embedding = $3::text::halfvec, summary_space = $4"
        " WHERE external_id = $1", name, text, str(list(vector)), space,
    )  # fmt: skip


async def lock_table(admin: Admin, table: str, mode: str = "ACCESS EXCLUSIVE") -> None:
    """Lock a table until the transaction ends."""
    await admin.execute(f"LOCK TABLE agent_data.{table} IN {mode} MODE")


async def keep_fact(admin: Admin, user: UUID, memory: UUID, key: str, value: str) -> None:
    """Keep a fact of a user of the local tenant that a memory says, as learning does."""
    await admin.execute(
        "SELECT agent_data.keep_fact($1, $2, 'personal', $3, false, to_jsonb($4::text), 90, $5, now(), now())",
        LOCAL_TENANT, user, key, value, memory,
    )  # fmt: skip


async def set_session(admin: Admin, session: UUID, **columns: object) -> None:
    await update_rows(admin, "sessions", {"session_id": session}, **columns)


async def set_memories(admin: Admin, memories: Iterable[Row], **columns: object) -> None:
    """Change columns of these memories, as sweeps and operators do."""
    for memory in memories:
        await update_rows(admin, "memory_store", {"memory_id": memory["memory_id"]}, **columns)


async def set_memory(admin: Admin, memory: UUID, **columns: object) -> None:
    await update_rows(admin, "memory_store", {"memory_id": memory}, **columns)


async def set_object(admin: Admin, object_id: UUID, **columns: object) -> None:
    await update_rows(admin, "semantic_objects", {"object_id": object_id}, **columns)


async def touch_paged_session(admin: Admin, session: UUID) -> None:
    """Let a paged session go on for a minute."""
    await admin.execute(
        "UPDATE agent_data.paged_sessions SET updated_at = updated_at + interval '1 minute' WHERE session_id = $1",
        session,
    )


async def set_message(admin: Admin, message: UUID, **columns: object) -> None:
    """Change a message of the history, which no code may do, as the recording of its call would have written it."""
    await admin.execute("SET session_replication_role = replica")
    await update_rows(admin, "conversation_history", {"message_id": message}, **columns)
    await admin.execute("RESET session_replication_role")


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


async def create_pre_release(admin: Admin, files: str) -> None:
    """Leave an empty database as a pre-release does whose migrations were these values."""
    await admin.execute(
        "CREATE SCHEMA agent_data; CREATE TABLE agent_data.schema_migrations"
        " (version integer, name text, checksum bytea, applied_at timestamptz DEFAULT now());"
        f" INSERT INTO agent_data.schema_migrations (version, name, checksum) VALUES {files}"
    )


# --- rows that other processes would have written ----------------------------------------------------------------------


async def insert_row(admin: Admin, table: str, **columns: object) -> None:
    """Insert one row, or nothing where it is there already."""
    places = ", ".join(f"${n}" for n in range(1, len(columns) + 1))
    await admin.execute(
        f"INSERT INTO agent_data.{table} ({', '.join(columns)}) VALUES ({places}) ON CONFLICT DO NOTHING",
        *columns.values(),
    )


async def fill_table(admin: Admin, table: str, user: UUID, columns: str, values: str, word: str) -> None:
    """Insert a row of a user, or nothing where it is there already; in `values` $2 is some id and $3 the word."""
    await admin.execute(
        f"INSERT INTO agent_data.{table} (tenant_id, user_id, {columns}) SELECT tenant_id, user_id, {values}"
        " FROM agent_data.users WHERE user_id = $1 AND ($2::uuid, $3::text) IS NOT NULL ON CONFLICT DO NOTHING",
        user, uuid4(), word,
    )  # fmt: skip
