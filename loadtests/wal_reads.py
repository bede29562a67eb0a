"""What Postgres wrote between two moments, read from the log itself (pg_walinspect), and what the rows written hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import asyncpg

Connection = asyncpg.Connection

SCHEMA = "agent_data"
VECTORS = "embeddings"
NOWHERE = "commits, and what belongs to no table"
NOW = "SELECT pg_current_wal_flush_lsn()"
"""Turns that were acknowledged are flushed: up to here, exactly."""
BYTES = "SELECT ($2::pg_lsn - $1::pg_lsn)::bigint"
RECORDS = """
WITH blocks AS MATERIALIZED (
    SELECT start_lsn, block_id, reltablespace, relfilenode, record_type, record_length, block_fpi_length AS image
    FROM pg_get_wal_block_info($1, $2, false)
    WHERE reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
), records AS (
    -- A record with several blocks (a split of an index page) belongs to the first.
    SELECT DISTINCT ON (start_lsn) start_lsn, record_type, record_length,
           pg_filenode_relation(reltablespace, relfilenode) AS rel,
           sum(image) OVER (PARTITION BY start_lsn) AS images, count(image) FILTER (WHERE image > 0)
               OVER (PARTITION BY start_lsn) AS image_count
    FROM blocks ORDER BY start_lsn, block_id
), owned AS (
    SELECT r.*, c.relkind IN ('i', 'I') AS is_index, COALESCE(o.oid, i.indrelid, r.rel::oid) AS owner
    FROM records r
    LEFT JOIN pg_class c ON c.oid = r.rel
    LEFT JOIN pg_index i ON i.indexrelid = r.rel
    LEFT JOIN pg_class o ON o.reltoastrelid = COALESCE(i.indrelid, r.rel) AND o.reltoastrelid <> 0
)
SELECT COALESCE(t.relname, '') AS name, COALESCE(t.relnamespace::regnamespace::text, '') AS schema,
       sum(o.record_length - o.images) FILTER (WHERE NOT o.is_index)::bigint AS heap,
       sum(o.record_length - o.images) FILTER (WHERE o.is_index)::bigint AS indexes,
       sum(o.images)::bigint AS images, sum(o.image_count)::bigint AS image_count,
       count(*) FILTER (WHERE o.record_type IN ('UPDATE', 'HOT_UPDATE') AND NOT o.is_index) AS updates
FROM owned o LEFT JOIN pg_class t ON t.oid = COALESCE(pg_partition_root(o.owner), o.owner)
GROUP BY 1, 2
"""
TABLES = f"""
SELECT c.relname AS name, array_agg(a.attname::text ORDER BY a.attnum) AS columns,
       array_agg(CASE WHEN y.typelem <> 0 AND y.typcategory = 'A' THEN 'array' ELSE y.typname::text END ORDER BY a.attnum)
           AS types,
       array_agg(format_type(a.atttypid, a.atttypmod) ORDER BY a.attnum) AS full_types
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type y ON y.oid = a.atttypid
WHERE c.relnamespace = '{SCHEMA}'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
GROUP BY c.relname ORDER BY 1
"""
"""The tables, and of their columns names, short types and types."""


@dataclass(frozen=True, slots=True)
class Values:
    """What the rows of a table hold: `stored` bytes of all column values as they lie in the table, compressed where Postgres
    compressed them; `plain`: before that."""

    rows: int = 0
    stored: int = 0
    plain: int = 0


@dataclass(frozen=True, slots=True)
class Written:
    """A table's part of the log, bytes, and of the values."""

    table: str
    rows: int
    updates: int
    stored: float
    plain: float
    heap: int
    indexes: int
    images: int


@dataclass(frozen=True, slots=True)
class Log:
    """All that was written between two moments, bytes. `images`: of whole pages, the first time that a page is changed after a
    checkpoint, in the number `image_count`; they are in `total`."""

    total: int
    images: int
    image_count: int
    tables: Sequence[Written]

    @property
    def plain(self) -> int:
        """Without the images of pages."""
        return self.total - self.images

    def part(self, table: str) -> int:
        """What one table wrote, without images of pages."""
        return sum(each.heap + each.indexes for each in self.tables if each.table == table)

    def amplification(self, *, stored: bool = True) -> float:
        """Bytes of log ÷ bytes of the values written, both without vectors."""
        values = sum(each.stored if stored else each.plain for each in self.tables if each.table != VECTORS)
        return (self.plain - self.part(VECTORS)) / values if values else float("nan")


def size_query(name: str, columns: Sequence[str], types: Sequence[str], full_types: Sequence[str]) -> str:
    """Rows and bytes of one table."""
    stored = [f'COALESCE(pg_column_size("{column}"), 0)' for column in columns]
    plain = [
        f"COALESCE(pg_column_size({_unpacked(column, short, full)}), 0)"
        for column, short, full in zip(columns, types, full_types, strict=True)
    ]
    return (
        f"SELECT count(*) AS rows, COALESCE(sum({' + '.join(stored)}), 0)::bigint AS stored, "
        f'COALESCE(sum({" + ".join(plain)}), 0)::bigint AS plain FROM {SCHEMA}."{name}"'
    )


def _unpacked(column: str, short: str, full: str) -> str:
    """A value as it was before Postgres compressed it: the result of any operation on it is."""
    if short in ("text", "bytea", "tsvector"):
        return f"\"{column}\" || ''::{full}"
    if short == "jsonb":
        return f'"{column}"::text::jsonb'
    return f"\"{column}\" || '{{}}'::{full}" if short == "array" else f'"{column}"'


async def values(connection: Connection) -> dict[str, Values]:
    """What all tables hold now."""
    found = {}
    for row in await connection.fetch(TABLES):
        sizes = await connection.fetchrow(size_query(row["name"], row["columns"], row["types"], row["full_types"]))
        assert sizes is not None, "a count has one row"
        found[row["name"]] = Values(sizes["rows"], sizes["stored"], sizes["plain"])
    return found


async def log_between(
    connection: Connection, start: str, end: str, before: Mapping[str, Values], after: Mapping[str, Values]
) -> Log:
    """What was written from `start` to `end`, when the tables held `before` and `after`. A row that is updated is written
    whole: its bytes are those of its table's mean row."""
    total = await connection.fetchval(BYTES, start, end)
    tables, attributed, images, image_count = [], 0, 0, 0
    for row in await connection.fetch(RECORDS, start, end):
        heap, indexes = row["heap"] or 0, row["indexes"] or 0
        images, image_count = images + row["images"], image_count + row["image_count"]
        if row["schema"] != SCHEMA:
            continue
        attributed += heap + indexes
        old, new = before.get(row["name"], Values()), after.get(row["name"], Values())
        share = row["updates"] / new.rows if new.rows else 0.0
        tables.append(
            Written(
                table=row["name"],
                rows=new.rows - old.rows,
                updates=row["updates"],
                stored=new.stored - old.stored + share * new.stored,
                plain=new.plain - old.plain + share * new.plain,
                heap=heap,
                indexes=indexes,
                images=row["images"],
            )
        )
    tables.sort(key=lambda each: -(each.heap + each.indexes))
    rest = Written(NOWHERE, 0, 0, 0.0, 0.0, total - images - attributed, 0, 0)
    return Log(total, images, image_count, [*tables, rest])
