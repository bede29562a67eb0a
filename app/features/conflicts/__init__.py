"""Contradictions between memories, and with the business's own database: read and decided, by routes and a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class Conflicts(Feature):
    """Routes in a server."""

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.conflicts.routes import conflicts_router
        from app.features.conflicts.store import ConflictStore

        return (conflicts_router(gate, ConflictStore(process.pool, process.queries, process.clock)),)


FEATURE = Conflicts
