"""Old months of history in files (docs/how-to/archive.md): archived (`archives`), restored, dropped, and erased from."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from app.features import Feature, Finding

if TYPE_CHECKING:
    import asyncpg

    from app.clock import Clock
    from app.features.archive.archives import ArchivePolicy, Archives
    from app.jobs.schedule import Tick
    from app.store.erasure import Elsewhere
    from app.store.queries import Queries

log = logging.getLogger(__name__)

EVERY = timedelta(days=1)
"""What goes has waited for months."""


class HistoryArchives(Feature):
    """A tick of the schedule; erasures reach the files."""

    def ticks(self, queries: Queries) -> Sequence[Tick]:
        from app.jobs.schedule import Tick

        archives = self.archives(queries)

        async def archive(connection: asyncpg.Connection[Any], now: datetime) -> int:
            done = await archives.run(connection, now)
            if done.months or done.dropped:
                told = {"months": done.months, "rows": done.rows, "bytes": done.size, "dropped": done.dropped}
                log.info("history was archived", extra=told)
            return done.rows + done.dropped

        return (Tick("archive", EVERY, archive),)

    def elsewhere(self, dsn: str, queries: Queries, clock: Clock) -> Sequence[Elsewhere]:
        from app.features.archive.archives import erasing
        from app.store.erasure import ERASER_ROLE, own_connection

        return (erasing(self._keep(), own_connection(dsn, ERASER_ROLE), queries, clock),)

    async def findings(self, dsn: str | None) -> Sequence[Finding]:
        from app.features.archive.archives import findings
        from app.store.erasure import connected, own_connection
        from app.store.pools import OWNER_ROLE
        from app.store.queries import Queries

        if dsn is None:
            return ()
        async with connected(own_connection(dsn, OWNER_ROLE)) as connection:
            return await findings(self.settings, self.archives(Queries.load()), connection)

    def archives(self, queries: Queries) -> Archives:
        from app.features.archive.archives import Archives

        return Archives(queries, self._keep())

    def _keep(self) -> ArchivePolicy:
        from app.features.archive.archives import ArchivePolicy

        return ArchivePolicy(self.settings.archive_folder, self.settings.history_days, self.settings.archive_days)


FEATURE = HistoryArchives
