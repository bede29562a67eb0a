"""The prefill compiler (seed 000 §6.4): budget, history, retrieval, packing, placement, and the account of it all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil
from typing import Any
from uuid import UUID

from app.context.asked import Asked, understand
from app.context.assemble import (
    FRAME_TOKENS,
    SUMMARY_LABEL,
    Block,
    BlockMeter,
    locate,
    neutralise,
    plan,
    rebase_needed,
    render,
    session_nonce,
)
from app.context.audit import Compiled, HistoryReport, explain
from app.context.budget import allocate, available, epoch_budget, memory_budget
from app.context.candidates import Candidate
from app.context.classify import classify
from app.context.inputs import Terms, given, keep, keep_notes
from app.context.notes import NO_OPENINGS, Openings, Place, Said, Widened, due_now, openings, say, widened, words_of
from app.context.pack import Efficiency, Packed, PlainMeter, digest_room, efficiency, pack
from app.context.profiles import PROFILES, STRATEGY, Profile
from app.context.request import (
    Compilation,
    CompileRequest,
    PathMessage,
    SearchRequest,
    SearchResult,
)
from app.context.retrieve import RAW_KINDS, NoVector, Retriever, Wanted
from app.context.score import QuerySignals, Scored, score
from app.context.sections import Budgets, Shares, Wants, share_out, wanted
from app.context.story import SYSTEM_ROLES, Figures, Story, tell, visible_from
from app.context.transcript import Transcript, query_of, text_of
from app.providers.models import ModelRegistry
from app.providers.tokens import REPLY_TOKENS, CountCache, TokenCounter, Tokenizers, supplied_tokens
from app.store.standing import NOTHING

__all__ = ["Compilation", "CompileRequest", "Compiler", "PathMessage", "SearchRequest", "SearchResult"]

LONG_TEXT = 100_000
"""Characters of a request from which it is counted in a thread, so that the other requests do not wait: some 50 ms."""

FILTERED = 8
"""How many times the budget is looked through where only some tiers or kinds are wanted."""

NOTES_COUNTED = 8192
"""Lines of notes whose counts are kept: those of some hundred users."""

STORED_COUNTS = "gpt-4o"
"""A model counted by o200k_base: the encoding of every stored token count."""

DEFAULT_BUDGETS = Budgets()

_UNSCORED = Efficiency(1.0, 1.0, 1.0, 1.0)


@dataclass(frozen=True, slots=True)
class _Live:
    """The memory blocks of earlier turns that are emitted again."""

    blocks: Sequence[Block]
    tokens: int
    epoch: int
    rebased: str | None


class Compiler:
    """Compiles prompts and answers searches by the same retrieval, scoring and packing."""

    def __init__(
        self,
        retriever: Retriever,
        models: ModelRegistry,
        tokenizers: Tokenizers,
        counts: CountCache,
        *,
        nonce_key: Callable[[], bytes],
        memory_cap: int,
        profiles: Mapping[str, Profile] = PROFILES,
        diversity: float | None = None,
        budgets: Budgets = DEFAULT_BUDGETS,
        questions: int = 1,
        vector_wait_s: float | None = None,
    ) -> None:
        """`memory_cap`: most tokens that memories take in one turn's block; `budgets`: the other sections. `nonce_key`: what
        keys the delimiters (up to 64 bytes). `diversity`: λ of `pack.diverse`; None: as the scores say. `questions`: most
        questions to the user in a turn. `vector_wait_s`: most seconds that a prompt waits for the question's vector, where the
        embedder is no local one; then words find alone. None: as long as it takes."""
        self._profiles = profiles
        self._diversity = diversity
        self._retriever = retriever
        self._models = models
        self._tokenizers = tokenizers
        self._counts = counts
        self._nonce_key = nonce_key
        self._cap = memory_cap
        self._budgets = budgets
        self._questions = questions
        self._vector_wait_s = vector_wait_s
        self._note_tokens = lru_cache(NOTES_COUNTED)(tokenizers.for_model(STORED_COUNTS).count)

    def _profile(self, name: str, asked: Asked) -> Profile:
        """The profile of that name; of `strategy`, the one that the question calls for."""
        return self._profiles[asked.strategy if name == STRATEGY else name]

    async def search(self, request: SearchRequest) -> SearchResult:
        """Memories and raw turns for a question, as the compiler would choose them."""
        asked = understand(request.query, request.now)
        profile = self._profile(request.profile, asked)
        budget = request.token_budget if request.token_budget is not None else self._cap
        filtered = request.tiers is not None or request.kinds is not None
        further = widened(await self._retriever.habits(request.scope), request.query)
        most = None if filtered else request.k
        wanted = Wanted(budget * (FILTERED if filtered else 1), most, request.only, words_of(further))
        found, statuses = await self._retriever.candidates(asked, request.scope, wanted, profile)
        if request.tiers is not None:
            found = [each for each in found if each.tier in request.tiers]
        if request.kinds is not None:
            kinds = {*request.kinds, *(("passage",) if RAW_KINDS & set(request.kinds) else ())}
            found = [each for each in found if each.kind in kinds]
        scored = score(found, QuerySignals.of(asked), profile, request.now)
        digests = None if filtered else digest_room(budget, asked.recap)  # who asks for summaries gets nothing else
        packed = pack(
            scored, budget, PlainMeter(), order=profile.order, limit=request.k, diversity=self._diversity, digests=digests
        )  # fmt: skip
        return SearchResult(packed.chosen, packed.tokens, statuses, further)

    async def compile(self, request: CompileRequest) -> Compilation:
        """The prompt of a request. Raises StoreUnavailable, Unavailable."""
        counter = self._tokenizers.for_model(request.model)
        query = query_of(request.messages)
        asked = understand(query, request.now)
        profile = self._profile(request.profile, asked)
        if _length(request.messages) > LONG_TEXT:
            figures = await asyncio.to_thread(self._figures, request, counter, query)
        else:
            figures = self._figures(request, counter, query)
        story = tell(request, figures, counter)
        live = self._live(request, figures, story)
        opened, wants = self._opened(request, figures, story, live)
        shares = self._shares(request, figures, story, live, wants)
        summary = _summary(request, story, live, shares.memories, counter)
        further = widened(request.standing, query)
        packed, scored, reason = await self._choose(
            request, asked, profile, further, opened.memories, story, live, summary, shares.memories, counter
        )
        said = say(
            opened,
            shares,
            packed,
            due_now(request.standing, learns=request.learns and request.search),
            self._counted(figures.scale),
            self._questions,
        )
        items = [each.candidate for each in packed.chosen]
        nonce = session_nonce(self._nonce_key(), request.session_id)
        text = render(nonce, items, summary, before=said.before, after=said.after)
        block = _block(text, packed, said, story.transcript, figures.scale) if text else None
        eta = efficiency(packed.chosen, packed.eligible, shares.memories, packed.tokens) if scored else _UNSCORED
        added = story.tokens + live.tokens + (block.token_count if block else 0)
        audit = Compiled(
            budget=figures.report() | {"memory": shares.memories, "live": live.tokens, "history": story.tokens},
            task=figures.task,
            profile=profile.name,
            placement=request.placement,
            packed=packed,
            efficiency=eta,
            tokens=added,
            history=_report(request, figures, story, summary),
            rebased=live.rebased,
            live_blocks=len(live.blocks),
            sections=said.account | _sections(figures, story, shares, packed),
            widened=further,
            status="degraded" if reason else "ok",
            reason=reason,
        )
        explained = explain(audit)
        considered = [each.candidate for each in scored]
        terms = Terms(self._cap, profile, self._diversity, self._budgets, self._questions)
        kept = keep(request, explained, considered, terms) | keep_notes(request, explained, opened, live.blocks)
        return Compilation(
            edits=plan(request.placement, story.transcript, live.blocks, block),
            history=story.messages,
            lead=story.lead,
            new_block=block,
            epoch=live.epoch,
            memories=len(packed.chosen),
            tokens=added,
            budget=figures.available,
            eta=eta.eta,
            audit=explained,
            inputs=given(request, query, figures.scale, live.blocks) | kept,
            reason=reason,
            considered=considered,
        )

    def _figures(self, request: CompileRequest, counter: TokenCounter, query: str) -> Figures:
        """Phase 1 of seed 000 §6.4. The counter has its margin in it; stored counts have none."""
        scale = 1.0 + counter.margin
        system, client = 0, REPLY_TOKENS
        transcript = request.transcript
        for message, role, hashed in zip(request.messages, transcript.roles, transcript.hashes, strict=True):
            count = self._counts.message(message, counter, hashed)
            if role in SYSTEM_ROLES:
                system += count
            else:
                client += count
        if request.system_prompt is not None:
            system += supplied_tokens(request.system_prompt_tokens, counter.count("system"), counter)
        schemas = sum(self._counts.tools(each, counter) for each in request.schemas if each)
        window = self._models.window(request.model)
        reserve = self._models.response_reserve(request.model, request.answer_limit)
        budget = available(window, system, reserve, schemas)
        roles = request.transcript.roles
        results = sum(1 for role in roles[(request.transcript.last_user() or 0) :] if role in {"tool", "function"})
        task = classify(
            query,
            new_session=request.new_session,
            has_tools=request.has_tools,
            last_role=roles[-1] if roles else None,
            tool_results=results,
        )
        split = allocate(budget, task, self._budgets.history)
        return Figures(window, system, reserve, schemas, budget, client, task, split, scale)

    def _epoch_budget(self, figures: Figures, story: Story) -> int:
        return epoch_budget(figures.available, figures.client + story.tokens, self._cap)

    def _live(self, request: CompileRequest, figures: Figures, story: Story) -> _Live:
        """The blocks that stay in the prompt; none where they must go (a new epoch)."""
        full, epoch = story.transcript, request.block_epoch
        blocks = [block for _, block in locate(request.blocks, full)] if request.placement == "tail" else []
        tokens = sum(block.token_count for block in blocks)
        may_rebase = blocks and not request.upstream_holds
        rebased = rebase_needed(blocks, self._epoch_budget(figures, story), request.gone) if may_rebase else None
        room = figures.available - figures.client - story.tokens
        if rebased == "budget_spent" and full.mid_turn() and tokens <= room:
            rebased = None  # in a tool loop no new block may follow, and what is there still fits
        return _Live(blocks, tokens, epoch, None) if rebased is None else _Live((), 0, epoch + 1, rebased)

    def _counted(self, scale: float) -> Callable[[str], int]:
        """Counts notes as the model may."""
        return lambda text: ceil(self._note_tokens(text) * scale)

    def _opened(self, request: CompileRequest, figures: Figures, story: Story, live: _Live) -> tuple[Openings, Wants]:
        """What there is to say beside memories, and what that would take."""
        standing = request.standing
        if standing is NOTHING or _blocked(request, story.transcript, live.blocks):
            return NO_OPENINGS, Wants()
        visible = visible_from(request, story) if request.path else request.scope.visible_from
        place = Place(request.scope.session, visible, request.scope.ancestors)
        opened = openings(standing, live.blocks, place)
        asks = (
            self._budgets.question
            if self._questions and due_now(request.standing, learns=request.learns and request.search)
            else 0
        )
        return opened, opened.wants(self._counted(figures.scale), asks)

    def _shares(self, request: CompileRequest, figures: Figures, story: Story, live: _Live, wants: Wants) -> Shares:
        """Tokens for the sections of this turn's block."""
        if _blocked(request, story.transcript, live.blocks):
            return Shares(0, 0, 0, 0)
        room = memory_budget(
            figures.split.memory,
            figures.available,
            figures.client + story.tokens,
            self._cap + sum(wanted(wants, self._budgets)),
            live.tokens,
            epoch=self._epoch_budget(figures, story) if request.placement == "tail" else None,
        )
        return share_out(room, wants, self._budgets, self._cap)

    async def _choose(
        self,
        request: CompileRequest,
        asked: Asked,
        profile: Profile,
        further: Widened,
        spoken_for: Collection[UUID],
        story: Story,
        live: _Live,
        summary: str | None,
        room: int,
        counter: TokenCounter,
    ) -> tuple[Packed, list[Scored], str | None]:
        """Phase 3: candidates, scores, and the greedy choice within `room` tokens; and what the search had to do without."""
        meter = BlockMeter(counter.count, summary, request.summary_tokens if summary else 0)
        if room <= 0 or not asked.text or not request.search:
            return Packed((), (), meter.used), [], None
        scope = request.scope
        if request.path:
            scope = replace(scope, visible_from=visible_from(request, story))
        sought, reason = Wanted(room, further=words_of(further), wait_s=self._vector_wait_s), None
        try:
            found, _ = await self._retriever.candidates(asked, scope, sought, profile)
        except NoVector:
            found, _ = await self._retriever.candidates(asked, scope, sought._replace(wait_s=0), profile)
            reason = "embeddings"
        scored = score(found, QuerySignals.of(asked), profile, request.now)
        said = _said([*request.messages, *story.messages])
        shown = {item for block in live.blocks for item in block.item_ids}
        # Of its own session the prompt has the turns, and the summary of those that it leaves out (`_summary`).
        shown.update(each.id for each in found if each.of_session and each.session_id == scope.session)
        packed = pack(
            scored,
            int(room / (1.0 + counter.margin)),
            meter,
            order=profile.order,
            visible=shown | set(spoken_for),
            visible_hashes={each.content_hash for each in found if each.source == "message" and _stands(each, said)},
            suppressed=request.gone,
            diversity=self._diversity,
            digests=digest_room(room, asked.recap),
        )
        return packed, scored, reason


