"""What keeps calls while Postgres is away (docs/explanation/storage.md#the-journal-and-the-spool).

Of running calls a journal is written; those that have ended wait in the spool (both `spool`, whose files `journal` reads), as
`spooled_call` has them, until they are stored (`keeper`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Finding

if TYPE_CHECKING:
    from app.clock import Clock
    from app.gateway.keeper import Keeper
    from app.gateway.redact import Redactor
    from app.metrics import Metrics
    from app.store.erasure import Elsewhere
    from app.store.queries import Queries
    from app.tasks import Supervisor

log = logging.getLogger("mneme.spool")


class CallsKept(Feature):
    """Keeps a server's calls; erasures reach them."""

    def keeper(self, redactor: Redactor, metrics: Metrics, tasks: Supervisor) -> Keeper | None:
        """None also where there can be no spool."""
        from app.features.spool.keeper import SpoolKeeper
        from app.features.spool.spool import open_spool

        settings = self.settings
        if not settings.spool_max_bytes:
            return None
        try:
            spool = open_spool(settings.spool_folder, settings.spool_max_bytes)
        except OSError as error:
            log.error("there is no spool", extra={"folder": str(settings.spool_folder), "error": str(error)})
            return None
        return SpoolKeeper(
            spool, segment_bytes=settings.spool_segment_bytes, metrics=metrics, tasks=tasks, redactor=redactor
        )

    def elsewhere(self, dsn: str, queries: Queries, clock: Clock) -> Sequence[Elsewhere]:
        from app.features.spool.spool import erasing

        return (erasing(self.settings.spool_folder),)

    async def findings(self, dsn: str | None) -> Sequence[Finding]:
        from app.features.spool.findings import findings

        return list(findings(self.settings))


FEATURE = CallsKept
