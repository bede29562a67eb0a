"""What memory adds to a request, within its deadline: whatever fails here, the request goes on."""

from __future__ import annotations

import asyncio
import logging
import time
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.context.resolution import Inquiry
from app.errors import MnemeError, StoreUnavailable, Unavailable
from app.gateway.addon import Addon, CallPart
from app.gateway.call import Forwarded, Keeper, Parsed, Remembered, aliased, grown
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.splice import with_value
from app.gateway.identify import EarlierAnswer, Identity, priced
from app.gateway.prepare import FAILED, NOTHING_TOLD, Obeyed, Obeys, Prepared, Preparer, explaining, ordered, unwoven
from app.gateway.reconcile import Place, nowhere
from app.gateway.search_queue import SearchQueue
from app.gateway.sharing import member
from app.metrics import MemoryStatus, Metrics
from app.patience import Breaker
from app.settings import Settings
from app.tasks import FailOpen

log = logging.getLogger("mneme.turn")

SILENT_REQUESTS = 3
"""Requests in a row whose first question the database leaves unanswered until their deadline, while it answers nobody else:
then it is frozen or cut off, and those that follow do not wait for it. Fewer may be one slow moment."""
SILENCE_S = 0.5
"""Seconds until a request asks a silent database again: a small part of the two seconds within which a pool recovers."""
KNOWING_SHARE = 0.8
"""Share of MNEME_RETRIEVAL_DEADLINE_MS after which a request waits no longer for the business's own database and for cards. Of
the default 500 ms, 100 remain for building the prompt, which takes some 3, or 30 on a busy processor."""

_POORER = {
    "busy": "no search of memory, for which the server has no time",
    "embeddings": "a search of memory by words alone",
    "entities": "names that were not looked up",
    "domain": "less than the domain's own database knows",
    "cards": "none of the cards that are asked for",
}


class _Recall(Struct):
    """What memory has to say of one call, as far as it is known: when something fails or is late, what is there goes on."""

    call: Parsed
    chat: ChatRequest
    identity: Identity
    sent: bytes
    status: MemoryStatus = "bypass"
    reason: str | None = None
    place: Place | None = None
    inquiry: Inquiry | None = None
    """What is being found out of the things that it names."""
    replay: EarlierAnswer | None = None
    part: CallPart | None = None
    """An addon's."""
    partless: tuple[str, str] | None = None
    """Of which addon it has none though that is asked for, and why."""
    obeyed: Obeyed = NOTHING_TOLD
    prepared: Prepared | None = None
    searched: bool = True
    """False: more searches came than there is time for."""
    asked_at: float | None = None
    """Monotonic seconds at which the request began to wait for the database's first answer; None: it waits no more."""

    def sends(self, prepared: Prepared) -> None:
        """What goes out is compiled."""
        self.prepared, self.sent = prepared, prepared.body
        if self.part is not None:
            self.part.compiled(prepared.compilation.tokens)
        elif self.partless is not None:
            addon, why = self.partless
            told = explaining(prepared.compilation, addon, {"reason": why})
            self.prepared = replace(prepared, compilation=told)

    def remembered(self) -> Remembered:
        """The call with it."""
        return grown(
            Remembered,
            self.call,
            identity=self.identity,
            sent=self.sent,
            status=self.status,
            reason=self.reason,
            place=self.place,
            replay=self.replay,
            prepared=self.prepared,
            part=self.part,
            obeyed=self.obeyed,
        )


