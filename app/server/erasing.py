"""What erases users: from the database, and wherever features keep something of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from app.clock import Clock
from app.errors import NotReady
from app.features.registry import Features
from app.settings import Settings
from app.store.erasure import ERASER_ROLE, Connect, Elsewhere, Eraser, connected, own_connection
from app.store.queries import Queries


def eraser_of(settings: Settings, features: Features, dsn: str, sql: Queries, clock: Clock) -> Eraser:
    """Erases users from the database of `dsn` (a direct way), and from what features keep. What one has kept that is not there
    any more is out of reach: then no erasure ends."""
    connect = own_connection(dsn, ERASER_ROLE)
    elsewhere = features.all(lambda each: each.elsewhere(dsn, sql, clock))
    if "archive" in features.absent:
        elsewhere.append(_archives_out_of_reach(connect, sql))
    if "spool" in features.absent:
        elsewhere.append(_spool_out_of_reach(settings.spool_folder))
    return Eraser(connect, sql, clock, elsewhere=elsewhere, leave_to_spaces=settings.leave_to_spaces)


def _archives_out_of_reach(connect: Connect, sql: Queries) -> Elsewhere:
    """Refuses where months of history are in files that nothing here can erase from."""

    async def refuse(_tenant: UUID, _user: UUID) -> Mapping[str, int]:
        async with connected(connect) as connection:
            if await connection.fetchval(sql["erasure.archived"]):
                raise NotReady(
                    "Months of history are archived, and this installation has no app.features.archive: nobody can be erased "
                    "from them here."
                )
        return {}

    return refuse


def _spool_out_of_reach(folder: Path) -> Elsewhere:
    """Refuses where a spool holds calls that nothing here can erase."""

    def holds_calls() -> bool:
        return any(each.is_file() for each in folder.glob("*/**/*"))  # beside them, the folder itself has a lock alone

    async def refuse(_tenant: UUID, _user: UUID) -> Mapping[str, int]:
        if await asyncio.to_thread(holds_calls):
            raise NotReady(
                f"Calls lie in {folder}, and this installation has no app.features.spool: nobody can be erased from them here."
            )
        return {}

    return refuse
