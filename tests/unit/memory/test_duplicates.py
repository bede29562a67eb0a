"""The calibration of the duplicate thresholds of the local spaces (docs/explanation/learning.md has the tables).

How it was found: of all pairs that differ in the one word that matters, none may be merged, with room to spare; then as many
of those that say the same as that leaves. `python -m tests.unit.memory.test_duplicates` prints the whole curve,
and `… minilm` that of all-MiniLM-L6-v2, where the extra is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Protocol

import pytest

from app.features.minilm import open_minilm
from app.memory.text import gist, same_claim
from app.providers.embeddings import Vectors, WordLlamaEmbedder
from tests.unit.memory.duplicates import other, same

Measured = tuple[float, bool, bool]

ROOM = 0.02
"""Cosine between the threshold and the first wrong merger."""


class Local(Protocol):
    """What computes in this process."""

    def embed_now(self, texts: Sequence[str]) -> Vectors: ...


def measured(embedder: Local, pairs: Sequence[tuple[str, str]]) -> list[Measured]:
    """(cosine, may be one claim, one gist) of each pair."""
    found = []
    for pair in pairs:
        one, another = embedder.embed_now(pair)
        found.append((float(one @ another), same_claim(*pair), gist(pair[0]) == gist(pair[1])))
    return found


def merged(pairs: Sequence[Measured], threshold: float) -> int:
    """As `Ingest` decides."""
    return sum((cosine > threshold or gists) and may for cosine, may, gists in pairs)


@pytest.fixture(scope="module")
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def test_no_two_memories_are_merged_and_wordings_of_one_often_are(embedder: WordLlamaEmbedder) -> None:
    alike, unlike = measured(embedder, same()), measured(embedder, other())
    assert (len(alike) > 80, len(unlike) > 500) == (True, True)
    assert merged(unlike, embedder.duplicate_threshold - ROOM) == 0
    assert merged(alike, embedder.duplicate_threshold) / len(alike) > 0.38


def test_the_cosine_alone_could_not_do_it(embedder: WordLlamaEmbedder) -> None:
    """Why `same_claim` is asked as well: static vectors hardly see which of two words stands there."""
    assert sum(cosine > embedder.duplicate_threshold for cosine, _, _ in measured(embedder, other())) > 15


def table(embedder: Local) -> str:
    """The curve, as docs/explanation/learning.md has it."""
    alike, unlike = measured(embedder, same()), measured(embedder, other())
    lines = [f"{len(alike)} pairs of one memory, {len(unlike)} of two"]
    for step in range(76, 98, 2):
        right, wrong = merged(alike, step / 100), merged(unlike, step / 100)
        alone = sum(cosine > step / 100 for cosine, _, _ in unlike)
        lines.append(f"| {step / 100:.2f} | {right / len(alike):.2f} | {wrong} | {alone} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(open_minilm() if sys.argv[1:] == ["minilm"] else WordLlamaEmbedder()))
