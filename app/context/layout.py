"""Divides the prompt: how many tokens the client's own messages, the session's history that Mneme supplies and this turn's
memory block get; which blocks of earlier turns stay, and what there is to say beside memories.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from app.context.assemble import Block, locate, rebase_needed
from app.context.audit import told_known
from app.context.bearing import MessageTopics
from app.context.budget import (
    Budgets,
    SectionNeeds,
    Shares,
    Split,
    TaskType,
    epoch_budget,
    memory_budget,
    share_out,
    wanted,
)
from app.context.facts_section import NOTHING_TO_TELL, FactLines, FactsFound, shown, stale, tell, tellings
from app.context.later_words import NONE_SHOWN, LaterWordsShown
from app.context.notes import (
    NO_OPENINGS,
    Count,
    Habits,
    NoteLines,
    NotesDue,
    due_now,
    fact_lines,
    openings,
    say,
)
from app.context.pack import Packed, history_suffix
from app.context.question import Asked
from app.context.reasoning import estimate_tokens
from app.context.request import CardsRead, CompileRequest, PathMessage, TellsCards
from app.context.retrieve import Retrieved
from app.context.score import Profile
from app.context.transcript import Transcript, text_of
from app.context.working import WorkingTold, working_told
from app.context.worth import PROFILE_TOKENS
from app.index.indexes import IndexScope
from app.providers.tokens import NAME_TOKENS, TokenCounter, message_tokens, supplied_tokens
from app.sources import Price
from app.store.user_profile import NOTHING

VERBATIM_TURNS = 4
"""The last turns, which stay as they were said whatever history's budget is (seed 001 §6, overflow)."""


class TokenFigures(Struct, frozen=True):
    """Tokens, by the model's tokenizer. `scale` turns stored counts (o200k) into what the model may count."""

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


class SuppliedHistory(Struct, frozen=True):
    """What is supplied of the session's earlier messages: the first `first` and those from `start` on. `transcript`: as the
    upstream will see it."""

    messages: Sequence[Mapping[str, Any]]
    tokens: int
    start: int
    first: int
    lead: int
    transcript: Transcript
    cut: bool


def supply_history(request: CompileRequest, figures: TokenFigures, counter: TokenCounter) -> SuppliedHistory:
    """The first turn and the longest suffix of the stored messages that fit, for a server-managed request; before
    them the session's own system prompt, where the client sent none. The last turns stay beyond the history's own budget, as
    long as they fit the prompt."""
    lead, path = request.transcript.lead, request.path
    roles = [str(each.message.get("role") or "") for each in path]
    words = {
        role: counter.count(role) for role in set(roles)
    }  # some µs each: once, not for each of hundreds of messages
    costs = [_cost(each, words[role], counter) for each, role in zip(path, roles, strict=True)]
    room = min(figures.split.history, max(0, figures.available - figures.client))
    chosen = history_suffix(costs, room, True, roles=roles)
    asked = [i for i, role in enumerate(roles) if role == "user"]
    last = asked[-VERBATIM_TURNS] if len(asked) >= VERBATIM_TURNS else 0
    if chosen.start > last:
        whole = max(0, figures.available - figures.client)
        chosen = history_suffix(costs, min(whole, sum(costs[last:])), False, roles=roles)
    kept = [*path[: chosen.first], *path[chosen.start :]]
    cut = len(kept) < len(path) or not request.path_complete
    messages = [each.message for each in kept]
    system: list[Mapping[str, Any]] = []
    if request.system_prompt is not None:
        system = [{"role": "system", "content": request.system_prompt}]
    full = request.transcript
    if request.server_managed:
        kept_roles, hashes = [str(each.message.get("role")) for each in kept], [each.message_hash for each in kept]
        full = full.with_earlier(lead, kept_roles, hashes, request.start_chain, whole=not cut, systems=len(system))
    return SuppliedHistory(
        [*system, *messages], chosen.tokens, chosen.start, chosen.first, lead, full, bool(path) and cut
    )


def visible_from(request: CompileRequest, story: SuppliedHistory) -> int:
    """The turn from which on all of the session is in the prompt. What does not fit any more may be found again, and what
    was not even read, between the first turn and the rest."""
    path, start = request.path, story.start
    if not request.path_complete:
        jumps = (i for i in range(1, len(path)) if path[i].turn_index > path[i - 1].turn_index + 1)
        start = max(start, next(jumps, 0))
    return path[start].turn_index if start < len(path) else path[-1].turn_index + 1


