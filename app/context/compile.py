"""The prefill compiler (seed 000 §6.4): budget, history, retrieval, packing, placement, and the account of it all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import ceil
from typing import Any
from uuid import UUID

from app.context.assemble import (
    Block,
    BlockMeter,
    Edit,
    locate,
    plan,
    rebase_needed,
    render,
    session_nonce,
)
from app.context.audit import Compiled, HistoryReport, explain
from app.context.budget import Split, allocate, available, epoch_budget, memory_budget
from app.context.candidates import Candidate
from app.context.classify import TaskType, classify
from app.context.pack import Efficiency, Packed, PlainMeter, efficiency, history_suffix, pack
from app.context.retrieve import PROMPT_LIMITS, SEARCH_LIMITS, Retriever, Scope
from app.context.score import PROFILES, Profile, QuerySignals, Scored, score
from app.context.transcript import Transcript, chain, query_of
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, TokenCounter, Tokenizers
from app.settings import Placement

_SYSTEM = frozenset({"system", "developer"})


@dataclass(frozen=True, slots=True)
class PathMessage:
    """A stored message that Mneme supplies: as it goes out, with its stored count (tokens, o200k) and hash."""

    message: Mapping[str, Any]
    token_count: int
    message_hash: bytes | None
    turn_index: int = 0


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """Plain values; see `gateway.reconcile.Place` for where the request stands."""

    scope: Scope
    session_id: UUID
    new_session: bool
    messages: Sequence[Mapping[str, Any]]
    transcript: Transcript
    model: str
    now: datetime
    placement: Placement
    answer_limit: int | None = None
    tools: object = None
    path: Sequence[PathMessage] = ()
    path_complete: bool = True
    server_managed: bool = False
    start_chain: bytes = b""
    system_prompt: str | None = None
    system_prompt_tokens: int = 0
    summary: str | None = None
    summary_tokens: int = 0
    blocks: Sequence[Block] = ()
    block_epoch: int = 0
    gone: Collection[UUID] = frozenset()
    profile: str = "auto"


@dataclass(frozen=True, slots=True)
class Compilation:
    """What to change in the request, and why.

    The prompt is: the client's leading system messages, `history`, the rest of the client's messages; `edits` count along
    that list. `tokens`: what was added to the client's own; `budget`: B of seed 000 §6.1.
    """

    edits: Sequence[Edit]
    history: Sequence[Mapping[str, Any]]
    lead: int
    new_block: Block | None
    epoch: int
    memories: int
    tokens: int
    budget: int
    eta: float
    audit: dict[str, Any]
    inputs: dict[str, Any]
    considered: Sequence[Candidate] = ()


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """`k`: most items; `token_budget`: most tokens of their texts together."""

    scope: Scope
    query: str
    now: datetime
    k: int | None = None
    token_budget: int | None = None
    tiers: Collection[int] | None = None
    kinds: Collection[str] | None = None
    profile: str = "auto"


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The chosen items, best first, and what they cost. `statuses`: of items that are not in force."""

    items: Sequence[Scored]
    tokens: int
    statuses: Mapping[UUID, str] = field(default_factory=dict)


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
        found, statuses = await self._retriever.candidates(request.query, request.scope, SEARCH_LIMITS)
        if request.tiers is not None:
            found = [each for each in found if each.tier in request.tiers]
        if request.kinds is not None:
            found = [each for each in found if each.kind in request.kinds]
        profile = PROFILES[request.profile]
        scored = score(found, QuerySignals(text=request.query), profile, request.now)
        budget = request.token_budget if request.token_budget is not None else self._cap
        packed = pack(scored, budget, PlainMeter(), order=profile.order, limit=request.k)
        return SearchResult(packed.chosen, packed.tokens, statuses)

    async def compile(self, request: CompileRequest) -> Compilation:
        """The prompt of a request. Raises StoreUnavailable, Unavailable."""
        counter = self._tokenizers.for_model(request.model)
        query = query_of(request.messages)
        figures = self._figures(request, counter, query)
        start, history, history_tokens, first_kept = self._history(request, figures)
        lead = _lead(request.messages)
        full = _full_transcript(request, history, lead)

        client = figures.client + history_tokens
        live = [block for _, block in locate(request.blocks, full)] if request.placement == "tail" else []
        epoch = request.block_epoch
        cap = epoch_budget(figures.available, client, self._cap)
        live_tokens = sum(block.token_count for block in live)
        rebased = rebase_needed(live, cap, request.gone) if live else None
        if rebased == "budget_spent" and full.mid_turn() and client + live_tokens <= figures.available:
            rebased = None  # in a tool loop no new block may follow, and what is there still fits
        if rebased is not None:
            live, live_tokens, epoch = [], 0, epoch + 1
        tail = request.placement == "tail"
        room = memory_budget(
            figures.split.memory, figures.available, client, self._cap, live_tokens, epoch=cap if tail else None
        )
        if _blocked(request, full, live):
            room = 0

        profile = PROFILES[request.profile]
        summary = self._summary(request, room, counter) if start > first_kept else None
        scope = request.scope
        if request.path:
            # What does not fit any more may be found again: only the suffix is in the prompt for certain.
            visible = request.path[start].turn_index if start < len(request.path) else request.path[-1].turn_index + 1
            scope = replace(scope, visible_from=visible)
        said = _said([*request.messages, *history])
        packed, scored = await self._choose(request, scope, query, profile, room, counter, live, summary, said)
        text = render(
            session_nonce(self._nonce_key(), request.session_id), [each.candidate for each in packed.chosen], summary
        )
        block = _block(text, packed, full, figures.scale) if text else None
        edits = plan(request.placement, full, live, block)
        eta = (
            efficiency(packed.chosen, packed.eligible, room, packed.tokens)
            if scored
            else Efficiency(1.0, 1.0, 1.0, 1.0)
        )
        added = history_tokens + live_tokens + (block.token_count if block else 0)
        report = HistoryReport(
            source="server" if request.server_managed else "client" if full.answered else "none",
            messages=len(history) if request.server_managed else len(request.messages),
            tokens=history_tokens if request.server_managed else figures.client,
            dropped=len(request.path) - len(history),
            first_kept=first_kept,
            summary=summary is not None,
        )
        audit = explain(
            Compiled(
                budget=figures.report() | {"memory": room, "live": live_tokens, "history": history_tokens},
                task=figures.task,
                profile=profile.name,
                placement=request.placement,
                packed=packed,
                efficiency=eta,
                tokens=added,
                history=report,
                rebased=rebased,
                live_blocks=len(live),
            )
        )
        return Compilation(
            edits=edits,
            history=history,
            lead=lead,
            new_block=block,
            epoch=epoch,
            memories=len(packed.chosen),
            tokens=added,
            budget=figures.available,
            eta=eta.eta,
            audit=audit,
            inputs=self._inputs(request, query, figures, live),
            considered=[each.candidate for each in scored],
        )

    def _figures(self, request: CompileRequest, counter: TokenCounter, query: str) -> _Figures:
        """Phase 1 of seed 000 §6.4. Counts are raised by the counter's margin where it only estimates."""
        scale = 1.0 + counter.margin
        system = client = 0
        for message, role in zip(request.messages, request.transcript.roles, strict=True):
            count = self._counts.message(message, counter)
            if role in _SYSTEM:
                system += count
            else:
                client += count
        if request.system_prompt is not None:
            system += request.system_prompt_tokens
        tools = self._counts.tools(request.tools, counter) if request.tools else 0
        window = self._models.window(request.model)
        reserve = self._models.response_reserve(request.model, request.answer_limit)
        budget = available(window, round(system * scale), reserve, round(tools * scale))
        roles = request.transcript.roles
        results = sum(1 for role in roles[(request.transcript.last_user() or 0) :] if role in {"tool", "function"})
        task = classify(
            query,
            new_session=request.new_session,
            has_tools=bool(request.tools),
            last_role=roles[-1] if roles else None,
            tool_results=results,
        )
        return _Figures(
            window, system, reserve, tools, budget, round(client * scale), task, allocate(budget, task), scale
        )

    def _history(self, request: CompileRequest, figures: _Figures) -> tuple[int, list[Mapping[str, Any]], int, int]:
        """Phase 2: the first turn and the longest suffix of the stored messages that fit, for a server-managed request."""
        if not request.path:
            return 0, [], 0, 0
        costs = [round(each.token_count * figures.scale) for each in request.path]
        room = min(figures.split.history, max(0, figures.available - figures.client))
        roles = [str(each.message.get("role")) for each in request.path]
        chosen = history_suffix(costs, room, True, roles=roles)
        kept = [*request.path[: chosen.first], *request.path[chosen.start :]]
        return chosen.start, [each.message for each in kept], chosen.tokens, chosen.first

    async def _choose(
        self,
        request: CompileRequest,
        scope: Scope,
        query: str,
        profile: Profile,
        room: int,
        counter: TokenCounter,
        live: Sequence[Block],
        summary: str | None,
        said: Collection[str],
    ) -> tuple[Packed, list[Scored]]:
        """Phase 3: candidates, scores, and the greedy choice within `room` tokens."""
        meter = BlockMeter(counter.count, summary, request.summary_tokens if summary else 0)
        if room <= 0 or not query:
            return Packed((), (), meter.used), []
        found, _ = await self._retriever.candidates(query, scope, PROMPT_LIMITS)
        scored = score(found, QuerySignals(text=query), profile, request.now)
        packed = pack(
            scored,
            int(room / (1.0 + counter.margin)),
            meter,
            order=profile.order,
            visible={item for block in live for item in block.item_ids},
            visible_hashes={
                each.content_hash for each in found if each.source == "message" and each.text.strip() in said
            },
            suppressed=request.gone,
        )
        return packed, scored

    @staticmethod
    def _summary(request: CompileRequest, room: int, counter: TokenCounter) -> str | None:
        """The session's summary, where history was left out and it fits."""
        if not request.summary:
            return None
        cost = BlockMeter(counter.count, request.summary, request.summary_tokens).used * (1.0 + counter.margin)
        return request.summary if cost <= room else None

    @staticmethod
    def _inputs(request: CompileRequest, query: str, figures: _Figures, live: Sequence[Block]) -> dict[str, Any]:
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
            "live": [str(each.message_id) for each in live],
            "scale": figures.scale,
        }


