"""A database that tests use one after another. Between two tests it is emptied, and its warm connections are kept.

A new database costs 50 ms to copy and drop, and each new backend some 100 ms of CPU until it has read the catalogs of hundreds
of partitions and indexes. To empty one costs some 6 ms. A test that changed the schema, or anything else that cannot be
put back, leaves its database unfit: it is dropped, and the next test gets a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from app.store.pools import Pool, open_pool
from tests.support.database import fresh_database

CLEANING_TIMEOUT = "2s"
"""Longest wait for a lock while a database is emptied. Who holds one then has been left behind by its test."""
CLOSING_TIMEOUT_S = 2.0
SPACE_INDEXES = r"^embeddings_(hnsw|memories)_\d+$"
"""What `ensure_embedding_space` creates. Nearly every test makes a space, so these are dropped and are no change."""

LARGE_BYTES = 65_536
"""A table above this is truncated, which gives it a new file and makes every session plan anew what reads it: most of what it
cost to empty a database. From a smaller one its rows are deleted."""

TABLES = """
SELECT c.oid, c.oid::regclass::text AS name, pg_relation_size(c.oid) > 0 AS seeded FROM pg_class c
WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND c.oid >= 16384
  AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY 2
"""
"""All but what an extension made, which is its own. One that was never written to has no page."""

EMPTY = """
CREATE FUNCTION pg_temp.empty(OUT large text[], OUT changed text[]) LANGUAGE plpgsql AS $$
BEGIN
{tables}
{seeds}
END $$
"""
"""Deletes what is in small tables; says which are large, and which of those with rows from the start have others now."""
EMPTY_ONE = """
IF pg_relation_size({oid}) > {most} THEN large := array_append(large, '{name}');
ELSIF EXISTS (SELECT FROM {name}) THEN DELETE FROM {name};
END IF;"""
CHECK_ONE = """
IF ({rows}) IS DISTINCT FROM '{hash}' THEN changed := array_append(changed, '{name}');
END IF;"""
ROWS_OF = "SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {name} t"

EMPTYING = "SELECT large, changed FROM pg_temp.empty()"

FINGERPRINT = r"""
SELECT concat_ws(' ',
  (SELECT sum(hash_record_extended(ROW(relname, relnamespace, relkind, relnatts, relowner, relpersistence, relchecks,
              relrowsecurity, relforcerowsecurity, relispartition, relreplident, reloptions, relacl::text[]), 0))
   FROM pg_class WHERE relkind <> 't' AND relpersistence <> 't'),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_attribute),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_proc),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_type),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_trigger),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_constraint),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_policy),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_rewrite),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_default_acl),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_extension),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_'),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_statistic),
  (SELECT concat(count(*), '/', max(xmin::text::bigint)) FROM pg_db_role_setting))
"""
"""What the schema and its statistics are: any DDL, GRANT, ALTER DATABASE or ANALYZE changes it, TRUNCATE does not."""

OTHERS_OUT = """
SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND pid <> ALL ($1::integer[])
  AND backend_type = 'client backend'
