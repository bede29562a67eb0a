"""Candidates for a prompt or a search (seed 000 §6.4 phase 3): all is ranked by numbers alone, the best is fetched, and of long
messages the passage that answers is cut out (`PassageCutter`)."""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from app.context.bearing import BEARS_WORTH
from app.context.candidates import CHANNEL_SETS, CHANNELS, Candidate
from app.context.notes import SoughtClaim
from app.context.question import Asked, TimeSpan
from app.context.rank import (
    ENTITY_CHANNEL,
    SUMMARY_CHANNEL,
    TEXT_CHANNEL,
    Column,
    Ranking,
    gains,
    highest,
    rank,
    words_in,
)
from app.context.score import Profile
from app.context.worth import LINE, MOST_PRIOR, Judgement, Rate, judge, sigmoids
from app.errors import Unavailable
from app.index.analyse import UNSPACED
from app.index.indexes import CurrentIndex, Indexes, IndexScope
from app.index.user_index import NEVER, FurtherItems, SharedPart
from app.memory.candidate import Provenance
from app.providers.embeddings import Embedder
from app.store.item_columns import EPOCH, MEMORY_KIND, NO_LATER_WORDS, LaterWords, Places, Scan, ids_of
from app.store.kinds import SUMMARIES
from app.store.records import ROLE_NAMES, Vector
from app.store.turns import RetrievedRow, TurnStore
from app.store.user_profile import NOTHING, EndedFact, Standing

# --- the passage of a long message that answers a question ---------------------------------------------------------------
#
# A block of 1,500 tokens holds three pages of text, or thirty points. A cut begins where a sentence or a line does, and ends
# there where it can. Nothing is stored for it: the message is indexed whole, and some thirty are cut for a prompt.

PASSAGE_TOKENS = 50
"""What a passage is to cost, tokens. Recall at 1,500 tokens, chat / work: 40: .86 / .74 (too little of a turn to count), 50:
.90 / .77, 60: .89 / .76, 80: .89 / .73."""
WHOLE_TOKENS = 75
"""A message of so many tokens is not cut: half a passage is not worth a cut."""
MAX_CHARS = 20_000
"""Of a longer message the beginning is looked at: a pasted file says what it is about first."""
MOST_STARTS = 400
"""Places at which a passage may begin: some 16,000 characters of prose."""
LEAD = 0.2
"""What the beginning of a message is worth, as a part of its best word: what is meant is said first."""
AGAIN = 0.2
"""What a word's second time in a passage is worth, as a part of its first."""
_STARTS = re.compile(r"(?:[.!?:;][\"')\]]*\s+|\n\s*)(?=\S)")
_UNSPACED = re.compile(f"[{UNSPACED}]")


