"""How well everything that a user has answers a question: whole columns at once, before any text is fetched.

A turn is rarely understood by itself: its neighbours say what it is about. So words and cosines are smoothed over the three
turns before and after in the same session, the less the more text lies between: in chat a turn's neighbours are its context,
while between two questions at work stands an answer of a page (`KERNEL`, `REACH`). Measured as evidence recall in a block of
1,500 tokens on two unlike kinds of long conversation, chat / work: .77 / .60 without neighbours and passages;
docs/explanation/recall.md has what each part adds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from uuid import UUID

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from app.context.candidates import LONG
from app.context.question import TimeSpan
from app.index.analyse import UNSPACED
from app.index.indexes import IndexScope
from app.store.item_columns import (
    EPOCH,
    US_PER_DAY,
    Columns,
    Ordered,
    Places,
    Scan,
    columns_of,
    key_of,
    order_of,
    speaker_mark,
)

_WORD = re.compile(r"[^\W_]+")
_APART = {code: " " for code in range(128) if not chr(code).isalnum()}


def words_in(text: str) -> list[str]:
    """The words of a text, runs of letters and digits, in lower case. (Of ASCII without the regular expression, which takes
    four times as long.)"""
    text = text.lower()
    return text.translate(_APART).split() if text.isascii() else _WORD.findall(text)


KERNEL = (0.5, 0.3, 0.1)
"""What a neighbour one, two and three turns away adds of its own, where no text lies between."""
REACH = 150.0
"""Tokens of text after which a neighbour counts 1/e of that."""
NEAR = 30.0
"""Tokens between the middles of two short turns that follow each other: no distance at all."""
KNOWN_ROLES = frozenset({"user", "assistant", "system", "tool"})
"""Names that are none: "the user" in a question names nobody."""
USER_ROLE = 1
OF_SESSION = 10
"""The role in the place of a memory that sums up a session; of one that sums up anything else 11
(`agent_data.summary_mark`)."""
VECTOR_CHANNEL, TEXT_CHANNEL, ENTITY_CHANNEL, TIME_CHANNEL, RECENT_CHANNEL, SUMMARY_CHANNEL = (1 << n for n in range(6))
RECENT = 20
"""Items that count as the latest (seed 000 §6.4 asks for so many by use)."""
TOLD_DAYS = 7.0
"""Days after the time that a question speaks of after which an item counts 1/e of one of that time: people tell of things when
they have happened."""
AHEAD_DAYS = 3.0
"""Days before it, likewise: of what is about to happen less is told."""
Column = NDArray[np.float32]


class Ranking(Struct, frozen=True):
    """All that was found, each item once, and a number for each in every column, shape (n,).

    `at`: where it is among the scan's places. `text`, `vector`: smoothed, 1 the best of this question's (vector: as low as
    −1 or less). `counts`: how often each word stands in the item itself, shape (words, n). `similarity`: the item's own cosine,
    NaN where no channel knew it. `channels`: the sum of 2^n of `CHANNELS`.
    """

    scan: Scan
    at: NDArray[np.intp]
    text: Column
    vector: Column
    similarity: Column
    speaker: Column
    timely: Column
    tokens: Column
    own_words: Column
    memory: Column
    digest: Column
    recap: Column
    counts: Column
    channels: NDArray[np.uint8]
    near_text: Column
    """BM25 smoothed over the neighbours, in units of `gains`; `attainable` is the most."""
    near_vector: Column
    """The cosine smoothed over the neighbours, not normalised."""
    told: Sequence[str]
    """Words of the question that name somebody who spoke."""

    def signals(self) -> Mapping[str, Column]:
        """The columns that a profile's weights may name, before the texts are known."""
        return {
            "text": self.text,
            "vector": self.vector,
            "own_words": self.own_words,
            "remembered": self.memory,  # at most
            "speaker": self.speaker,
            "timely": self.timely,
            "excess": np.log(np.maximum(self.tokens, LONG) / LONG),
            "digest": self.digest,
            "recap": self.recap,
            "similarity": np.where(np.isnan(self.similarity), np.float32(0.0), self.similarity),
        }

    def places(self, part: NDArray[np.intp] | None = None) -> Places:
        """The places of these, or of all."""
        found: Places = self.scan.places[self.at if part is None else self.at[part]]
        return found

    def bm25(self, part: NDArray[np.intp]) -> Column:
        """BM25 of each of these, by its own words alone; not normalised."""
        if not self.scan.words:
            return np.zeros(len(part), np.float32)
        counts = self.counts[:, part]
        worth: Column = gains(self.scan) @ (counts / (counts + saturation(self.scan, self.tokens[part])))
        return worth

    def __len__(self) -> int:
        return len(self.at)


