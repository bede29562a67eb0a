"""Replay: captured calls sent upstream again, and the answers compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class Replays(Feature):
    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.replay.routes import Replayer, replay_router
        from app.features.replay.store import ReplayStore
        from app.store.captures import Captures

        path = process.path
        assert path is not None, "a server with routes has one"
        replayer = Replayer(
            path.sender,
            path.router,
            Captures(process.pool, process.queries),
            ReplayStore(process.pool, process.queries),
            process.models,
            process.tokenizers,
            process.clock,
            max_bytes=self.settings.max_body_bytes,
        )
        return (replay_router(gate, replayer),)


FEATURE = Replays
