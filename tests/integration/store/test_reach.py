"""The first connection of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from app.errors import NotReady
from app.store import pools
from app.store.pools import reach
from tests.support.own_postgres import OwnPostgres
from tests.support.ports import free_port
from tests.support.sockets import eventually


def nobody_listens() -> str:
    return f"postgresql://u:p@127.0.0.1:{free_port()}/x"


async def test_what_time_does_not_mend_is_said_at_once(empty_database: str, caplog: pytest.LogCaptureFixture) -> None:
    base, _, _ = empty_database.partition("?")
    missing = empty_database.replace(base, base.rpartition("/")[0] + "/" + quote("not there"), 1)
    with pytest.raises(NotReady, match="cannot be reached"):
        await reach(missing, 3600.0)
    assert caplog.text == ""


async def test_nobody_there(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "AGAIN_S", 0.01)
    with pytest.raises(NotReady, match="MNEME_DATABASE_URL"):
        await reach(nobody_listens(), 0.05)
    assert caplog.text.count("waiting for the database") == 1, "it says so once"
    caplog.clear()
    with pytest.raises(NotReady):
        await reach(nobody_listens(), 0.0)
    assert caplog.text == "", "it does not wait"


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[OwnPostgres]:
    with OwnPostgres(tmp_path) as server:
        yield server


async def test_it_comes_up(own_postgres: OwnPostgres, caplog: pytest.LogCaptureFixture) -> None:
    own_postgres.stop()
    async with asyncio.TaskGroup() as group:
        found = group.create_task(reach(own_postgres.dsn, 60.0))
        await eventually(lambda: "waiting" in caplog.text)
        await asyncio.to_thread(own_postgres.start)
    connection = found.result()
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
