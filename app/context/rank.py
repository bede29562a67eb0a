"""How well everything that a user has answers a question: whole columns at once, before any text is fetched.

A turn is rarely understood by itself: its neighbours say what it is about. So words and cosines are smoothed over the three
turns before and after in the same session, the less the more text lies between: in chat a turn's neighbours are its context,
while between two questions at work stands an answer of a page (`KERNEL`, `REACH`). Measured as evidence recall in a block of
1,500 tokens on two unlike kinds of long conversation, chat / work: .77 / .60 without neighbours and passages; docs/recall.md
has what each part adds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from app.context.candidates import LONG
from app.store.places import Places, Scan, key_of, keys, speaker_mark

KERNEL = (0.5, 0.3, 0.1)
"""What a neighbour one, two and three turns away adds of its own, where no text lies between."""
REACH = 150.0
"""Tokens of text after which a neighbour counts 1/e of that."""
NEAR = 30.0
"""Tokens between the middles of two short turns that follow each other: no distance at all."""
KNOWN_ROLES = frozenset({"user", "assistant", "system", "tool"})
"""Names that are none: "the user" in a question names nobody."""
USER_ROLE = 1
MEMORY_KIND = 1
FREQUENT_LEG = 4

Column = NDArray[np.float32]
_WORD = re.compile(r"[^\W_]+")
_TINY = 1e-6


@dataclass(frozen=True, slots=True)
class Ranking:
    """All that was found, each item once: its place, and a number for each in every column.

    `text`, `vector`: smoothed, 1 the best of this question's (vector: as low as −1 or less). `bm25`: unsmoothed, not normalised
    (≥ 0). `similarity`: the item's own cosine, NaN where the vector leg did not see it. `legs`: 1 vector, 2 text, 4 frequent.
    """

    places: Places
    text: Column
    vector: Column
    bm25: Column
    similarity: Column
    speaker: Column
    legs: NDArray[np.uint8]

    def signals(self) -> Mapping[str, Column]:
        """The columns that a profile's weights may name, before the texts are known."""
        places = self.places
        message = places["kind"] != MEMORY_KIND
        tokens = places["tokens"].astype(np.float32)
        return {
            "text": self.text,
            "vector": self.vector,
            "own_words": (message & (places["role"] == USER_ROLE)).astype(np.float32),
            "remembered": (~message).astype(np.float32),  # at most
            "speaker": self.speaker,
            "excess": np.log(np.maximum(tokens, LONG) / LONG),
            "similarity": np.nan_to_num(self.similarity),
        }

    def __len__(self) -> int:
        return len(self.places)


def rank(
    scan: Scan,
    query: str,
    *,
    confine: UUID | None = None,
    session: UUID | None = None,
    visible_from: int = 1,
    ancestors: Sequence[UUID] = (),
) -> Ranking:
    """Everything that was found, for a question; what stands in the prompt already (see `agent_data.retrieve`) is context for
    the rest, and then left out."""
    places, sims, counts, legs = _merged(scan)
    if not len(places):
        none = np.zeros(0, np.float32)
        return Ranking(places, none, none, none, none, none, legs)
    owner = keys(places["session"])
    kept = _kept(places, owner, confine, session, visible_from, ancestors)
    told, marks = _speakers(places, query)
    weights = gains(scan, told)
    length = places["tokens"].astype(np.float32)
    saturation = (scan.k1 * (1 - scan.b + scan.b * length / np.float32(scan.mean))).astype(np.float32)[:, None]
    bm25 = (counts / (counts + saturation)) @ gains(scan)
    # Where the vector leg did not see an item, it is no nearer than the last that was seen.
    seen = ~np.isnan(sims)
    floor = float(sims[seen].min()) if seen.any() else 0.0
    both = smooth(np.column_stack([counts, np.where(seen, sims, floor)]), places, owner)
    near = both[:, :-1]
    text = (near / (near + saturation)) @ weights
    vector = both[:, -1] if seen.any() else np.zeros(len(places), np.float32)
    speaker = np.isin(places["speaker"], marks).astype(np.float32) if marks else np.zeros(len(places), np.float32)
    where = np.flatnonzero(kept)
    return Ranking(
        places[where],
        _normalised(text[where]),
        _normalised(vector[where]),
        bm25[where],
        sims[where],
        speaker[where],
        legs[where],
    )