class Augmenter:
    """Places a request in its conversation and compiles its context."""

    def __init__(
        self,
        preparer: Preparer,
        keeper: Keeper,
        metrics: Metrics,
        settings: Settings,
        addon: Addon | None = None,
        commander: Obeys | None = None,
    ) -> None:
        """`addon`: None where no feature takes part; `commander`: None where nothing is done that users tell memory to do."""
        self._preparer = preparer
        self._keeper = keeper
        self._addon = addon
        self._commander = commander
        self._metrics = metrics
        self._settings = settings
        self._deadline_s = settings.retrieval_deadline_ms / 1000
        self._searches = SearchQueue()
        self._database = Breaker(SILENT_REQUESTS, SILENCE_S)
        self._answered_at = 0.0
        """Monotonic seconds of the last first answer to any request: a busy processor is late, but it answers some."""

    async def remember(self, call: Parsed, chat: ChatRequest) -> Remembered:
        """Reconcile and compile within the deadline; else go on with what is there, and say so."""
        began = time.perf_counter_ns()
        made = _Recall(call, chat, call.identity, aliased(call))
        try:
            async with asyncio.timeout(self._deadline_s) as limit:
                await self._recall(made, limit)
        except Exception as error:  # boundary: memory must never keep a request from its answer
            if isinstance(error, MnemeError) and error.status < 500:
                raise
            if isinstance(error, TimeoutError) and not call.inbound.gone.is_set:
                self._preparer.late(call.identity)
                if made.asked_at is not None and made.asked_at > self._answered_at:
                    self._database.failed(time.monotonic())
            await self._without_search(made, error)
        else:
            if made.status != "degraded":  # for what an addon could not do
                made.status = "ok"
            if made.prepared is not None and (poorer := made.prepared.compilation.reason if made.searched else "busy"):
                made.status, made.reason = "degraded", poorer
                self._metrics.degraded(poorer)
                log.warning(
                    "answering with " + _POORER.get(poorer, "less"), extra={"call_id": str(call.id), "reason": poorer}
                )
            self._took("remember", began)
        return made.remembered()

    def forgone(self, call: Forwarded) -> Forwarded:
        """The call, which goes out as its client wrote it, for the upstream refused the compiled prompt for its length."""
        refused = Unavailable("The upstream refused the compiled prompt for its length.")
        self._degraded(call.id, "too-long", refused, "memory")
        return replace(call, status="degraded", reason="too-long")

    async def _recall(self, made: _Recall, limit: asyncio.Timeout) -> None:
        """What memory has to say: the very body of before for a repeated Idempotency-Key, else a compiled one. `limit`: waits
        for an addon, which has a limit of its own."""
        call, chat = made.call, made.chat
        until = time.monotonic() + KNOWING_SHARE * self._deadline_s
        if self._database.admit(time.monotonic()):
            raise StoreUnavailable("The database did not answer the requests before this one.")
        made.asked_at = time.monotonic()
        if self._keeper.behind(call.identity.user_id):
            await self._keeper.caught_up(call.identity.user_id)
        made.replay = await self._preparer.replay(call.identity, chat)
        if made.replay is not None:
            made.identity = replace(call.identity, repeats=True)
        began = time.perf_counter_ns()
        if made.replay is not None and made.replay.body is not None:
            made.place = await self._preparer.place(made.identity, chat, call.switches, call.at)
            self._note_answer(made)
            made.identity = member(made.identity, chat, made.place)
            self._took("reconcile", began)
            named = call.target.model_alias or call.model  # it may have gone to another upstream
            made.sent = with_value(made.replay.body, "model", named) if named is not None else made.replay.body
            made.reason = "replayed"
            if self._addon is not None:
                made.part = await self._addon.repeated(call, made.sent, made.place)
            return
        left_s = max(0.0, until - time.monotonic())
        place, made.inquiry = await self._preparer.find(made.identity, chat, call.switches, call.at, left_s)
        made.place = place
        self._note_answer(made)
        made.identity = member(made.identity, chat, place)
        self._took("reconcile", began)
        if (when := limit.when()) is not None:
            paused = asyncio.get_running_loop().time()
            limit.reschedule(None)
            place = await self._obey(made, place)
            await self._add(made, place)
            waited_s = asyncio.get_running_loop().time() - paused
            limit.reschedule(when + waited_s)
            until += waited_s
        began = time.perf_counter_ns()
        prepared = await self._searched(made, place, until)
        self._took("compile", began)
        made.sends(prepared)
        made.reason = made.reason or ("no-user" if call.identity.confined else None)
        if chat.follows is not None and place.how == "new":
            made.reason = "unknown-response"

    def _note_answer(self, made: _Recall) -> None:
        """Note that the database answers."""
        made.asked_at = None
        self._answered_at = time.monotonic()
        self._database.succeeded()

    async def _searched(self, made: _Recall, place: Place, until: float) -> Prepared:
        """Return the prompt compiled with a search, or without one where it was shed (`made.searched`)."""
        turn = self._searches.enter(time.monotonic())
        try:
            await turn.decided.wait()
            made.searched = turn.admitted
            return await self._preparer.compile(
                made.identity,
                made.chat,
                place,
                made.call.target,
                made.call.at,
                search=made.searched,
                profile=made.call.switches.profile,
                price=priced(made.call.switches.price, made.call.principal.limits),
                learns=made.call.switches.memory == "on",
                inquiry=made.inquiry,
                deadline_s=max(0.0, until - time.monotonic()),
                part=made.part,
                obeyed=made.obeyed,
            )
        finally:
            self._searches.leave(turn, time.monotonic())

    async def _obey(self, made: _Recall, place: Place) -> Place:
        """What the message tells memory to do, done. What was found before it is found anew: the place as it is then."""
        call, chat = made.call, made.chat
        if self._commander is None:
            return place
        await self._commander.ready(chat)
        if not self._commander.concerned(chat):
            return place
        began = time.perf_counter_ns()
        writes = call.switches.memory == "on" and call.principal.allows("write")
        made.obeyed = await self._commander.obey(made.identity, chat, place, call.at, writes=writes)
        if made.obeyed.changed:
            again = await self._preparer.place(made.identity, chat, call.switches, call.at)
            place = replace(again, session_id=place.session_id, retrieval_session=place.retrieval_session)
            made.place = place
        self._took("command", began)
        return place

    async def _add(self, made: _Recall, place: Place) -> None:
        """What an addon makes of it, where that is asked for; without, it goes on."""
        call, addon = made.call, self._addon
        if addon is None:
            return
        without = FailOpen(log.warning, f"answering without {addon.name}", call_id=str(call.id), reason=addon.name)
        with without:
            found = await addon.compile(call, made.chat, place)
        if without.error is not None:
            found = "deadline" if isinstance(without.error, TimeoutError) else "failed"
            made.status, made.reason = "degraded", addon.name
            self._metrics.degraded(addon.name)
        if isinstance(found, str):
            made.partless = (addon.name, found)
        else:
            made.part = found

    async def _without_search(self, made: _Recall, error: Exception) -> None:
        """Where the place is known: the session's history and earlier blocks need no search, and no database."""
        call, chat, place = made.call, made.chat, made.place
        if made.obeyed is NOTHING_TOLD and self._commander is not None and ordered(chat):
            made.obeyed = FAILED
            # Where the conversation stands is not known: the model is told, and the rest is for when the turn is stored.
            place = place or nowhere(made.identity, call.at)
        if place is not None and not (made.replay is not None and made.replay.answered):
            with FailOpen(log.info, "no history either", call_id=str(call.id)):
                # A prompt that takes long to count has as much time once more.
                async with asyncio.timeout(self._deadline_s):
                    prepared = await self._preparer.compile(
                        made.identity,
                        chat,
                        place,
                        call.target,
                        call.at,
                        search=False,
                        inquiry=made.inquiry,
                        part=made.part,
                        obeyed=made.obeyed,
                    )
                made.sends(prepared)
        if made.part is not None and made.prepared is None and made.replay is None:
            made.sent = unwoven(chat, call.target.model_alias, made.part.insertions)
        made.status, made.reason = "degraded", _missing(error)
        self._degraded(call.id, made.reason, error, "memory" if made.prepared is None else "a search of memory")

    def _degraded(self, call_id: UUID, reason: str, error: BaseException, lacking: str) -> None:
        self._metrics.degraded(reason)
        log.warning(
            f"answering without {lacking}",
            extra={"call_id": str(call_id), "reason": reason, "error": type(error).__name__},
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
