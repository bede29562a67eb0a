"""What the doctor says of a database whose schema is older, or newer, than this version."""

import pytest

from app.cli import doctor
from app.cli.doctor import _database
from app.settings import Settings
from tests.support.database import connected


async def test_steps_that_wait_are_told(empty_database: str) -> None:
    findings = await _database(Settings(database_url=empty_database), empty_database)
    told = next(each for each in findings if "wait to be applied" in each.what)
    assert (told.level, "mneme migrate" in told.mend) == ("warning", True)
    assert "001_base.sql" in told.what


async def test_a_newer_database_is_told_as_such(database: str) -> None:
    async with connected(database) as admin:
        await admin.execute(
            "INSERT INTO agent_data.schema_migrations (version, name, checksum) VALUES (9999, '9999_later.sql', '')"
        )
    findings = await _database(Settings(database_url=database), database)
    assert [each.level for each in findings if "does not fit" in each.what] == ["error"]


async def test_a_database_of_before_the_baseline_is_told_what_to_do(database: str) -> None:
    async with connected(database) as admin:
        await admin.execute("UPDATE agent_data.schema_migrations SET name = '001_foundation.sql' WHERE version = 1")
    findings = await _database(Settings(database_url=database), database)
    (told,) = [each for each in findings if "does not fit" in each.what]
    assert (told.level, "mneme export" in told.mend, "mneme import" in told.mend) == ("error", True, True)


async def test_an_index_that_nothing_reads_is_told(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "UNUSED_DAYS", 0)
    monkeypatch.setattr(doctor, "UNUSED_BYTES", 100_000)
    async with connected(database) as admin:
        await admin.execute("CREATE TABLE agent_data.told AS SELECT n, n % 7 AS seven FROM generate_series(1, 20000) n")
        await admin.execute("CREATE INDEX told_unread ON agent_data.told (n)")
        await admin.execute("CREATE INDEX told_read ON agent_data.told (seven)")
        await admin.execute("SET enable_seqscan = off")
        await admin.execute("SELECT count(*) FROM agent_data.told WHERE seven = 3")
        await admin.execute("SELECT pg_stat_force_next_flush()")
    told = [each for each in await _database(Settings(database_url=database), database) if "The index" in each.what]
    assert [each.level for each in told if "told_unread" in each.what] == ["warning"]
    assert not [each for each in told if "told_read" in each.what]
    monkeypatch.setattr(doctor, "UNUSED_DAYS", 30)
    assert not [each for each in await _database(Settings(database_url=database), database) if "The index" in each.what]
