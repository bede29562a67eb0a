"""The spool keeps ended calls while Postgres is away (docs/explanation/storage.md#the-spool).

Their files are those of `spool`, in the format of `frames`; `keeper` writes them and stores them in Postgres.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge

from app.features import Feature, Finding

if TYPE_CHECKING:
    from app.clock import Clock
    from app.gateway.call import Keeper
    from app.gateway.headers import Redactor
    from app.store.erasure import Elsewhere
    from app.store.queries import Queries
    from app.tasks import Supervisor

log = logging.getLogger("mneme.spool")


class CallsKept(Feature):
    """Keeps a server's calls; erasures reach them."""

    _events: Counter
    _standing: Gauge

    def own_metrics(self, registry: CollectorRegistry) -> tuple[Counter, Gauge]:
        calls = "Calls that went through the spool, by what became of them."
        self._events = Counter("mneme_spool_calls", calls, ["event"], registry=registry)
        spool = "The spool when last looked at: calls, bytes, seconds that the oldest waits, dead letters."
        self._standing = Gauge("mneme_spool", spool, ["what"], registry=registry, multiprocess_mode="mostrecent")
        return self._events, self._standing

    def keeper(self, redactor: Redactor, tasks: Supervisor) -> Keeper | None:
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
        keeper = SpoolKeeper(spool, self._events, self._standing, tasks=tasks, redactor=redactor)
        keeper.count_waiting()
        return keeper

    def elsewhere(self, dsn: str, queries: Queries, clock: Clock) -> Sequence[Elsewhere]:
        from app.features.spool.spool import erasing

        return (erasing(self.settings.spool_folder),)

    async def findings(self, dsn: str | None) -> Sequence[Finding]:
        from app.features.spool.spool import findings

        return list(findings(self.settings))


FEATURE = CallsKept
