"""Replay: captured calls compiled again (`recompile`), and asked again and compared (`routes`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class Replays(Feature):
    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.replay.recompile import Recompiler, ReplayStore
        from app.features.replay.routes import Replayer, replay_router
        from app.store.captures import Captures
        from app.store.records import ResolutionStore
        from app.store.spaces import SharedSpaces

        path = process.path
        assert path is not None, "a server with routes has one"
        pool, sql = process.pool, process.queries
        captures, replays = Captures(pool, sql), ReplayStore(pool, sql)
        recompiler = Recompiler(
            captures,
            replays,
            path.turns,
            path.compiler,
            path.router,
            process.tokenizers,
            process.counts,
            process.clock,
            nonce_key=lambda: path.nonce_key,
            knowing=ResolutionStore(pool, sql),
            spaces=SharedSpaces(pool, sql, process.clock),
            cards=path.cards,
            knower=path.knower,
            addon=path.addon,
        )
        caller = Replayer(
            path.sender,
            captures,
            replays,
            process.models,
            process.tokenizers,
            process.clock,
            max_bytes=self.settings.max_body_bytes,
        )
        return (replay_router(gate, captures, recompiler, caller),)


FEATURE = Replays
