"""What memory adds to a request, within its deadline: whatever fails here, the request goes on."""

from __future__ import annotations

import asyncio
import logging
import time

from msgspec.structs import replace

from app.context.audit import Explained
from app.dialects.base import ChatRequest
from app.dialects.splice import with_value
from app.errors import MnemeError, StoreUnavailable, Unavailable
from app.gateway.call import Call
from app.gateway.commands import FAILED, NOTHING_TOLD, Commander, ordered
from app.gateway.identify import paged, paging_budget, priced
from app.gateway.pager import Pager, unpaged
from app.gateway.prepare import Prepared, Preparer, unwoven
from app.gateway.reconcile import Place, nowhere
from app.gateway.spooling import Keeper
from app.metrics import Metrics
from app.paging.plan import settled
from app.settings import Settings

log = logging.getLogger("mneme.turn")

KNOWING_SHARE = 0.8
"""Of MNEME_RETRIEVAL_DEADLINE_MS, until when the business's own database, and cards, are waited for: of 50 ms it leaves 10 for
putting the prompt together, which takes some 3."""

_POORER = {
    "embeddings": "a search of memory by words alone",
    "entities": "names that were not looked up",
    "domain": "less than the domain's own database knows",
    "cards": "none of the cards that are asked for",
}


class Recaller:
    """Places a request in its conversation and compiles its context."""

    def __init__(
        self,
        preparer: Preparer,
        keeper: Keeper | None,
        metrics: Metrics,
        settings: Settings,
        pager: Pager | None = None,
        commander: Commander | None = None,
    ) -> None:
        """`keeper`: None where there is no spool; `pager`: None where nothing is paged; `commander`: None where nothing is done
        that users tell memory to do."""
        self._preparer = preparer
        self._keeper = keeper
        self._pager = pager
        self._commander = commander
        self._metrics = metrics
        self._settings = settings
        self._deadline_s = settings.retrieval_deadline_ms / 1000

    async def remember(self, call: Call, chat: ChatRequest) -> None:
        """Reconcile and compile within the deadline; else go on with what is there, and say so."""
        began = time.perf_counter_ns()
        try:
            async with asyncio.timeout(self._deadline_s) as limit:
                await self._recall(call, chat, limit)
        except Exception as error:  # boundary: memory must never keep a request from its answer
            if isinstance(error, MnemeError) and error.status < 500:
                raise
            if isinstance(error, TimeoutError) and not call.inbound.gone.is_set:
                self._preparer.late(call.identity)
            await self._without_search(call, chat, error)
        else:
            if call.status != "degraded":  # for a prompt that could not be paged
                call.status = "ok"
            if call.prepared is not None and call.prepared.compilation.reason is not None:
                call.status, call.reason = "degraded", call.prepared.compilation.reason
                self._metrics.degraded(call.reason)
                log.warning(
                    "answering with " + _POORER.get(call.reason, "less"),
                    extra={"call_id": str(call.id), "reason": call.reason},
                )
            self._took("remember", began)

    async def _recall(self, call: Call, chat: ChatRequest, limit: asyncio.Timeout) -> None:
        """What memory has to say: the very body of before for a repeated Idempotency-Key, else a compiled one. `limit`: waits
        while the prompt is paged, which has a limit of its own."""
        until = time.monotonic() + KNOWING_SHARE * self._deadline_s
        if self._keeper is not None and self._keeper.behind(call.identity.user_id):
            await self._keeper.caught_up(call.identity.user_id)
        call.replay = await self._preparer.replay(call.identity, chat)
        if call.replay is not None:
            call.identity = replace(call.identity, repeats=True)
        began = time.perf_counter_ns()
        if call.replay is not None and call.replay.body is not None:
            call.place = await self._preparer.place(call.identity, chat, call.switches, call.at)
            self._took("reconcile", began)
            named = call.target.model_alias or call.model  # it may have gone to another upstream
            call.sent = with_value(call.replay.body, "model", named) if named is not None else call.replay.body
            call.reason = "replayed"
            if self._pager is not None:
                budget = paging_budget(call.place.config, self._settings.paging_budget_tokens)
                call.paging = await self._pager.repeated(call, call.place, budget)
            return
        left_s = max(0.0, until - time.monotonic())
        call.place, call.inquiry = await self._preparer.find(call.identity, chat, call.switches, call.at, left_s)
        self._took("reconcile", began)
        if (when := limit.when()) is not None:
            paused = asyncio.get_running_loop().time()
            limit.reschedule(None)
            await self._obey(call, chat, call.place)
            await self._page(call, chat, call.place)
            waited_s = asyncio.get_running_loop().time() - paused
            limit.reschedule(when + waited_s)
            until += waited_s
        began = time.perf_counter_ns()
        prepared = await self._preparer.compile(
            call.identity,
            chat,
            call.place,
            call.target,
            call.at,
            profile=call.switches.profile,
            price=priced(call.switches.price, call.principal.limits),
            learns=call.switches.memory == "on",
            inquiry=call.inquiry,
            deadline_s=max(0.0, until - time.monotonic()),
            paging=call.paging,
            obeyed=call.obeyed,
        )
        self._took("compile", began)
        self._sends(call, prepared)
        call.reason = call.reason or ("no-user" if call.identity.confined else None)
        if chat.follows is not None and call.place.how == "new":
            call.reason = "unknown-response"

    async def _obey(self, call: Call, chat: ChatRequest, place: Place) -> None:
        """What the message tells memory to do, done. What was found before it is found anew."""
        if self._commander is None:
            return
        await self._commander.ready(chat)
        if not self._commander.concerned(chat):
            return
        began = time.perf_counter_ns()
        writes = call.switches.memory == "on" and call.principal.allows("write")
        call.obeyed = await self._commander.obey(call.identity, chat, place, call.at, writes=writes)
        if call.obeyed.changed:
            again = await self._preparer.place(call.identity, chat, call.switches, call.at)
            call.place = replace(again, session_id=place.session_id, retrieval_session=place.retrieval_session)
        self._took("command", began)

    async def _page(self, call: Call, chat: ChatRequest, place: Place) -> None:
        """What of the prompt is shown shorter, where that is asked for; without, it goes on whole."""
        settings, limits = self._settings, call.principal.limits
        if self._pager is None or not paged(call.switches.paging, place.config, limits, settings.paging):
            return
        call.unpaged = unpaged(chat, place)
        if call.unpaged is not None:
            return
        began = time.perf_counter_ns()
        try:
            budget = paging_budget(place.config, settings.paging_budget_tokens)
            call.paging = await self._pager.page(call, chat, place, budget)
        except Exception as error:  # boundary: as `remember`
            call.unpaged = "deadline" if isinstance(error, TimeoutError) else "failed"
            call.status, call.reason = "degraded", "paging"
            self._metrics.degraded("paging")
            log.warning(
                "answering without paging",
                extra={"call_id": str(call.id), "reason": "paging", "error": type(error).__name__},
                exc_info=None if isinstance(error, TimeoutError | StoreUnavailable) else error,
            )
        self._took("page", began)

    def _sends(self, call: Call, prepared: Prepared) -> None:
        """What goes out is compiled."""
        call.prepared, call.sent = prepared, prepared.body
        if call.paging is not None:
            settled(call.paging, prepared.compilation.tokens)
        elif call.unpaged is not None:
            compiled = prepared.compilation
            told = replace(compiled, audit=Explained({**compiled.audit, "paging": {"reason": call.unpaged}}))
            call.prepared = replace(prepared, compilation=told)

    async def _without_search(self, call: Call, chat: ChatRequest, error: Exception) -> None:
        """Where the place is known: the session's history and earlier blocks need no search, and no database."""
        place = call.place
        if call.obeyed is NOTHING_TOLD and self._commander is not None and ordered(chat):
            call.obeyed = FAILED
            # Where the conversation stands is not known: the model is told, and the rest is for when the turn is stored.
            place = place or nowhere(call.identity, call.at)
        if place is not None and not call.answered_before:
            try:
                # A prompt that takes long to count has as much time once more.
                async with asyncio.timeout(self._deadline_s):
                    prepared = await self._preparer.compile(
                        call.identity,
                        chat,
                        place,
                        call.target,
                        call.at,
                        search=False,
                        inquiry=call.inquiry,
                        paging=call.paging,
                        obeyed=call.obeyed,
                    )
                self._sends(call, prepared)
            except Exception as again:  # boundary: as above; what fails here only leaves more out
                log.info("no history either", extra={"call_id": str(call.id)}, exc_info=again)
        if call.paging is not None and call.prepared is None and call.replay is None:
            call.sent = unwoven(chat, call.target.model_alias, call.paging.insertions)
        self.degrade(call, _missing(error), error)

    def degrade(self, call: Call, reason: str, error: BaseException) -> None:
        call.status, call.reason = "degraded", reason
        self._metrics.degraded(reason)
        log.warning(
            "answering without memory" if call.prepared is None else "answering without a search of memory",
            extra={"call_id": str(call.id), "reason": reason, "error": type(error).__name__},
            exc_info=error if reason == "memory" else None,
        )

    def _took(self, stage: str, began_ns: int) -> None:
        self._metrics.stage(stage, (time.perf_counter_ns() - began_ns) / 1e9, began_ns)


def _missing(error: Exception) -> str:
    """What there was not, as `x-mneme-reason` calls it."""
    if isinstance(error, TimeoutError):
        return "deadline"
    if isinstance(error, StoreUnavailable):
        return "store"
    return "embeddings" if isinstance(error, Unavailable) else "memory"
