"""Limits of keys, and what was spent (docs/explanation/adr/008-a-window-in-postgres.md).

Calls are let in and settled by statements of their own, and what they came to is told by a route (`limiter`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client import Counter

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client import CollectorRegistry

    from app.api.scope import Gate
    from app.features.limits.limiter import Limiter
    from app.providers.models import ModelRegistry
    from app.store.pools import Pool


class KeysHeld(Feature):
    """Stands before the turn, in a server."""

    _refusals: Counter

    def own_metrics(self, registry: CollectorRegistry) -> tuple[Counter]:
        self._refusals = Counter(
            "mneme_refusals", "Requests that a key's limits kept out, by limit.", ["limit"], registry=registry
        )
        return (self._refusals,)

    def admits(self, process: Process, pool: Pool, models: ModelRegistry) -> Limiter:
        from app.features.limits.limiter import Limiter, LimitStore

        assert process.metrics is not None, "asked in a server alone"
        return Limiter(
            LimitStore(pool, process.queries),
            models,
            metrics=process.metrics,
            refusals=self._refusals,
            clock=process.clock,
            tasks=process.tasks,
        )

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.limits.limiter import SpendStore, spend_router

        return (spend_router(gate, SpendStore(process.pool, process.queries), process.clock),)


FEATURE = KeysHeld
