"""Finds the user's later messages that share the telling words of an item, from the columns of the user's index alone.

A word is telling where few items have it: "Golf", "triathlon", "Marc". The words are the index's own terms, so that this works
in every language, also in those without spaces. The figures below are fitted on the pairs of `tests/fixtures/changes.txt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RARE_ITEMS = 12
"""Most items that may have a telling word, for a user with few items."""
RARE_SHARE = 0.02
"""Most items that may have it, as a share of all, for a user with many: a word of every fiftieth item says little."""
LEAST_SHARE = 0.125
"""The least weight of the shared words, as a share of the weight of all words of the item: one of eight equally rare ones.
With .2 "I drive a blue VW Golf to the office" does not find "The Golf needs new tyres"."""
MOST_LATER = 4
"""Most later messages of an item, the latest ones: twice as many as are quoted, for questions among them say nothing."""


class LaterMentions(NamedTuple):
    """Pairs of an item's row and the row of a later message that shares its telling words. The messages of an item are in the
    order in which they were said."""

    items: NDArray[np.intp]
    messages: NDArray[np.intp]


NO_MENTIONS = LaterMentions(np.zeros(0, np.intp), np.zeros(0, np.intp))


class Postings(NamedTuple):
    """The items that have each word. `hashes`: the words' hashes in order; `owners` (p,): the items' rows; `starts`: as in
    `UserIndex`, or None where each posting has its own hash."""

    hashes: NDArray[np.uint64]
    starts: NDArray[np.int64] | None
    owners: NDArray[np.integer]

    def find_terms(self, wanted: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
        """Return the row and the hash of each posting of the wanted rows."""
        hits = wanted[self.owners].nonzero()[0]
        words = hits if self.starts is None else self.starts.searchsorted(hits, "right") - 1
        return self.owners[hits].astype(np.intp), self.hashes[words]

    def find_spans(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the first posting of each hash, and the number of its postings."""
        low, high = self.hashes.searchsorted(hashes), self.hashes.searchsorted(hashes, "right")
        if self.starts is not None:
            low, high = self.starts[low], self.starts[high]
        return low, high - low


# Every compile runs this: arrays' own methods are one call each, numpy's functions several.


def find_later_mentions(
    postings: Sequence[Postings],
    items: NDArray[np.intp],
    may_tell: NDArray[np.bool_],
    at: NDArray[np.int64],
    documents: int,
    speakers: NDArray[np.uint64] | None = None,
) -> LaterMentions:
    """Return the later messages of the user that share the telling words of some items.

    Args:
        postings: The index's one or two parts; rows have the same numbers in both.
        items: The rows of the items (k,), in order.
        may_tell: For each row (n,) whether it is a message of the user that may be shown.
        at: The time at which each row (n,) was said.
        documents: The number of items in the index.
        speakers: For each row (n,) the mark of the other speaker whose words it has, 0 for the user's; None: there is none.
    """
    wanted = np.zeros(len(may_tell), np.bool_)
    wanted[items] = True
    owners, hashes = _join([part.find_terms(wanted) for part in postings])
    spans = [part.find_spans(hashes) for part in postings]
    holding = spans[0][1] if len(spans) == 1 else spans[0][1] + spans[1][1]
    weights = np.log1p(documents / holding)
    used = (holding > 1) & (holding <= max(RARE_ITEMS, RARE_SHARE * documents))
    if not used.any():
        return NO_MENTIONS
    whole = np.bincount(owners, weights, len(wanted))
    owners, weights = owners[used], weights[used]
    # All rows that have a word, for each word of each item.
    numbers, rows = _join(
        [_expand(part, low[used], counts[used]) for part, (low, counts) in zip(postings, spans, strict=True)]
    )
    item = owners[numbers]
    may_follow = may_tell[rows] & (at[rows] > at[item])
    if speakers is not None:
        may_follow &= speakers[rows] == speakers[item]
    later = may_follow.nonzero()[0]
    if not len(later):
        return NO_MENTIONS
    numbers, rows, item = numbers[later], rows[later], item[later]
    # The order by item and time brings the pairs of one item and one message together.
    order = np.lexsort((rows, at[rows], item))
    item, rows, weight = item[order], rows[order], weights[numbers[order]]
    begins = np.ones(len(item), np.bool_)
    begins[1:] = (item[1:] != item[:-1]) | (rows[1:] != rows[:-1])
    score = np.bincount(begins.cumsum() - 1, weight)
    item, rows = item[begins], rows[begins]
    enough = score >= LEAST_SHARE * whole[item]
    item, rows = item[enough], rows[enough]
    if len(item) > MOST_LATER:
        latest = np.ones(len(item), np.bool_)
        latest[:-MOST_LATER] = item[:-MOST_LATER] != item[MOST_LATER:]  # the last of each item
        item, rows = item[latest], rows[latest]
    return LaterMentions(item, rows)


def _join(parts: Sequence[tuple[NDArray[np.intp], NDArray[Any]]]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    if len(parts) == 1:
        return parts[0]
    first, second = zip(*parts, strict=True)
    return np.concatenate(first), np.concatenate(second)


def _expand(
    part: Postings, low: NDArray[np.intp], counts: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return for each posting of some words the word's number and the posting's row."""
    numbers = np.arange(len(counts)).repeat(counts)
    places = np.arange(len(numbers)) + (low - counts.cumsum() + counts)[numbers]
    return numbers, part.owners[places].astype(np.intp)
