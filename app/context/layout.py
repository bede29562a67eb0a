"""The room of this turn's block: which blocks of earlier turns stay in the prompt, what there is to say beside memories, and
who gets how much."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from msgspec import Struct

from app.context.asked import Asked
from app.context.assemble import Block, locate, rebase_needed
from app.context.bearing import NOTHING_READ, Reading
from app.context.budget import epoch_budget, memory_budget
from app.context.card_section import CardsTold, cards_told
from app.context.explaining import told_known
from app.context.facts_section import NOTHING_TO_TELL, Learned, Tellings, shown, stale, tell, tellings
from app.context.notes import NO_OPENINGS, Count, Openings, Place, Said, due_now, fact_lines, openings, say
from app.context.pack import Packed
from app.context.request import CompileRequest
from app.context.sections import Budgets, Shares, Wants, share_out, wanted
from app.context.story import Figures, Story, visible_from
from app.context.transcript import Transcript
from app.store.cards import Card
from app.store.user_profile import NOTHING


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
    opened: Openings
    told: Tellings
    shares: Shares
    cards: CardsTold | None = None
    spent: bool = False

    @property
    def notes(self) -> bool:
        """Whether lines may be quoted beside what is found."""
        own = self.shares
        return any((own.profile, own.question, own.domain, own.conflicts, own.unclear, own.cards))

    def needs(self, packed: Packed) -> bool:
        """Whether a message needs something that does not stand in the blocks that stay: of what was chosen without them, or of
        what is known."""
        there = shown(self.live.blocks)
        cards = self.cards is not None and self.cards.cards
        new = any(each.candidate.id not in there for each in packed.chosen)
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


class Layouts:
    """Lays blocks out by these rules."""

    def __init__(self, cap: int, budgets: Budgets, questions: int, note_tokens: Callable[[str], int]) -> None:
        """As `Compiler` has them. `note_tokens`: tokens of a text as they are stored."""
        self._cap = cap
        self._budgets = budgets
        self._questions = questions
        self._note_tokens = note_tokens

    def counted(self, scale: float) -> Count:
        """Counts notes as the model may."""
        return lambda text: ceil(self._note_tokens(text) * scale)

    def of(
        self,
        request: CompileRequest,
        figures: Figures,
        story: Story,
        learned: Learned | None,
        cards: Sequence[Card] | None = None,
        *,
        reading: Reading = NOTHING_READ,
        worths: Mapping[UUID, float] = MappingProxyType({}),
        anew: bool = False,
    ) -> Layout:
        """Of a request. `learned`: what is known by now of the things that it names; `cards`: those that it asks for, as far as
        they are read. `reading`, `worths`: see `bears_on`. `anew`: earlier blocks go where they leave no room."""
        gone = request.gone
        if learned is not None and (old := stale(learned, request.blocks)):
            gone = {*gone, *old}
        epoch = epoch_budget(figures.available, figures.client + story.tokens, self._cap)
        live, spent = _stay(request, figures, story, epoch, gone, anew)
        if _blocked(request, story.transcript, live.blocks):
            return Layout(live, True, NO_OPENINGS, NOTHING_TO_TELL, Shares(0, 0, 0, 0))
        told = tellings(learned, live.blocks) if learned is not None else NOTHING_TO_TELL
        opened, wants = self._wants(request, figures, story, live, told, reading, worths)
        own = cards_told(cards, live.blocks) if cards is not None else None
        if own is not None:
            wants = wants._replace(cards=own.wants(self.counted(figures.scale), self._budgets.cards))
        room = memory_budget(
            figures.split.memory,
            figures.available,
            figures.client + story.tokens,
            self._cap + sum(wanted(wants, self._budgets)),
            live.tokens,
            epoch=epoch if request.placement == "tail" else None,
        )
        return Layout(live, False, opened, told, share_out(room, wants, self._budgets, self._cap), own, spent)

    def _wants(
        self,
        request: CompileRequest,
        figures: Figures,
        story: Story,
        live: Live,
        told: Tellings,
        reading: Reading,
        worths: Mapping[UUID, float],
    ) -> tuple[Openings, Wants]:
        """What there is to say beside memories, and what all of it would take."""
        count, opened = self.counted(figures.scale), NO_OPENINGS
        if request.standing is not NOTHING:
            visible = visible_from(request, story) if request.path else request.scope.visible_from
            place = Place(request.scope.session, visible, request.scope.ancestors)
            opened = openings(
                request.standing, live.blocks, place, reading, worths, request.blocks if live.rebased else ()
            )
        learns = request.learns and request.search
        asks = self._questions and (due_now(request.standing, learns=learns) or (learns and told.asks))
        wants = opened.wants(count, self._budgets.question if asks else 0)
        if told is not NOTHING_TO_TELL:
            known = told.wants(request.now, count)
            wants = wants._replace(domain=known.domain, conflicts=known.conflicts, unclear=known.unclear)
        return opened, wants

    def say(
        self,
        request: CompileRequest,
        asked: Asked,
        learned: Learned | None,
        layout: Layout,
        packed: Packed,
        scale: float,
    ) -> tuple[Said, dict[str, Any]]:
        """The lines beside memories; and what the account tells of what is known."""
        count, shares, learns = self.counted(scale), layout.shares, request.learns and request.search
        due = due_now(request.standing, learns=learns)
        outranked = learned.outranked if learned is not None else ()
        said = say(layout.opened, shares, packed, due, count, self._questions, outranked)
        known: dict[str, Any] = {}
        if learned is not None:
            questions = self._questions - len(said.asked) if learns else 0
            asking = shares.question - said.account.get("questions", {}).get("tokens", 0)
            chosen = tell(said, layout.told, shares, request.now, count, questions=questions, asking=asking)
            known = told_known(asked, learned, layout.told, chosen, self._budgets.domain, count)
        if layout.cards is not None:
            layout.cards.tell(said, shares.cards, count)
        return said, known


def _stay(
    request: CompileRequest, figures: Figures, story: Story, epoch_room: int, gone: Collection[UUID], anew: bool
) -> tuple[Live, bool]:
    """The blocks that stay in the prompt; none where they must go (a new epoch); and whether they leave no room.
    `gone`: what must not be shown any more. Where the budget is spent they stay as long as they fit the prompt: it is
    for the message to need something (`anew`), and in a tool loop no new block may follow."""
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