_WHOLE = IndexScope()


def rank(
    scan: Scan,
    query: str,
    scope: IndexScope = _WHOLE,
    *,
    span: TimeSpan | None = None,
    recap: bool = False,
    here: bool = False,
    tied: Sequence[UUID] = (),
) -> Ranking:
    """Everything that was found, for a question that speaks of the time `span`, or of the session that it is asked in (`here`),
    or asks for a `recap` of a conversation; what stands in the prompt already (see `UserIndex.scan`) is context for the
    rest, and then left out. `tied`: memories that are about what it names."""
    if scan.ordered is not None:
        at, columns, sims, counts, channels = _in_order(scan, scan.ordered)
    else:
        at, columns, sims, counts, channels = _merged(scan, columns_of(scan.places))
    owner, turn, memory, speaker, moments = columns.owner, columns.turn, columns.memory, columns.speaker, columns.at
    many, lengths = len(at), columns.tokens.astype(np.float32)
    told, marks = _speakers(speaker, query)
    shares = _shares(owner, turn, lengths)
    # Where the vector channel did not see an item, it is no nearer than the last that was seen.
    rows = np.where(np.isnan(sims), np.float32(scan.sims.min()), sims) if len(scan.sims) else np.zeros(many, np.float32)
    vector = smooth(rows[None], shares)[0]
    text = np.zeros(many, np.float32)
    if scan.words:
        part = _beside(counts, shares)
        those = slice(None) if part is None else part
        near = smooth(counts, shares, part)
        text[those] = gains(scan, told) @ (near / (near + saturation(scan, lengths[those])))
    timely = timeliness(moments, span)
    if here and scope.session is not None:
        timely[owner == key_of(scope.session)] = 1.0
    channels[timely == 1.0] |= TIME_CHANNEL
    if many > RECENT:
        channels[moments >= np.partition(moments, many - RECENT)[many - RECENT]] |= RECENT_CHANNEL
    else:
        channels |= RECENT_CHANNEL
    named = np.isin(speaker, marks) if marks else np.zeros(many, bool)
    own = (columns.role == USER_ROLE) & ~memory
    sums = np.where(memory, columns.role, 0)
    channels[sums >= OF_SESSION] |= SUMMARY_CHANNEL
    if tied:
        channels[memory & np.isin(columns.item, [key_of(each) for each in tied])] |= ENTITY_CHANNEL
    told_whole = sums == OF_SESSION if recap else np.zeros(many, bool)
    digest = (sums >= OF_SESSION) & ~told_whole
    kept: NDArray[np.bool_] | slice = slice(None)
    if scope.confine is not None or scope.session is not None or scope.ancestors:
        apart = memory | _apart(owner, turn, scope)
        if not apart.all():  # a new conversation has nothing of its own: then no column need be copied
            kept = apart
    return Ranking(
        scan, at[kept], _normalised(text[kept]), _normalised(vector[kept]), sims[kept], named[kept].astype(np.float32),
        timely[kept], lengths[kept], own[kept].astype(np.float32), memory[kept].astype(np.float32),
        digest[kept].astype(np.float32), told_whole[kept].astype(np.float32), counts[:, kept], channels[kept], text[kept],
        vector[kept], told, )  # fmt: skip


