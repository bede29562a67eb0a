"""The first connection of a process: after a reboot Postgres may come up later than we do."""

from __future__ import annotations

import asyncio
import logging
import time

import asyncpg

from app.errors import NotReady
from app.store.pools import CONNECT_TIMEOUT_S
from app.tasks import until_orphaned

log = logging.getLogger(__name__)

AGAIN_S = 0.5
"""Seconds between two tries: well within what a person or a probe notices, and no load."""

_NOT_YET = (
    OSError,  # refused, no route, no such host yet; TimeoutError is one
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,  # 57P03: it starts, recovers or stops
    asyncpg.TooManyConnectionsError,
)
"""What time may mend. A wrong password, or a database that is not there, it does not."""


async def reach(dsn: str, wait_s: float) -> asyncpg.Connection[asyncpg.Record]:
    """A connection, as soon as there is one to be had, for `wait_s` seconds at most. Raises NotReady."""
    deadline = time.monotonic() + wait_s
    told = False
    while True:
        try:
            return await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT_S)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            reason = str(error) or type(error).__name__
            if not isinstance(error, _NOT_YET) or time.monotonic() + AGAIN_S > deadline:
                raise NotReady(f"The database cannot be reached: {reason}. Look at MNEME_DATABASE_URL.") from error
            if not told:
                log.warning("waiting for the database", extra={"seconds": wait_s, "error": reason})
                told = True
        await asyncio.sleep(AGAIN_S)


async def came(dsn: str, wait_s: float, stop: asyncio.Event) -> bool:
    """Wait until the database can be reached, as `reach` does; False when told to stop, or orphaned, before it could be."""
    try:
        async with asyncio.TaskGroup() as group:
            reaching = group.create_task(reach(dsn, wait_s))
            stopping = group.create_task(until_orphaned(stop))
            await asyncio.wait([reaching, stopping], return_when=asyncio.FIRST_COMPLETED)
            there = reaching.done()
            reaching.cancel()
            stopping.cancel()
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    if there:
        await reaching.result().close()
    return there
