"""POST /api/v1/chat: a turn by Mneme's own gateway, with all that memory had to do with it (seed 004)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class Chat(Feature):
    """A route in a server."""

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.chat.learned import LearnedTurns
        from app.features.chat.routes import chat_router

        assert process.path is not None, "a server with routes has one"
        return (
            chat_router(
                gate,
                process.path.gateway,
                LearnedTurns(process.pool, process.queries),
                process.clock,
                default_model=self.settings.default_model,
                learn_wait_ms=self.settings.chat_learn_wait_ms,
            ),
        )


FEATURE = Chat