def _cost(each: PathMessage, role_tokens: int, counter: TokenCounter) -> int:
    """Tokens of a stored message in a prompt."""
    cost = supplied_tokens(each.token_count, role_tokens, counter)
    if each.message.get("name"):
        cost += NAME_TOKENS + counter.count(str(each.message["name"]))
    if each.reasoning is not None:
        cost += estimate_tokens(each.reasoning)
    content = each.message.get("content")
    if isinstance(content, list):
        others = [part for part in content if not (isinstance(part, Mapping) and part.get("type") == "text")]
        cost += message_tokens({"content": others}, counter)
    return cost


# --- the block of this turn ----------------------------------------------------------------------------------------------


class Live(Struct, frozen=True):
    """The memory blocks of earlier turns that are emitted again."""

    blocks: Sequence[Block]
    tokens: int
    epoch: int
    rebased: str | None


class Layout(NamedTuple):
    """What stays of earlier blocks, what there is to say beside memories, and the tokens of each section of the new
    block; `blocked`: there is none. `cards`: None where none are asked for. `spent`: there is hardly room for a
    block, and there would be if those of before went."""

    live: Live
    blocked: bool
    opened: NotesDue
    told: FactLines
    shares: Shares
    cards: TellsCards | None = None
    spent: bool = False
    working: WorkingTold | None = None

    @property
    def notes(self) -> bool:
        """Whether lines may be quoted beside what is found."""
        own = self.shares
        return any((own.profile, own.question, own.domain, own.conflicts, own.unclear, own.cards, own.working))

    def needs(self, packed: Packed) -> bool:
        """Whether a message needs something that does not stand in the blocks that stay: of what was chosen without them, or of
        what is known."""
        there = shown(self.live.blocks)
        cards = self.cards is not None and self.cards.new
        new = any(each.candidate.id not in there for each in packed.chosen)
        new = new or (self.working is not None and bool(self.working.results))
        return bool(new or self.opened.facts or self.opened.wishes or self.told.facts or self.told.clashes or cards)

    @property
    def lines(self) -> list[str]:
        """What the prompt says of the user beside what is found: lines of this block and of those that stay."""
        there = [line for block in self.live.blocks for line in block.text.split("\n")]
        return [*there, *fact_lines(self.opened.facts), *(each.text for each in self.opened.wishes)]

    @property
    def room(self) -> int:
        """Tokens for what is found; none where the facts say all that is asked for."""
        return 0 if self.opened.answers else self.shares.memories


class Reading(NamedTuple):
    """A request as it is understood, its figures, and its history: what is known before anything is looked for."""

    request: CompileRequest
    counter: TokenCounter
    query: str
    asked: Asked
    profile: Profile
    figures: TokenFigures
    story: SuppliedHistory
    topics: MessageTopics
    habits: Habits


class Finds(NamedTuple):
    """What the searches found; `reason`: what the search had to do without. `learned`: of the things that the question
    names. `cards`: None where none are asked for, or they were not read in time."""

    retrieved: Retrieved = Retrieved([], {})
    reason: str | None = None
    learned: FactsFound | None = None
    cards: CardsRead | None = None


