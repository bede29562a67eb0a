"""The paging of a captured call, done again: what was decided then, on the objects of now. Nothing is decided anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from app.clock import Clock
from app.context.assemble import session_nonce
from app.dialects.base import ChatRequest
from app.features.paging.body import HiddenLegs, keys_of
from app.features.paging.faults import FaultAnswers
from app.features.paging.pager import Pager, unpaged, with_texts
from app.features.paging.prompt import Renderings, costs_of, draw, messages_at, places, sheet
from app.features.paging.state import Paging
from app.features.paging.store import PagingStore
from app.features.paging.tool_loop import Legs
from app.features.paging.tools import ToolInsertion, offer
from app.features.paging.values import RecordedDecision, expanded, read
from app.gateway.addon import PartAgain
from app.gateway.call import Forwarded, Parsed
from app.gateway.finalize import Finalizer
from app.gateway.forward import Forwarder
from app.gateway.identify import OnOff
from app.gateway.reconcile import Place
from app.metrics import Metrics
from app.providers.tokens import CountCache, Tokenizers
from app.settings import Settings
from app.store.tenancy import KeyLimits
from app.tasks import Supervisor


class RecordedPager:
    """Pages captured calls again."""

    def __init__(
        self, store: PagingStore, tokenizers: Tokenizers, counts: CountCache, *, nonce_key: Callable[[], bytes]
    ) -> None:
        self._store = store
        self._tokenizers = tokenizers
        self._counts = counts
        self._nonce_key = nonce_key

    async def again(
        self, tenant: UUID, user: UUID, session: UUID, chat: ChatRequest, model: str, part: Mapping[str, Any]
    ) -> PartAgain:
        """`part`: the `paging` part of the call's explanation. Raises StoreUnavailable."""
        then = read(part)
        counter = self._tokenizers.for_model(model)
        keys = keys_of(chat.transcript)
        wanted = {key: at for key, at in keys.items() if at in then.exchanges}
        state = await self._store.read(tenant, user, session, chains=list(wanted))
        objects = [replace(each, fidelity=then.shown[each.id]) for each in state.objects if each.id in then.shown]
        objects = await with_texts(self._store, tenant, user, objects)
        hidden = {
            wanted[key]: _as_told(HiddenLegs.of_json(row), then, wanted[key]) for key, row in state.hidden.items()
        }
        where = places(messages_at(chat.transcript), objects)
        page = sheet(chat, costs_of(chat, counter, self._counts), objects, where, hidden, 0, counter, self._counts)
        nonce = session_nonce(self._nonce_key(), session)
        drawn = draw(page, page.objects, nonce, Renderings(), counter, self._counts)
        insertions = list(drawn.insertions)
        schemas: list[object] = []
        if then.tools and isinstance(made := offer(chat), ToolInsertion):
            insertions += made.insertions
            schemas = [made.tools]
        return PartAgain(insertions, drawn.costs, schemas, _lost(then, len(page.objects), len(hidden)))


def _as_told(hidden: HiddenLegs, then: RecordedDecision, at: int) -> HiddenLegs:
    """The exchange as it stood then: calls beside the client's own may have been answered since."""
    return hidden if then.exchanges[at] else replace(hidden, told=None)


def _lost(then: RecordedDecision, objects: int, exchanges: int) -> list[str]:
    told = []
    if objects < len(then.shown):
        told.append(f"Of the objects that were shown shorter {len(then.shown) - objects} are not stored any more.")
    if exchanges < len(then.exchanges):
        told.append(
            f"Of its exchanges with the memory tools {len(then.exchanges) - exchanges} are not stored any more."
        )
    return told


# --- Paging's part in chats: which calls are paged, within what; and what the addon of a server is made of.


class PagingAddon:
    """See `Addon`."""

    name = Paging.name

    def __init__(
        self,
        pager: Pager,
        answers: FaultAnswers,
        then: RecordedPager,
        *,
        settings: Settings,
        metrics: Metrics,
        clock: Clock,
        tasks: Supervisor,
    ) -> None:
        """`answers`: what models ask; `then`: for calls that are compiled again."""
        self._pager = pager
        self._answers = answers
        self._then = then
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
        legs = Legs(forwarder, finalizer, self._answers, metrics=self._metrics, clock=self._clock, tasks=self._tasks)
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
        return await self._then.again(tenant, user, session, chat, model, explained)

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
