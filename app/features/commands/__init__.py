"""What users tell memory to do in chats: read (`grammar`), done (`commander`), listed and undone (`routes`, `store`).

By their names the core finds what reads (`memory/commands.py`), what does (`server/proxy.py`), what ends wishes that learning
finds taken back (`withdrawal`; `server/core.py`), and what /api/v1/me says of it (`server/routes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class ChatCommands(Feature):
    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.features.commands.routes import commands_router
        from app.features.commands.store import CommandStore

        assert process.metrics is not None, "a server with routes has them"
        return (commands_router(gate, CommandStore(process.pool, process.queries, process.clock), process.metrics),)


FEATURE = ChatCommands
