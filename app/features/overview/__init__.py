"""What the calls of the last hours came to, bucket by bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class Overview(Feature):
    """A route in a server."""

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.overview.routes import overview_router
        from app.features.overview.store import OverviewStore

        store = OverviewStore(process.pool, process.queries)
        return (overview_router(gate, store, process.clock, self.settings.memory_budget_tokens),)


FEATURE = Overview
