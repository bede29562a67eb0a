"""Paging's part in chats: which calls are paged, and within what."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from app.clock import Clock
from app.dialects.base import ChatRequest
from app.features.paging.faults import FaultAnswers
from app.features.paging.pager import Pager, unpaged
from app.features.paging.state import Paging
from app.features.paging.tool_loop import Legs
from app.features.paging.values import expanded
from app.gateway.addon import PartAgain
from app.gateway.call import Forwarded, Parsed
from app.gateway.finalize import Finalizer
from app.gateway.forward import Forwarder
from app.gateway.identify import OnOff
from app.gateway.reconcile import Place
from app.metrics import Metrics
from app.settings import Settings
from app.store.tenancy import KeyLimits
from app.tasks import Supervisor


class PagingAddon:
    name = Paging.name

    def __init__(
        self,
        pager: Pager,
        answers: FaultAnswers,
        *,
        settings: Settings,
        metrics: Metrics,
        clock: Clock,
        tasks: Supervisor,
    ) -> None:
        self._pager = pager
        self._answers = answers
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._tasks = tasks

    async def compile(self, call: Parsed, chat: ChatRequest, place: Place) -> Paging | str | None:
        asked, limits = call.switches.paging, call.principal.limits
        if not is_paged(asked, place.config, limits, self._settings.paging):
            return None
        if (why := unpaged(chat, place)) is not None:
            return why
        began = time.perf_counter_ns()
        try:
            return await self._pager.page(call, chat, place, self._budget(place))
        finally:
            self._metrics.stage("page", (time.perf_counter_ns() - began) / 1e9, began)

    async def repeated(self, call: Parsed, sent: bytes, place: Place) -> Paging | None:
        return await self._pager.repeated(call, sent, place, self._budget(place))

    async def answered(self, call: Forwarded, forwarder: Forwarder, finalizer: Finalizer) -> Forwarded:
        paging = call.part
        if not isinstance(paging, Paging) or paging.names is None:
            return call
        legs = Legs(forwarder, finalizer, self._answers, self._metrics, self._clock, self._tasks)
        return await legs.joined(call, paging, paging.names)

    def thawed(self, frozen: Mapping[str, Any], tenant: UUID, user: UUID) -> Paging:
        return Paging.thawed(frozen, tenant, user)

    def shown(self, explained: Mapping[str, Any]) -> dict[str, Any]:
        return expanded(explained)

    async def again(
        self, tenant: UUID, user: UUID, session: UUID, chat: ChatRequest, model: str, explained: Mapping[str, Any]
    ) -> PartAgain | None:
        if "shown" not in explained:
            return None  # not paged: it says why
        return await self._pager.again(tenant, user, session, chat, model, explained)

    def _budget(self, place: Place) -> int | None:
        return paging_budget(place.config, self._settings.paging_budget_tokens)


def is_paged(asked: OnOff | None, config: Mapping[str, Any], limits: KeyLimits | None, setting: OnOff) -> bool:
    """Whether a request is paged, as the first that says so says: its header (`asked`), its session (`config`, as stored),
    its key (`limits`), the server (`setting`)."""
    own = config.get("paging")
    if asked is not None or own in ("on", "off"):
        return (asked or own) == "on"
    if limits is not None and limits.paging is not None:
        return limits.paging
    return setting == "on"


def paging_budget(config: Mapping[str, Any], setting: int | None) -> int | None:
    """Most tokens of a paged prompt: the session's, else the server's; None: what its model's window leaves."""
    own = config.get("paging_budget_tokens")
    return own if isinstance(own, int) else setting
