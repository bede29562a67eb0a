"""Choosing what goes into a budget (seed 000 §6.3), and how full it got (§8.4)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol
from uuid import UUID

from msgspec import Struct

from app.context.candidates import Candidate
from app.context.rank import words_in
from app.context.score import Scored, best_first
from app.context.transcript import RESULT_ROLES
from app.context.worth import Rate

DIGEST_SHARE, RECAP_SHARE = 1 / 3, 2 / 3
"""Most of a budget that summaries may take, and where it is asked what a conversation was about: a session's summary is as long
as a third of a block (docs/explanation/consolidation.md); the rest is for what was said in so many words."""
TELLING = 0.8
"""Share of an item's words that stand in another from which the two tell one thing: what they have less in common (the, and, I)
says nothing."""


class Reason(StrEnum):
    """Why an item is in the prompt, or is not."""

    CHOSEN = "chosen"
    OVER_BUDGET = "over_budget"  # it did not fit what was left
    DUPLICATE = "duplicate"  # the same words, or the message it was learned from, are in the prompt by another item
    VISIBLE = "visible"  # it stands in the prompt already: in the transcript, or in an earlier block
    BELOW_FLOOR = "below_floor"  # it is not worth its tokens at this price
    SUPPRESSED = "suppressed"  # forgotten, erased or superseded
    NOT_ASKED = "not_asked"  # a fact on which nothing that the message says bears
    OUTRANKED = "outranked"  # the business's own database says otherwise, and is the authority


class TokenMeter(Protocol):
    """Knows what items cost together, in tokens. It must not undercount."""

    @property
    def used(self) -> int:
        """The cost of all items added."""

    def cost(self, candidate: Candidate) -> int:
        """What adding this item would add to `used`; at least its `token_count`."""

    def add(self, candidate: Candidate) -> None: ...

    def remove(self, candidate: Candidate) -> None: ...


class PlainMeter:
    """Each item costs its stored token count, and nothing else: for search results, which are no prompt."""

    def __init__(self) -> None:
        self.used = 0

    def cost(self, candidate: Candidate) -> int:
        return candidate.token_count

    def add(self, candidate: Candidate) -> None:
        self.used += candidate.token_count

    def remove(self, candidate: Candidate) -> None:
        self.used -= candidate.token_count


class Verdict(NamedTuple):
    """One item's fate; `because_of` is the item whose words it repeats."""

    item: Scored
    reason: Reason
    because_of: UUID | None = None


