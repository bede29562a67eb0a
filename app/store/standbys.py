"""What the servers of the pools are: for `mneme doctor`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import asyncpg
from msgspec import Struct

from app.store.queries import Queries
from app.store.replicas import hosts_of

ASK_S = 5.0
"""Seconds that a server has to answer."""
CATCH_UP_S = 2.0
"""Seconds for which a standby is watched, whether it comes to where the primary was: twenty times the lag of which there is an
alert (seed 000 §11.3: 100 ms)."""
POLL_S = 0.005

_AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


class Server(Struct, frozen=True):
    """A server of a pool. `away`: why it says nothing. `ours`: a copy of the primary. `lag_s`: after which it had replayed what
    the primary had written; None: not within `CATCH_UP_S`."""

    pool: str
    name: str
    away: str = ""
    standby: bool = False
    ours: bool = True
    paused: bool = False
    feedback: bool = True
    lag_s: float | None = 0.0


async def servers_of(primary_dsn: str, urls: Mapping[str, str]) -> tuple[Server, bool, list[Server]]:
    """The primary; whether it marks its writers; and each server of the pools that have URLs of their own."""
    sql = Queries.load()
    try:
        connection = await asyncpg.connect(primary_dsn, timeout=ASK_S)
    except _AWAY as error:
        return Server("write", "primary", away=_why(error)), False, []
    try:
        told = await connection.fetchrow(sql["replicas.server"])
        assert told is not None, "a query without FROM has one row"
        primary = Server("write", "primary", standby=told["standby"])
        marking = await _marks(connection, sql)
        found = [
            await _server(pool, name, dsn, connection, told["cluster"], sql)
            for pool, url in urls.items()
            for name, dsn in hosts_of(url)
        ]
    finally:
        await connection.close()
    return primary, marking, found


async def _marks(primary: asyncpg.Connection[Any], sql: Queries) -> bool:
    try:
        return bool(await primary.fetchval(sql["replicas.marking"]))
    except asyncpg.UndefinedTableError:  # not migrated yet
        return False


async def _server(
    pool: str, name: str, dsn: str, primary: asyncpg.Connection[Any], cluster: int, sql: Queries
) -> Server:
    try:
        connection = await asyncpg.connect(dsn, timeout=ASK_S, statement_cache_size=0)
    except _AWAY as error:
        return Server(pool, name, away=_why(error))
    try:
        written = (await primary.fetchrow(sql["replicas.server"]))["position"]  # type: ignore[index]  # as above
        began = time.monotonic()
        while True:
            told = await connection.fetchrow(sql["replicas.server"])
            assert told is not None, "a query without FROM has one row"
            lag_s = time.monotonic() - began
            if not told["standby"] or told["position"] >= written:
                break
            if lag_s > CATCH_UP_S:
                return Server(pool, name, "", True, told["cluster"] == cluster, told["paused"], told["feedback"], None)
            await asyncio.sleep(POLL_S)
    except _AWAY as error:
        return Server(pool, name, away=_why(error))
    finally:
        await connection.close()
    return Server(pool, name, "", told["standby"], told["cluster"] == cluster, told["paused"], told["feedback"], lag_s)


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
