"""Precision and recall of merging by the duplicate threshold τ, on labelled pairs.

`python -m loadtests.merging` prints them for the static vectors, `python -m loadtests.merging minilm` for those of the extra.
A pair is merged as `app.memory.compare` decides of two statements of one kind that no triples compare: their cosine is above τ,
or their gist is one, and `may_be_one` allows it. `same` and `more` (one says the same and more) are to be merged, the others
are two facts. τ and the rules were chosen by `tuning.txt`; `heldout.txt` was written before, by the same hand, and read once
they stood. The last 12 pairs of each were written for the rules on units, times, company and subjects.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from app.features.minilm import open_minilm
from app.memory.compare import may_be_one
from app.memory.text import gist
from app.providers.embeddings import Vectors, WordLlamaEmbedder

FOLDER = Path(__file__).parent
SETS = ("tuning", "heldout")
MERGED = frozenset(("same", "more"))
"""Labels of pairs that are one memory."""
SEED_PAIR = ("User prefers short blog posts", "Prefers blog posts under 800 words")
"""The pair of seed 001 §4.3, which merges into its second text."""
STEPS = tuple(step / 100 for step in range(50, 100, 5))


class LocalEmbedder(Protocol):
    """An embedder that computes in this process."""

    space: str

    @property
    def duplicate_threshold(self) -> float | None: ...

    def embed_now(self, texts: Sequence[str]) -> Vectors: ...


class LabelledPair(NamedTuple):
    """Two statements as memory keeps them. `label`: same, more, value, negation, person or time."""

    label: str
    language: str
    first: str
    second: str


class MeasuredPair(NamedTuple):
    pair: LabelledPair
    cosine: float
    is_allowed: bool
    has_one_gist: bool

    def is_merged(self, threshold: float) -> bool:
        return self.is_allowed and (self.cosine > threshold or self.has_one_gist)


class Score(NamedTuple):
    """Counts of pairs: merged rightly (`right`), to be merged (`gold`), and merged wrongly, by label."""

    right: int
    gold: int
    wrong: Counter[str]

    @property
    def precision(self) -> float:
        merged = self.right + self.wrong.total()
        return self.right / merged if merged else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.gold


def read_pairs(name: str) -> list[LabelledPair]:
    """Return the pairs of a set."""
    pairs = []
    for line in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            label, language, texts = line.split(" ", 2)
            first, second = texts.split(" | ")
            pairs.append(LabelledPair(label, language, first, second))
    return pairs


def measure_pairs(embedder: LocalEmbedder, pairs: Sequence[LabelledPair]) -> list[MeasuredPair]:
    """Return the pairs with their cosines, and whether the rules on words allow them to be merged."""
    measured = []
    for pair in pairs:
        first, second = embedder.embed_now([pair.first, pair.second])
        is_allowed = may_be_one(pair.first, pair.second)
        measured.append(MeasuredPair(pair, float(first @ second), is_allowed, gist(pair.first) == gist(pair.second)))
    return measured


def score_pairs(measured: Sequence[MeasuredPair], threshold: float) -> Score:
    """Count the pairs that are merged above a threshold."""
    gold = [row for row in measured if row.pair.label in MERGED]
    merged = [row.pair.label for row in measured if row.is_merged(threshold)]
    wrong = Counter(label for label in merged if label not in MERGED)
    return Score(len(merged) - wrong.total(), len(gold), wrong)


def print_scores(embedder: LocalEmbedder) -> None:
    print(f"{embedder.space}: τ {embedder.duplicate_threshold}")
    first, second = embedder.embed_now(SEED_PAIR)
    print(f"the pair of seed 001 §4.3: cosine {float(first @ second):.3f}")
    for name in SETS:
        measured = measure_pairs(embedder, read_pairs(name))
        count = sum(row.pair.label in MERGED for row in measured)
        print(f"\n{name}: {count} pairs of one memory, {len(measured) - count} of two")
        print("| τ | precision | recall | wrong | wrong by the cosine alone |\n| --- | --- | --- | --- | --- |")
        for threshold in STEPS:
            score = score_pairs(measured, threshold)
            alone = sum(row.cosine > threshold and row.pair.label not in MERGED for row in measured)
            wrong = ", ".join(f"{count} {label}" for label, count in sorted(score.wrong.items())) or "0"
            print(f"| {threshold:.2f} | {score.precision:.2f} | {score.recall:.2f} | {wrong} | {alone} |")


if __name__ == "__main__":
    print_scores(open_minilm() if sys.argv[1:] == ["minilm"] else WordLlamaEmbedder())
