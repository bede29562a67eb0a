"""What erases users: from the database, the spool and the archives."""

from __future__ import annotations

from app.capture.spool import erasing
from app.clock import Clock
from app.settings import Settings
from app.store import archives
from app.store.archives import Keep
from app.store.erasure import ERASER_ROLE, Eraser, own_connection
from app.store.queries import Queries


def history_kept(settings: Settings) -> Keep:
    """How long history stays, and where its archives are."""
    return Keep(settings.archive_folder, settings.history_days, settings.archive_days)


def eraser_of(settings: Settings, dsn: str, sql: Queries, clock: Clock) -> Eraser:
    """Erases users from the database of `dsn` (a direct way), the spool and the archives."""
    connect = own_connection(dsn, ERASER_ROLE)
    files = archives.erasing(history_kept(settings), connect, sql, clock)
    elsewhere = [erasing(settings.spool_folder), files]
    return Eraser(connect, sql, clock, elsewhere=elsewhere, leave_to_spaces=settings.leave_to_spaces)
