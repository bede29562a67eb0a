"""The end of a call: made durable before the client sees it, and counted."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.capture.facts import CallFacts
from app.capture.record import Recorder
from app.clock import Clock
from app.dialects.base import ChatRequest
from app.errors import MnemeError, StoreUnavailable
from app.gateway.account import Accountant
from app.gateway.call import Forwarded, Recorded, Remembered, grown
from app.gateway.prepare import Preparer
from app.gateway.relay import Ending, Tape
from app.gateway.sharing import Sharer
from app.gateway.spooling import Keeper
from app.metrics import Metrics
from app.settings import Settings
from app.text_cache import forget

log = logging.getLogger("mneme.turn")


class Sealed(Struct, frozen=True):
    """What became of a call that has ended. `stored`: it is durable, or may go on without; `facts`: None where nothing was to
    be kept, or could be."""

    stored: bool
    facts: CallFacts | None = None


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
        sharer: Sharer | None = None,
    ) -> None:
        """`keeper`: None where there is no spool; `sharer`: None where nothing is said to shared spaces."""
        self._sharer = sharer
        self._preparer = preparer
        self._accountant = accountant
        self._recorder = recorder
        self._metrics = metrics
        self._settings = settings
        self._clock = clock
        self._keeper = keeper

    async def seal(self, call: Forwarded, ending: Ending, tape: Tape) -> Sealed:
        """Make the call and its turn durable. Not `stored`: it could not be, and the answer must not seem to end well."""
        if call.bare:
            return Sealed(True)
        began = time.perf_counter_ns()
        complete = True
        try:
            if call.joint is not None:
                complete, legs = await call.joint.end(ending)
                call = replace(call, legs=legs)
            facts = await self._store(call, ending, tape)
        except Exception as error:  # boundary: whatever it was, the answer must not seem to end well
            self._metrics.degraded("unstored")
            log.error("the call could not be stored", extra={"call_id": str(call.id)}, exc_info=error)
            return Sealed(self._settings.durability == "best_effort")
        finally:
            self.release(call.id)
        self._metrics.stage("record", (time.perf_counter_ns() - began) / 1e9, began)
        return Sealed(complete, facts)

    async def seal_leg(self, call: Forwarded, ending: Ending, tape: Tape) -> Sealed:
        """The same of one leg of an answer. Its figures are known then, whether it is to be kept or not."""
        recorded = await self.seal(call, ending, tape)
        if recorded.facts is not None:
            return recorded
        facts, _ = self._accountant.close(call, ending, tape, self._clock.now())
        return replace(recorded, facts=facts)

    def begin(self, call: Remembered) -> None:
        """The call goes upstream."""
        if self._keeper is not None:
            self._keeper.begin(call)

    def answered(self, call: Forwarded) -> None:
        """The head of the answer is here."""
        if self._keeper is not None:
            self._keeper.answered(call)

    def copy(self, call: Remembered) -> Callable[[int, bytes], None] | None:
        """Where pieces of the answer are written down as they come."""
        return self._keeper.copy(call.id) if self._keeper is not None else None

    def release(self, call_id: UUID) -> None:
        """The call needs nothing more, whatever became of it."""
        if self._keeper is not None:
            self._keeper.release(call_id)

    async def _store(self, call: Forwarded, ending: Ending, tape: Tape) -> CallFacts:
        """In Postgres, or, while it is away, in the spool. What it came to."""
        now, keeper = self._clock.now(), self._keeper
        if keeper is None or not call.kept or not keeper.goes_behind(call):
            try:
                return await self.settle(call, ending, tape, now)
            except StoreUnavailable:
                if keeper is None:
                    raise
                keeper.lost()
        # The limits of its key, and whoever observes it, want to know what it came to.
        facts, _ = self._accountant.close(call, ending, tape, now)
        _admission_told(call, facts, recorded=True)
        call.observe(grown(Recorded, call, facts=facts))
        hashes = self._accountant.answer_hashes(call, ending, tape) if keeper.redactor else ()
        await keeper.keep(call, ending, tape, now, hashes)
        return facts

    async def settle(
        self,
        call: Forwarded,
        ending: Ending,
        tape: Tape,
        ended_at: datetime,
        promised: UUID | None = None,
    ) -> CallFacts:
        """Store a call that has ended; what it came to. `promised`: the session that it was to begin. Raises StoreUnavailable,
        and whatever the call is refused for."""
        if call.needs_place and call.chat is not None:
            call = await self._placed(call, call.chat, promised)
        facts, exchange = self._accountant.close(call, ending, tape, ended_at)
        if call.paging is not None:
            facts = replace(facts, paging=self._accountant.paging(call, exchange))
        recorded = facts.captured or exchange is not None
        _admission_told(call, facts, recorded=recorded)
        compiled = call.prepared.compilation if call.prepared else None
        if exchange is not None and self._sharer is not None:
            await self._sharer.say(call, exchange)  # first: a turn that is stored is not stored again
        if recorded:
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
        if facts.usage.prompt is not None or facts.usage.completion is not None:
            self._metrics.cost(facts.upstream, facts.cost_microcents, priced=facts.priced)
        log.info("answered", extra=facts.figures())
        call.observe(grown(Recorded, call, facts=facts))
        return facts

    async def _placed(self, call: Forwarded, chat: ChatRequest, promised: UUID | None) -> Forwarded:
        """The call with its place. Memory failed before, or Mneme did; without a place the turn has no session to belong
        to."""
        try:
            if call.identity.idempotency_key is not None and call.replay is None:
                found = await self._preparer.replay(call.identity, chat)
                if found is not None:
                    call = replace(call, replay=found, identity=replace(call.identity, repeats=True))
            place = await self._preparer.place(call.identity, chat, call.switches, call.at)
        except MnemeError as error:
            if error.status >= 500:
                raise
            # What would have been refused was answered meanwhile: it is nobody's turn, but it is a call.
            log.warning("a turn of no session", extra={"call_id": str(call.id), "reason": error.message})
            return call
        if promised is not None and place.new:
            place = replace(place, session_id=promised, retrieval_session=promised)
        return replace(call, place=place)


def _admission_told(call: Forwarded, facts: CallFacts, *, recorded: bool) -> None:
    if call.admission is not None:
        call.admission.facts, call.admission.recorded = facts, recorded