def _length(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(text_of(each)) for each in messages)


def _blocked(request: CompileRequest, full: Transcript, live: Sequence[Block]) -> bool:
    """Whether a new block would change what the upstream has cached: in a tool loop, or where the question has one."""
    if request.placement != "tail":
        return False
    last = full.last_user()
    if last is None:
        return True
    if full.mid_turn() and not request.new_session:
        return True
    return any(place == last for place, _ in locate(live, full))


def _summary(request: CompileRequest, story: Story, live: _Live, room: int, counter: TokenCounter) -> str | None:
    """The session's summary, where history was left out, it fits, and no earlier block has it."""
    if not request.summary or not story.cut:
        return None
    line = SUMMARY_LABEL + neutralise(request.summary)
    if any(line in block.text for block in live.blocks):
        return None
    cost = BlockMeter(counter.count, request.summary, request.summary_tokens).used * (1.0 + counter.margin)
    return request.summary if cost <= room else None


def _said(messages: Sequence[Mapping[str, Any]]) -> Collection[str]:
    """The texts that stand in the prompt already, wherever else they were stored."""
    return {text for each in messages if (text := text_of(each).strip())}


def _stands(item: Candidate, said: Collection[str]) -> bool:
    """Whether the texts that stand in the prompt have the item's."""
    if item.span is None:
        return item.text.strip() in said
    return any(item.text in text for text in said)