class Layouts(Struct, frozen=True):
    """Lays blocks out by these rules, which are the compiler's. `cap`: most tokens that memories take in one turn's block;
    `budgets`: the other sections; `questions`: most to the user in a turn; `note_tokens`: tokens of a text as they are
    stored."""

    cap: int
    budgets: Budgets
    questions: int
    note_tokens: Callable[[str], int]
    price: Price = "balanced"

    def counted(self, scale: float) -> Count:
        """Counts notes as the model may."""
        return lambda text: ceil(self.note_tokens(text) * scale)

    def of(self, reading: Reading, found: Finds, *, anew: bool = True) -> Layout:
        """Of a request, by what is found by now. `anew`: earlier blocks go where they leave no room."""
        request, figures, story, learned = reading.request, reading.figures, reading.story, found.learned
        gone = request.gone
        if learned is not None and (old := stale(learned, request.blocks)):
            gone = {*gone, *old}
        epoch = epoch_budget(figures.available, figures.client + story.tokens, self.cap)
        live, spent = _stay(reading, epoch, gone, anew)
        if _blocked(request, story.transcript, live.blocks):
            return Layout(live, True, NO_OPENINGS, NOTHING_TO_TELL, Shares(0, 0, 0, 0))
        told = tellings(learned, live.blocks) if learned is not None else NOTHING_TO_TELL
        opened, wants = self._wants(reading, live, told, found.retrieved.worths)
        own = found.cards.beside(live.blocks) if found.cards is not None else None
        if own is not None:
            wants = wants._replace(cards=own.wants(self.counted(figures.scale), self.budgets.cards))
        budgets = self.budgets
        if reading.topics.whole:  # the message asks for all that is known, and facts are most of it
            budgets = replace(budgets, facts=max(budgets.facts, PROFILE_TOKENS[request.price or self.price]))
        working = None
        if request.has_tools and story.cut:
            said = "\0".join(map(text_of, request.messages))
            working = working_told(request.path, story.first, story.start, live.blocks, said)
        if working is not None:
            budgets = replace(budgets, working=max(budgets.working, figures.split.tools))
            wants = wants._replace(working=working.wants(self.counted(figures.scale)))
        room = memory_budget(
            figures.split.memory + min(wants.working, figures.split.tools),
            figures.available,
            figures.client + story.tokens,
            self.cap + sum(wanted(wants, budgets)),
            live.tokens,
            epoch=epoch if request.placement == "tail" else None,
        )
        shares = share_out(room, wants, budgets, self.cap)
        return Layout(live, False, opened, told, shares, own, spent, working)

    def _wants(
        self, reading: Reading, live: Live, told: FactLines, worths: Mapping[UUID, float]
    ) -> tuple[NotesDue, SectionNeeds]:
        """What there is to say beside memories, and what all of it would take."""
        request, count, opened = reading.request, self.counted(reading.figures.scale), NO_OPENINGS
        if request.standing is not NOTHING:
            visible = visible_from(request, reading.story) if request.path else request.scope.visible_from
            place = IndexScope(request.scope.session, visible, request.scope.ancestors)
            opened = openings(
                request.standing, live.blocks, place, reading.topics, worths, request.blocks if live.rebased else ()
            )
        learns = request.learns and request.search
        asks = self.questions and (due_now(request.standing, learns=learns) or (learns and told.asks))
        wants = opened.wants(count, self.budgets.question if asks else 0)
        if told is not NOTHING_TO_TELL:
            known = told.wants(request.now, count)
            wants = wants._replace(domain=known.domain, conflicts=known.conflicts, unclear=known.unclear)
        return opened, wants

    def say(
        self,
        reading: Reading,
        learned: FactsFound | None,
        layout: Layout,
        packed: Packed,
        later: LaterWordsShown = NONE_SHOWN,
    ) -> tuple[NoteLines, dict[str, Any]]:
        """Return the lines beside memories, and the account's entry for what is known of the question's things."""
        request, count, shares = reading.request, self.counted(reading.figures.scale), layout.shares
        learns = request.learns and request.search
        due = due_now(request.standing, learns=learns)
        outranked = (learned.outranked if learned is not None else frozenset[UUID]()) | frozenset(later.left_out)
        lines = say(layout.opened, shares, packed, due, count, self.questions, outranked, later.words)
        if layout.working is not None:
            layout.working.tell(lines, shares.working, count)
        known: dict[str, Any] = {}
        if learned is not None:
            questions = self.questions - len(lines.asked) if learns else 0
            asking = shares.question - lines.account.get("questions", {}).get("tokens", 0)
            chosen = tell(lines, layout.told, shares, request.now, count, questions=questions, asking=asking)
            known = told_known(reading.asked, learned, layout.told, chosen, self.budgets.domain, count)
        if layout.cards is not None:
            layout.cards.tell(lines, shares.cards, count)
        return lines, known


def _stay(reading: Reading, epoch_room: int, gone: Collection[UUID], anew: bool) -> tuple[Live, bool]:
    """The blocks that stay in the prompt; none where they must go (a new epoch); and whether they leave no room.
    `gone`: what must not be shown any more. Where the budget is spent they stay as long as they fit the prompt: it is
    for the message to need something (`anew`), and in a tool loop no new block may follow."""
    request, figures, story = reading.request, reading.figures, reading.story
    full, epoch = story.transcript, request.block_epoch
    blocks = [block for _, block in locate(request.blocks, full)] if request.placement == "tail" else []
    tokens = sum(block.token_count for block in blocks)
    may_rebase = blocks and not request.upstream_holds
    rebased = rebase_needed(blocks, epoch_room, gone) if may_rebase else None
    spent = rebased == "budget_spent"
    fits = tokens <= figures.available - figures.client - story.tokens
    if spent and fits and (not anew or full.mid_turn()):
        rebased = None
    return (Live(blocks, tokens, epoch, None) if rebased is None else Live((), 0, epoch + 1, rebased)), spent


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