@dataclass(frozen=True, slots=True)
class _Figures:
    window: int
    system: int
    reserve: int
    tools: int
    available: int
    client: int
    task: TaskType
    split: Split
    scale: float

    def report(self) -> dict[str, int]:
        names = ("window", "system", "reserve", "tools", "available", "client")
        return {name: getattr(self, name) for name in names}


def _lead(messages: Sequence[Mapping[str, Any]]) -> int:
    """How many system messages the request begins with: the supplied history goes behind them."""
    return next((i for i, each in enumerate(messages) if each.get("role") not in _SYSTEM), len(messages))


def _full_transcript(request: CompileRequest, history: Sequence[Mapping[str, Any]], lead: int) -> Transcript:
    """The transcript as the upstream will see it: with the supplied history behind the leading system messages."""
    own = request.transcript
    if not request.server_managed:
        return own
    kept = {id(each.message): each.message_hash for each in request.path}
    hashes = [kept.get(id(each)) for each in history]
    whole = request.path_complete and len(history) == len(request.path) and None not in hashes
    before: list[bytes | None] = [*chain([each for each in hashes if each])] if whole else [None] * len(hashes)
    spoken = [each for each in own.hashes[lead:] if each is not None]
    links = iter(chain(spoken, request.start_chain))
    after = [None if each is None else next(links) for each in own.hashes[lead:]]
    roles = (*own.roles[:lead], *(str(each.get("role")) for each in history), *own.roles[lead:])
    return Transcript(
        roles=roles,
        hashes=(*own.hashes[:lead], *hashes, *own.hashes[lead:]),
        chains=(*own.chains[:lead], *before, *after),
        answered=tuple(i for i, role in enumerate(roles) if role == "assistant"),
    )


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


def _said(messages: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The texts that stand in the prompt already, wherever else they were stored."""
    return frozenset(content.strip() for each in messages if isinstance(content := each.get("content"), str))


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
