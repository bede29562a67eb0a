"""What ranking needs of all that one user has, in columns: places, vectors and words, without any text.

An index never changes: what comes, goes or is replaced makes another one, which shares the large columns with the first. So a
request ranks what it began with, and nothing is locked.

Vectors are kept as whole numbers from −127 to 127: the order of the best 400 by cosine agrees with that of float32
(Spearman, least of 300 questions) to .9995, in a quarter of the room. Half-precision numbers would agree better and take ten
times as long to multiply, for few processors reckon with them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple, Self, TypeVar
from uuid import UUID

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from app.index.analyse import HASH_BYTES, HEAD_BYTES, LANGUAGES, MOST_COUNTED, VERSION, Term
from app.index.later_mentions import Postings, find_later_mentions
from app.store.item_columns import (
    MEMORY_KIND,
    NO_LATER_WORDS,
    PLACE,
    Columns,
    LaterWords,
    Ordered,
    Places,
    Scan,
    columns_of,
    ids_of,
    order_of,
)

N = TypeVar("N", bound=np.generic)

WORDS = 16
"""Words of a question that are looked for at most, as `Scan` has them."""
K1, B = 1.2, 0.75
"""BM25's (seed 000)."""
AHEAD, CROWD = 4, 16
"""Items are looked for by a question's rarest words, until those bring `AHEAD` times the limit; of what they bring,
`CROWD` times the limit is handed out."""
TIMED, SUMMARIES = 60, 5
"""Where not all that has a vector can be handed out: items of the time that a question speaks of, and memories that sum up
much, which are handed out all the same."""
TAIL_ROWS, TAIL_SHARE = 128, 64
"""So many new rows, or one in so many of all, are kept beside the postings, and looked through one by one (.1 ms); then all
postings are to be sorted anew."""
FEW_ITEMS = 16
"""Items that are looked for one by one."""
AT_ONCE = 512
"""Vectors that are widened at a time: half a megabyte of 256 dimensions, which stays in the cache."""
LEVELS = 127
"""Steps of a vector's numbers on each side of 0."""
HALFVEC_HEAD = 4
"""Bytes before the numbers: how many there are (2), and 2 that are not used (pgvector's `halfvec_send`)."""
USER_ROLE = 1
"""The role that a place has for a message of the user."""
OF_SESSION = 10
"""The role in the place of a memory that sums up a session. Its turns have said what it says: counted once more, the words that
find them would be half as rare."""
ENDED, LOCAL, SUPERSEDED = 1, 2, 4
"""Why an item may not come up everywhere (`agent_data.index_rows`): a memory that is not in force any more, one that is shown
in its own session alone, and what something else took the place of. The first and the last come up where the past is asked
for."""
NEVER = 2**63 - 1
"""The end of what has none, microseconds since 2000."""
_NO_HALF = np.float32(2.0**16)
"""More than any half-precision number."""
LEAST_SHARE = 0.01
"""Of all texts at least so many are in a language of the user's: of 6,000 English messages of chat 1 in 750 is taken for
something else."""


class ItemRow(NamedTuple):
    """An item as it is stored. `place`: as `PLACE`; `vector`: as halfvec's binary format, b"" for none; `terms`:
    `analyse.pack`."""

    place: bytes
    vector: bytes
    terms: bytes
    hides: int = 0
    """Why it may not come up everywhere: `ENDED`, `LOCAL`, `SUPERSEDED`."""
    until: int = NEVER
    """When it ends, microseconds since 2000."""


class FurtherItems(NamedTuple):
    """What a question wants beside the nearest: these `items`; what is of a time (`span`: from and to, microseconds since
    2000); memories that sum up much (`summaries`)."""

    items: Collection[UUID] = ()
    span: tuple[int, int] | None = None
    summaries: bool = False


NOTHING_ELSE = FurtherItems()


class _Rows(NamedTuple):
    """n items of d dimensions with p words. `places` (n, 7): `PLACE` as plain numbers (its bytes in their order), of which
    numpy takes some out ten times as fast. `hides`, `untils` (n,): as `ItemRow` has them. A cosine is the product with a
    question of length 1, times `scales` (0: there is no vector). `languages` (n,): numbers in `analyse.LANGUAGES`.
    `hashes`, `owners`, `counts` (p,): each word of each item, the item by its number."""

    places: NDArray[np.uint64]
    vectors: NDArray[np.int8]
    scales: NDArray[np.float32]
    languages: NDArray[np.uint8]
    hides: NDArray[np.uint8]
    untils: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    owners: NDArray[np.unsignedinteger]
    counts: NDArray[np.uint8]