def _sections(figures: Figures, story: Story, shares: Shares, packed: Packed) -> dict[str, Any]:
    """The sections that every prompt has."""
    return {
        "memories": {"budget": shares.memories, "tokens": packed.tokens},
        "history": {"budget": figures.split.history, "tokens": story.tokens},
        "tools": {"budget": figures.split.tools, "tokens": figures.tools},
    }


def _block(text: str, packed: Packed, said: Said, full: Transcript, scale: float) -> Block:
    last = full.last_user()
    anchor = full.chains[last] if last is not None else None
    hashed = full.hashes[last] if last is not None else None
    return Block(
        anchor=anchor or b"",
        message_hash=hashed or b"",
        message_id=None,
        text=text,
        item_ids=tuple(dict.fromkeys([*(each.candidate.id for each in packed.chosen), *said.ids])),
        token_count=ceil((packed.tokens or FRAME_TOKENS) * scale) + said.tokens,
    )


def _report(request: CompileRequest, figures: Figures, story: Story, summary: str | None) -> HistoryReport:
    server = request.server_managed
    systems = int(request.system_prompt is not None)
    supplied = len(story.messages) - systems
    return HistoryReport(
        source="server" if server else "client" if story.transcript.answered else "none",
        messages=supplied if server else len(request.messages),
        tokens=story.tokens if server else figures.client,
        dropped=len(request.path) - supplied,
        first_kept=story.first,
        summary=summary is not None,
    )
