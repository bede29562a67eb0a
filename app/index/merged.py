"""A user's memory and that of the spaces that they may read, asked at once: one scan of several indexes, ranked as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np

from app.index.user_index import WORDS
from app.store.item_columns import Scan


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
    return scan._replace(
        places=scan.places[stays],
        sims=scan.sims[stays[:many]],
        counts=scan.counts[stays[many:]],
        ordered=None,
    )


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
    )