class _Memory(bytearray):
    """Of columns with vectors and words. It is wiped when no column uses it any more: so of a user who is erased nothing is
    left in free memory, and a question that is under way ends with what it began with. (Free memory stays with the process: all
    copies of a vector that was dropped were still there.)"""

    __slots__ = ()

    def __del__(self) -> None:
        np.frombuffer(self, np.uint8).fill(0)


class UserIndex(Struct, frozen=True):
    """All items of a user. Made by `of`; `unreadable`: rows that were left out, for nothing could be made of them."""

    _base: _Rows
    """Sorted by word: `_starts` (v + 1,) is where each of `hashes` (v,) begins in `owners` and `counts`."""
    _starts: NDArray[np.int64]
    _tail: _Rows
    """What came since, in the order of `hashes`."""
    _live: NDArray[np.bool_]
    """Which items of both are still there, shape (n,)."""
    _order: _Order
    unreadable: int = 0

    @classmethod
    def of(cls, rows: Sequence[ItemRow], dimensions: int) -> Self:
        """Of an item that is there twice the later row counts. `dimensions`: of the vectors; 0: there are none."""
        read, unreadable = _decoded(rows, dimensions)
        base, starts = _by_word(_by_hash(read))
        live = _latest(read)
        return cls(base, starts, _decoded([], dimensions)[0], live, _Order.of(read.places, live), unreadable)

    def with_rows(self, rows: Sequence[ItemRow]) -> Self:
        """With these, each in place of what its item had before."""
        new, unreadable = _decoded(rows, self.dimensions)
        stays = self._live & ~_same_items(self._numbers, new.places)
        latest = _latest(new)
        return replace(
            self,
            _tail=_by_hash(_joined(self._tail, new), "stable"),
            _live=np.concatenate([stays, latest]),
            _order=self._order.kept(stays).joined(_Order.of(new.places, latest), len(stays)),
            unreadable=self.unreadable + unreadable,
        )

    def without(self, items: Collection[UUID]) -> Self:
        """Without these, whether they were there or not."""
        if not items:
            return self
        live = self._live & ~_same_items(self._numbers, _of_items(items))
        return replace(self, _live=live, _order=self._order.kept(live))

    def latest(self, most: int) -> tuple[Self, int | None]:
        """With all memories and no more messages than make `most` items, the latest; and since when it has all messages,
        microseconds since 2000 (None: it always had)."""
        if len(self) <= most:
            return self, None
        places = _places(self._numbers)
        messages = np.flatnonzero(self._live & (places["kind"] != MEMORY_KIND))
        many = min(len(messages), max(0, most - (len(self) - len(messages))))
        at = places["at"][messages]
        since = int(np.partition(at, len(at) - many)[len(at) - many]) if many else NEVER
        live = self._live.copy()
        live[messages[at < since]] = False
        return replace(self, _live=live, _order=self._order.kept(live)), since

    @property
    def since(self) -> int:
        """When the first of its messages was said, microseconds since 2000; `NEVER` without any."""
        places = _places(self._numbers)
        return int(places["at"].min(where=self._live & (places["kind"] != MEMORY_KIND), initial=NEVER))

    def __len__(self) -> int:
        return int(np.count_nonzero(self._live))

    @property
    def dimensions(self) -> int:
        return int(self._base.vectors.shape[1])

    @property
    def nbytes(self) -> int:
        """Of all columns; what an earlier index shares with it is counted in both."""
        return self._live.nbytes + self._starts.nbytes + sum(each.nbytes for each in (*self._base, *self._tail))

    @property
    def languages(self) -> list[str]:
        """Those that its texts were taken to be in, the commonest first."""
        codes = np.concatenate([self._base.languages, self._tail.languages])
        many = np.bincount(codes[self._live], minlength=1)
        order = np.argsort(-many, kind="stable")
        return [LANGUAGES[n] for n in order.tolist() if many[n] > LEAST_SHARE * len(self)]

    def scan(
        self,
        terms: Sequence[Term],
        vector: NDArray[np.float32] | None,
        *,
        vectors: int,
        texts: int,
        only: int | None = None,
        session: UUID | None = None,
        visible_from: int = 1,
        ancestors: Sequence[UUID] = (),
        history: bool = False,
        now: int = 0,
        also: FurtherItems = NOTHING_ELSE,
    ) -> Scan:
        """What could answer a question.

        `terms`: `analyse.asked` in `languages`. `vector` (d,) of length 1. `vectors`, `texts`: most that each may bring
        (`retrieve.MOST_VECTORS`). `only`: messages (0) or memories (1). What stands in the prompt (`session` from
        `visible_from` on, and `ancestors`) is context for the rest, and left out only where not all can be handed out; but
        a memory that comes from there is not handed out at all. `history`: also what is not in force any more. `now`:
        microseconds since 2000. `also`: what is handed out however far its vector is.
        """
        numbers = self._numbers
        places = _places(numbers)
        lines = _Lines(places, session, visible_from, ancestors)
        wanted = self._live & self._shown(lines, history, now)
        if only is not None:
            wanted = wanted & (places["kind"] == only)
        near, sims = self._near(vector, vectors, wanted, lines, also)
        documents = self._live & ~((places["kind"] == MEMORY_KIND) & (places["role"] == OF_SESSION))
        words, holding, counts = self._counted(terms if texts > 0 else (), documents)
        said = _said(holding, counts, wanted, lines, texts)
        # What has no vector is brought by nothing else.
        rest = _also(also if vector is None else FurtherItems(also.items), numbers, lines.without(wanted), places["at"])
        if len(rest):
            said = np.union1d(said, np.setdiff1d(rest, near))
        table = np.zeros((len(said), WORDS), np.uint8)
        table[:, : len(words)] = counts[:, said].T
        there = int(np.count_nonzero(documents))
        mean = max(1.0, float(places["tokens"].sum(where=documents)) / max(1, there))
        ordered = None
        if len(near) == np.count_nonzero(wanted):
            order = self._order.kept(wanted)
            where = np.empty(len(numbers), np.intp)
            where[order.at] = np.arange(len(order.at))
            sims[where[near]] = sims.copy()
            near, ordered = order.at, Ordered(order.columns(), where[said])
        found = numbers[np.concatenate([near, said])]
        result = Scan(_places(found), sims, table, words, holding, there, mean, K1, B, ordered)
        in_prompt = self._find_in_prompt(lines, now)
        if not len(in_prompt):
            return result
        own_counts = np.zeros((len(in_prompt), WORDS), np.uint8)
        own_counts[:, : len(words)] = counts[:, in_prompt].T
        cosines = self._compute_cosines(vector, in_prompt)
        own_places = _places(numbers[np.concatenate([in_prompt[: len(cosines)], in_prompt])])
        return result._replace(in_prompt=Scan(own_places, cosines, own_counts, words, holding, there, mean, K1, B))

    def find_later_words(
        self,
        items: Sequence[str],
        *,
        session: UUID | None = None,
        visible_from: int = 1,
        ancestors: Sequence[UUID] = (),
    ) -> LaterWords:
        """Return the user's later own messages that share telling words with some items.

        Args:
            items: Ids in hexadecimal, as `ids_of` makes them; ids that are not in the index are left out.
            session, visible_from, ancestors: The messages that the prompt has already, as in `scan`.
        """
        if not items:
            return NO_LATER_WORDS
        numbers, base, tail = self._numbers, self._base, self._tail
        places = _places(numbers)
        wanted = np.frombuffer(bytes.fromhex("".join(items)), np.uint64).reshape(-1, 2)
        rows = (self._live & _same_items(numbers, wanted)).nonzero()[0]
        roles = places["role"]
        may_tell = self._live & (places["kind"] != MEMORY_KIND) & (roles == USER_ROLE)
        postings = [Postings(base.hashes, self._starts, base.owners)]
        hides = base.hides
        if len(tail.places):
            postings.append(Postings(tail.hashes, None, tail.owners.astype(np.intp) + len(base.places)))
            hides = np.concatenate([base.hides, tail.hides])
        may_tell &= (hides & (ENDED | SUPERSEDED)) == 0
        if session is not None or ancestors:
            may_tell = _Lines(places, session, visible_from, ancestors).without(may_tell)
        mentions = find_later_mentions(
            postings, rows, may_tell, places["at"], len(self._live), _mark_other_speakers(places)
        )
        if not len(mentions.items):
            return NO_LATER_WORDS
        messages = ids_of(places[mentions.messages])
        found: dict[str, list[str]] = {}
        for item, message in zip(ids_of(places[mentions.items]), messages, strict=True):
            found.setdefault(item, []).append(message)
        return LaterWords(places[mentions.messages], messages, found)

    def _find_in_prompt(self, lines: _Lines, now: int) -> NDArray[np.intp]:
        """Return the memories in force that only this session finds and whose message stands in its prompt."""
        hides = np.concatenate([self._base.hides, self._tail.hides])
        local = hides & LOCAL != 0
        if lines.session is None or not local.any():
            return np.zeros(0, np.intp)
        in_force = (hides & (ENDED | SUPERSEDED)) == 0
        in_force &= np.concatenate([self._base.untils, self._tail.untils]) > now
        there = _of(lines.places, lines.session) & (lines.places["turn"] >= lines.visible_from)
        return np.flatnonzero(self._live & local & in_force & there & (lines.places["kind"] == MEMORY_KIND))

    def _compute_cosines(self, vector: NDArray[np.float32] | None, items: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return the cosine of each item with a vector; empty without a vector."""
        if vector is None or not self.dimensions:
            return np.zeros(0, np.float32)
        return np.concatenate([_cosines(self._base, vector), _cosines(self._tail, vector)])[items]

    @property
    def _numbers(self) -> NDArray[np.uint64]:
        """`_Rows.places` of all items (n, 7), of those that are gone, too."""
        if not len(self._tail.places):
            return self._base.places
        return np.concatenate([self._base.places, self._tail.places])

    def _shown(self, lines: _Lines, history: bool, now: int) -> NDArray[np.bool_]:
        """Which items (n,) may come up, as far as it is they who say so (as `agent_data.may_surface`)."""
        hides = np.concatenate([self._base.hides, self._tail.hides])
        shown: NDArray[np.bool_] = (hides & (0 if history else ENDED | SUPERSEDED)) == 0
        if not history:
            shown &= np.concatenate([self._base.untils, self._tail.untils]) > now
        if lines.session is not None or lines.ancestors:
            memories = lines.places["kind"] == MEMORY_KIND
            if memories.any():
                shown &= lines.without(shown) | ~memories
        if lines.session is not None and (local := hides & LOCAL != 0).any():
            shown &= ~local | _of(lines.places, lines.session)
        return shown

    def _near(
        self,
        vector: NDArray[np.float32] | None,
        limit: int,
        wanted: NDArray[np.bool_],
        lines: _Lines,
        also: FurtherItems,
    ) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """Which items have the nearest vectors (with what is wanted `also`), or all while there are no more than `limit`; and
        their cosines."""
        if vector is None or not self.dimensions or limit <= 0:
            return np.zeros(0, np.intp), np.zeros(0, np.float32)
        wanted = wanted & (np.concatenate([self._base.scales, self._tail.scales]) > 0)
        cosines = np.concatenate([_cosines(self._base, vector), _cosines(self._tail, vector)])
        near = np.flatnonzero(wanted)
        if len(near) > limit:
            rest = lines.without(wanted)
            near = np.union1d(_highest(cosines, np.flatnonzero(rest), limit), _also(also, self._numbers, rest, cosines))
        return near, cosines[near]

    def _counted(
        self, terms: Sequence[Term], documents: NDArray[np.bool_]
    ) -> tuple[list[str], list[int], NDArray[np.uint8]]:
        """The rarest of these words, in how many of the documents (n,) each stands, and how often in each item: (words, n)."""
        hashes = np.array([each for term in terms for each in term.hashes], np.uint64)
        spans = iter(
            zip(_spans(self._base.hashes, self._starts, hashes), _spans(self._tail.hashes, None, hashes), strict=True)
        )
        whole, before = bool(self._live.all()), len(self._base.places)
        all_count = bool(documents.all())
        found: list[tuple[bool, int, str, list[_Posted]]] = []
        for term in terms:
            lists: list[_Posted] = []
            for old, new in islice(spans, len(term.hashes)):
                if old.stop > old.start:
                    lists.append((self._base.owners[old], self._base.counts[old]))
                if new.stop > new.start:
                    lists.append((self._tail.owners[new].astype(np.intp) + before, self._tail.counts[new]))
            if not whole:
                lists = [(owners[alive], many[alive]) for owners, many in lists for alive in (self._live[owners],)]
            holding = sum(len(owners) if all_count else np.count_nonzero(documents[owners]) for owners, _ in lists)
            if len(term.hashes) > 1 and len(lists) > 1:  # one item may have two of them
                marked = np.zeros(len(self._live), bool)
                for owners, _ in lists:
                    marked[owners] = True
                holding = np.count_nonzero(marked & documents)
            found.append((term.pair and not holding, int(holding), term.word, lists))
        found.sort(key=lambda each: each[:3])
        del found[WORDS:]
        counts = np.zeros((len(found), len(self._live)), np.uint8)
        for row, (*_, lists) in zip(counts, found, strict=True):
            for owners, many in lists:
                row[owners] = np.minimum(row[owners].astype(np.uint16) + many, MOST_COUNTED)
        return [each[2] for each in found], [each[1] for each in found], counts

    @property
    def unsorted(self) -> bool:
        """Whether so much came since that `sorted` is worth its time."""
        return len(self._tail.places) > max(TAIL_ROWS, len(self._live) // TAIL_SHARE)

    def sorted(self) -> Self:
        """The same with all words in the postings, and without what is gone. 5 ms for each 1,000 items."""
        every = np.repeat(np.arange(len(self._base.hashes)), np.diff(self._starts))
        words = self._base._replace(hashes=_taken(self._base.hashes, every))
        both = _kept(_joined(words, self._tail), self._live)
        base, starts = _by_word(_by_hash(both, "stable"))  # two sorted runs are merged
        return replace(
            self, _base=base, _starts=starts, _tail=_decoded([], self.dimensions)[0], _live=np.ones(len(self), bool),
            _order=self._order.numbered(np.cumsum(self._live) - 1),
        )  # fmt: skip


class _Order(NamedTuple):
    """The items that are there, as ranking goes through them. `table` (10, n): `places.order_of`, where each stands among all,
    and its `Columns`: in one piece, for an item is put in between at every turn."""

    table: NDArray[np.uint64]

    @classmethod
    def of(cls, numbers: NDArray[np.uint64], live: NDArray[np.bool_]) -> _Order:
        """Of `_Rows.places`."""
        columns = columns_of(_places(numbers))
        keys = order_of(columns)
        at = np.argsort(keys, kind="stable")
        at = at[live[at]]
        return cls(np.array([keys[at], at, *(each[at].astype(np.uint64) for each in columns)], np.uint64))

    @property
    def at(self) -> NDArray[np.intp]:
        at: NDArray[np.intp] = self.table[1].view(np.int64)
        return at

    def kept(self, stays: NDArray[np.bool_]) -> _Order:
        """Those of all items (n,) that stay."""
        part = stays[self.at]
        return self if part.all() else _Order(self.table[:, part])

    def joined(self, new: _Order, before: int) -> _Order:
        """With items that are numbered after `before` others."""
        new.table[1] += np.uint64(before)
        return _Order(np.insert(self.table, np.searchsorted(self.table[0], new.table[0]), new.table, axis=1))

    def numbered(self, numbers: NDArray[np.intp]) -> _Order:
        """With other numbers (n,) for all items."""
        table = self.table.copy()
        table[1] = numbers[self.at]
        return _Order(table)

    def columns(self) -> Columns:
        _, _, item, owner, turn, tokens, role, memory, speaker, at = self.table
        return Columns(item, owner, turn, tokens, role, memory != 0, speaker, at.view(np.int64))


_Posted = tuple[NDArray[np.integer], NDArray[np.uint8]]
"""Where a word stands, and how often."""


def _spans(hashes: NDArray[np.uint64], starts: NDArray[np.int64] | None, wanted: NDArray[np.uint64]) -> list[slice]:
    """Where the items of each of these words stand. `hashes`: in order; with `starts` each is there once."""
    low, high = np.searchsorted(hashes, wanted), np.searchsorted(hashes, wanted, "right")
    if starts is not None:
        low, high = starts[low], starts[high]
    return [slice(*each) for each in zip(low.tolist(), high.tolist(), strict=True)]


class _Lines(NamedTuple):
    """What of these places stands in the prompt: of `session` the turns from `visible_from` on, and its ancestors."""

    places: Places
    session: UUID | None
    visible_from: int
    ancestors: Sequence[UUID]

    def without(self, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        if self.session is not None:
            wanted = wanted & ~(_of(self.places, self.session) & (self.places["turn"] >= self.visible_from))
        for each in self.ancestors:
            wanted = wanted & ~_of(self.places, each)
        return wanted


def _said(
    holding: Sequence[int], counts: NDArray[np.uint8], wanted: NDArray[np.bool_], lines: _Lines, limit: int
) -> NDArray[np.intp]:
    """The items that have one of the rarest words; of too many those that have the most and rarest of all."""
    before = np.cumsum([0, *holding])
    looked = int(np.searchsorted(before[:-1], AHEAD * limit))
    some = counts[:looked].any(axis=0) & wanted
    if before[looked] > CROWD * limit:
        some = lines.without(some)
    found = np.flatnonzero(some)
    if len(found) <= CROWD * limit:
        return found
    documents = counts.shape[1]
    gains = np.log1p(documents / (np.array(holding, np.float32) + 1))
    return _highest(gains @ (counts[:, found] > 0), found, CROWD * limit, at=np.arange(len(found)))


def _also(
    also: FurtherItems, numbers: NDArray[np.uint64], wanted: NDArray[np.bool_], worth: NDArray[Any]
) -> NDArray[np.intp]:
    """What is wanted beside the nearest, of each kind the `worth` (n,) highest."""
    places = _places(numbers)
    found = []
    if also.items:
        found.append(np.flatnonzero(wanted & _same_items(numbers, _of_items(also.items))))
    if also.span is not None:
        begin, end = also.span
        of_time = np.flatnonzero(wanted & (places["at"] >= begin) & (places["at"] < end))
        found.append(_highest(worth, of_time, TIMED))
    if also.summaries:
        sums = np.flatnonzero(wanted & (places["kind"] == MEMORY_KIND) & (places["role"] >= OF_SESSION))
        found.append(_highest(worth, sums, SUMMARIES))
    return np.unique(np.concatenate(found)) if found else np.zeros(0, np.intp)


def _decoded(rows: Sequence[ItemRow], dimensions: int) -> tuple[_Rows, int]:
    """Rows as columns, and how many could not be read."""
    head, length = dimensions.to_bytes(2, "big"), HALFVEC_HEAD + 2 * dimensions
    good = [
        (place, vector if dimensions else b"", terms, (len(terms) - HEAD_BYTES) // (HASH_BYTES + 1), hides, until)
        for place, vector, terms, hides, until in rows
        if len(place) == PLACE.itemsize
        and (not vector or not dimensions or (len(vector) == length and vector.startswith(head)))
        and len(terms) >= HEAD_BYTES and terms[0] == VERSION and terms[1] < len(LANGUAGES)
        and not (len(terms) - HEAD_BYTES) % (HASH_BYTES + 1)
    ]  # fmt: skip
    vectors, scales = _quantised([vector for _, vector, *_ in good], dimensions)
    hashes = b"".join([terms[HEAD_BYTES : HEAD_BYTES + HASH_BYTES * many] for _, _, terms, many, *_ in good])
    counts = b"".join([terms[HEAD_BYTES + HASH_BYTES * many :] for _, _, terms, many, *_ in good])
    read = _Rows(
        np.frombuffer(b"".join([place for place, *_ in good]), np.uint64).reshape(-1, PLACE.itemsize // 8),
        vectors,
        scales,
        np.frombuffer(bytes([terms[1] for _, _, terms, *_ in good]), np.uint8),
        np.array([each[4] for each in good], np.uint8),
        np.array([each[5] for each in good], np.int64),
        np.frombuffer(hashes, "<u8").astype(np.uint64, copy=False),
        np.repeat(np.arange(len(good), dtype=_number_type(len(good))), [each[3] for each in good]),
        np.frombuffer(counts, np.uint8),
    )
    sound = ~np.isnan(scales)
    return read if sound.all() else _kept(read, sound), len(rows) - int(np.count_nonzero(sound))


def _quantised(vectors: Sequence[bytes], dimensions: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Vectors (n, d) of whole numbers, and 1 ÷ the length of each (n,): 0 for none, NaN for one with a number that is none."""
    length = HALFVEC_HEAD + 2 * dimensions
    steps, scales = _room((len(vectors), dimensions), np.int8), np.zeros(len(vectors), np.float32)
    if not dimensions:
        return steps, scales
    for at in range(0, len(vectors), AT_ONCE):
        raw = b"".join([each or bytes(length) for each in vectors[at : at + AT_ONCE]])
        numbers = _widened(np.frombuffer(raw, ">i2").reshape(-1, length // 2)[:, HALFVEC_HEAD // 2 :])
        top = np.maximum(numbers.max(axis=1), -numbers.min(axis=1))
        sound = top < _NO_HALF
        numbers *= (LEVELS / np.where(sound & (top > 0), top, _NO_HALF)).astype(np.float32)[:, None]
        np.rint(numbers, out=numbers)
        lengths = np.sqrt(np.einsum("ij,ij->i", numbers, numbers))
        np.copyto(steps[at : at + AT_ONCE], numbers, casting="unsafe")
        scales[at : at + AT_ONCE] = np.where(sound, np.where(lengths > 0, 1 / np.maximum(lengths, 1), 0), np.nan)
    return steps, scales


def _widened(halves: NDArray[np.int16]) -> NDArray[np.float32]:
    """Half-precision numbers, given as their bits, as float32: exponent and fraction go to where they stand there, and the
    other bias is a factor. Three times as fast as numpy's own way; infinity and NaN become `_NO_HALF` or more."""
    bits = halves.astype(np.int32)
    np.left_shift(bits, 13, out=bits)
    np.bitwise_and(bits, np.int32(-0x70002000), out=bits)  # the sign, and the 15 bits below where it was
    numbers = bits.view(np.float32)
    np.multiply(numbers, np.float32(2.0**112), out=numbers)
    return numbers


def _cosines(rows: _Rows, vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of each item (n,); of one without a vector 0."""
    sims = np.empty(len(rows.vectors), np.float32)
    wide = np.empty((min(AT_ONCE, len(sims)), rows.vectors.shape[1]), np.float32)
    for at in range(0, len(sims), AT_ONCE):
        part = rows.vectors[at : at + AT_ONCE]
        np.copyto(wide[: len(part)], part)
        np.matmul(wide[: len(part)], vector, out=sims[at : at + AT_ONCE])
    return sims * rows.scales


def _by_hash(rows: _Rows, kind: Literal["quicksort", "stable"] = "quicksort") -> _Rows:
    order = np.argsort(rows.hashes, kind=kind)
    return rows._replace(hashes=_taken(rows.hashes, order), owners=rows.owners[order], counts=rows.counts[order])


def _by_word(rows: _Rows) -> tuple[_Rows, NDArray[np.int64]]:
    """Of rows in the order of their hashes: with each word once in `hashes`, and where its items begin and end."""
    begins = np.ones(len(rows.hashes), bool)
    np.not_equal(rows.hashes[1:], rows.hashes[:-1], out=begins[1:])
    first = np.flatnonzero(begins)
    return rows._replace(hashes=_taken(rows.hashes, first)), np.append(first, len(rows.hashes))


def _joined(first: _Rows, second: _Rows) -> _Rows:
    """Both, the second numbered after the first."""
    many, all_of = len(first.places), len(first.places) + len(second.places)
    kind = _number_type(all_of)
    owners = np.concatenate([first.owners, second.owners.astype(np.intp) + many], dtype=kind, casting="unsafe")
    return _Rows(
        np.concatenate([first.places, second.places]),
        _both(first.vectors, second.vectors),
        np.concatenate([first.scales, second.scales]),
        np.concatenate([first.languages, second.languages]),
        np.concatenate([first.hides, second.hides]),
        np.concatenate([first.untils, second.untils]),
        _both(first.hashes, second.hashes),
        owners,
        np.concatenate([first.counts, second.counts]),
    )


def _kept(rows: _Rows, stays: NDArray[np.bool_]) -> _Rows:
    """Those of the items (n,) that stay, numbered anew."""
    numbers = (np.cumsum(stays) - 1).astype(_number_type(int(np.count_nonzero(stays))))
    words = np.flatnonzero(stays[rows.owners])
    return _Rows(
        rows.places[stays], _taken(rows.vectors, np.flatnonzero(stays)), rows.scales[stays], rows.languages[stays],
        rows.hides[stays], rows.untils[stays], _taken(rows.hashes, words), numbers[rows.owners[words]], rows.counts[words],
    )  # fmt: skip


def _room(shape: tuple[int, ...], kind: np.dtype[N] | type[N]) -> NDArray[N]:
    """Zeros, in memory that is wiped."""
    kind = np.dtype(kind)
    return np.ndarray(shape, kind, _Memory(math.prod(shape) * kind.itemsize))


def _taken(column: NDArray[N], rows: NDArray[np.intp]) -> NDArray[N]:
    """These rows of a column, in memory that is wiped."""
    # (`clip`: otherwise numpy makes a copy of its own first, which nobody would wipe.)
    return column.take(rows, axis=0, out=_room((len(rows), *column.shape[1:]), column.dtype), mode="clip")


def _both(first: NDArray[N], second: NDArray[N]) -> NDArray[N]:
    """One after the other, in memory that is wiped."""
    room = _room((len(first) + len(second), *first.shape[1:]), first.dtype)
    np.concatenate([first, second], out=room)
    return room


def _number_type(limit: int) -> np.dtype[np.unsignedinteger]:
    """What holds numbers below `limit` in the least room: most of what a word takes is the number of its item."""
    return np.dtype(np.uint16 if limit <= 2**16 else np.uint32)


def _mark_other_speakers(places: Places) -> NDArray[np.uint64] | None:
    """Return for each place (n,) the mark of the other speaker whose words it has, 0 for the user's; None: all are the user's.

    A speaker is another one than the user where a memory names that speaker.
    """
    speakers = places["speaker"].astype(np.uint64)
    others = np.unique(speakers[(places["kind"] == MEMORY_KIND) & (speakers != 0)])
    if not len(others):
        return None
    return np.where(np.isin(speakers, others), speakers, np.uint64(0))


def _places(numbers: NDArray[np.uint64]) -> Places:
    """Of `_Rows.places` (n, 7)."""
    places: Places = numbers.view(PLACE)[:, 0]
    return places


def _latest(rows: _Rows) -> NDArray[np.bool_]:
    """Which of these items (n,) no later row replaces."""
    items = columns_of(_places(rows.places)).item
    stays = np.zeros(len(items), bool)
    stays[len(items) - 1 - np.unique(items[::-1], return_index=True)[1]] = True
    return stays


def _of_items(items: Collection[UUID]) -> NDArray[np.uint64]:
    """Their ids as `_Rows.places` has them (m, 2)."""
    return np.frombuffer(b"".join([each.bytes for each in items]), np.uint64).reshape(-1, 2)


def _same_items(numbers: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which items (n,) of `_Rows.places` are among others, m numbers of which the first two are the id. A turn brings two or
    three, and of these going through all is a twentieth of what sorting takes."""
    if len(wanted) <= FEW_ITEMS:
        found = np.zeros(len(numbers), bool)
        for high, low in wanted[:, :2].tolist():
            found |= (numbers[:, 0] == high) & (numbers[:, 1] == low)
        return found
    ids = np.dtype((np.void, 16))
    own, others = (np.ascontiguousarray(each[:, :2]).view(ids)[:, 0] for each in (numbers, wanted))
    return np.isin(own, others)


def _of(places: Places, session: UUID) -> NDArray[np.bool_]:
    """Which of the places (n,) are of that session."""
    both: NDArray[np.bool_] = (places["session"] == np.frombuffer(session.bytes, ">u8")).all(axis=1)
    return both


def _highest(
    worth: NDArray[Any], items: NDArray[np.intp], limit: int, at: NDArray[np.intp] | None = None
) -> NDArray[np.intp]:
    """Of these items the `limit` best, in their own order. `at`: where the worth of each stands; as the items do."""
    if len(items) <= limit:
        return items
    best = np.argpartition(-worth[items if at is None else at], limit)[:limit]
    return items[np.sort(best)]


# --- one scan of several indexes: a user's memory and that of the spaces that they may read ------------------------------


class SharedPart(NamedTuple):
    """Of a space what is asked. `session`: of it what stands in the prompt already, None: nothing does."""

    space_id: UUID
    session: UUID | None = None


def without(scan: Scan, session: UUID | None) -> Scan:
    """What was found but for what stands in the prompt already. (Of a user's own session it is context for the rest, and
    ranking leaves it out: `rank` knows one session only.)"""
    if session is None or not len(scan.places):
        return scan
    stays = (scan.places["session"] != np.frombuffer(session.bytes, ">u8")).any(axis=1)
    many = len(scan.sims)
    sims, counts = scan.sims[stays[:many]], scan.counts[stays[many:]]
    return scan._replace(places=scan.places[stays], sims=sims, counts=counts, ordered=None)


def joined(scans: Sequence[Scan]) -> Scan:
    """What several indexes found for the same terms and vector. A word is as rare as it is in all of them together."""
    first = scans[0]
    holding: dict[str, int] = {}
    for scan in scans:
        for word, many in zip(scan.words, scan.holding, strict=True):
            holding[word] = holding.get(word, 0) + many
    words = sorted(holding, key=lambda each: (holding[each], each))[:WORDS]
    at = {word: n for n, word in enumerate(words)}
    tables = []
    for scan in scans:
        table = np.zeros((len(scan.counts), WORDS), np.uint8)
        for n, word in enumerate(scan.words):
            if word in at:
                table[:, at[word]] = scan.counts[:, n]
        tables.append(table)
    counted = sum(scan.counted for scan in scans)
    tokens = sum(scan.mean * scan.counted for scan in scans)
    near = [scan.places[: len(scan.sims)] for scan in scans]
    said = [scan.places[len(scan.sims) :] for scan in scans]
    return Scan(
        # (Unless told, numpy swaps the bytes of what it joins, and ids are read as they lie.)
        places=np.concatenate([*near, *said], dtype=first.places.dtype),
        sims=np.concatenate([scan.sims for scan in scans]),
        counts=np.concatenate(tables),
        words=words,
        holding=[holding[word] for word in words],
        counted=counted,
        mean=max(1.0, tokens / max(1, counted)),
        k1=first.k1,
        b=first.b,
        in_prompt=first.in_prompt,  # the user's own index comes first
        find_later=first.find_later,
    )
