"""Reads from standbys (docs/how-to/scaling.md): `reads`, which `app.store.workloads` finds by its name."""

from __future__ import annotations

from collections.abc import Sequence

from app.features import Feature, Finding


class Replicas(Feature):
    """Looks at the servers."""

    async def findings(self, dsn: str | None) -> Sequence[Finding]:
        """Also before the first migration."""
        from app.features.replicas.findings import findings

        url = self.settings.database_url
        if url is None or not self.settings.pool_urls:
            return ()
        return await findings(self.settings, self.settings.direct(url.get_secret_value()))


FEATURE = Replicas
