"""Outcomes: what answers were worth, and which memories were in the good ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class RatesAnswers(Feature):
    """Routes in a server."""

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.outcomes.routes import outcomes_router
        from app.features.outcomes.store import Outcomes
        from app.store.captures import Captures

        pool, sql = process.pool, process.queries
        return (outcomes_router(gate, Outcomes(pool, sql, process.clock), Captures(pool, sql)),)


FEATURE = RatesAnswers
