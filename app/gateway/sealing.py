"""The end of a call: made durable before the client sees it, and counted."""

from __future__ import annotations

import logging
import time

from app.capture.record import Recorder
from app.clock import Clock
from app.errors import MnemeError
from app.gateway.account import Accountant, facts_of
from app.gateway.call import Call
from app.gateway.prepare import Preparer
from app.gateway.relay import Ending, Tape
from app.gateway.upstream import UpstreamResponse
from app.metrics import Metrics
from app.settings import Settings

log = logging.getLogger("mneme.turn")


class Sealer:
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
    ) -> None:
        self._preparer = preparer
        self._accountant = accountant
        self._recorder = recorder
        self._metrics = metrics
        self._settings = settings
        self._clock = clock

    async def seal(self, call: Call, response: UpstreamResponse | None, ending: Ending, tape: Tape) -> bool:
        """Make the call and its turn durable. False: it could not be, and the answer must not seem to end well."""
        if call.bare:
            return True
        began = time.perf_counter_ns()
        try:
            await self._record(call, response, ending, tape)
        except Exception as error:
            self._metrics.degraded("unstored")
            log.error("the call could not be stored", extra={"call_id": str(call.id)}, exc_info=error)
            return self._settings.durability == "best_effort"
        self._metrics.stage("record", (time.perf_counter_ns() - began) / 1e9)
        return True

    async def _record(self, call: Call, response: UpstreamResponse | None, ending: Ending, tape: Tape) -> None:
        if call.chat is not None and call.place is None and call.switches.memory != "off":
            # Memory failed before; perhaps only for a moment. Without it the turn has no session to belong to.
            try:
                call.place = await self._preparer.place(call.identity, call.chat, call.switches, call.at)
            except MnemeError as error:
                if error.status >= 500:
                    raise
                # What would have been refused was answered meanwhile: it is nobody's turn, but it is a call.
                log.warning("a turn of no session", extra={"call_id": str(call.id), "reason": error.message})
        facts, exchange = self._accountant.close(call, response, ending, tape, self._clock.now())
        call.facts, call.recorded = facts, facts.captured or exchange is not None
        compiled = call.prepared.compilation if call.prepared else None
        if call.recorded:
            explained = call.prepared.facts if call.prepared and facts.captured else None
            await self._recorder.record(facts, exchange, explained)
        if compiled is not None:
            self._metrics.utilisation(compiled.eta)
        self._metrics.tokens(
            prompt=facts.usage.prompt or 0,
            completion=facts.usage.completion or 0,
            injected=compiled.tokens if compiled else 0,
        )
        log.info("answered", extra=facts_of(facts))
