"""Holds a key to its limits: one statement before the upstream is called, another after the end. Keys without pay nothing.

While the database is away, rates go on in every process by itself, and budgets are kept or let go as the settings say
(`MNEME_BUDGET_WITHOUT_DATABASE`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from app.capture.facts import CallFacts, Outcome
from app.clock import Clock
from app.errors import Forbidden, StoreUnavailable
from app.gateway.call import Parsed
from app.gateway.limits import Admission, Window, estimate, rate_headers, refusal
from app.metrics import Metrics
from app.providers.models import ModelRegistry
from app.settings import Settings
from app.store.limits import Estimate, Limits, LimitStore, Standing, Unrecorded
from app.tasks import Supervisor

log = logging.getLogger("mneme.turn")

LOCAL_KEYS = 10_000
"""Keys whose rates a process counts by itself, some 10 kB each at most; the one used longest ago is forgotten first."""

ASKS_NOTHING = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
"""Methods that call no model."""


class Limiter:
    """Admits calls, and settles them."""

    def __init__(
        self,
        ledger: LimitStore,
        models: ModelRegistry,
        *,
        metrics: Metrics,
        settings: Settings,
        clock: Clock,
        tasks: Supervisor,
    ) -> None:
        self._ledger = ledger
        self._models = models
        self._metrics = metrics
        self._clock = clock
        self._tasks = tasks
        self._patience_s = settings.pool_timeout_ms / 1000
        self._open = settings.budget_without_database == "open"
        self._local: OrderedDict[UUID, Window] = OrderedDict()

    @asynccontextmanager
    async def admitted(self, call: Parsed, document: Mapping[str, Any] | None) -> AsyncIterator[Parsed]:
        """The call, let in by the limits of its key; settled when it is over, however it ended. `document`: the body, where it
        is a JSON object.

        Raises RateLimited; Forbidden for a model that the key may not call; StoreUnavailable where a budget cannot be
        checked.
        """
        limits = call.principal.limits
        if limits is None:
            yield call
            return
        admission = await self._admit(call, limits, document)
        try:
            yield replace(call, admission=admission)
        finally:
            if admission is not None:
                self._finish(call, limits, admission)

    async def _admit(self, call: Parsed, limits: Limits, document: Mapping[str, Any] | None) -> Admission | None:
        """None: nothing is limited but which models it may call."""
        if not limits.allows(call.model) and call.method not in ASKS_NOTHING:
            named = f"the model {call.model[:100]!r}" if call.model else "a model that Mneme cannot read"
            raise Forbidden(f"This key may not call {named}.", param="model", code="model_not_found")
        if not (limits.rated or limits.budgeted):
            return None
        wanted = estimate(document, call.body_size or 0, reserve=self._reserve, cost=self._models.cost_microcents)
        standing, slot = await self._standing(call, limits, wanted)
        if standing.refused is not None:
            self._metrics.refused(standing.refused)
            raise refusal(limits, standing, wanted)
        return Admission(rate_headers(limits, standing), slot)

    async def _standing(self, call: Parsed, limits: Limits, wanted: Estimate) -> tuple[Standing, int | None]:
        principal = call.principal
        assert principal.key_id is not None, "only keys have limits"
        try:
            async with asyncio.timeout(self._patience_s):
                found = await self._ledger.admit(principal.tenant_id, principal.key_id, call.id, limits, wanted)
                return found, found.slot
        except (StoreUnavailable, TimeoutError) as error:
            self._metrics.degraded("limits")
            log.warning("limits without the database", extra={"call_id": str(call.id), "error": type(error).__name__})
            if limits.budgeted and not self._open:
                raise StoreUnavailable("The budget of this key cannot be checked at the moment; try again.") from error
        window = self._local.setdefault(principal.key_id, Window())
        self._local.move_to_end(principal.key_id)
        if len(self._local) > LOCAL_KEYS:
            self._local.popitem(last=False)
        return window.admit(limits, wanted.rate_tokens, self._clock.now().timestamp()), None

    def _reserve(self, model: str) -> int:
        return self._models.response_reserve(model, None)

    def _finish(self, call: Parsed, limits: Limits, admission: Admission) -> None:
        """Settles it beside everything else."""
        if admission.slot is None:
            return
        facts = admission.facts
        unasked = not admission.asked or (
            facts is not None and facts.status is None and facts.outcome == Outcome.FAILED
        )
        unrecorded = _unrecorded(facts) if facts is not None and not admission.recorded else None
        counted = limits.budgeted or limits.tokens_per_minute is not None
        if counted or unasked or unrecorded is not None:
            settling = self._settle(call, admission.slot, facts, unasked, unrecorded)
            self._tasks.spawn(settling, f"settle {call.id}")

    async def _settle(
        self, call: Parsed, slot: int, facts: CallFacts | None, unasked: bool, unrecorded: Unrecorded | None
    ) -> None:
        principal = call.principal
        assert principal.key_id is not None, "only keys have limits"
        try:
            await self._ledger.settle(
                principal.tenant_id,
                principal.key_id,
                call.id,
                slot,
                unasked=unasked,
                tokens=(facts.usage.prompt or 0) + (facts.usage.completion or 0) if facts is not None else 0,
                microcents=facts.cost_microcents if facts is not None else 0,
                unrecorded=unrecorded,
            )
        except StoreUnavailable as error:
            # What it reserved runs out by itself, and its record brings the budget up to date.
            log.warning("a call was not settled", extra={"call_id": str(call.id), "error": type(error).__name__})


def _unrecorded(facts: CallFacts) -> Unrecorded:
    usage = facts.usage
    return Unrecorded(
        user_id=facts.user_id,
        session_id=facts.session_id,
        model=facts.model.replace("\0", "\ufffd"),
        created_at=facts.created_at,
        prompt_tokens=usage.prompt or 0,
        completion_tokens=usage.completion or 0,
        cached_tokens=usage.cached or 0,
        priced=facts.priced,
    )
