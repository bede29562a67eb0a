"""Where an item stands, as `agent_data.item_place` packs it: what ranking needs to know of it beside its vector and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.void]
"""Shape (n,), of `PLACE`."""

PLACE = np.dtype(
    [
        ("id", ">u8", 2),
        ("session", ">u8", 2),
        ("at", ">i8"),  # µs since 2000, as Postgres counts
        ("turn", ">i4"),
        ("tokens", ">i4"),
        ("role", ">i2"),
        ("kind", ">i2"),  # MESSAGE_KIND or MEMORY_KIND
        ("speaker", ">u4"),
    ]
)
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
US_PER_DAY = 86_400_000_000
MESSAGE_KIND, MEMORY_KIND = 0, 1
"""`item_kind` of `enumerations`."""


class LaterWords(NamedTuple):
    """The places and `ids` of the user's own messages, some twice, and by item (`of`) the ids of the messages that share its
    telling words, the latest last. Ids are as `ids_of` has them."""

    places: Places
    ids: Sequence[str]
    of: Mapping[str, Sequence[str]]


class Scan(NamedTuple):
    """What could answer a question. `places`: those with a cosine, then those with words of the question; an item may be among
    both.

    `sims` (n,), of the first n places; `counts` (m, 16), of the others, how often each word stands there. `words` and `holding`
    have up to 16 elements.
    """

    places: Places
    sims: NDArray[np.float32]
    counts: NDArray[np.uint8]
    words: Sequence[str]
    holding: Sequence[int]
    counted: int
    mean: float
    k1: float
    b: float
    ordered: Ordered | None = None
    """Where the places with a cosine are in the order of `order_of`, each item once, and have all that have words."""
    in_prompt: Scan | None = None
    """The memories of this session alone whose message stands in the prompt: no candidates, but the request may use them."""
    find_later: Callable[[Sequence[str]], LaterWords] | None = None
    """Finds the user's later own messages that share telling words with items (ids as `ids_of` has them)."""


class Ordered(NamedTuple):
    """The columns (n,) of places, and where those with words stand among them (m,)."""

    columns: Columns
    said: NDArray[np.intp]


NO_PLACES: Places = np.zeros(0, PLACE)
NO_LATER_WORDS = LaterWords(NO_PLACES, (), {})


class Columns(NamedTuple):
    """Places as columns (n,) of plain numbers. `item`, `owner`: a number for the item, and for its session (of a memory the
    item's own). `at`: microseconds since 2000. Two ids share their number about once in 2⁶⁴ pairs. (Half an id would not do:
    the first halves of ids that were made in one millisecond are nearly alike.)"""

    item: NDArray[np.uint64]
    owner: NDArray[np.uint64]
    turn: NDArray[np.uint64]
    tokens: NDArray[np.uint64]
    role: NDArray[np.uint64]
    memory: NDArray[np.bool_]
    speaker: NDArray[np.uint64]
    at: NDArray[np.int64]

    def part(self, which: NDArray[Any]) -> Columns:
        """Some of them: numbers, or a mask (n,)."""
        return Columns._make(each[which] for each in self)


def columns_of(places: Places) -> Columns:
    # All of it as seven numbers, turned to our byte order at once: field by field takes five times as long.
    numbers = np.ascontiguousarray(places).view(">u8").reshape(-1, 7).T.astype(np.uint64)
    item, session = _mixed(numbers[0], numbers[1]), _mixed(numbers[2], numbers[3])
    memory = (numbers[6] >> _32 & _16_BITS) == MEMORY_KIND
    owner = np.where(memory, item, session)
    return Columns(
        item, owner, numbers[5] >> _32, numbers[5] & _32_BITS, numbers[6] >> _48, memory, numbers[6] & _32_BITS,
        numbers[4].view(np.int64),
    )  # fmt: skip


def order_of(columns: Columns) -> NDArray[np.uint64]:
    """Numbers (n,) in whose order sessions lie together, each in the order of its turns: session, turn, item. (Two sessions
    that are alike in 32 bits do no harm, for their owners differ.)"""
    turns = np.minimum(columns.turn, _MOST_TURNS) << _TURN_BITS
    order: NDArray[np.uint64] = (columns.owner & _HIGH) | turns | (columns.item >> _ITEM_BITS)
    return order


_HIGH = np.uint64(0xFFFFFFFF << 32)
_TURN_BITS, _ITEM_BITS = np.uint64(12), np.uint64(52)
_MOST_TURNS = np.uint64(2**20 - 1)
"""The turn takes 20 bits of the order's 64; of a longer session the rest stands in any order."""
_32, _48, _16_BITS, _32_BITS = (np.uint64(n) for n in (32, 48, 0xFFFF, 0xFFFFFFFF))


def _mixed(high: NDArray[np.uint64], low: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return (high * _ODD ^ low) * _ODD


_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ ÷ golden ratio: spreads numbers that are near each other (Knuth)


def key_of(session: UUID) -> np.uint64:
    """The number of a session, as `columns_of` has it."""
    high, low = np.frombuffer(session.bytes, ">u8").astype(np.uint64).reshape(2, 1)
    return np.uint64(_mixed(high, low)[0])


def ids_of(places: Places) -> list[str]:
    """In hexadecimal, which asyncpg takes as it takes a UUID, and which is made ten times as fast."""
    digits = places["id"].tobytes().hex()
    return [digits[n : n + 32] for n in range(0, len(digits), 32)]


def build_memory_places(items: Sequence[UUID], ats: Sequence[datetime]) -> Places:
    """Return places (n,) by which memories can be fetched; the fields that only ranking needs are 0."""
    places: Places = np.zeros(len(items), PLACE)
    for number, (item, at) in enumerate(zip(items, ats, strict=True)):
        places[number]["id"] = np.frombuffer(item.bytes, ">u8")
        places[number]["at"] = (at - EPOCH) // timedelta(microseconds=1)
    places["kind"] = MEMORY_KIND
    return places


def speaker_mark(name: str) -> int:
    """Return the number by which a place marks who spoke: that of the first name in lower case ("ann" of "Ann_Smith")."""
    first = re.sub("[_.-]+", " ", name).split(" ")[0]
    return int.from_bytes(sha256(first.lower().encode()).digest()[:4], "big")