class PassageCutter:
    """Cuts messages for one question. `words`: its stems, `gains`: what each is worth; `count`: tokens of a text."""

    def __init__(self, words: Sequence[str], gains: Sequence[float], count: Callable[[str], int]) -> None:
        self._count = count
        self._stems = [word[:-1] if word.endswith("i") else word for word in words]
        self._gains = [max(gain, 0.0) for gain in gains]
        self._lead = LEAD * max(self._gains, default=1.0)

    @cached_property
    def _words(self) -> re.Pattern[str]:
        """The words of the question, each a group of its own. Made when the first message is long: many questions have none."""
        if not any(_UNSPACED.match(stem) for stem in self._stems):
            pattern = "|".join(f"({re.escape(stem)})" for stem in self._stems)
            return re.compile(rf"\b(?:{pattern})", re.IGNORECASE)
        # Where words stand without spaces between them, most begin in the middle of a run of letters.
        starts = ["" if _UNSPACED.match(stem) else r"\b" for stem in self._stems]
        pattern = "|".join(f"({start}{re.escape(stem)})" for start, stem in zip(starts, self._stems, strict=True))
        return re.compile(pattern, re.IGNORECASE)

    def cut(self, text: str, tokens: int) -> tuple[int, int, int] | None:
        """Where the passage of a message of so many tokens begins and ends, and its own tokens; None: it is short enough to be
        shown whole."""
        if tokens <= WHOLE_TOKENS:
            return None
        seen = text[:MAX_CHARS]
        width = max(1, PASSAGE_TOKENS * len(text) // tokens)
        first = len(seen) - len(seen.lstrip())
        starts = [first, *(each.end() for each in _STARTS.finditer(seen, first))][:MOST_STARTS]
        start, stop = self._best(seen, starts, width)
        while True:
            passage = text[start:stop]
            stripped = passage.strip()
            start += len(passage) - len(passage.lstrip())
            stop = start + len(stripped)
            cost = self._count(stripped)
            if cost <= WHOLE_TOKENS or len(stripped) < 2:
                return start, stop, cost
            shorter = start + max(1, len(stripped) * PASSAGE_TOKENS // cost)
            space = text.rfind(" ", start, shorter)
            stop = space if space > start else shorter

    def _best(self, text: str, starts: Sequence[int], width: int) -> tuple[int, int]:
        """The passage of about that many characters that has the most words of the question."""
        best, top = (starts[0], _end(text, starts, starts[0], width)), -1.0
        if not self._stems:
            return best
        hits = [(each.start(), (each.lastindex or 1) - 1) for each in self._words.finditer(text)]
        places = [place for place, _ in hits]
        for start in starts:
            low = bisect_left(places, start)
            if low == len(places):
                break
            if places[low] > start + width:
                continue
            stop = _end(text, starts, start, width)
            worth = 0.0 if start > starts[0] else self._lead
            seen: set[int] = set()
            for _, word in hits[low : bisect_left(places, stop)]:
                worth += self._gains[word] * (AGAIN if word in seen else 1.0)
                seen.add(word)
            if worth > top:
                best, top = (start, stop), worth
        return best


def _end(text: str, starts: Sequence[int], start: int, width: int) -> int:
    """Where the passage ends: with its last whole sentence, or else with a word."""
    limit = start + width + width // 7
    if limit >= len(text):
        return len(text)
    last = bisect_right(starts, limit) - 1
    if starts[last] > start + width // 2:
        return starts[last]
    space = text.rfind(" ", start + width // 2, start + width)
    return space if space > start else start + width


# --- what is fetched -----------------------------------------------------------------------------------------------------


MOST_VECTORS, MOST_WORDED = 12_000, 50
"""How much channels bring, to prompts and searches alike: vectors (all of them, while there are no more; else the nearest),
and by words (which are looked up until so many documents, four times, have one). Evidence is often found by its neighbours:
with 300 candidates for each channel chat loses .003, with 100 .05. Words beyond the first 200 documents find nothing more;
with 60 documents work loses .015."""
SLACK = 1.1
"""How many times the tokens of the budget are fetched: what repeats something, or may not come up, is left out only then. (In a
prompt the lines around the texts make it 1.4 times.)"""
FEWEST = 12
MOST = 400
"""Items fetched at a time."""
ROUNDS = 4
"""Times that more is fetched, where too much of it may not come up."""
TIED, TIED_LOOKED_AT = 30, 600
"""Memories that are about what the question names, at most (seed 004), the nearest of so many of the latest."""
MOST_REVIEWED, MESSAGES_REVIEWED = 24, 4
"""The number of likeliest items whose memories are compared with the user's later messages, and of those whose messages are,
too. A message is quoted with its day, so that only the likeliest need it."""
MOST_LISTED = 200
"""Statements fetched where a message asks for all that is known of the user: more than the highest price has room for."""
BEYOND = 100
"""Of what was not fetched so many are told one by one: more than a block holds."""
RAW_KINDS = frozenset({"turn", "message", "passage"})
"""The kinds of raw text; all others are kinds of memories."""


class SharedScope(NamedTuple):
    """A space that the user may read. `session`: of the space's what stands in the prompt; `fresh`: its index, where it was
    read with the request's place."""

    space_id: UUID
    name: str
    session: UUID | None = None
    fresh: CurrentIndex | None = None


class Scope(Struct, frozen=True):
    """Whose memory, and what of it is not wanted because it stands in the prompt already (see `UserIndex.scan`)."""

    tenant_id: UUID
    user_id: UUID
    confine: UUID | None = None
    session: UUID | None = None
    visible_from: int = 1
    ancestors: Sequence[UUID] = ()
    history: bool = False
    fresh: CurrentIndex | None = None
    """The user's index, where it was read with the request's place."""
    shared: tuple[SharedScope, ...] = ()
    """Spaces whose memory is asked together with the user's."""


class Wanted(NamedTuple):
    """How much is wanted: tokens, and items at most. `only`: raw messages (0) or memories (1). `further`: words to look for
    besides those of the question."""

    tokens: int
    items: int | None = None
    only: int | None = None
    further: str = ""
    claims: Sequence[SoughtClaim] = ()
    """Memories that habits have looked for besides."""
    related: Callable[[], frozenset[str]] = frozenset
    """Ids of what the things that the question names lead to, as far as they are known by now."""
    price: Rate | None = None
    """What an item must be worth (`worth.PRICES`): what cannot be is not fetched, and nothing where memory is not asked. None:
    the best, as much as is wanted."""
    bears: bool = False
    """Something that is known of the user bears on the question (`bearing`)."""
    wait_s: float | None = None
    """Most seconds that the question's vector may take; None: any time; 0: words are enough."""
    fact_memories: Sequence[UUID] | None = None
    """Memories behind the prompt's facts. The user's later messages with their words, and with those of the found items, are
    returned, too; None: no later messages are wanted."""


LaterMessages = Mapping[str, Sequence[RetrievedRow]]
"""By item (its id as `ids_of` has it), the user's own later messages that share its telling words, the latest last."""


class Retrieved(NamedTuple):
    """`candidates`: not yet scored by what only their rows tell; `statuses`: of those that are not in force (only with
    `history`). `asked`: whether memory is asked; None: that was not looked at, for there is no price. `worths`: the
    likelihood of each memory that is more likely evidence than not (`bearing.BEARS_WORTH`), fetched or not."""

    candidates: list[Candidate]
    statuses: Mapping[UUID, str]
    asked: bool | None = None
    worths: Mapping[UUID, float] = MappingProxyType({})
    in_prompt: Sequence[tuple[UUID, float]] = ()
    """Memories of this session alone that the request uses, each with its likelihood. They are no candidates, because
    their messages are in the prompt already."""
    beyond: Sequence[tuple[float, int]] = ()
    """Likelihood and tokens of what was ranked and not fetched, for it could not be worth its tokens: what η is measured
    against, too (seed 000 §8.4). The likeliest `BEYOND`, and the rest as one."""
    later: LaterMessages = MappingProxyType({})
    """The user's later messages with the words of an item."""
    unlisted_count: int | None = None
    """The number of the user's statements that were not fetched, where a message asks for all of them; None: it does not."""


class NoVector(Unavailable):
    """The question has no vector: its embedder is away, or too slow."""


class Retriever:
    """Turns a question into candidates."""

    def __init__(self, store: TurnStore, embedder: Embedder, count: Callable[[str], int], indexes: Indexes) -> None:
        """`count`: tokens of a text as they are stored (o200k). `indexes`: of users, in memory."""
        self._store = store
        self._embedder = embedder
        self._count = count
        self._indexes = indexes
        self.space: int | None = None
        """The number of the embedder's space; None: not known yet."""

    async def candidates(self, asked: Asked, scope: Scope, wanted: Wanted, profile: Profile) -> Retrieved:
        """The candidates most likely to be chosen.

        Raises StoreUnavailable, NoVector (an embedder that is away, or too late for `wanted.wait_s`).
        """
        query = asked.text.replace("\0", " ")  # Postgres takes none
        vector = await self.vector(query, wanted.wait_s)
        if wanted.further:
            query = f"{query} {wanted.further}"
        tied = await self._tied(asked, scope, wanted, profile)
        boosts: Mapping[UUID, float] = {}
        if wanted.claims and wanted.only != 0:
            sought = [each._asdict() for each in wanted.claims]
            boosts = await self._store.claiming(scope.tenant_id, scope.user_id, sought, TIED)
            tied = [*tied, *boosts]
        where = IndexScope(
            scope.session, scope.visible_from, scope.ancestors, scope.history, wanted.only, scope.confine
        )
        scan = await self._indexes.scan(
            scope.tenant_id,
            scope.user_id,
            query,
            vector,
            where,
            vectors=MOST_VECTORS,
            texts=MOST_WORDED,
            also=FurtherItems(tied, _moments(asked.span), asked.recap or "summary" in profile.channels),
            fresh=scope.fresh,
            shared=[SharedPart(each.space_id, each.session) for each in scope.shared],
            shared_fresh={each.space_id: each.fresh for each in scope.shared if each.fresh is not None},
        )
        here = asked.turns is not None
        in_prompt: Sequence[tuple[UUID, float]] = ()
        if scan.in_prompt is not None and wanted.price is not None and profile.priced:
            in_prompt = find_used_in_prompt(scan.in_prompt, query, asked, wanted.price, profile)
        ranking = rank(scan, query, where, span=asked.span, recap=asked.recap, here=here, tied=tied)
        scores = ranked_by(ranking, profile) if profile.ranked else None
        judgement = None
        if wanted.price is not None and profile.priced and scores is not None:
            judgement = judge(ranking, asked, scores, bears=wanted.bears)
        if judgement is not None and not judgement.passes:
            later = await self.find_later(scope, wanted.fact_memories or ())
            return Retrieved([], {}, False, in_prompt=in_prompt, later=later)
        words = NO_LATER_WORDS
        cutter = PassageCutter(scan.words, gains(scan).tolist(), self._count)
        found: list[Candidate] = []
        statuses: dict[UUID, str] = {}
        names = {each.space_id: each.name for each in scope.shared}
        tokens = 0
        fetched: list[NDArray[np.intp]] = []
        messages: dict[str, RetrievedRow] = {}
        for part in islice(_parts(ranking, profile, wanted, bool(asked.things or boosts), scores, judgement), ROUNDS):
            places = ranking.places(part)
            if not fetched and wanted.fact_memories is not None and scan.find_later is not None:
                # Later messages come with the first part, in the same round trip.
                words = scan.find_later(
                    [memory.hex for memory in wanted.fact_memories] + _list_reviewed(ranking, part, places)
                )
                if words.of:
                    places = np.concatenate([places, _select_new(words, ids_of(places))], dtype=places.dtype)
            fetched.append(part)
            rows = await self._fetch(places, scope)
            numbers = _numbers(ranking, part, judgement)
            for row in rows:
                if words.of:
                    messages[row.item_id.hex] = row
                if row.n > len(part):
                    continue
                each = _candidate(row, numbers[row.n - 1], cutter, asked.about)
                if row.owner is not None:
                    each = each._replace(space=names[row.owner], space_id=row.owner)
                if each.source == "memory" and each.importance < profile.least_importance:
                    continue
                if each.id in boosts:
                    each = each._replace(importance=min(1.0, each.importance + boosts[each.id]))
                found.append(each)
                tokens += each.token_count
                if row.status not in ("active", "aging"):
                    statuses[row.item_id] = row.status
            if tokens >= wanted.tokens or (wanted.items is not None and len(found) >= wanted.items):
                break
        later = _collect_later(words, messages)
        if judgement is None:
            return Retrieved(found, statuses, later=later)
        worths, beyond = _worths(ranking, judgement), _beyond(ranking, judgement, fetched)
        return Retrieved(found, statuses, True, worths, in_prompt, beyond, later)

    async def find_later(self, scope: Scope, memories: Sequence[UUID]) -> LaterMessages:
        """Return the user's later messages with the telling words of memories, where nothing is searched. The database is asked
        only if the index has some. Raises StoreUnavailable."""
        if not memories or scope.confine is not None:
            return {}
        index_scope = IndexScope(scope.session, scope.visible_from, scope.ancestors)
        items = [memory.hex for memory in memories]
        words = await self._indexes.find_later(scope.tenant_id, scope.user_id, items, index_scope, scope.fresh)
        if not words.of:
            return {}
        rows = await self._fetch(_select_new(words, ()), scope)
        return _collect_later(words, {row.item_id.hex: row for row in rows})

    async def list_statements(self, scope: Scope, fact_memories: Sequence[UUID]) -> Retrieved:
        """Return what is known of the user, the most important first, where a message asks for all of that.

        Statements whose messages stand in the prompt, and those that another one repeats, are left out. `fact_memories`: the
        memories behind the prompt's facts. Raises StoreUnavailable.
        """
        if scope.confine is not None:
            return Retrieved([], {})
        places, total = await self._store.list_statements(scope.tenant_id, scope.user_id, MOST_LISTED)
        rows = await self._fetch(places, scope) if len(places) else []
        cutter = PassageCutter((), (), self._count)
        statements = [_candidate(row, _NOT_RANKED, cutter, frozenset()) for row in sorted(rows, key=lambda row: row.n)]
        statements = _drop_repeated([item for item in statements if not _is_in_prompt(item, scope)])
        later = await self.find_later(scope, [*fact_memories, *(item.id for item in statements)])
        return Retrieved(statements, {}, later=later, unlisted_count=total - len(places))

    async def habits(self, scope: Scope) -> Standing:
        """The procedures that may widen a search; none for callers without a user. Raises StoreUnavailable."""
        return NOTHING if scope.confine is not None else await self._store.procedures(scope.tenant_id, scope.user_id)

    async def _tied(self, asked: Asked, scope: Scope, wanted: Wanted, profile: Profile) -> Sequence[UUID]:
        """Memories that are about what the question names, whatever their words are; looked for where that is a known thing,
        or the profile asks for it."""
        if wanted.only == 0 or not (asked.things or "entity" in profile.channels):
            return ()
        about = sorted(each.replace("\0", "") for each in asked.about | wanted.related())
        whose = [scope.user_id, *(each.space_id for each in scope.shared)]
        found = await asyncio.gather(
            *(self._store.tied(scope.tenant_id, each, about, TIED_LOOKED_AT) for each in whose)
        )
        return [memory for memories in found for memory in memories]

    async def vector(self, query: str, wait_s: float | None = None) -> Vector | None:
        """Of a question; None where there is none. Raises NoVector."""
        if not self._embedder.dimensions or not query or wait_s == 0:
            return None
        if self.space is None:
            self.space = await self._store.space_of(self._embedder.space)
            if self.space is None:
                return None
        try:
            async with asyncio.timeout(wait_s) as limit:
                (vector,) = await self._embedder.embed([query])
        except Unavailable as error:
            raise NoVector(error.message) from error
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise NoVector("The embedder took too long for the question.") from error
        return vector if vector.any() else None

    async def _fetch(self, places: Places, scope: Scope) -> list[RetrievedRow]:
        return await self._store.fetch_items(
            scope.tenant_id,
            scope.user_id,
            places,
            confine=scope.confine,
            session=scope.session,
            visible=scope.visible_from,
            ancestors=scope.ancestors,
            history=scope.history,
            shared=[(each.space_id, each.session) for each in scope.shared] if scope.confine is None else (),
        )


def _is_in_prompt(item: Candidate, scope: Scope) -> bool:
    """Return whether the message that a memory was learned from stands in the prompt."""
    if item.session_id is None:
        return False
    if item.session_id == scope.session:
        return (item.turn_index or 0) >= scope.visible_from
    return item.session_id in scope.ancestors


def _drop_repeated(items: Sequence[Candidate]) -> list[Candidate]:
    """Return the items, in order, without those whose words all stand in another one."""
    words = [frozenset(words_in(item.text)) for item in items]
    return [
        item
        for number, item in enumerate(items)
        if not any(
            words[number] < other_words or (words[number] == other_words and place < number)
            for place, other_words in enumerate(words)
        )
    ]


def _parts(
    ranking: Ranking, profile: Profile, wanted: Wanted, things: bool, scores: Column | None, judgement: Judgement | None
) -> Iterator[NDArray[np.intp]]:
    """What to fetch, the likeliest first: as much as fills the budget `SLACK` times, and again. `things`: with the first of it
    comes whatever is tied to them."""
    order = _order(ranking, profile, scores)
    if judgement is not None and wanted.price is not None:
        order = order[_affordable(ranking, judgement, wanted.price)[order]]
    if things and profile.ranked and len(tied := _nearest(ranking, ENTITY_CHANNEL, TIED)):
        rest = _parts_of(ranking, order[~np.isin(order, tied)], profile, wanted)
        yield np.concatenate([tied, next(rest, tied[:0])])
        yield from rest
    else:
        yield from _parts_of(ranking, order, profile, wanted)


def _parts_of(
    ranking: Ranking, order: NDArray[np.intp], profile: Profile, wanted: Wanted
) -> Iterator[NDArray[np.intp]]:
    reach = np.cumsum(np.minimum(ranking.tokens[order], PASSAGE_TOKENS + 5))
    begin = 0
    while begin < len(order):
        paid = float(reach[begin - 1]) if begin else 0.0
        end = int(np.searchsorted(reach, paid + SLACK * wanted.tokens)) + 1
        if wanted.items is not None:
            end = min(end, begin + int(SLACK * wanted.items) + 1)
        end = min(max(end, begin + FEWEST), begin + MOST)
        yield order[begin:end] if profile.ranked else order
        if not profile.ranked:
            return
        begin = end


def _affordable(ranking: Ranking, judgement: Judgement, price: Rate) -> NDArray[np.bool_]:
    """Which items (n,) may turn out to be worth their tokens, once what only rows tell of memories is known."""
    most = judgement.odds + np.where(ranking.memory > 0, np.float32(MOST_PRIOR), np.float32(0.0))
    affordable: NDArray[np.bool_] = sigmoids(most) > price.least(
        np.minimum(ranking.tokens, PASSAGE_TOKENS) + LINE, float(sigmoids(judgement.odds.max()))
    )
    return affordable


def find_used_in_prompt(
    scan: Scan, query: str, asked: Asked, price: Rate, profile: Profile
) -> list[tuple[UUID, float]]:
    """Return the memories that would be shown for the request if their messages did not stand in its prompt already.

    These memories are judged apart from the candidates, so that they do not affect them. A memory without any word of the
    request does not count, because among so few memories any of them scores high.

    Returns:
        Each memory with its likelihood, 0 to 1.
    """
    ranking = rank(scan, query, span=asked.span)
    scores = ranked_by(ranking, profile)
    judgement = judge(ranking, asked, scores)
    if not judgement.passes:
        return []
    likely = sigmoids(judgement.odds)
    worth_it = likely >= price.least(np.minimum(ranking.tokens, PASSAGE_TOKENS) + LINE, float(likely.max()))
    part = np.flatnonzero(worth_it & (ranking.counts > 0).any(axis=0))
    return [(UUID(item), p) for item, p in zip(ids_of(ranking.places(part)), likely[part].tolist(), strict=True)]


def _worths(ranking: Ranking, judgement: Judgement) -> Mapping[UUID, float]:
    """Of the few that matter: a user has thousands of memories, and an id takes a microsecond to make."""
    part = np.flatnonzero((ranking.memory > 0) & (sigmoids(judgement.odds) >= BEARS_WORTH))
    return {
        UUID(each): p
        for each, p in zip(ids_of(ranking.places(part)), sigmoids(judgement.odds[part]).tolist(), strict=True)
    }


def _beyond(ranking: Ranking, judgement: Judgement, fetched: Sequence[NDArray[np.intp]]) -> Sequence[tuple[float, int]]:
    left = np.ones(len(ranking.tokens), np.bool_)
    left[np.concatenate([*fetched, np.empty(0, np.intp)])] = False
    likely = sigmoids(judgement.odds[left])
    tokens = np.minimum(ranking.tokens[left], PASSAGE_TOKENS).astype(np.float32)
    first = np.argsort(-likely, kind="stable")
    best, rest = first[:BEYOND], first[BEYOND:]
    found = list(zip(likely[best].tolist(), tokens[best].astype(int).tolist(), strict=True))
    if whole := int(tokens[rest].sum()):
        found.append((float((likely[rest] * tokens[rest]).sum()) / whole, whole))
    return found


def _order(ranking: Ranking, profile: Profile, scores: Column | None) -> NDArray[np.intp]:
    """The likeliest first; without scores, for a profile of the seeds, what each channel brings, in any order."""
    if scores is not None:
        return highest(scores, ROUNDS * MOST)
    said = np.flatnonzero(ranking.channels & TEXT_CHANNEL)
    texts = said[np.argsort(-ranking.bm25(said), kind="stable")[: profile.channels.get("text", 0)]]
    nearest = (name for name in CHANNELS if name != "text")
    found = [_nearest(ranking, 1 << CHANNELS.index(name), profile.channels.get(name, 0)) for name in nearest]
    return np.unique(np.concatenate([texts, *found]))


def _nearest(ranking: Ranking, channel: int, most: int) -> NDArray[np.intp]:
    """What a channel brings: the nearest of its items; of those without a vector any."""
    those = np.flatnonzero(ranking.channels & channel)
    similarity = ranking.similarity[those]
    order = np.argsort(-np.where(np.isnan(similarity), np.float32(-1.0), similarity), kind="stable")
    return those[order[:most]]


def _moments(span: TimeSpan | None) -> tuple[int, int] | None:
    """A time in microseconds since 2000, as places have it."""
    if span is None:
        return None
    (begin, end), microsecond = span, timedelta(microseconds=1)
    return (
        round((begin - EPOCH) / microsecond) if begin is not None else -NEVER,
        round((end - EPOCH) / microsecond) if end is not None else NEVER,
    )


def ranked_by(ranking: Ranking, profile: Profile) -> Column:
    """The score of each (n,), as far as the columns tell it."""
    columns = ranking.signals()
    worth = np.zeros(len(ranking), np.float32)
    for name, weight in profile.weights.items():
        if name in columns:
            worth += np.float32(weight) * columns[name]
    return worth


_Numbers = tuple[int, float, float, float, float, float, float | None]
"""Of one item: `channels`, `similarity`, `text`, `vector`, `speaker`, `timely` of `Ranking`, and its log-odds."""
_NOT_RANKED: _Numbers = (0, float("nan"), 0.0, 0.0, 0.0, 0.0, None)


def _numbers(ranking: Ranking, part: NDArray[np.intp], judgement: Judgement | None) -> list[_Numbers]:
    """What the ranking knows of these. (Column by column: one number at a time, numpy takes ten times as long.)"""
    columns = (ranking.channels, ranking.similarity, ranking.text, ranking.vector, ranking.speaker, ranking.timely)
    odds = judgement.odds[part].tolist() if judgement is not None else [None] * len(part)
    return list(zip(*(each[part].tolist() for each in columns), odds, strict=True))


def _list_reviewed(ranking: Ranking, part: NDArray[np.intp], places: Places) -> list[str]:
    """Return the ids of the likeliest memories, and of a few of the likeliest messages."""
    is_reviewed = ranking.memory[part[:MOST_REVIEWED]] > 0
    is_reviewed[:MESSAGES_REVIEWED] = True
    return ids_of(places[:MOST_REVIEWED][is_reviewed])


def _select_new(words: LaterWords, fetched: Sequence[str]) -> Places:
    """Return the places of the messages that are not fetched yet, each once."""
    numbers = dict(zip(words.ids, range(len(words.ids)), strict=True))
    places: Places = words.places[[number for item, number in numbers.items() if item not in fetched]]
    return places


def _collect_later(words: LaterWords, messages: Mapping[str, RetrievedRow]) -> LaterMessages:
    """Return the messages that were fetched for each item."""
    if not words.of:
        return {}
    return {item: [messages[message] for message in ids if message in messages] for item, ids in words.of.items()}


_PROVENANCE = {name: int(Provenance.of_role(name)) for name in (None, *ROLE_NAMES.values())}


def _candidate(row: RetrievedRow, numbers: _Numbers, cutter: PassageCutter, about: frozenset[str]) -> Candidate:
    (
        _, item_kind, item_id, kind, content, role_number, name, session_id, external_id, turn_index, tier, provenance_type,
        confidence, importance, access_count, last_accessed_at, created_at, token_count, content_hash, _, entity_ids, origin,
        sources, metadata, reinforcements, sure_since, ended, _,
    ) = row  # fmt: skip
    channels, similarity, text, vector, speaker, timely, odds = numbers
    memory = item_kind == MEMORY_KIND
    role = ROLE_NAMES.get(role_number) if role_number is not None else None
    span, whole = None, token_count
    if entity_ids and not about.isdisjoint(entity_ids):
        channels |= ENTITY_CHANNEL
    if kind in SUMMARIES:
        channels |= SUMMARY_CHANNEL
    if not memory and (passage := cutter.cut(content, token_count)) is not None:
        start, stop, token_count = passage
        kind, span, content = "passage", (start, stop), content[start:stop]
    return Candidate(
        item_id,
        "memory" if memory else "message",
        kind,
        content,
        role,
        name,
        session_id,
        turn_index,
        tier,
        created_at,
        last_accessed_at,
        token_count,
        confidence,
        provenance_type if memory else _PROVENANCE[role],
        importance,
        access_count,
        content_hash or b"",
        CHANNEL_SETS[channels],
        similarity if similarity == similarity else None,  # NaN is not itself
        entity_ids or (),
        origin,
        external_id,
        metadata,
        sources,
        text,
        vector,
        speaker,
        span,
        whole,
        timely,
        reinforcements,
        sure_since,
        odds,
        tuple(map(EndedFact.of, ended)) if ended else (),
    )
