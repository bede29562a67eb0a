"""What is known of a user, fact by fact (seed 003 §6): read and changed by clients. Memories keep it by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class UserFacts(Feature):
    """Routes in a server."""

    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.api.intake import IntakeCheck
        from app.features.facts.routes import facts_router
        from app.features.facts.store import Facts
        from app.memory.secrets import unwelcome

        settings = self.settings
        intake_check = IntakeCheck(unwelcome(settings.store_secrets, settings.refuse_pii, settings.refuse_patterns))
        return (facts_router(gate, Facts(process.pool, process.queries, process.clock), intake_check),)


FEATURE = UserFacts
