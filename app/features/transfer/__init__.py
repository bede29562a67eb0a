"""What goes out of Mneme and into it as JSON lines: a user's data, past conversations, captured calls as cassettes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from app.features import Feature, Process

if TYPE_CHECKING:
    from fastapi import APIRouter

    from app.api.scope import Gate


class Transfer(Feature):
    def routes(self, process: Process, gate: Gate) -> Sequence[APIRouter]:
        from app.api.intake import IntakeCheck, IntakePreparer
        from app.capture.record import Recorder
        from app.context.transcript import chain, tail_hash
        from app.features.transfer.routes import Importer, cassettes_router, export_router, importer_router
        from app.features.transfer.store import CassetteStore, Export
        from app.memory.secrets import unwelcome
        from app.providers.tokens import STORED_COUNTS
        from app.store.captures import Captures
        from app.store.history import History
        from app.store.sessions import SESSION_TTL, Sessions
        from app.store.spaces import SharedSpaces
        from app.store.tenancy import Tenancy
        from app.store.turns import TurnStore

        pool, sql, clock, space = process.pool, process.queries, process.clock, process.space
        ttl, counter = SESSION_TTL, process.tokenizers.for_model(STORED_COUNTS)
        sessions = Sessions(pool, sql, clock, ttl=ttl, space=space)
        history = History(pool, sql, sessions, clock, chain=chain, tail=tail_hash, ttl=ttl, space=space)
        refuses = unwelcome(self.settings.store_secrets, self.settings.refuse_pii, self.settings.refuse_patterns)
        preparer, spaces = IntakePreparer(process.embedder, counter, clock), SharedSpaces(pool, sql, clock)
        recorder = Recorder(TurnStore(pool, sql), process.embedder, process.counts, counter)
        return (
            cassettes_router(gate, Captures(pool, sql), CassetteStore(pool, sql), sessions, recorder, clock),
            importer_router(gate, Importer(sessions, history, preparer, spaces, IntakeCheck(refuses))),
            export_router(gate, Export(pool, sql), Tenancy(pool, sql, clock), clock),
        )


FEATURE = Transfer
