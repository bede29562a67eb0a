"""Finds what the user said later with the telling words of an item, from the columns of their index alone.

A word tells of an item where few other items have it: "Golf", "triathlon", "Marc". The words are the index's own terms, so
that this works in every language, also in those without spaces.

The figures below are fitted on the pairs of `tests/fixtures/changes.txt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

RARE_ITEMS = 12
"""Items that may have a telling word, at most, of a user with few items."""
RARE_SHARE = 0.02
"""Share of all items that may have it, of a user with many: a word of every fiftieth item says little."""
LEAST_SHARE = 0.125
"""Least weight of the shared words, as a share of the weight of all words of the item: one of eight equally rare ones. With .2
"I drive a blue VW Golf to the office" does not find "The Golf needs new tyres"."""
MOST_LATER = 2
"""Later messages of an item that are told, the latest last."""


class LaterMentions(NamedTuple):
    """By pairs: the row of an item, and the row of a later message that shares its telling words; the items in any order, the
    messages of an item in the order in which they were said."""

    items: NDArray[np.intp]
    messages: NDArray[np.intp]


NO_MENTIONS = LaterMentions(np.zeros(0, np.intp), np.zeros(0, np.intp))


class Postings(NamedTuple):
    """Which items have a word. `hashes` (p,) in order; `owners` (p,): rows; `starts`: as in `UserIndex`, or None where each
    posting has its own hash."""

    hashes: NDArray[np.uint64]
    starts: NDArray[np.int64] | None
    owners: NDArray[np.integer]

    def find_terms(self, wanted: NDArray[np.bool_]) -> tuple[NDArray[np.integer], NDArray[np.uint64]]:
        """Return owner and hash of each posting of the wanted rows."""
        hits = np.flatnonzero(wanted[self.owners])
        words = hits if self.starts is None else np.searchsorted(self.starts, hits, "right") - 1
        return self.owners[hits], self.hashes[words]

    def find_spans(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the postings of each hash begin and end."""
        low, high = np.searchsorted(self.hashes, hashes), np.searchsorted(self.hashes, hashes, "right")
        return (low, high) if self.starts is None else (self.starts[low], self.starts[high])


def find_later_mentions(
    postings: Sequence[Postings],
    items: NDArray[np.intp],
    may_tell: NDArray[np.bool_],
    at: NDArray[np.int64],
    documents: int,
) -> LaterMentions:
    """Return the later messages of the user that share the telling words of some items.

    Args:
        postings: Those of the index; rows are numbered alike in all.
        items: The rows of the items (k,), in order.
        may_tell: Which rows (n,) are messages of the user that may be shown.
        at: When each row (n,) was said.
        documents: How many items there are.
    """
    wanted = np.zeros(len(may_tell), np.bool_)
    wanted[items] = True
    found = [part.find_terms(wanted) for part in postings]
    owners = np.concatenate([owner for owner, _ in found]).astype(np.intp)
    if not len(owners):
        return NO_MENTIONS
    hashes, term = np.unique(np.concatenate([own for _, own in found]), return_inverse=True)
    spans = [part.find_spans(hashes) for part in postings]
    holding = np.sum([high - low for low, high in spans], axis=0)
    weights = np.log1p(documents / holding)
    whole = np.bincount(owners, weights[term], len(wanted))
    telling = (holding > 1) & (holding <= max(RARE_ITEMS, RARE_SHARE * documents))
    used = telling[term]
    if not used.any():
        return NO_MENTIONS
    owners, term = owners[used], term[used]
    # For each (item, term) all rows that have the term.
    pairs: list[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]] = []
    for part, (low, high) in zip(postings, spans, strict=True):
        lengths = (high - low)[term]
        total = int(lengths.sum())
        if total:
            offsets = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            rows = part.owners[np.repeat(low[term], lengths) + offsets].astype(np.intp)
            pairs.append((np.repeat(owners, lengths), rows, np.repeat(weights[term], lengths)))
    item, row, weight = (np.concatenate(column) for column in zip(*pairs, strict=True))
    later = may_tell[row] & (at[row] > at[item])
    if not later.any():
        return NO_MENTIONS
    keys, place = np.unique(item[later] * len(wanted) + row[later], return_inverse=True)
    score = np.bincount(place, weight[later], len(keys))
    item, row = keys // len(wanted), keys % len(wanted)
    enough = score >= LEAST_SHARE * whole[item]
    return _select_latest(item[enough], row[enough], at)


def _select_latest(item: NDArray[np.intp], row: NDArray[np.intp], at: NDArray[np.int64]) -> LaterMentions:
    """Keep the last messages of each item, the latest last."""
    order = np.lexsort((at[row], item))
    item, row = item[order], row[order]
    if not len(item):
        return NO_MENTIONS
    ends = np.append(np.flatnonzero(np.diff(item)), len(item) - 1)
    last = np.repeat(ends, np.diff(np.concatenate([[-1], ends])))
    kept = last - np.arange(len(item)) < MOST_LATER
    return LaterMentions(item[kept], row[kept])