def smooth(rows: Column, shares: Sequence[Column], part: NDArray[np.intp] | None = None) -> Column:
    """`rows` (r, n), in the order of `order_of`, with what neighbours add (`_shares`); of all, or of a part of them."""
    if part is None:
        out = rows.copy()
        for away, share in enumerate(shares, 1):
            out[:, away:] += share * rows[:, :-away]
            out[:, :-away] += share * rows[:, away:]
        return out
    out = rows[:, part]
    for away, share in enumerate(shares, 1):
        before, after = part[part >= away] - away, part[part < rows.shape[1] - away]
        out[:, part >= away] += share[before] * rows[:, before]
        out[:, part < rows.shape[1] - away] += share[after] * rows[:, after + away]
    return out


def _shares(owner: NDArray[np.uint64], turn: NDArray[np.uint64], tokens: Column) -> list[Column]:
    """What items add to each other that stand 1, 2 and 3 places apart, (n − 1,) and so on: of those found, the nearest of a
    session that are no more turns apart than `KERNEL` is long."""
    middle = np.cumsum(tokens) - tokens / 2
    shares = []
    for away, weight in enumerate(KERNEL, 1):
        if away >= len(owner):
            break
        gap = np.maximum(middle[away:] - middle[:-away] - NEAR, 0.0)
        beside = (owner[away:] == owner[:-away]) & (turn[away:] - turn[:-away] <= len(KERNEL))
        shares.append(np.where(beside, weight * np.exp(gap / -REACH), 0.0).astype(np.float32))
    return shares


def _beside(counts: Column, shares: Sequence[Column]) -> NDArray[np.intp] | None:
    """Which items (n,) have a word of the question, or stand where one that has may add to them. None: so many that to pick
    them out takes longer than to go through all."""
    said: NDArray[np.bool_] = np.any(counts > 0, axis=0)
    near = said.copy()
    for away in range(1, len(shares) + 1):
        near[away:] |= said[:-away]
        near[:-away] |= said[away:]
    part = np.flatnonzero(near)
    return part if 2 * len(part) < len(near) else None


def timeliness(moments: NDArray[np.int64], span: TimeSpan | None) -> Column:
    """1 for what is of the time that is asked for, and e^(−days away / `TOLD_DAYS`) for what came later (before it:
    `AHEAD_DAYS`); `moments` (n,) in µs since 2000. Without a span all 0."""
    if span is None:
        return np.zeros(len(moments), np.float32)
    days = moments / US_PER_DAY
    begin, end = ((each - EPOCH) / timedelta(days=1) if each is not None else None for each in span)
    late = days - (end if end is not None else np.inf)
    early = (begin if begin is not None else -np.inf) - days
    away = np.maximum(late / TOLD_DAYS, early / AHEAD_DAYS)
    return np.exp(-np.maximum(away, 0.0)).astype(np.float32)


def saturation(scan: Scan, tokens: Column) -> Column:
    """K of BM25's n ÷ (n + K): k1·(1 − b + b·length ÷ mean)."""
    return (scan.k1 * (1 - scan.b) + (scan.k1 * scan.b / scan.mean) * tokens).astype(np.float32)


_Merged = tuple[NDArray[np.intp], Columns, Column, Column, NDArray[np.uint8]]
"""Each item once, session by session in the order of its turns: where its place is, its columns, cosine (NaN: unknown), word
counts (words, n) and channels."""


def _in_order(scan: Scan, ordered: Ordered) -> _Merged:
    """Of a scan that has them so already."""
    columns = ordered.columns
    many = len(columns.item)
    counts = np.zeros((len(scan.words), many), np.float32)
    counts[:, ordered.said] = scan.counts[:, : len(scan.words)].T
    channels = np.full(many, VECTOR_CHANNEL, np.uint8)
    channels[ordered.said] |= TEXT_CHANNEL
    return np.arange(many), columns, scan.sims, counts, channels


