"""Consolidation: what many turns come to (docs/explanation/consolidation.md).

The end of a session, its compaction, and what all of a user's sessions say together are jobs (`jobs`). The schedule puts them
into the queue, or a request (`routes`). What they decide is pure (`patterns`, `summaries`); `store` keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client import Gauge

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client import CollectorRegistry

    from app.api.probes import Check
    from app.api.scope import Gate
    from app.jobs.schedule import Tick
    from app.jobs.worker import Handler
    from app.metrics import Metrics
    from app.store.queries import Queries


class Consolidation(Feature):
    """Routes and a gauge in a server; jobs in the worker, which by themselves come where the settings say so."""

    _figures: Gauge

    def own_metrics(self, registry: CollectorRegistry) -> tuple[Gauge]:
        self._figures = Gauge(
            "mneme_compaction",
            "All compactions so far: how many, tokens removed, tokens of their summaries, and the ratio of these "
            "(seed 000 §11.3: at least 5).",
            ["what"],
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        return (self._figures,)

    def gauges(self, process: Process, metrics: Metrics) -> Sequence[Check]:
        from app.features.consolidation.store import ConsolidationStore

        store = ConsolidationStore(process.pool, process.queries)

        async def gauges() -> None:
            figures: dict[str, float] = {**await store.figures()}
            if figures.get("summary_tokens"):
                figures["ratio"] = figures["removed_tokens"] / figures["summary_tokens"]
            for what, value in figures.items():
                self._figures.labels(what).set(value)

        return (gauges,)

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.consolidation.routes import consolidation_router
        from app.features.consolidation.store import ConsolidationStore
        from app.store.sessions import SESSION_TTL, Sessions

        sessions = Sessions(process.pool, process.queries, process.clock, ttl=SESSION_TTL)
        return (consolidation_router(gate, sessions, ConsolidationStore(process.pool, process.queries)),)

    def jobs(self, process: Process) -> Mapping[str, Handler]:
        from app.features.consolidation.jobs import consolidation_jobs

        return consolidation_jobs(process)

    def ticks(self, queries: Queries) -> Sequence[Tick]:
        from app.features.consolidation.jobs import consolidation_ticks

        return consolidation_ticks(queries) if self.settings.consolidation == "on" else ()


FEATURE = Consolidation
