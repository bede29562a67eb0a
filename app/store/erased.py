"""Hears which users are being erased: what a server keeps of them in memory goes, whether they ask again or not."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

import asyncpg

from app.errors import StoreUnavailable
from app.store.erasure import Connect
from app.store.indexed import ERASED
from app.store.pools import Pool
from app.store.queries import Queries

log = logging.getLogger("mneme.index")

PAUSE_S = 1.0
"""Seconds between two attempts to connect."""
LOOK_S = 2.0
"""Seconds between two questions whether the connection still lives, and that an answer may take: a user who is erased is out of
every server's memory within five."""

_LOST = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What a Postgres raises that is lost, frozen or restarting."""


class Erasures:
    """Listens on a connection of its own. What is not heard while there is none may have been anybody's erasure."""

    def __init__(
        self, connect: Connect, pool: Pool, sql: Queries, erased: Callable[[UUID], None], lost: Callable[[], None]
    ) -> None:
        """`connect`: opens a session of its own (no PgBouncer in transaction mode), on the server that `pool` asks. `erased`:
        told of each user; `lost`: told when something may have been missed."""
        self._connect = connect
        self._pool = pool
        self._sql = sql
        self._erased = erased
        self._lost = lost
        self.listening = asyncio.Event()

    async def listen(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                connection = await self._connect()
                try:
                    await self._heard(connection)
                finally:
                    connection.terminate()
            except _LOST as error:
                log.warning("erasures are not heard of: indexes are dropped", extra={"error": type(error).__name__})
            finally:
                self.listening.clear()
                self._lost()
            await asyncio.sleep(PAUSE_S)

    async def _heard(self, connection: asyncpg.Connection[Any]) -> None:
        await connection.add_listener(ERASED, self._told)
        self._lost()  # what was kept before nobody told us of
        self.listening.set()
        while True:
            await asyncio.sleep(LOOK_S)
            async with asyncio.timeout(LOOK_S):
                here = await connection.fetchrow(self._sql["index.whose"])
            try:
                async with self._pool.acquire() as asked:
                    there = await asked.fetchrow(self._sql["index.whose"])
            except StoreUnavailable:  # the next look tells
                continue
            if here != there:  # one of the two addresses did not follow a fail-over
                raise ConnectionError("erasures are told on another server than the one that is asked")

    def _told(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        with contextlib.suppress(ValueError):  # somebody else's, or an operator's try
            self._erased(UUID(str(payload)))
