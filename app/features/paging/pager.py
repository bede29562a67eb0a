"""What of a call's prompt is shown shorter: the session's objects, the exchanges of its ledger, and the tools to ask for what
was left out. All of it in the client's own bytes; what it decided is written with the turn.

One round trip reads what is stored of the session; a second one is made only in a turn that shows something at L1 or L2 that
was shown otherwise before. Long texts are looked at in a thread.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.clock import Clock
from app.context.assemble import locate, session_nonce
from app.context.budget import SHARES, TaskType
from app.context.transcript import LONG_TEXT, text_of
from app.errors import StoreUnavailable
from app.features.paging.body import HiddenLegs, keys_of
from app.features.paging.faults import FaultAnswers
from app.features.paging.fidelity import TARGET, applied
from app.features.paging.prompt import (
    LEFT_OUT,
    FixedTokens,
    PagedRequest,
    Plan,
    ReceivedRequest,
    Renderings,
    TranscriptObjects,
    Where,
    costs_of,
    draw,
    fill,
    first_turn,
    messages_at,
    places,
    plan,
    sheet,
)
from app.features.paging.segment import Segmentation, segment
from app.features.paging.state import Paging
from app.features.paging.store import PagingStore
from app.features.paging.summaries import by_structure
from app.features.paging.tool_loop import Legs
from app.features.paging.tools import PAGED, Names, ToolInsertion, offer
from app.features.paging.values import (
    NOTHING_PAGED,
    Fidelity,
    Levels,
    Paged,
    PagingRecord,
    SemanticObject,
    expanded,
    handle_of,
)
from app.gateway.call import Forwarded, Parsed
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.splice import parse_object
from app.gateway.finalize import Finalizer
from app.gateway.forward import Forwarder
from app.gateway.identify import OnOff
from app.gateway.prepare import live_blocks
from app.gateway.reconcile import Place
from app.metrics import Metrics
from app.providers.models import ModelRegistry
from app.providers.tokens import REPLY_TOKENS, STORED_COUNTS, CountCache, TokenCounter, Tokenizers
from app.settings import Settings
from app.store.tenancy import KeyLimits
from app.tasks import Supervisor

log = logging.getLogger("mneme.paging")

ROUNDS = 3
"""Decisions on one prompt: a later one knows what the one before really cost, where that was over the budget."""
SHRINKING_SHARE = 0.3
"""Share of the deadline in which a request itself makes L1 and L2: some 60,000 tokens of objects with the default of 1,000 ms
(5 µs a token). Objects that it does not reach stay whole, or go to L3 if the prompt is still critically full."""
ANSWERING_SHARE = 0.5
"""Of the deadline, for which calls that wait in the ledger are answered; those that are not wait for the next request."""

T = TypeVar("T")


class _Run(Struct):
    call: Parsed
    chat: ChatRequest
    place: Place
    counter: TokenCounter
    budget: int
    window: int
    long: bool = False
    """Its text is looked at in a thread."""
    state: Paged = NOTHING_PAGED
    first: int = 0
    made: Segmentation | None = None
    given_up: bool = False
    """The request has gone on without; what is new in it is still kept."""
    kept: bool = False

    @property
    def tenant(self) -> UUID:
        return self.call.identity.tenant_id

    @property
    def turn(self) -> int:
        return self.first + len(self.chat.transcript.answered)

    def record(self, **of: Any) -> PagingRecord:
        return PagingRecord(
            self.place.session_id, self.turn, self.state.zone, self.budget, 0, 0, self.state.offered, **of
        )


class Pager:
    def __init__(
        self,
        store: PagingStore,
        answers: FaultAnswers,
        models: ModelRegistry,
        tokenizers: Tokenizers,
        counts: CountCache,
        tasks: Supervisor,
        *,
        nonce_key: Callable[[], bytes],
        memory_cap: int,
        deadline_s: float,
    ) -> None:
        """`nonce_key`, `memory_cap`: as the compiler has them. `deadline_s`: how long a request waits."""
        self._store = store
        self._answers = answers
        self._models = models
        self._tokenizers = tokenizers
        self._counts = counts
        self._tasks = tasks
        self._nonce_key = nonce_key
        self._cap = memory_cap
        self._deadline_s = deadline_s
        self._shrinking_share = SHRINKING_SHARE
        self._renderings = Renderings()
        self._stored = tokenizers.for_model(STORED_COUNTS)

    async def page(self, call: Parsed, chat: ChatRequest, place: Place, budget: int | None = None) -> Paging:
        """What is shown of a prompt of at most `budget` tokens (None: as much as the window has beside the answer). Raises
        TimeoutError and StoreUnavailable; what was segmented by then, or is later, is kept for the next request."""
        run = self._run(call, chat, chat, place, budget)
        run.long = sum(len(text_of(each)) for each in chat.messages) > LONG_TEXT
        done = False
        try:
            async with asyncio.timeout(self._deadline_s):
                paging = await self._page(run)
            done = True
            return paging
        finally:
            run.given_up = not done
            if run.given_up and run.made is not None:
                self._tasks.spawn(self._keep(run), f"keep objects of {call.id}")

    async def repeated(self, call: Parsed, sent: bytes, place: Place, most: int | None = None) -> Paging | None:
        """For a body (`sent`) that goes out once more as it was: what its model may ask. None where it has no tools of ours.
        `most`: as for `page`."""
        if Names().query.encode() not in sent:  # which any name of ours has in it: most bodies need not be read
            return None
        own, document = call.chat, parse_object(sent)
        if own is None or document is None or not isinstance(made := offer(own), ToolInsertion):
            return None
        chat = own.dialect.read(sent, document)
        if chat is None or not all(each in document.get("tools", ()) for each in made.tools):
            return None
        run = self._run(call, own, chat, place, most)
        try:
            run.state = await self._store.read(run.tenant, place.user_id, place.session_id)
        except StoreUnavailable as error:  # its tools stand in it: what is called is answered as well as can be
            log.info("nothing is known of what it may ask", extra={"call_id": str(call.id)}, exc_info=error)
        state = run.state
        where = places(messages_at(own.transcript), state.objects)
        run.first = first_turn(own.transcript, state.objects, where)
        paging = self._begun(run, state.objects, where)
        spent = sum(costs_of(chat, run.counter, self._counts))
        paging.names, paging.room, paging.scale = made.names, max(0, run.budget - spent), 1.0 + run.counter.margin
        paging.record = replace(paging.record, tokens=spent, shown_tokens=spent, decided=False)
        return paging

    def _run(self, call: Parsed, chat: ChatRequest, sent: ChatRequest, place: Place, most: int | None) -> _Run:
        """`sent`: by whose model and answer the room is; `most`: see `page`."""
        model = call.target.model_alias or sent.model
        reserve = self._models.response_reserve(model, sent.answer_limit)
        room = max(0, self._models.window(model) - reserve)
        budget = min(room, most) if most is not None else room
        return _Run(call, chat, place, self._tokenizers.for_model(model), budget, budget + reserve)

    async def _page(self, run: _Run) -> Paging:
        place, chat = run.place, run.chat
        keys = keys_of(chat.transcript)
        if not place.new:
            run.state = await self._store.read(run.tenant, place.user_id, place.session_id, chains=list(keys))
        taken = await self._beside(run, lambda: self._read(run))
        hidden = {
            keys[key]: HiddenLegs.of_json(row)
            for key, row in run.state.hidden.items()
            if key in keys and not row.get(LEFT_OUT)
        }
        paging = self._begun(run, taken.objects, taken.where)
        if any(each.pending and _is_answered(chat, at) for at, each in hidden.items()):
            hidden = await self._answered(run, paging, hidden)
        page = await self._beside(
            run,
            lambda: sheet(chat, taken.costs, taken.objects, taken.where, hidden, run.first, run.counter, self._counts),
        )
        await self._decided(run, paging, page, taken)
        return paging

    def _read(self, run: _Run) -> TranscriptObjects:
        """Takes apart what is new in the transcript, and counts its messages."""
        chat, state = run.chat, run.state
        at = messages_at(chat.transcript)
        where = places(at, state.objects)
        run.first = first_turn(chat.transcript, state.objects, where)
        made = run.made = segment(
            run.place.session_id,
            chat.messages,
            chat.transcript,
            self._stored.count,
            known=state.marks,
            objects=state.objects,
            first_turn=run.first,
        )
        return TranscriptObjects(
            made,
            [*state.objects, *made.objects],
            {**where, **places(at, made.objects)},
            costs_of(chat, run.counter, self._counts),
        )

    def _begun(self, run: _Run, objects: Sequence[SemanticObject], where: Where) -> Paging:
        """The paging of a call of which nothing is decided yet: all is shown as it was."""
        return Paging(
            run.tenant,
            run.place.user_id,
            run.place.session_id,
            run.turn,
            run.budget,
            run.state,
            run.record(),
            objects=[each for each in objects if each.id in where],
            handles={handle_of(each.id): each.id for each in objects},  # of two with one handle the newer
        )

    async def _answered(self, run: _Run, paging: Paging, hidden: Mapping[int, HiddenLegs]) -> dict[int, HiddenLegs]:
        """The exchanges with the calls answered that stand beside calls of the client's own: it has come back with the results
        of these."""
        told = dict(hidden)
        chains = run.chat.transcript.chains
        paging.room = max(0, run.budget - sum(each.tokens_at(each.fidelity) for each in paging.objects))
        for at, each in hidden.items():
            if not each.pending or not _is_answered(run.chat, at):
                continue
            try:
                async with asyncio.timeout(ANSWERING_SHARE * self._deadline_s):
                    texts = await self._answers.answer(paging, each.beside)
            except TimeoutError:
                log.info("calls beside the client's wait for the next request", extra={"call_id": str(run.call.id)})
                continue
            told[at] = each.answered(self._answers.remembered(texts))
            chain = chains[at]
            assert chain is not None, "an answer has a chain hash"
            paging.record = replace(paging.record, hidden={**paging.record.hidden, chain: told[at].as_json()})
        return told

    async def _decided(self, run: _Run, paging: Paging, page: ReceivedRequest, taken: TranscriptObjects) -> None:
        """Which objects are shown how, and the bytes of it."""
        counts, counter = self._counts, run.counter
        offered = offer(run.chat)
        beside = FixedTokens(
            REPLY_TOKENS + sum(counts.tools(each, counter) for each in run.chat.schemas if each),
            counts.tools(offered.tools, counter) if isinstance(offered, ToolInsertion) else 0,
            self._memory(run),
        )
        nonce = session_nonce(self._nonce_key(), run.place.session_id)
        measured = await self._beside(run, lambda: self._measured(page, nonce, counter))
        made = await self._beside(run, lambda: plan(measured, run.state, taken, paging.faults, run.budget, beside))
        levels: Mapping[UUID, Levels] = {}
        if made.decision.lacking:
            levels = await self._create_levels(run, page, made)
            measured = replace(measured, objects=[with_levels(candidate, levels) for candidate in measured.objects])
            made = await self._beside(run, lambda: plan(measured, run.state, taken, paging.faults, run.budget, beside))
        for again in reversed(range(ROUNDS)):
            shown = applied(made.page.objects, made.decision, made.moment)
            shown = await with_texts(self._store, run.tenant, run.place.user_id, shown)
            drawn = await self._drawn(run, made.page, shown, nonce)
            if not again or not made.dearer(sum(drawn.costs) + sum(beside)):
                break
        fill(paging, made, taken, shown, drawn, offered, beside, run.window)
        paging.record = replace(paging.record, levels=tuple(levels.values()))

    async def _create_levels(self, run: _Run, page: ReceivedRequest, made: Plan) -> dict[UUID, Levels]:
        """Make L1 and L2 by structure for the objects in `decision.lacking` (seed 002 §3.2 a).

        Objects are taken in the order of the batch, until enough tokens are freed or the time is over.
        """
        lacking = made.decision.lacking
        objects = {candidate.id: candidate for candidate in page.objects}
        unread = {key: Fidelity.FULL for key in lacking if not objects[key].content}
        contents = await self._store.texts(run.tenant, run.place.user_id, unread) if unread else {}
        ends = time.monotonic() + self._shrinking_share * self._deadline_s
        sizes = [made.page.size(candidate, candidate.fidelity) for candidate in made.page.objects]
        whole_tokens = made.moment.other_tokens + sum(sizes)
        needed = whole_tokens - TARGET * run.budget

        def shorten() -> dict[UUID, Levels]:
            levels: dict[UUID, Levels] = {}
            freed = 0.0
            for key in lacking:
                if freed >= needed or time.monotonic() >= ends:
                    break
                content = objects[key].content or contents.get(key, "")
                if content:
                    whole = replace(objects[key], content=content)
                    levels[key] = by_structure(whole, self._stored.count)
                    shorter = levels[key].detailed
                    freed += (whole.tokens_l0 - shorter.tokens) * page.scale if shorter is not None else 0.0
            return levels

        return await self._beside(run, shorten)

    async def _drawn(
        self, run: _Run, page: ReceivedRequest, shown: Sequence[SemanticObject], nonce: str
    ) -> PagedRequest:
        return await self._beside(run, lambda: draw(page, shown, nonce, self._renderings, run.counter, self._counts))

    def _measured(self, page: ReceivedRequest, nonce: str, counter: TokenCounter) -> ReceivedRequest:
        """With the tokens of the objects that are shown in short already."""
        measured = {
            each.id: self._renderings.of(each, each.fidelity, nonce, counter, page.names).tokens
            for each in page.objects
            if each.fidelity > Fidelity.FULL and len(each.parts) == 1
        }
        return replace(page, measured=measured)

    def _memory(self, run: _Run) -> int:
        """Tokens that memory may add: the blocks that stay in the prompt, and one as large as the cap allows. It is the same
        within a tool loop, where none is added: else each turn's end would be another zone than its beginning."""
        found = run.place.recognised
        live = 0
        if found is not None and run.place.how != "branch" and run.call.target.placement == "tail":
            live = sum(each.token_count for _, each in locate(live_blocks(found), run.chat.transcript))
        return live + min(self._cap, run.budget * SHARES[TaskType.CONTINUATION][0] // 100)

    async def _beside(self, run: _Run, work: Callable[[], T]) -> T:
        """In a thread, where there is much to look at. What a thread began it ends, whoever still waits for it."""
        if not run.long:
            return work()
        return await asyncio.shield(self._tasks.spawn(self._ended(run, work), f"page {run.call.id}"))

    async def _ended(self, run: _Run, work: Callable[[], T]) -> T:
        made = await asyncio.to_thread(work)
        if run.given_up:
            await self._keep(run)
        return made

    async def _keep(self, run: _Run) -> None:
        """Stores what is new in a transcript whose request was not paged."""
        if run.kept or run.made is None:
            return
        run.kept = True
        made = run.made
        new = {"objects": made.objects, "relationships": made.relationships, "admissions": made.admissions}
        try:
            await self._store.keep(run.tenant, run.place.user_id, run.call.id, run.record(marks=made.marks, **new))
        except StoreUnavailable as error:
            log.info("objects are not kept", extra={"call_id": str(run.call.id)}, exc_info=error)


async def with_texts(
    store: PagingStore, tenant: UUID, user: UUID, objects: list[SemanticObject]
) -> list[SemanticObject]:
    """The objects with the texts of levels at which they were not shown before. Raises StoreUnavailable."""
    wanted = {
        each.id: each.fidelity
        for each in objects
        if each.fidelity in (Fidelity.DETAILED, Fidelity.COMPACT) and not each.text_at(each.fidelity)
    }
    if not wanted:
        return objects
    texts = await store.texts(tenant, user, wanted)
    return [_with_text(each, texts) if each.id in wanted else each for each in objects]


def with_levels(made: SemanticObject, levels: Mapping[UUID, Levels]) -> SemanticObject:
    """Return an object with the L1 and L2 that were made of it; itself where there are none."""
    new = levels.get(made.id)
    if new is None:
        return made
    return replace(made, detailed=new.detailed, compact=new.compact, fault_when=new.fault_when, shrunk=True)


def unpaged(chat: ChatRequest, place: Place) -> str | None:
    """Why a request is not paged though it is wanted, as its explanation calls it: what Mneme, or the upstream, supplies is
    shortened already."""
    if chat.dialect.name not in PAGED:
        return "dialect"
    if chat.upstream_holds or place.upstream_holds:
        return "upstream-holds"
    return "history-supplied" if place.server_managed else None


def _is_answered(chat: ChatRequest, at: int) -> bool:
    """Whether the client has come back with results of a message's own calls."""
    roles = chat.transcript.roles
    return at + 1 < len(roles) and roles[at + 1] in ("tool", "function")


def _with_text(made: SemanticObject, texts: Mapping[UUID, str]) -> SemanticObject:
    if made.fidelity == Fidelity.DETAILED and made.detailed is not None:
        return replace(made, detailed=replace(made.detailed, text=texts.get(made.id, "")))
    if made.fidelity == Fidelity.COMPACT and made.compact is not None:
        return replace(made, compact=replace(made.compact, text=texts.get(made.id, "")))
    return made


# --- the addon of a server: which calls are paged, and within what -------------------------------------------------------


class PagingAddon(Struct):
    pager: Pager
    answers: FaultAnswers
    settings: Settings
    metrics: Metrics
    clock: Clock
    tasks: Supervisor
    name: str = Paging.name

    async def compile(self, call: Parsed, chat: ChatRequest, place: Place) -> Paging | str | None:
        asked, limits = call.switches.paging, call.principal.limits
        if not is_paged(asked, place.config, limits, self.settings.paging):
            return None
        if (why := unpaged(chat, place)) is not None:
            return why
        began = time.perf_counter_ns()
        try:
            return await self.pager.page(call, chat, place, self._budget(place))
        finally:
            self.metrics.stage("page", (time.perf_counter_ns() - began) / 1e9, began)

    async def repeated(self, call: Parsed, sent: bytes, place: Place) -> Paging | None:
        return await self.pager.repeated(call, sent, place, self._budget(place))

    async def answered(self, call: Forwarded, forwarder: Forwarder, finalizer: Finalizer) -> Forwarded:
        paging = call.part
        if not isinstance(paging, Paging) or paging.names is None:
            return call
        legs = Legs(forwarder, finalizer, self.answers, self.metrics, self.clock, self.tasks)
        return await legs.joined(call, paging, paging.names)

    def thawed(self, frozen: Mapping[str, Any], tenant: UUID, user: UUID) -> Paging:
        return Paging.thawed(frozen, tenant, user)

    def shown(self, explained: Mapping[str, Any]) -> dict[str, Any]:
        return expanded(explained)

    def _budget(self, place: Place) -> int | None:
        return paging_budget(place.config, self.settings.paging_budget_tokens)


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
