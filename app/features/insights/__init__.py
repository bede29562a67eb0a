"""Insights: the business's own tables are asked again and again, and what they say becomes memory (docs/how-to/insights.md).

A definition is one SELECT, put by the tenant (`routes`); the schedule asks it, a job writes what it says (`engine`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate
    from app.features.insights.engine import DomainAsker
    from app.jobs.schedule import Tick
    from app.jobs.worker import Handler
    from app.store.queries import Queries


class Insights(Feature):
    """Routes in a server; a tick and a job in the worker."""

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.insights.engine import InsightStore
        from app.features.insights.routes import insights_router

        store = InsightStore(process.pool, process.queries, process.clock)
        return (insights_router(gate, store, self._caller(process), process.clock),)

    def jobs(self, process: Process) -> Mapping[str, Handler]:
        from app.features.insights.engine import ENTRYPOINT, Engine, InsightStore

        store = InsightStore(process.pool, process.queries, process.clock)
        return {ENTRYPOINT: Engine(store, self._caller(process), process).handle}

    def ticks(self, queries: Queries) -> Sequence[Tick]:
        from app.features.insights.engine import insight_ticks

        return insight_ticks(queries)

    def _caller(self, process: Process) -> DomainAsker:
        from app.features.insights.engine import DomainAsker
        from app.store.tenancy import Tenancy

        tenancy = Tenancy(process.pool, process.queries, process.clock)
        return DomainAsker(self.settings.domains, tenancy.tenant, process.queries)


FEATURE = Insights
