"""The schema: `sql/schema/NNN_name.sql`, each applied once, in one transaction, in order. Those that there are
now are the baseline, by subject; changes come after it.

Files see the settings `mneme.hash_partitions` and `mneme.history_partitions`. A file that was applied never changes:
its SHA-256 is kept. Many migrators may start at once; one works and the others find nothing left to do. They need a
direct connection: behind PgBouncer in transaction mode there is no session to hold the lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import asyncpg
from msgspec import Struct

from app.errors import NotReady
from app.store.pools import AGAIN_S, AWAY, REFUSED, why
from app.store.queries import SQL_DIR, Queries
from app.tasks import pause

OLDEST_POSTGRES = 15
EXTENSIONS = {"vector": (0, 8), "pg_trgm": (), "btree_gin": ()}
"""What the schema needs, and the oldest version that will do."""
ROLES = ("mneme_owner", "mneme_app", "mneme_definer", "mneme_eraser")

_BRING_OVER = (
    "with the version that made it run `mneme export --user NAME --messages --out FILE` for each user; then "
    "`mneme import FILE` with this version and an empty database (docs/how-to/operations.md, Upgrade)."
)
_BEFORE_BASELINE = "001_foundation.sql"
"""What the first file was called before the baseline: such a database cannot be brought up to date in place."""

_FILE = re.compile(r"(\d{3})_[a-z0-9_]+\.sql")


class Migration(Struct, frozen=True):
    """One file of the schema. `checksum` is the SHA-256 of its text."""

    version: int
    name: str
    text: str
    checksum: bytes


def load_migrations(directory: Path = SQL_DIR / "schema") -> list[Migration]:
    """The files in order. Raises NotReady for a name that is not `NNN_name.sql` and for a number used twice."""
    migrations: dict[int, Migration] = {}
    for path in sorted(directory.glob("*.sql")):
        match = _FILE.fullmatch(path.name)
        if match is None:
            raise NotReady(f"{path.name}: a file of the schema is named like 001_what_it_does.sql.")
        # read_text makes every line end the same, so that a checkout's line endings do not change the sum.
        text = path.read_text(encoding="utf-8")
        migration = Migration(int(match[1]), path.name, text, hashlib.sha256(text.encode()).digest())
        if migration.version in migrations:
            raise NotReady(f"{path.name} and {migrations[migration.version].name} have the same number.")
        migrations[migration.version] = migration
    return [migrations[version] for version in sorted(migrations)]


async def pending(
    connection: asyncpg.Connection[Any], *, directory: Path = SQL_DIR / "schema", queries: Queries | None = None
) -> list[Migration]:
    """What is still to be applied, without changing anything.

    Raises NotReady when an applied file was changed or is missing, or when the database is newer than the code or older than
    the baseline.
    """
    queries = queries or Queries.load()
    migrations = load_migrations(directory)
    if not await connection.fetchval(queries["migrations.exists"]):
        return migrations
    known = {migration.version: migration for migration in migrations}
    applied = await connection.fetch(queries["migrations.applied"])
    _refuse_other_schema(applied, migrations)
    newest = max((row["version"] for row in applied), default=0)
    for row in applied:
        migration = known.pop(row["version"], None)
        if migration is None and row["version"] > max((m.version for m in migrations), default=0):
            raise NotReady(
                f"The database is newer than this Mneme: it has {row['name']}, which this version does not know. "
                "Update Mneme, or use another database."
            )
        if migration is None or migration.name != row["name"]:
            raise NotReady(f"{row['name']} was applied to the database, and is missing here: reinstall Mneme.")
    late = [migration.name for migration in known.values() if migration.version < newest]
    if late:
        raise NotReady(f"{late[0]} comes before what was applied already: give it a number above {newest:03d}.")
    return sorted(known.values(), key=lambda migration: migration.version)


def _refuse_other_schema(applied: Iterable[Mapping[str, Any]], migrations: Iterable[Migration]) -> None:
    """Raise NotReady if a pre-release made the database, or if a file was changed after it was applied."""
    checksums = {migration.name: migration.checksum for migration in migrations}
    for row in applied:
        if row["name"] == _BEFORE_BASELINE:
            raise NotReady(f"This database is of a pre-release of Mneme, and was left as it is: {_BRING_OVER}")
        if checksums.get(row["name"], row["checksum"]) != row["checksum"]:
            raise NotReady(
                f"{row['name']} was changed after it was applied to the database, which was left as it is. If a pre-release "
                f"made the database, {_BRING_OVER} Otherwise put the file back, and make the change in a new file."
            )


async def check_age(connection: asyncpg.Connection[Any]) -> None:
    """Raise NotReady for a database of another schema than this version's files; pending files are no reason."""
    queries = Queries.load()
    if await connection.fetchval(queries["migrations.exists"]):
        applied = await connection.fetch(queries["migrations.applied"])
        _refuse_other_schema(applied, load_migrations(SQL_DIR / "schema"))