def _merged(scan: Scan, columns: Columns) -> _Merged:
    """Of any scan."""
    order = np.argsort(order_of(columns))
    item = columns.item[order]
    first = np.empty(len(order), bool)
    first[:1] = True
    np.not_equal(item[1:], item[:-1], out=first[1:])
    rank_of = np.empty(len(order), np.intp)
    rank_of[order] = np.cumsum(first) - 1
    kept = order[first]
    n = len(scan.sims)
    sims = np.full(len(kept), np.nan, np.float32)
    sims[rank_of[:n]] = scan.sims
    counts = np.zeros((len(scan.words), len(kept)), np.float32)
    counts[:, rank_of[n:]] = scan.counts[:, : len(scan.words)].T
    channels = np.zeros(len(kept), np.uint8)
    channels[rank_of[:n]] = VECTOR_CHANNEL
    channels[counts.any(axis=0)] |= TEXT_CHANNEL
    return kept, columns.part(kept), sims, counts, channels


def _apart(owner: NDArray[np.uint64], turn: NDArray[np.uint64], scope: IndexScope) -> NDArray[np.bool_]:
    """Which messages may come up."""
    kept = np.ones(len(owner), bool)
    if scope.confine is not None:
        kept &= owner == key_of(scope.confine)
    if scope.session is not None:
        kept &= (owner != key_of(scope.session)) | (turn < scope.visible_from)
    for each in scope.ancestors:
        kept &= owner != key_of(each)
    return kept


_UNSPACED_RUN = re.compile(f"[{UNSPACED}]{{2,60}}")
UNSPACED_NAME_CHARS = (2, 3, 4)
"""Characters of a name in a script without spaces."""


def _speakers(speaker: NDArray[np.uint64], query: str) -> tuple[list[str], list[int]]:
    """The words of the question that name somebody who spoke, and the marks of those."""
    if not speaker.any():
        return [], []
    words = {word for word in words_in(query) if word not in KNOWN_ROLES}
    for run in _UNSPACED_RUN.findall(query):  # such names have no spaces around them
        words |= {run[n : n + length] for length in UNSPACED_NAME_CHARS for n in range(len(run) - length + 1)}
    marks = {speaker_mark(word): word for word in words}
    there = set(np.unique(speaker).tolist()) & marks.keys()
    return [marks[each] for each in there], sorted(there)


def gains(scan: Scan, names: Collection[str] = ()) -> Column:
    """(k1 + 1) times the idf of each word (Robertson and Sparck Jones). The name of a speaker says who spoke, not of what: it
    counts nothing, unless the question has no other word."""
    holding = np.array(scan.holding or [0], np.float32)
    documents = max(float(scan.counted), float(holding.max()), 1.0)
    worth = ((scan.k1 + 1) * np.log1p((np.maximum(documents, holding) - holding + 0.5) / (holding + 0.5))).astype(
        np.float32
    )
    if names:
        named = np.array([any(same_word(word, name) for name in names) for word in scan.words])
        if not named.all():
            worth[named] = 0.0
    return worth


def same_word(lexeme: str, name: str) -> bool:
    """Whether a stemmed word is that name."""
    return len(lexeme) >= len(name) - 2 and name.startswith(lexeme[:-1] if lexeme.endswith("i") else lexeme)


def _normalised(column: Column) -> Column:
    top = float(column.max()) if len(column) else 0.0
    return column / np.float32(top) if top > 1e-6 else np.zeros_like(column)


def highest(worth: NDArray[np.float32], many: int) -> NDArray[np.intp]:
    """Where the `many` highest of `worth` (n,) stand, the highest first, equals as they come. (Sorting all of ten thousand
    takes ten times as long as finding these and sorting them.)"""
    if len(worth) <= many:
        return np.argsort(-worth, kind="stable")
    lowest = -worth
    best = np.flatnonzero(lowest <= np.partition(lowest, many - 1)[many - 1])
    return best[np.argsort(lowest[best], kind="stable")][:many]
