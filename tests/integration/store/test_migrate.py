from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from app.errors import NotReady
from app.store import migrate as module
from app.store.migrate import load_migrations, migrate, missing, pending
from tests.support.database import connected

Texts = dict[str, str]


@pytest.fixture
async def connection(empty_database: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    async with connected(empty_database) as connection:
        yield connection


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    """Two files that belong together."""
    return files(
        tmp_path,
        {
            "001_things.sql": "CREATE TABLE agent_data.things (n int);\nINSERT INTO agent_data.things VALUES (1);\n",
            "002_more.sql": "INSERT INTO agent_data.things VALUES (2);\n",
        },
    )


def files(directory: Path, texts: Texts) -> Path:
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


async def run(connection: asyncpg.Connection[Any], directory: Path, **more: Any) -> list[str]:
    return await migrate(connection, hash_partitions=3, history_partitions=5, directory=directory, **more)


async def numbers(connection: asyncpg.Connection[Any]) -> list[int]:
    return [row["n"] for row in await connection.fetch("SELECT n FROM agent_data.things ORDER BY n")]


async def test_files_are_applied_once_and_in_order(connection: asyncpg.Connection[Any], schema: Path) -> None:
    seen: list[str] = []
    assert [migration.version for migration in await pending(connection, directory=schema)] == [1, 2]
    assert await run(connection, schema, progress=seen.append) == ["001_things.sql", "002_more.sql"]
    assert seen == ["001_things.sql", "002_more.sql"]
    assert await pending(connection, directory=schema) == []
    assert await run(connection, schema, progress=seen.append) == []
    assert len(seen) == 2
    assert await numbers(connection) == [1, 2]
    rows = await connection.fetch("SELECT version, name, checksum FROM agent_data.schema_migrations ORDER BY version")
    assert [tuple(row) for row in rows] == [(m.version, m.name, m.checksum) for m in load_migrations(schema)]


async def test_a_new_file_is_applied_on_top(connection: asyncpg.Connection[Any], schema: Path) -> None:
    await run(connection, schema)
    files(schema, {"010_last.sql": "INSERT INTO agent_data.things VALUES (10);"})
    assert await run(connection, schema) == ["010_last.sql"]
    assert await numbers(connection) == [1, 2, 10]


async def test_partition_settings_reach_the_files(connection: asyncpg.Connection[Any], tmp_path: Path) -> None:
    text = (
        "CREATE TABLE agent_data.things AS SELECT current_setting('mneme.hash_partitions')::int AS n\n"
        "UNION ALL SELECT current_setting('mneme.history_partitions')::int;"
    )
    await run(connection, files(tmp_path, {"001_a.sql": text}))
    assert await numbers(connection) == [3, 5]


async def test_a_failing_file_leaves_nothing_and_says_where(connection: asyncpg.Connection[Any], schema: Path) -> None:
    bad = "INSERT INTO agent_data.things VALUES (3);\n\nINSERT INTO agent_data.thongs VALUES (4);\n"
    files(schema, {"003_bad.sql": bad})
    with pytest.raises(NotReady, match=r"^003_bad.sql, line 3: .*thongs"):
        await run(connection, schema)
    assert await numbers(connection) == [1, 2]
    files(schema, {"003_bad.sql": bad.replace("thongs", "things")})
    assert await run(connection, schema) == ["003_bad.sql"]
    assert await numbers(connection) == [1, 2, 3, 4]


async def test_a_file_may_not_commit(connection: asyncpg.Connection[Any], tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"001_a.sql ends the transaction"):
        await run(connection, files(tmp_path, {"001_a.sql": "SELECT 1; COMMIT; SELECT 2;"}))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("001_things.sql", "SELECT 2;", r"^001_things.sql was changed after it was applied"),
        ("001_things.sql", None, r"001_things.sql was applied to the database, and is missing here"),
        ("002_more.sql", None, r"newer than this Mneme: it has 002_more.sql.*Update Mneme"),
        ("000_first.sql", "SELECT 1;", r"000_first.sql comes before .* above 002"),
    ],
)
async def test_a_schema_that_is_not_the_one_applied_is_told(
    connection: asyncpg.Connection[Any], schema: Path, name: str, text: str | None, says: str
) -> None:
    await run(connection, schema)
    if text is None:
        (schema / name).unlink()
    else:
        files(schema, {name: text})
    with pytest.raises(NotReady, match=says):
        await run(connection, schema)


async def test_line_endings_are_no_change(connection: asyncpg.Connection[Any], schema: Path) -> None:
    await run(connection, schema)
    for migration in load_migrations(schema):
        (schema / migration.name).write_bytes(migration.text.replace("\n", "\r\n").encode())
    assert await run(connection, schema) == []


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["1_a.sql"], "1_a.sql: a file of the schema is named like"),
        (["001-a.sql"], "001-a.sql: a file of the schema is named like"),
        (["001_a.sql", "001_b.sql"], "001_b.sql and 001_a.sql have the same number"),
    ],
)
def test_names_of_files(tmp_path: Path, names: list[str], says: str) -> None:
    with pytest.raises(NotReady, match=says):
        load_migrations(files(tmp_path, dict.fromkeys(names, "SELECT 1;")))


async def test_many_migrators_do_the_work_once(empty_database: str, schema: Path) -> None:
    files(schema, {"003_slow.sql": "SELECT pg_sleep(0.05); INSERT INTO agent_data.things VALUES (3);"})
    calls = 0

    async def step(connection: asyncpg.Connection[Any]) -> None:
        nonlocal calls
        assert not connection.is_in_transaction()
        before = calls
        await connection.execute("SELECT pg_sleep(0.01)")
        assert calls == before  # nobody else came in between
        calls += 1

    async def one() -> list[str]:
        async with connected(empty_database) as connection:
            return await run(connection, schema, after=[step])

    applied = await asyncio.gather(*(one() for _ in range(4)))
    assert sorted(map(len, applied)) == [0, 0, 0, 3]
    assert calls == 4
    async with connected(empty_database) as connection:
        assert await numbers(connection) == [1, 2, 3]