async def migrate(
    connection: asyncpg.Connection[Any],
    *,
    hash_partitions: int,
    history_partitions: int,
    after: Sequence[Callable[[asyncpg.Connection[Any]], Awaitable[object]]] = (),
    progress: Callable[[str], None] | None = None,
    directory: Path = SQL_DIR / "schema",
) -> list[str]:
    """Apply what is pending, then run each of `after` (outside of a transaction, every time), all under one lock.

    `connection` is a plain one, of a login that may create roles and extensions, or for which an administrator did
    (`administration`); its session is reset at the end.
    `progress` is called with each file's name before it is applied. Returns the names of the files applied now. Raises
    NotReady; what was applied before a failure stays.
    """
    queries = Queries.load()
    try:
        await connection.fetch(queries["migrations.begin"], str(hash_partitions), str(history_partitions))
        await connection.fetch(queries["migrations.lock"])
        if not await connection.fetchval(queries["migrations.exists"]):
            if wanted := await administration(connection):
                raise NotReady(_told_to_administrator(wanted))
            await _create_bookkeeping(connection, queries)
        todo = await pending(connection, directory=directory, queries=queries)
        if todo and (wanted := await administration(connection)):
            raise NotReady(_told_to_administrator(wanted))
        for migration in todo:
            if progress is not None:
                progress(migration.name)
            await _apply(connection, migration, queries)
        for step in after:
            await step(connection)
    finally:
        if not connection.is_closed():
            await connection.reset()
    return [migration.name for migration in todo]


async def missing(connection: asyncpg.Connection[Any]) -> list[str]:
    """What this Postgres lacks to carry Mneme, each with how to mend it; empty when nothing does."""
    queries = Queries.load()
    can = await connection.fetchrow(queries["migrations.capabilities"])
    assert can is not None  # a query without FROM has one row
    login = can["login"]
    problems = []
    if can["major"] < OLDEST_POSTGRES:
        problems.append(f"PostgreSQL {can['version']} is too old: use {OLDEST_POSTGRES} or newer.")
    new_schema = not await connection.fetchval(queries["migrations.exists"])
    if new_schema and not can["creates_schemas"]:
        problems.append(
            f"The login {login} may not create a schema: run `GRANT CREATE ON DATABASE {can['database']} TO {login}`."
        )
    for extension in await connection.fetch(queries["migrations.extensions"], list(EXTENSIONS)):
        may_create = can["superuser"] or (extension["trusted"] and can["creates_schemas"])
        problems += _extension_problems(extension, may_create=may_create, login=login, major=can["major"])
    for role in await connection.fetch(queries["migrations.roles"], list(ROLES)):
        name = role["name"]
        if not role["exists"] and not can["creates_roles"]:
            problems.append(
                f"The login {login} may not create the role {name}: as an administrator run `CREATE ROLE {name} NOLOGIN` and "
                f"`GRANT {name} TO {login}`."
            )
        elif role["exists"] and not role["member"]:
            problems.append(f"The login {login} is no member of {name}: run `GRANT {name} TO {login}`.")
    return problems


async def administration(connection: asyncpg.Connection[Any]) -> list[str]:
    """The statements that an administrator runs once, in this database, so that this login may migrate it; none where it may
    already. Managed services often give logins that can make neither roles nor extensions."""
    queries = Queries.load()
    can = await connection.fetchrow(queries["migrations.capabilities"])
    assert can is not None  # a query without FROM has one row
    if can["superuser"]:
        return []
    login, database = _quoted(can["login"]), _quoted(can["database"])
    found = [] if can["creates_schemas"] else [f"GRANT CREATE ON DATABASE {database} TO {login}"]
    found += [
        f"CREATE EXTENSION {row['name']}"
        for row in await connection.fetch(queries["migrations.extensions"], list(EXTENSIONS))
        if row["installed"] is None and not (row["trusted"] and can["creates_schemas"])
    ]
    granted = []
    for role in await connection.fetch(queries["migrations.roles"], list(ROLES)):
        if not role["exists"] and not can["creates_roles"]:
            found.append(f"CREATE ROLE {role['name']} NOLOGIN")
            granted.append(role["name"])
        elif role["exists"] and not role["member"]:
            granted.append(role["name"])
    return found + ([f"GRANT {', '.join(granted)} TO {login}"] if granted else [])


def _told_to_administrator(statements: Sequence[str]) -> str:
    """What to do, for people."""
    listed = "".join(f"\n  {each};" for each in statements)
    return f"This login may not do all that Mneme needs. An administrator runs once, in this database:{listed}\nThen try again."


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


async def careless(connection: asyncpg.Connection[Any]) -> list[str]:
    """Names of the settings that are off, with which Postgres may forget what it acknowledged."""
    return [row["name"] for row in await connection.fetch(Queries.load()["migrations.careless"])]


