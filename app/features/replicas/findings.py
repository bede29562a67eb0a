"""What the servers of the pools are: for `mneme doctor`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Literal

import asyncpg
from msgspec import Struct

from app.features import Finding
from app.features.replicas.reads import hosts_of
from app.settings import Settings
from app.store.pools import AWAY, why
from app.store.queries import Queries

ASK_S = 5.0
"""Seconds that a server has to answer."""
CATCH_UP_S = 2.0
"""Seconds for which a standby is watched, whether it comes to where the primary was: twenty times the lag of which there is an
alert (seed 000 §11.3: 100 ms)."""
POLL_S = 0.005


class PoolServer(Struct, frozen=True):
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


async def servers_of(primary_dsn: str, urls: Mapping[str, str]) -> tuple[PoolServer, bool, list[PoolServer]]:
    """The primary; whether it marks its writers; and each server of the pools that have URLs of their own."""
    sql = Queries.load()
    try:
        connection = await asyncpg.connect(primary_dsn, timeout=ASK_S)
    except AWAY as error:
        return PoolServer("write", "primary", away=why(error)), False, []
    try:
        told = await connection.fetchrow(sql["replicas.server"])
        assert told is not None, "a query without FROM has one row"
        primary = PoolServer("write", "primary", standby=told["standby"])
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
) -> PoolServer:
    try:
        connection = await asyncpg.connect(dsn, timeout=ASK_S, statement_cache_size=0)
    except AWAY as error:
        return PoolServer(pool, name, away=why(error))
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
                return PoolServer(
                    pool, name, "", True, told["cluster"] == cluster, told["paused"], told["feedback"], None
                )
            await asyncio.sleep(POLL_S)
    except AWAY as error:
        return PoolServer(pool, name, away=why(error))
    finally:
        await connection.close()
    return PoolServer(
        pool, name, "", told["standby"], told["cluster"] == cluster, told["paused"], told["feedback"], lag_s
    )


async def findings(settings: Settings, dsn: str) -> list[Finding]:
    """Where pools have servers of their own: what each is, and whether it is what its pool needs."""
    primary, marking, servers = await servers_of(dsn, settings.pool_urls)
    if primary.away:
        return []  # told already
    found = []
    if primary.standby:
        mend = "With several hosts add target_session_attrs=read-write to MNEME_DATABASE_URL and MNEME_DATABASE_DIRECT_URL."
        found.append(Finding("error", "What is written to is a standby: nothing can be stored.", mend))
    if settings.standby_urls and not marking:
        mend = "Run `mneme migrate` with these settings: until then all is read from the primary."
        found.append(Finding("warning", "Standbys are named, and the primary does not mark its writers.", mend))
    return found + [_told(each) for each in servers]


def _told(server: PoolServer) -> Finding:
    told = f"The {server.pool} pool's server {server.name}"
    setting = f"MNEME_DATABASE_{server.pool.upper()}_URL"
    reads = server.pool != "background"
    if server.away:
        meanwhile = "; the primary answers meanwhile" if reads else ""
        level: Literal["warning", "error"] = "warning" if reads else "error"
        return Finding(level, f"{told} cannot be reached{meanwhile}: {server.away}", f"Check it, or {setting}.")
    if not server.ours:
        return Finding("error", f"{told} is another database, no copy of the primary.", f"Check {setting}.")
    if not server.standby:
        if not reads:
            return Finding("ok", f"{told} is the primary.")
        return Finding(
            "warning", f"{told} is the primary itself: reading there costs more, and takes nothing off it.",
            f"Name a standby in {setting}, or leave it unset.",
        )  # fmt: skip
    if not reads:
        return Finding("error", f"{told} is a standby, and jobs write.", f"Have {setting} lead to the primary.")
    if server.paused:
        return Finding(
            "warning", f"{told} replays nothing: somebody paused it.", "SELECT pg_wal_replay_resume() there."
        )
    if server.lag_s is None:
        mend = "See its log, disk and network; what its users wrote lately is read from the primary."
        return Finding("warning", f"{told} is a standby, and more than {CATCH_UP_S:g} s late.", mend)
    if not server.feedback:
        mend = "Set it to on: else vacuum on the primary ends searches there."
        return Finding("warning", f"{told} is a standby with hot_standby_feedback off.", mend)
    return Finding("ok", f"{told} is a standby, {1000 * server.lag_s:.0f} ms late.")
