"""What the commands `mneme sweep`, `mneme retention` and `mneme erase` do."""

from __future__ import annotations

import asyncpg

from app.capture.spool import erasing
from app.clock import SystemClock
from app.errors import StoreUnavailable
from app.settings import Settings
from app.store import ids
from app.store.erasure import ERASER_ROLE, Eraser, Progress, Receipt, own_connection
from app.store.queries import Queries
from app.store.retention import Outcome, Retention
from app.work import OWNER_ROLE, capture_limits, schedule


async def sweep(settings: Settings, dsn: str, name: str) -> int:
    """Run a task of the schedule now; what it changed. Raises NotFound, StoreUnavailable."""
    try:
        return await schedule(settings, dsn, Queries.load(), SystemClock()).sweep(name)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable(f"The sweep did not come to its end: {error}. It can be run again.") from error


async def retain(settings: Settings, dsn: str, *, dry: bool) -> Outcome:
    """Drop what the settings say is over. Raises StoreUnavailable."""
    try:
        connection = await own_connection(settings.direct(dsn), OWNER_ROLE)()
        try:
            return await Retention(Queries.load(), capture_limits(settings)).run(
                connection, SystemClock().now(), dry=dry
            )
        finally:
            connection.terminate()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreUnavailable(f"The captures could not be dropped: {error}. It can be run again.") from error


async def erase_user(
    settings: Settings, dsn: str, tenant: str, user: str, *, tombstones: bool, progress: Progress
) -> Receipt:
    """Erase a user of the tenant of that name. Raises NotFound, Conflict, StoreUnavailable."""
    spool = erasing(settings.spool_folder)
    eraser = Eraser(own_connection(settings.direct(dsn), ERASER_ROLE), Queries.load(), SystemClock(), elsewhere=[spool])
    owner = await eraser.tenant(tenant)
    return await eraser.erase(owner, ids.user_id(owner, user), external=user, tombstones=tombstones, progress=progress)