class Packed(Struct, frozen=True):
    """`chosen` in packing order, `dropped` in packing order; `tokens` is what the meter says the chosen ones cost."""

    chosen: tuple[Scored, ...]
    dropped: tuple[Verdict, ...]
    tokens: int

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The chosen items, without their scores."""
        return tuple([each.candidate for each in self.chosen])

    @property
    def eligible(self) -> tuple[Scored, ...]:
        """The chosen items and those that only lacked room or score: what `efficiency` compares the choice with."""
        kept = {Reason.OVER_BUDGET, Reason.BELOW_FLOOR}
        return self.chosen + tuple([each.item for each in self.dropped if each.reason in kept])

    @property
    def afforded(self) -> tuple[Scored, ...]:
        """The chosen items and those that only lacked room: what was worth its tokens."""
        return self.chosen + tuple([each.item for each in self.dropped if each.reason == Reason.OVER_BUDGET])


def digest_room(budget: int, recap: bool) -> int:
    """Tokens that summaries may take of a budget."""
    return int(budget * (RECAP_SHARE if recap else DIGEST_SHARE))


def pack(
    scored: Sequence[Scored],
    budget: int,
    meter: TokenMeter,
    *,
    order: Literal["efficiency", "score"] = "efficiency",
    visible: Collection[UUID] = frozenset(),
    visible_hashes: Collection[bytes] = frozenset(),
    suppressed: Collection[UUID] = frozenset(),
    outranked: Collection[UUID] = frozenset(),
    limit: int | None = None,
    digests: int | None = None,
    price: Rate | None = None,
    told: Iterable[str] = (),
) -> Packed:
    """The greedy knapsack of seed 000 §6.3, but one that skips what does not fit and goes on.

    `order`: by score per token (the seed's efficiency η_i = s_i / w_i), or by score. Ties go by id. `visible`,
    `suppressed`: ids of items or of messages; a memory is visible, or suppressed, with the only message that it comes
    from. `outranked`: ids of memories alone; the message that says the same is what was said, and stays.
    `digests`: most tokens of items that sum up others, together; what they leave out is over budget.
    `price`: scores are likelihoods, and an item is taken only where its own, less what it repeats, is at least what the price
    asks of one that costs so many tokens; then a message gives way to a memory that is chosen already and says the same in
    fewer words.
    `told`: lines that the prompt has already; what repeats one of them is worth what it adds, too.
    `limit`: most items taken (what it leaves out is over budget). A meter that costs more than `budget` before any item is
    added (a summary too long for it) is the caller's to see: nothing is chosen then, and `tokens` is what the meter says.

    The same words go in once: of two items with one content hash the first, and of a raw message and a memory that
    comes from it alone the message, which says all that the memory says; a memory already chosen makes room for it.
    """
    gone, seen = frozenset(suppressed), frozenset(visible)
    if order == "score":
        ordered = best_first(scored)
    else:
        ordered = sorted(scored, key=lambda each: (-each.score / max(1, each.candidate.token_count), each.candidate.id))
    best = max([each.score for each in ordered], default=0.0)
    state = _Packing(budget, meter, limit, digests, price, best, told)
    for item in ordered:
        candidate = item.candidate
        origin = candidate.origin
        if candidate.id in gone or origin in gone:
            state.drop(item, Reason.SUPPRESSED)
        elif candidate.id in outranked:
            state.drop(item, Reason.OUTRANKED)
        elif candidate.id in seen or origin in seen or candidate.content_hash in visible_hashes:
            state.drop(item, Reason.VISIBLE)
        else:
            state.offer(item, origin)
    return Packed(tuple(state.chosen.values()), tuple(state.dropped), meter.used)


class _Packing:
    def __init__(
        self,
        budget: int,
        meter: TokenMeter,
        limit: int | None,
        digests: int | None,
        price: Rate | None,
        best: float,
        told: Iterable[str],
    ) -> None:
        self.budget = budget
        self.meter = meter
        self.limit = limit
        self.digests = digests  # tokens left for them
        self.price = price
        self._best = best
        self._least = price.least_of_one(0, best) if price is not None else 0.0  # whatever an item costs
        # Words of each line that is there, and of each chosen item.
        self._told = [frozenset(words_in(line)) for line in told] if price is not None else []
        self._every = set().union(*self._told)
        self._own: frozenset[str] = frozenset()  # words of the item that is looked at
        self.chosen: dict[UUID, Scored] = {}
        self.dropped: list[Verdict] = []
        self._hashes: dict[bytes, UUID] = {}
        self._derived: dict[UUID, list[UUID]] = {}  # message → chosen memories that come from it alone

    def drop(self, item: Scored, reason: Reason, because_of: UUID | None = None) -> None:
        self.dropped.append(Verdict(item, reason, because_of))

    def offer(self, item: Scored, origin: UUID | None) -> None:
        """Take the item, or say why not."""
        candidate = item.candidate
        twin = self._hashes.get(candidate.content_hash) if candidate.content_hash else None
        if twin is None and origin in self.chosen:
            twin = origin
        # A raw message takes the place of the memories drawn from it, even where one of them repeats it word for word.
        replaced = self._derived.get(candidate.id, ())
        if twin is None and self.price is not None and replaced:
            twin, replaced = replaced[0], ()
        if twin is not None and twin not in replaced:
            self.drop(item, Reason.DUPLICATE, twin)
        elif self.price is not None and not self._worth(item, self.price):
            self.drop(item, Reason.BELOW_FLOOR)
        elif not self._fits(candidate, replaced):
            self.drop(item, Reason.OVER_BUDGET)
        else:
            for memory in replaced:
                self._remove(memory, candidate.id)
            self._derived.pop(candidate.id, None)
            self._add(item, origin)

    def _worth(self, item: Scored, price: Rate) -> bool:
        """Whether what it adds to the chosen ones pays for its tokens."""
        if item.score < self._least:
            return False
        least = price.least_of_one(self.meter.cost(item.candidate), self._best)
        if item.score < least:
            return False
        self._own = frozenset(words_in(item.candidate.text))
        return item.score * (1.0 - self._repeats(self._own)) >= least

    def _repeats(self, words: frozenset[str]) -> float:
        """The share of these words that a chosen item tells already; 0 where that is less than `TELLING`."""
        if len(words & self._every) < TELLING * len(words):  # then no single one tells so many of them
            return 0.0
        most = max([len(words & told) for told in self._told], default=0) / max(1, len(words))
        return most if most >= TELLING else 0.0

    def _fits(self, candidate: Candidate, replaced: Sequence[UUID]) -> bool:
        if self.limit is not None and len(self.chosen) - len(replaced) >= self.limit:
            return False
        if self.digests is not None and candidate.token_count > self.digests and candidate.digest:
            return False
        if not replaced:
            room = self.budget - self.meter.used
            return candidate.token_count <= room and self.meter.cost(candidate) <= room
        for memory in replaced:
            self.meter.remove(self.chosen[memory].candidate)
        fits = self.meter.used + self.meter.cost(candidate) <= self.budget
        for memory in replaced:
            self.meter.add(self.chosen[memory].candidate)
        return fits

    def _add(self, item: Scored, origin: UUID | None) -> None:
        candidate = item.candidate
        self.meter.add(candidate)
        if self.price is not None:
            self._told.append(self._own)
            self._every |= self._own
        self._spend_digest(candidate, 1)
        self.chosen[candidate.id] = item
        self._hashes[candidate.content_hash] = candidate.id
        if origin is not None:
            self._derived.setdefault(origin, []).append(candidate.id)

    def _remove(self, memory: UUID, because_of: UUID) -> None:
        item = self.chosen.pop(memory)
        self.meter.remove(item.candidate)
        self._spend_digest(item.candidate, -1)
        self._hashes.pop(item.candidate.content_hash, None)
        self.drop(item, Reason.DUPLICATE, because_of)

    def _spend_digest(self, candidate: Candidate, sign: int) -> None:
        if self.digests is not None and candidate.digest:
            self.digests -= sign * candidate.token_count


# --- the history ---------------------------------------------------------------------------------------------------------


class Suffix(NamedTuple):
    """The history to send: messages `[:first]`, then `[start:]`. `first` is 0 where the head is not kept apart."""

    start: int
    first: int
    tokens: int


def history_suffix(
    token_counts: Sequence[int], budget: int, keep_first: bool = True, *, roles: Sequence[str] | None = None
) -> Suffix:
    """The longest suffix of the history within `budget`: seed 000 §6.3's largest k, by a backward cumulative sum.

    With `roles` the suffix begins at a user message if one of those that fit is one, else at least not at a tool's
    result, whose call would be missing (and many chat templates refuse both). With `keep_first` the first turn (up to
    the second user message; without roles: the first message) is kept as well (seed 001 §5.2), if it fits beside the
    last turn.
    """
    count = len(token_counts)
    start, used = _backward(token_counts, budget, roles)
    if start == 0 or not keep_first:
        return Suffix(start, 0, used)
    turns = [i for i in range(count) if roles is None or roles[i] == "user"]
    head = next((i for i in turns if i > 0), count)
    last = turns[-1] if turns else count - 1
    head_cost = sum(token_counts[:head])
    if last < head or head_cost + sum(token_counts[last:]) > budget:
        return Suffix(start, 0, used)
    start, used = _backward(token_counts, budget - head_cost, roles)
    return Suffix(start, head, used + head_cost) if start > head else Suffix(0, 0, sum(token_counts))


def _backward(token_counts: Sequence[int], budget: int, roles: Sequence[str] | None) -> tuple[int, int]:
    start, used = len(token_counts), 0
    while start > 0 and used + token_counts[start - 1] <= budget:
        start -= 1
        used += token_counts[start]
    if roles is not None and start < len(token_counts):
        fitting = range(start, len(token_counts))
        begin = next((i for i in fitting if roles[i] == "user"), None)
        if begin is None:
            begin = next((i for i in fitting if roles[i] not in RESULT_ROLES), len(token_counts))
        used -= sum(token_counts[start:begin])
        start = begin
    return start, used


# --- how full it got -----------------------------------------------------------------------------------------------------


class Efficiency(NamedTuple):
    """A measure of how well a compile used its memory budget B.

    Each figure is 0 to 1, and None where there was no candidate or no budget to use.
    `eta` is η_ctx of seed 000 §8.4, `quality` · `fill`, over the whole of B. `eta_of_worthy` is η with B = min(B, tokens of the
    candidates that are worth their tokens): a fair measure of the packer if these candidates do not fill B. `attainable` is
    `eta_of_worthy` with quality measured against the best selection of that many tokens from all candidates.
    """

    eta: float | None
    quality: float | None
    fill: float | None
    eta_of_worthy: float | None
    attainable: float | None


UNDEFINED = Efficiency(None, None, None, None, None)


def efficiency(
    chosen: Iterable[Scored],
    everything: Iterable[Scored],
    budget: int,
    spent: int | None = None,
    worthy: Iterable[Scored] | None = None,
    beyond: Iterable[tuple[float, int]] = (),
) -> Efficiency:
    """Return how well `chosen` uses `budget` tokens.

    η = (Σ_selected s·w ÷ Σ_all s·w) · (Σ_selected w ÷ B) of seed 000 §8.4: s is an item's relevance (≥ 0), w its stored token
    count. If no candidate has any relevance, the first factor is 1.

    Args:
        chosen: The items in the prompt.
        everything: All candidates, the chosen ones among them.
        budget: B, tokens.
        spent: What the chosen items really cost, where that is more than their own tokens (lines and dates of a memory block);
            only `eta_of_worthy` and `attainable` count it.
        worthy: The candidates that are worth their tokens, where a token has a price; None: all are.
        beyond: s and w of candidates that were ranked and not fetched.
    """
    pool = [(each.relevance, each.candidate.token_count) for each in everything]
    pool += beyond
    if not pool or budget <= 0:
        return UNDEFINED
    taken = [(each.relevance, each.candidate.token_count) for each in chosen]
    worth = sum([value * tokens for value, tokens in taken])
    whole = sum([value * tokens for value, tokens in pool])
    tokens_taken = sum([tokens for _, tokens in taken])
    quality = worth / whole if whole > 0 else 1.0
    fill = min(1.0, tokens_taken / budget)
    worthy_tokens = (
        [tokens for _, tokens in pool] if worthy is None else [item.candidate.token_count for item in worthy]
    )
    room = min(budget, sum(worthy_tokens))
    if room <= 0:  # no candidate was worth its tokens, so that no choice is better
        return Efficiency(quality * fill, quality, fill, 1.0, 1.0)
    room_used = min(1.0, (tokens_taken if spent is None else spent) / room)
    best, left = 0.0, room  # a fractional fill by relevance bounds every choice from above
    for value, tokens in sorted(pool, reverse=True):
        part = min(tokens, left)
        best += value * part
        left -= part
        if left <= 0:
            break
    attained = min(1.0, worth / best) if best > 0 else 1.0
    return Efficiency(quality * fill, quality, fill, quality * room_used, attained * room_used)
