"""How long it takes to archive and to restore a year of messages, and how large they are.

python -m loadtests.archive [--messages N] [--users N]

In an embedded Postgres of its own: messages of the twelve months of 2031, each with a vector, evenly over users and days; then
every month is archived, the files are read and compared with their checksums, one user is erased from all, and all is restored.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import click
from rich.console import Console

from app.features.archive import archives
from app.features.archive.archives import ArchivePolicy, ArchiveRun, Archives
from app.features.embedded import EmbeddedPostgres
from app.server.core import prepare_database
from app.settings import Settings
from app.store import ids
from app.store.erasure import ERASER_ROLE, Eraser, own_connection
from app.store.pools import OWNER_ROLE
from app.store.queries import Queries
from loadtests.terminal import console, measuring
from loadtests.texts import Talk
from tests.support.clock import FakeClock

T = TypeVar("T")
TENANT = UUID(int=1)
BEGIN, NOW = datetime(2031, 1, 1, tzinfo=UTC), datetime(2033, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
PER_MB = 1e6
BATCH = 5000
"""Messages written with one statement."""
A_DAY = 40
"""Messages of one session."""
TEXTS = 20_000
"""Different texts. A user says TEXTS / users of them, again and again: with a
thousand users files are half as large as real ones."""

FILL = """
WITH said AS (
    INSERT INTO agent_data.conversation_history (message_id, session_id, user_id, tenant_id, turn_index, role, content,
                                                 content_hash, message_hash, token_count, created_at)
    SELECT m, s, u, $1, n, 1 + n % 2, t, sha256(convert_to(t, 'UTF8')), substring(sha256(convert_to(t, 'UTF8')) FOR 16),
           length(t) / 4, at
    FROM unnest($2::uuid[], $3::uuid[], $4::uuid[], $5::int[], $6::text[], $7::timestamptz[]) AS x (m, s, u, n, t, at)
    RETURNING user_id, message_id, created_at
)
INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, vector)
SELECT user_id, $1, 1, message_id, 0, created_at, $8::text::halfvec FROM said
"""
SIZE = """
SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind = 'r' AND c.relname LIKE 'conversation\\_history%'
"""


async def filled(connection: asyncpg.Connection[Any], messages: int, users: int) -> UUID:
    """Write the year; one of the users."""
    await connection.execute("SELECT agent_data.ensure_history_partitions('2031-01-01', '2031-12-01')")
    talk = Talk("archive")
    texts = [talk.answered() if n % 2 else talk.said() for n in range(min(messages, TEXTS))]
    whose = [ids.user_id(TENANT, f"user {n}") for n in range(users)]
    dimensions = await connection.fetchval("SELECT dimensions FROM agent_data.embedding_spaces WHERE space = 1")
    vector = str([round(0.5 / (1 + n), 4) for n in range(dimensions)])
    for begin in range(0, messages, BATCH):
        rows = []
        for n in range(begin, min(begin + BATCH, messages)):
            user = whose[n % users]
            at = BEGIN + YEAR * (n / messages)
            session = ids.user_id(user, str(n // users // A_DAY))
            rows.append((ids.uuid7(at), session, user, n // users % A_DAY + 1, texts[n % len(texts)], at))
        await connection.execute(FILL, TENANT, *[list(column) for column in zip(*rows, strict=True)], vector)
    return whose[0]


async def timed(out: Console, what: str, work: Awaitable[T]) -> T:
    """Its result, and a line of how long it took."""
    began = time.perf_counter()
    result = await work
    out.print(f"{what}: {time.perf_counter() - began:.1f} s")
    return result


async def measure(out: Console, settings: Settings, dsn: str, messages: int, users: int) -> None:
    """Print what each step took."""
    await prepare_database(settings, dsn)
    sql, keep = Queries.load(), ArchivePolicy(settings.archive_folder, days=31)
    connection = await own_connection(dsn, OWNER_ROLE)()
    user = await timed(out, f"{messages:,} messages of {users} users written", filled(connection, messages, users))
    before = await connection.fetchval(SIZE)
    store = Archives(sql, keep)
    done: ArchiveRun = await timed(out, "archived", store.run(connection, NOW))
    after = await connection.fetchval(SIZE)
    out.print(
        f"{done.rows:,} messages of {len(done.months)} months: {before / PER_MB:,.1f} MB of tables and their indexes "
        f"became {done.size / PER_MB:,.1f} MB of files ({done.size / max(done.rows, 1):.0f} bytes a message); "
        f"{after / PER_MB:,.1f} MB stay"
    )
    known = await timed(out, "read, and compared with their checksums", store.known(connection, check=True))
    assert not any(wrong for _, wrong in known)
    connect = own_connection(dsn, ERASER_ROLE)
    eraser = Eraser(connect, sql, FakeClock(NOW), elsewhere=[archives.erasing(keep, connect, sql, FakeClock(NOW))])
    receipt = await timed(out, "one user erased from all of them", eraser.erase(TENANT, user))
    out.print(f"{receipt.counts['archives']:,} messages of that user were in files")
    began, rows = time.perf_counter(), 0
    for month in sorted(
        {part.month for part, _ in known if part.state == "archived" and part.month.startswith("2031")}
    ):
        rows += (await store.restore(connection, month, NOW, active=False)).rows
    out.print(f"{rows:,} messages restored: {time.perf_counter() - began:.1f} s")
    assert rows == messages - receipt.counts["archives"]
    await connection.close()


@click.command()
@click.option(
    "--messages", type=click.IntRange(1000), default=1_000_000, show_default=True, help="Messages of the year."
)
@click.option("--users", type=click.IntRange(1), default=200, show_default=True, help="Users who said them.")
def main(messages: int, users: int) -> None:
    """Archive a year of messages, and restore it."""
    out = console()
    with measuring(), tempfile.TemporaryDirectory(prefix="mneme-archive-") as folder:
        settings = Settings(data_dir=Path(folder), database_url=None, spool_dir=None, archive_dir=None)
        server = EmbeddedPostgres(settings.data_dir, settings=settings.embedded_settings)
        dsn = server.start()
        try:
            asyncio.run(measure(out, settings, dsn, messages, users))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