def _extension_problems(row: asyncpg.Record, *, may_create: bool, login: str, major: int) -> list[str]:
    name, installed, offered = row["name"], row["installed"], row["offered"]
    needed = EXTENSIONS[name]
    wanted = f"{name} {'.'.join(map(str, needed))} or newer" if needed else name
    package = f"pgvector for PostgreSQL {major}" if name == "vector" else f"PostgreSQL {major}'s contrib package"
    if installed is not None:
        if _version(installed) >= needed:
            return []
        if offered is not None and _version(offered) >= needed:
            return [f"{name} {installed} is too old: run `ALTER EXTENSION {name} UPDATE` as its owner."]
        return [f"{name} {installed} is too old, Mneme needs {wanted}: update {package} on the server."]
    if offered is None:
        return [f"The server does not offer {wanted}: install {package} there."]
    if _version(offered) < needed:
        return [f"The server offers {name} {offered}, Mneme needs {wanted}: update {package} there."]
    if not may_create:
        return [f"The login {login} may not create extensions: as a superuser run `CREATE EXTENSION {name}`."]
    return []


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


async def _create_bookkeeping(connection: asyncpg.Connection[Any], queries: Queries) -> None:
    try:
        async with connection.transaction():
            await connection.execute(queries["migrations.create_schema"])
            await connection.execute(queries["migrations.create_table"])
    except asyncpg.InsufficientPrivilegeError as error:
        raise NotReady(f"This login may not create the schema agent_data ({error}); see `mneme doctor`.") from error


async def _apply(connection: asyncpg.Connection[Any], migration: Migration, queries: Queries) -> None:
    try:
        async with connection.transaction():
            await connection.execute(migration.text)
            if not connection.is_in_transaction():
                raise NotReady(f"{migration.name} ends the transaction it is applied in: leave COMMIT out of it.")
            await connection.execute(
                queries["migrations.record"], migration.version, migration.name, migration.checksum
            )
    except asyncpg.PostgresError as error:
        # `position` counts the characters of the whole file, from 1.
        position = int(getattr(error, "position", None) or 0)
        line = f", line {migration.text.count(chr(10), 0, position) + 1}" if position else ""
        detail = f" ({error.detail})" if getattr(error, "detail", None) else ""
        raise NotReady(f"{migration.name}{line}: {error}{detail}") from error


# --- what a process waits for that started before its database -----------------------------------------------------------

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""Seconds that a look at the database may take: as long as a readiness check."""


async def lacking(dsn: str, space: str | None) -> str | None:
    """What is missing until the database can be used, for people; None: nothing. `space`: the embedder's, where it has one.

    Raises NotReady for what time does not mend: it refuses us, or is newer or older than this code.
    """
    try:
        async with asyncio.timeout(LOOK_S):
            connection = await asyncpg.connect(dsn, timeout=LOOK_S, statement_cache_size=0)
            try:
                return await _unprepared(connection, space)
            except asyncpg.InsufficientPrivilegeError:
                return None  # a login that may not look at the schema's bookkeeping may still serve
            finally:
                with contextlib.suppress(*AWAY):
                    await connection.close(timeout=LOOK_S)
    except REFUSED as error:
        raise _refused(error) from error
    except AWAY as error:
        return f"The database cannot be reached: {why(error)}."


async def answers(dsn: str) -> bool:
    """Whether the database is there. Raises NotReady where it refuses us."""
    try:
        connection = await asyncpg.connect(dsn, timeout=LOOK_S, statement_cache_size=0)
    except REFUSED as error:
        raise _refused(error) from error
    except AWAY:
        return False
    with contextlib.suppress(*AWAY):
        await connection.close(timeout=LOOK_S)
    return True


def _refused(error: Exception) -> NotReady:
    return NotReady(f"The database refuses us: {why(error)}. Look at MNEME_DATABASE_URL.")


async def _unprepared(connection: asyncpg.Connection[Any], space: str | None) -> str | None:
    sql = Queries.load()
    if todo := await pending(connection, queries=sql):
        return f"The schema is not up to date: {todo[0].name} is still to be applied (`mneme serve`, `mneme migrate`)."
    if await connection.fetchval(sql["queue.made_by"]) != f"pgqueuer {version('pgqueuer')}":
        return "The queue's tables are still to be made (`mneme serve`, `mneme migrate`)."
    if space is not None and await connection.fetchval(sql["turns.space_of"], space) is None:
        return f"The vectors of {space} are still to be given a place (`mneme serve`, `mneme migrate`)."
    return None


async def until_prepared(dsn: str, space: str | None, stop: asyncio.Event) -> bool:
    """Wait for the database as long as it takes; False when told to stop before it was there. Raises as `lacking`."""
    told, began = None, time.monotonic()
    while not stop.is_set():
        missing = await lacking(dsn, space)
        if missing is None:
            return True
        if told is None:
            log.warning("waiting for the database", extra={"error": missing})
        elif told != missing:
            log.info("still waiting", extra={"error": missing, "seconds": round(time.monotonic() - began)})
        told = missing
        await pause(stop, AGAIN_S)
    return False
