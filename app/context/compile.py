"""The prefill compiler (seed 000 §6.4): budget, history, retrieval, packing, placement, and the account of it all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from app.context.assemble import (
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
from app.context.pack import Efficiency, Packed, PlainMeter, efficiency, pack
from app.context.request import (
    Compilation,
    CompileRequest,
    PathMessage,
    SearchRequest,
    SearchResult,
)
from app.context.retrieve import RAW_KINDS, Retriever, Wanted
from app.context.score import PROFILES, QuerySignals, Scored, score
from app.context.story import SYSTEM_ROLES, Figures, Story, tell, visible_from
from app.context.transcript import Transcript, query_of, text_of
from app.providers.models import ModelRegistry
from app.providers.tokens import REPLY_TOKENS, CountCache, TokenCounter, Tokenizers, supplied_tokens

__all__ = ["Compilation", "CompileRequest", "Compiler", "PathMessage", "SearchRequest", "SearchResult"]

LONG_TEXT = 100_000
"""Characters of a request from which it is counted in a thread, so that the other requests do not wait: some 50 ms."""

FILTERED = 8
"""How many times the budget is looked through where only some tiers or kinds are wanted."""

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
    ) -> None:
        """`memory_cap`: most tokens of one turn's block. `nonce_key`: what keys the delimiters (up to 64 bytes)."""
        self._retriever = retriever
        self._models = models
        self._tokenizers = tokenizers
        self._counts = counts
        self._nonce_key = nonce_key
        self._cap = memory_cap

    async def search(self, request: SearchRequest) -> SearchResult:
        """Memories and raw turns for a question, as the compiler would choose them."""
        profile = PROFILES[request.profile]
        budget = request.token_budget if request.token_budget is not None else self._cap
        filtered = request.tiers is not None or request.kinds is not None
        wanted = Wanted(budget * (FILTERED if filtered else 1), None if filtered else request.k, _only(request))
        found, statuses = await self._retriever.candidates(request.query, request.scope, wanted, profile)
        if request.tiers is not None:
            found = [each for each in found if each.tier in request.tiers]
        if request.kinds is not None:
            kinds = {*request.kinds, *(("passage",) if RAW_KINDS & set(request.kinds) else ())}
            found = [each for each in found if each.kind in kinds]
        scored = score(found, QuerySignals(text=request.query), profile, request.now)
        packed = pack(scored, budget, PlainMeter(), order=profile.order, limit=request.k)
        return SearchResult(packed.chosen, packed.tokens, statuses)

    async def compile(self, request: CompileRequest) -> Compilation:
        """The prompt of a request. Raises StoreUnavailable, Unavailable."""
        counter = self._tokenizers.for_model(request.model)
        query = query_of(request.messages)
        if _length(request.messages) > LONG_TEXT:
            figures = await asyncio.to_thread(self._figures, request, counter, query)
        else:
            figures = self._figures(request, counter, query)
        story = tell(request, figures, counter)
        live = self._live(request, figures, story)
        room = self._room(request, figures, story, live)
        summary = _summary(request, story, live, room, counter)
        packed, scored = await self._choose(request, query, story, live, summary, room, counter)
        items = [each.candidate for each in packed.chosen]
        text = render(session_nonce(self._nonce_key(), request.session_id), items, summary)
        block = _block(text, packed, story.transcript, figures.scale) if text else None
        eta = efficiency(packed.chosen, packed.eligible, room, packed.tokens) if scored else _UNSCORED
        added = story.tokens + live.tokens + (block.token_count if block else 0)
        audit = Compiled(
            budget=figures.report() | {"memory": room, "live": live.tokens, "history": story.tokens},
            task=figures.task,
            profile=PROFILES[request.profile].name,
            placement=request.placement,
            packed=packed,
            efficiency=eta,
            tokens=added,
            history=_report(request, figures, story, summary),
            rebased=live.rebased,
            live_blocks=len(live.blocks),
        )
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
            audit=explain(audit),
            inputs=_inputs(request, query, figures, live),
            considered=[each.candidate for each in scored],
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
        return Figures(window, system, reserve, schemas, budget, client, task, allocate(budget, task), scale)

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

    def _room(self, request: CompileRequest, figures: Figures, story: Story, live: _Live) -> int:
        """Tokens for this turn's block."""
        if _blocked(request, story.transcript, live.blocks):
            return 0
        return memory_budget(
            figures.split.memory,
            figures.available,
            figures.client + story.tokens,
            self._cap,
            live.tokens,
            epoch=self._epoch_budget(figures, story) if request.placement == "tail" else None,
        )

    async def _choose(
        self,
        request: CompileRequest,
        query: str,
        story: Story,
        live: _Live,
        summary: str | None,
        room: int,
        counter: TokenCounter,
    ) -> tuple[Packed, list[Scored]]:
        """Phase 3: candidates, scores, and the greedy choice within `room` tokens."""
        meter = BlockMeter(counter.count, summary, request.summary_tokens if summary else 0)
        if room <= 0 or not query or not request.search:
            return Packed((), (), meter.used), []
        scope = request.scope
        if request.path:
            scope = replace(scope, visible_from=visible_from(request, story))
        profile = PROFILES[request.profile]
        found, _ = await self._retriever.candidates(query, scope, Wanted(room), profile)
        scored = score(found, QuerySignals(text=query), profile, request.now)
        said = _said([*request.messages, *story.messages])
        packed = pack(
            scored,
            int(room / (1.0 + counter.margin)),
            meter,
            order=profile.order,
            visible={item for block in live.blocks for item in block.item_ids},
            visible_hashes={each.content_hash for each in found if each.source == "message" and _stands(each, said)},
            suppressed=request.gone,
        )
        return packed, scored


def _only(request: SearchRequest) -> int | None:
    """Whether only memories (1), or only raw turns (0), are asked for."""
    if request.tiers is not None or (request.kinds is not None and not RAW_KINDS & set(request.kinds)):
        return 1
    return 0 if request.kinds is not None and set(request.kinds) <= RAW_KINDS else None


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


def _block(text: str, packed: Packed, full: Transcript, scale: float) -> Block:
    last = full.last_user()
    anchor = full.chains[last] if last is not None else None
    hashed = full.hashes[last] if last is not None else None
    return Block(
        anchor=anchor or b"",
        message_hash=hashed or b"",
        message_id=None,
        text=text,
        item_ids=tuple(each.candidate.id for each in packed.chosen),
        token_count=ceil(packed.tokens * scale),
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


def _inputs(request: CompileRequest, query: str, figures: Figures, live: _Live) -> dict[str, Any]:
    """All that the compile depended on beside the candidates, whose scores are in the audit."""
    return {
        "query": query,
        "now": request.now.isoformat(),
        "model": request.model,
        "session": str(request.session_id),
        "new_session": request.new_session,
        "confined": request.scope.confine is not None,
        "visible_from": request.scope.visible_from,
        "server_managed": request.server_managed,
        "answer_limit": request.answer_limit,
        "profile": request.profile,
        "epoch": request.block_epoch,
        "live": [str(each.message_id) for each in live.blocks],
        "scale": figures.scale,
    }
