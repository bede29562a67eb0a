"""Where an item stands, as `agent_data.item_place` packs it: what ranking needs to know of it beside its vector and words."""

from __future__ import annotations

from collections.abc import Sequence
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
        ("kind", ">i2"),  # 0 message, 1 memory
        ("speaker", ">u4"),
    ]
)

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


class Scan(NamedTuple):
    """What `agent_data.retrieve` found: `scanned`, `said` and `used` are places, the rest goes with them (see there).

    `sims` (n,) float, `counts` (m, 16) of each word in each of `said`; `words` and `holding` have up to 16 elements.
    """

    scanned: Places
    sims: NDArray[np.float32]
    said: Places
    counts: NDArray[np.uint8]
    used: Places
    words: Sequence[str]
    holding: Sequence[int]
    counted: int
    mean: float
    k1: float
    b: float


def unpack(row: Any) -> Scan:
    """A row of `agent_data.retrieve`."""
    scanned, sims, said, counts, used, words, holding, counted, mean, k1, b = row
    return Scan(
        np.frombuffer(scanned or b"", PLACE),
        np.frombuffer(sims or b"", ">f4").astype(np.float32),
        np.frombuffer(said or b"", PLACE),
        # The n-th word's count is the n-th lowest byte, and int8 comes with the highest first.
        np.frombuffer(counts or b"", np.uint8).reshape(-1, 2, 8)[:, :, ::-1].reshape(-1, 16),
        np.frombuffer(used or b"", PLACE),
        words or (),
        holding or (),
        counted or 0,
        mean or 1.0,
        k1,
        b,
    )


def keys(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One number for each id (n, 2), shared by about one pair in 2⁶⁴. (Half an id would not do: the first halves of ids that
    were made in one millisecond are nearly alike.)"""
    pairs = ids.astype(np.uint64)
    mixed: NDArray[np.uint64] = pairs[:, 0] * _ODD ^ pairs[:, 1]
    return mixed


_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ ÷ golden ratio: spreads numbers that are near each other (Knuth)


def key_of(identity: UUID) -> np.uint64:
    """`keys` of one id."""
    return np.uint64(keys(np.frombuffer(identity.bytes, ">u8").reshape(1, 2).astype(np.uint64))[0])


def ids_of(places: Places) -> list[UUID]:
    raw = places["id"].astype(">u8").tobytes()
    return [UUID(bytes=raw[n : n + 16]) for n in range(0, len(raw), 16)]


def times_of(places: Places) -> list[datetime]:
    return [_EPOCH + timedelta(microseconds=at) for at in places["at"].tolist()]


def speaker_mark(name: str) -> int:
    """How a place marks who spoke: by the first of his names, lower case."""
    return int.from_bytes(sha256(name.split(" ")[0].lower().encode()).digest()[:4], "big")
