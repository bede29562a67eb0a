"""POST /api/v1/context: a request compiled as it would be, and not sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class Previews(Feature):
    """A route in a server."""

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.preview.routes import Previewer, context_router
        from app.gateway.prepare import Preparer
        from app.providers.tokens import STORED_COUNTS

        path = process.path
        assert path is not None, "a server with routes has one"
        preparer = Preparer(path.turns, path.compiler, path.knower, path.cards)
        default_model = self.settings.default_model or STORED_COUNTS
        return (context_router(gate, Previewer(preparer, path.router, process.clock, default_model)),)


FEATURE = Previews