"""
FORGET = "CLOSE ALL; UNLISTEN *; RESET ALL; DISCARD TEMP; DISCARD SEQUENCES; SELECT pg_advisory_unlock_all()"
"""A session as it began. Its role stays, and so do its prepared statements, which are what makes it warm."""


class Unfit(Exception):
    """This database cannot be given to another test."""


@dataclass
class _Lent:
    """One database, and what it must look like when it is lent again."""

    dsn: str
    keeper: asyncpg.Connection[Any]
    fingerprint: str
    seeds: dict[str, bytes]
    """The rows of each table that has some from the start, as COPY writes them."""
    sequences: dict[str, Any]
    at_work: set[asyncio.Task[Any]] = field(default_factory=set)
    """Tasks that ran before the test."""
    admin: asyncpg.Connection[Any] | None = None
    pool: Pool | None = None


class ReusedDatabase:
    """The database of one worker of the run."""

    def __init__(self, server: str, template: str) -> None:
        self._server, self._template = server, template
        self._lent: _Lent | None = None
        self._open = contextlib.AsyncExitStack()

    async def lend(self) -> str:
        """The DSN of a database that is as the template is."""
        if self._lent is None:
            dsn = await self._open.enter_async_context(fresh_database(self._server, self._template))
            keeper = await asyncpg.connect(dsn)
            # The tables' own triggers guard history and references: rows go and come here past both.
            await keeper.execute(f"SET lock_timeout = '{CLEANING_TIMEOUT}'; SET session_replication_role = replica")
            seeds = await _learn_to_empty(keeper)
            self._lent = _Lent(dsn, keeper, await keeper.fetchval(FINGERPRINT), seeds, await _sequences(keeper))
        self._lent.at_work = asyncio.all_tasks()
        return self._lent.dsn

    async def admin(self) -> asyncpg.Connection[Any]:
        """A plain connection as superuser."""
        assert self._lent is not None
        if self._lent.admin is None:
            self._lent.admin = await asyncpg.connect(self._lent.dsn)
        return self._lent.admin

    async def pool(self) -> Pool:
        """The application's pool: role `mneme_app`, row-level security in force."""
        assert self._lent is not None
        if self._lent.pool is None:
            self._lent.pool = await open_pool(
                self._lent.dsn,
                size=2,
                timeout_ms=5000,
                statement_timeout_ms=30_000,
                statement_cache_size=256,
                role="mneme_app",
                application_name="mneme-test",
            )
        return self._lent.pool

    async def take_back(self) -> None:
        """Empty the database for the next test; where that cannot be done, drop it."""
        lent = self._lent
        assert lent is not None
        try:
            kept = [lent.keeper.get_server_pid(), *await _calm_admin(lent), *await _calm_pool(lent)]
            await _empty(lent, kept)
        except (Unfit, asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            await self.close()

    async def close(self) -> None:
        """Drop the database, whoever is still connected."""
        lent, self._lent = self._lent, None
        if lent is None:
            return
        for connection in (lent.keeper, lent.admin):
            if connection is not None and not connection.is_closed():
                await connection.close(timeout=CLOSING_TIMEOUT_S)
        if lent.pool is not None:
            await lent.pool.close()
        await self._open.aclose()


async def _calm_admin(lent: _Lent) -> list[int]:
    """The backend of the kept plain connection, if it is still fit to use."""
    admin = lent.admin
    if admin is None or admin.is_closed():
        lent.admin = None
        return []
    if admin.is_in_transaction():
        await admin.execute("ROLLBACK")
    await admin.reset(timeout=2)  # also takes its listeners away
    await admin.execute("RESET ROLE; " + FORGET)
    return [admin.get_server_pid()]


async def _calm_pool(lent: _Lent) -> list[int]:
    """The backends of the kept pool. A test that leaves tasks behind does not keep it: they may hold on to it."""
    pool = lent.pool
    if pool is None:
        return []
    left = {task for task in asyncio.all_tasks() - lent.at_work if task is not asyncio.current_task()}
    try:
        if left or pool.size == 0 or pool.idle < pool.size:  # in use, or closed
            raise Unfit
        async with contextlib.AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(pool.acquire()) for _ in range(pool.size)]
            for connection in connections:
                await connection.execute(FORGET)
            return [connection.get_server_pid() for connection in connections]
    except Exception:  # noqa: BLE001 whatever the test did to it
        lent.pool = None
        await pool.close()
        return []


async def _empty(lent: _Lent, kept: list[int]) -> None:
    """Raises Unfit where the schema is not what it was."""
    keeper = lent.keeper
    await keeper.fetch(OTHERS_OUT, kept)
    indexes = await keeper.fetch(
        "SELECT oid::regclass::text AS name FROM pg_class WHERE relkind = 'I' AND relname ~ $1", SPACE_INDEXES
    )
    if indexes:
        await keeper.execute(f"DROP INDEX {', '.join(row['name'] for row in indexes)}")
    if await keeper.fetchval(FINGERPRINT) != lent.fingerprint:
        raise Unfit
    ((large, changed),) = await keeper.fetch(EMPTYING)
    if large:
        await keeper.execute(f"TRUNCATE {', '.join(large)} RESTART IDENTITY CASCADE")
        ((_, changed),) = await keeper.fetch(EMPTYING)
    for name in changed or ():
        await keeper.execute(f"DELETE FROM {name}")
        schema, _, table = name.rpartition(".")
        rows = io.BytesIO(lent.seeds[name])
        await keeper.copy_to_table(table, schema_name=schema or None, source=rows, format="binary")
    for name, value in (await _sequences(keeper)).items():
        if value != (before := lent.sequences.get(name)):
            await keeper.execute("SELECT setval($1::regclass, coalesce($2, 1), $2 IS NOT NULL)", name, before)


async def _learn_to_empty(keeper: asyncpg.Connection[Any]) -> dict[str, bytes]:
    """Make what empties this database. Returns the rows that it has from the start."""
    seeds, tables, checks = {}, [], []
    for row in await keeper.fetch(TABLES):
        name = row["name"]
        if row["seeded"]:
            seeds[name] = await _rows(keeper, name)
            rows = ROWS_OF.format(name=name)
            checks.append(CHECK_ONE.format(name=name, rows=rows, hash=await keeper.fetchval(rows)))
        else:
            tables.append(EMPTY_ONE.format(oid=row["oid"], name=name, most=LARGE_BYTES))
    await keeper.execute(EMPTY.format(tables="".join(tables), seeds="".join(checks)))
    return seeds


async def _rows(connection: asyncpg.Connection[Any], name: str) -> bytes:
    rows = io.BytesIO()
    await connection.copy_from_query(f"SELECT * FROM {name} t ORDER BY t::text", output=rows, format="binary")
    return rows.getvalue()


async def _sequences(connection: asyncpg.Connection[Any]) -> dict[str, Any]:
    found = await connection.fetch(
        "SELECT format('%I.%I', schemaname, sequencename) AS name, last_value FROM pg_sequences"
    )
    return {row["name"]: row["last_value"] for row in found}
