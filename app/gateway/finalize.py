"""The end of a call: made durable before the client sees it, and counted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from app.capture.record import Recorder
from app.clock import Clock
from app.dialects.base import ChatRequest
from app.errors import MnemeError, StoreUnavailable
from app.gateway.account import Accountant
from app.gateway.call import Call
from app.gateway.prepare import Preparer
from app.gateway.relay import Ending, Tape
from app.gateway.spooling import Keeper
from app.gateway.upstream import UpstreamResponse
from app.metrics import Metrics
from app.settings import Settings
from app.text_cache import forget

log = logging.getLogger("mneme.turn")


class Finalizer:
    """Records calls."""

    def __init__(
        self,
        *,
        preparer: Preparer,
        accountant: Accountant,
        recorder: Recorder,
        metrics: Metrics,
        settings: Settings,
        clock: Clock,
        keeper: Keeper | None,
    ) -> None:
        """`keeper`: None where there is no spool."""
        self._preparer = preparer
        self._accountant = accountant
        self._recorder = recorder
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._keeper = keeper

    async def seal(self, call: Call, response: UpstreamResponse | None, ending: Ending, tape: Tape) -> bool:
        """Make the call and its turn durable. False: it could not be, and the answer must not seem to end well."""
        if call.bare:
            return True
        began = time.perf_counter_ns()
        try:
            complete = call.joint is None or await call.joint.end(ending)
            await self._store(call, response, ending, tape)
        except Exception as error:  # boundary: whatever it was, the answer must not seem to end well
            self._metrics.degraded("unstored")
            log.error("the call could not be stored", extra={"call_id": str(call.id)}, exc_info=error)
            return self._settings.durability == "best_effort"
        finally:
            self.release(call)
        self._metrics.stage("record", (time.perf_counter_ns() - began) / 1e9, began)
        return complete

    async def seal_leg(self, call: Call, response: UpstreamResponse | None, ending: Ending, tape: Tape) -> bool:
        """The same of one leg of an answer. Its figures are known then, whether it is to be kept or not."""
        stored = await self.seal(call, response, ending, tape)
        if call.facts is None:
            call.facts, _ = self._accountant.close(call, response, ending, tape, self._clock.now())
        return stored

    def begin(self, call: Call) -> None:
        """The call goes upstream."""
        if self._keeper is not None:
            self._keeper.begin(call)

    def answered(self, call: Call, response: UpstreamResponse) -> None:
        """The head of the answer is here."""
        if self._keeper is not None:
            self._keeper.answered(call, response)

    def copy(self, call: Call) -> Callable[[int, bytes], None] | None:
        """Where pieces of the answer are written down as they come."""
        return self._keeper.copy(call) if self._keeper is not None else None

    def release(self, call: Call) -> None:
        """The call needs nothing more, whatever became of it."""
        if call.entry is not None:
            call.entry.done()

    async def _store(self, call: Call, response: UpstreamResponse | None, ending: Ending, tape: Tape) -> None:
        """In Postgres, or, while it is away, in the spool."""
        now, keeper = self._clock.now(), self._keeper
        if keeper is None or not call.kept or not keeper.goes_behind(call):
            try:
                await self.settle(call, response, ending, tape, now)
            except StoreUnavailable:
                if keeper is None:
                    raise
                keeper.lost()
            else:
                return
        else:  # the limits of its key want to know what it came to
            call.facts, _ = self._accountant.close(call, response, ending, tape, now)
            call.recorded = True
        hashes = self._accountant.answer_hashes(call, response, ending, tape) if keeper.redactor else ()
        await keeper.keep(call, response, ending, tape, now, hashes)

    async def settle(
        self,
        call: Call,
        response: UpstreamResponse | None,
        ending: Ending,
        tape: Tape,
        ended_at: datetime,
        promised: UUID | None = None,
    ) -> None:
        """Store a call that has ended. `promised`: the session that it was to begin. Raises StoreUnavailable, and whatever
        the call is refused for."""
        if call.needs_place and call.chat is not None:
            await self._place(call, call.chat, promised)
        facts, exchange = self._accountant.close(call, response, ending, tape, ended_at)
        if call.paging is not None:
            facts = replace(facts, paging=self._accountant.paging(call, exchange))
        call.facts, call.recorded = facts, facts.captured or exchange is not None
        compiled = call.prepared.compilation if call.prepared else None
        if call.recorded:
            explained = call.prepared.facts if call.prepared and facts.captured else None
            if not await self._recorder.record(facts, exchange, explained):
                forget()  # its user may have been erased meanwhile, and what was kept then is filled again by this call
        if compiled is not None:
            self._metrics.utilisation(compiled.eta)
            block = compiled.new_block
            self._metrics.memory(block.token_count if block else 0, degraded=call.status == "degraded")
        if facts.paging is not None:
            avoided, further = facts.paging.avoided_tokens, max(0, len(call.legs) - 1)
            self._metrics.paged(facts.paging.zone, avoided=avoided, legs=further)
        self._metrics.tokens(
            prompt=facts.usage.prompt or 0,
            completion=facts.usage.completion or 0,
            injected=compiled.tokens if compiled else 0,
        )
        log.info("answered", extra=facts.figures())

    async def _place(self, call: Call, chat: ChatRequest, promised: UUID | None) -> None:
        """Memory failed before, or Mneme did. Without a place the turn has no session to belong to."""
        try:
            if call.identity.idempotency_key is not None and call.replay is None:
                call.replay = await self._preparer.replay(call.identity, chat)
                if call.replay is not None:
                    call.identity = replace(call.identity, repeats=True)
            place = await self._preparer.place(call.identity, chat, call.switches, call.at)
        except MnemeError as error:
            if error.status >= 500:
                raise
            # What would have been refused was answered meanwhile: it is nobody's turn, but it is a call.
            log.warning("a turn of no session", extra={"call_id": str(call.id), "reason": error.message})
            return
        if promised is not None and place.new:
            place = replace(place, session_id=promised, retrieval_session=promised)
        call.place = place
