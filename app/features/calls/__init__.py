"""Captured calls, for those who ask: their compiled context explained, their bodies byte for byte and their streams."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class Calls(Feature):
    """Routes in a server."""

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.calls.routes import calls_router
        from app.store.captures import Captures
        from app.store.resolution import ResolutionStore
        from app.store.sessions import Sessions

        assert process.path is not None, "a server with routes has one"
        pool, sql, ttl = process.pool, process.queries, timedelta(days=self.settings.session_ttl_days)
        sessions = Sessions(pool, sql, process.clock, ttl=ttl)
        return (calls_router(gate, Captures(pool, sql), sessions, ResolutionStore(pool, sql), process.path.addon),)


FEATURE = Calls
