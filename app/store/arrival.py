"""What a process waits for that started before its database: that it is there, and has all that this version needs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from importlib.metadata import version
from typing import Any

import asyncpg

from app.errors import NotReady
from app.store.migrate import pending
from app.store.pools import AGAIN_S, AWAY, REFUSED, why
from app.store.queries import Queries

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


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait so long, or until `stop`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