async def test_the_session_is_as_before(connection: asyncpg.Connection[Any], schema: Path) -> None:
    before = await connection.fetchval("SHOW search_path")
    await run(connection, schema)
    assert await connection.fetchval("SHOW search_path") == before
    assert (
        await connection.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        )
        == 0
    )


async def test_a_database_of_before_the_baseline_is_left_as_it_is(
    connection: asyncpg.Connection[Any], tmp_path: Path
) -> None:
    old = files(
        tmp_path,
        {"001_foundation.sql": "CREATE TABLE agent_data.tenants (n int); INSERT INTO agent_data.tenants VALUES (1);"},
    )
    await run(connection, old)
    with pytest.raises(NotReady, match=r"mneme export --user NAME --messages .*mneme import FILE"):
        await migrate(connection, hash_partitions=2, history_partitions=2)
    assert await connection.fetchval("SELECT n FROM agent_data.tenants") == 1
    assert await connection.fetchval("SELECT count(*) FROM agent_data.schema_migrations") == 1


RIGHTS = """
SELECT c.relname, pg_get_userbyid(c.relowner), c.relrowsecurity, (SELECT array_agg(a::text ORDER BY 1) FROM unnest(c.relacl) a)
FROM pg_class c
WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p', 'v') AND c.relname <> 'later'
ORDER BY 1
"""


async def test_a_migration_after_the_baseline(admin: asyncpg.Connection[Any], tmp_path: Path) -> None:
    texts = {each.name: each.text for each in load_migrations()}
    later = f"{max(each.version for each in load_migrations()) + 1:03}_later.sql"
    more = "CREATE TABLE agent_data.later (tenant_id uuid NOT NULL);\nSELECT agent_data.protect_tables();\n"
    before = await admin.fetch(RIGHTS)
    assert await run(admin, files(tmp_path, texts | {later: more})) == [later]
    # Protected again, every other table has the rights that it had.
    assert await admin.fetch(RIGHTS) == before
    assert await admin.fetchval("SELECT relforcerowsecurity FROM pg_class WHERE oid = 'agent_data.later'::regclass")
    files(tmp_path, {"001_base.sql": texts["001_base.sql"] + "-- changed\n"})
    with pytest.raises(NotReady, match=r"^001_base.sql was changed after it was applied"):
        await run(admin, tmp_path)


async def test_the_shipped_schema_is_applied(admin: asyncpg.Connection[Any]) -> None:
    assert await pending(admin) == []
    assert await missing(admin) == []


# --- what a server lacks --------------------------------------------------------------------------------------------


@pytest.fixture
async def stranger(empty_database: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A login that may do nothing."""
    name = f"stranger_{secrets.token_hex(4)}"
    async with connected(empty_database) as admin:
        await admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'p'")
        database = urlsplit(empty_database).path[1:]
        await admin.execute(f"REVOKE CREATE ON DATABASE {database} FROM PUBLIC")
        connection = await asyncpg.connect(empty_database, user=name, password="p")
        yield connection
        await connection.close()
        await admin.execute(f"DROP ROLE {name}")


async def test_an_empty_database_of_a_superuser_lacks_nothing(connection: asyncpg.Connection[Any]) -> None:
    assert await missing(connection) == []


async def test_a_login_without_rights_is_told_which(
    stranger: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROLES", ("no_such_role", "pg_monitor"))
    text = "\n".join(await missing(stranger))
    assert "GRANT CREATE ON DATABASE" in text
    assert "as a superuser run `CREATE EXTENSION vector`" in text
    assert "CREATE ROLE no_such_role NOLOGIN" in text
    assert "is no member of pg_monitor: run `GRANT pg_monitor TO stranger_" in text


async def test_a_login_without_rights_cannot_migrate(stranger: asyncpg.Connection[Any], schema: Path) -> None:
    with pytest.raises(NotReady) as refused:
        await run(stranger, schema)
    told = refused.value.message
    assert "An administrator runs once" in told
    for statement in ("GRANT CREATE ON DATABASE", "CREATE EXTENSION vector;", "GRANT mneme_app, mneme_definer"):
        assert statement in told


async def test_old_software_is_named(connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OLDEST_POSTGRES", 99)
    monkeypatch.setattr(module, "EXTENSIONS", {"vector": (99, 1), "no_such_extension": (), "pg_trgm": (0, 1)})
    first, second, third = await missing(connection)
    assert "is too old: use 99 or newer" in first
    assert second.startswith("The server does not offer no_such_extension: install PostgreSQL 18's contrib package")
    assert "Mneme needs vector 99.1 or newer: update pgvector for PostgreSQL 18" in third


async def test_an_old_installed_extension_is_named(
    connection: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await connection.execute("CREATE EXTENSION pg_trgm VERSION '1.3'")
    monkeypatch.setattr(module, "EXTENSIONS", {"pg_trgm": (1, 4)})
    assert await missing(connection) == ["pg_trgm 1.3 is too old: run `ALTER EXTENSION pg_trgm UPDATE` as its owner."]
    monkeypatch.setattr(module, "EXTENSIONS", {"pg_trgm": (99,)})
    assert "Mneme needs pg_trgm 99 or newer: update" in (await missing(connection))[0]