def smooth(columns: NDArray[np.float32], places: Places, owner: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Each row (n, c) with what its neighbours in the session add to it; a memory has none."""
    lonely = places["kind"] == MEMORY_KIND
    order = np.lexsort((places["at"], places["turn"], owner))
    rows = columns[order].astype(np.float32)
    home, alone = owner[order], lonely[order]
    tokens = places["tokens"][order].astype(np.float32)
    middle = np.cumsum(tokens, dtype=np.float64) - tokens / 2
    out = rows.copy()
    for away, weight in enumerate(KERNEL, 1):
        if away >= len(rows):
            break
        gap = np.maximum(middle[away:] - middle[:-away] - NEAR, 0.0)
        share = weight * np.exp(gap / -REACH) * ((home[away:] == home[:-away]) & ~alone[away:] & ~alone[:-away])
        share = share.astype(np.float32)[:, None]
        out[away:] += share * rows[:-away]
        out[:-away] += share * rows[away:]
    back = np.empty_like(out)
    back[order] = out
    return back


def _merged(scan: Scan) -> tuple[Places, Column, Column, NDArray[np.uint8]]:
    """Each item once: places, cosines (NaN: unknown), word counts (n, 16), legs."""
    groups = (scan.scanned, scan.said, scan.used)
    places = np.concatenate(groups)
    first, at = _unique(keys(places["id"]))
    n, m = len(scan.scanned), len(scan.said)
    sims = np.full(len(first), np.nan, np.float32)
    sims[at[:n]] = scan.sims
    counts = np.zeros((len(first), 16), np.float32)
    counts[at[n : n + m]] = scan.counts
    legs = np.zeros(len(first), np.uint8)
    for bit, part in ((1, at[:n]), (2, at[n : n + m]), (4, at[n + m :])):
        legs[part] |= bit
    if len(scan.words) < 16:
        counts = counts[:, : max(1, len(scan.words))]
    return places[first], sims, counts, legs


def _unique(values: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where each value stands first, and for each element which of those it is."""
    _, first, at = np.unique(values, return_index=True, return_inverse=True)
    return first, at


def _kept(
    places: Places,
    owner: NDArray[np.uint64],
    confine: UUID | None,
    session: UUID | None,
    visible_from: int,
    ancestors: Sequence[UUID],
) -> NDArray[np.bool_]:
    """Which messages may come up; memories are judged when they are fetched."""
    memory = places["kind"] == MEMORY_KIND
    kept = np.ones(len(places), bool)
    if confine is not None:
        kept &= owner == key_of(confine)
    if session is not None:
        kept &= (owner != key_of(session)) | (places["turn"] < visible_from)
    for each in ancestors:
        kept &= owner != key_of(each)
    kept |= memory
    return kept


def _speakers(places: Places, query: str) -> tuple[list[str], list[int]]:
    """The words of the question that name somebody who spoke, and the marks of those."""
    if not places["speaker"].any():
        return [], []
    words = {word for word in _WORD.findall(query.lower()) if word not in KNOWN_ROLES}
    marks = {speaker_mark(word): word for word in words}
    there = set(np.unique(places["speaker"]).tolist()) & marks.keys()
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
        named = np.array([any(_same(word, name) for name in names) for word in scan.words])
        if not named.all():
            worth[named] = 0.0
    return worth


def _same(lexeme: str, name: str) -> bool:
    """Whether a stemmed word is that name."""
    return len(lexeme) >= len(name) - 2 and name.startswith(lexeme[:-1] if lexeme.endswith("i") else lexeme)


def _normalised(column: Column) -> Column:
    top = float(column.max()) if len(column) else 0.0
    return (column / top if top > _TINY else np.zeros_like(column)).astype(np.float32)
