"""Databases for tests: a server for each worker of the run, one migrated template on it, a fresh copy of that for each test.

Workers share no server: sessions, locks and the oldest transaction are of a whole server. A test that waits for one, or looks
at what an open transaction keeps, would see those of the tests that run beside it. Only the tests of pages share one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.features.embedded import SUPERUSER, EmbeddedPostgres
from app.store.migrate import migrate
from app.store.queue import install_queue

PARTITIONS = 2
"""Hash partitions in tests: enough to see pruning, and a copy of the template takes 25 ms instead of 180 with 8."""
TEMPLATE = "mneme_template"

MEMORY = Path("/dev/shm")
MEMORY_NEEDED_BYTES = 4 * 1024**3
"""A server takes some 200 MB, and 12 MB for each test that runs at the time; containers often have only 64 MB."""
LEFT_BEHIND_S = 3600.0
"""Age from which a server may have been left behind by a run that was killed."""

FAST = {
    # Tests may lose their data; only here, never in the product.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    # Plans must not change under a test, and a template that autovacuum looks at cannot be copied.
    "autovacuum": "off",
    # A test that starts several servers, each with pools of its own.
    "max_connections": "300",
}


def shared_directory(base: Path) -> Path:
    """One folder for all workers of a run; `base` is pytest's own for this process."""
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@contextlib.contextmanager
def shared_server(directory: Path) -> Iterator[str]:
    """The DSN of the server of `directory`. Who comes first starts it; the last one out stops it and takes its files away."""
    with locked(directory / "server.lock"):
        place = directory / "server.place"
        if not place.exists():
            place.write_text(str(_new_place(directory)))
    home = Path(place.read_text())
    server = EmbeddedPostgres(home, settings=FAST)
    dsn = server.start()
    try:
        yield dsn
    finally:
        if server.stop():
            shutil.rmtree(home, ignore_errors=True)


def _new_place(directory: Path) -> Path:
    """In memory where there is room: to copy a template is to make hundreds of files, which some disks take slowly."""
    prefix = f"mneme-tests-{os.geteuid()}-"
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < MEMORY_NEEDED_BYTES:
        return directory / "mneme"
    with locked(Path(tempfile.gettempdir()) / f"{prefix}sweep.lock"):  # two workers may find the same
        for left in MEMORY.glob(f"{prefix}*"):
            # A run that was killed left its server running; one that is still at work keeps its own.
            server = EmbeddedPostgres(left, settings=FAST)
            if time.time() - left.stat().st_mtime > LEFT_BEHIND_S and server.start() and server.stop():
                shutil.rmtree(left)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY))


def with_database(dsn: str, database: str) -> str:
    """The same server and login, another database."""
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{database}"))


@contextlib.asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A plain connection, with no codecs, no role and no pool."""
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def make_template(dsn: str, directory: Path) -> str:
    """The name of a database with the whole schema, made by the first who asks."""
    with locked(directory / "template.lock"):
        async with connected(dsn) as admin:
            if await admin.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", TEMPLATE):
                return TEMPLATE
            # A login proves its password in one round instead of 4,096, which are a fifth of what a connection costs.
            await admin.execute("SET scram_iterations = 1")
            await admin.execute(f"ALTER ROLE {SUPERUSER} PASSWORD '{urlsplit(dsn).password}'")
            # Under another name until it is complete: a worker that dies leaves no half template.
            await admin.execute("DROP DATABASE IF EXISTS mneme_unfinished WITH (FORCE)")
            await admin.execute("CREATE DATABASE mneme_unfinished")
            async with connected(with_database(dsn, "mneme_unfinished")) as connection:
                await migrate(
                    connection, hash_partitions=PARTITIONS, history_partitions=PARTITIONS, after=[install_queue]
                )
            await admin.execute(f"ALTER DATABASE mneme_unfinished RENAME TO {TEMPLATE}")
    return TEMPLATE


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.asynccontextmanager
async def fresh_database(dsn: str, template: str = "template1") -> AsyncIterator[str]:
    """The DSN of a new database, a copy of `template`, dropped at the end whoever is still connected."""
    name = f"test_{secrets.token_hex(6)}"
    async with connected(dsn) as admin:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    try:
        yield with_database(dsn, name)
    finally:
        async with connected(dsn) as admin:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
