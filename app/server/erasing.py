"""What erases users: from the database, and wherever features keep something of them."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from app.clock import Clock
from app.errors import NotReady
from app.features.registry import load
from app.settings import Settings
from app.store.erasure import ERASER_ROLE, Connect, Elsewhere, Eraser, connected, own_connection
from app.store.queries import Queries


def eraser_of(settings: Settings, dsn: str, sql: Queries, clock: Clock) -> Eraser:
    """Erases users from the database of `dsn` (a direct way), and from what features keep."""
    connect = own_connection(dsn, ERASER_ROLE)
    features = load(settings)
    elsewhere = features.all(lambda each: each.elsewhere(dsn, sql, clock))
    if "archive" not in dict(features):
        elsewhere.append(_out_of_reach(connect, sql))
    return Eraser(connect, sql, clock, elsewhere=elsewhere, leave_to_spaces=settings.leave_to_spaces)


def _out_of_reach(connect: Connect, sql: Queries) -> Elsewhere:
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
