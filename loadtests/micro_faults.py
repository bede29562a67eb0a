"""How often an extractive answer has what was asked: `python -m loadtests.micro_faults` prints the hit rate by kind of object.

The questions are the labelled set of the tests, each asked over all objects, whose likeness is told by the packaged vectors: as
seed 002 §2.3 combines them (0.7 and 0.3), by words alone, by vectors alone, and to the right object alone. `tokens`: of an
answer, on average.
"""

from __future__ import annotations

from uuid import UUID

import numpy as np

from app.features.paging.quotes import ANSWER_TOKENS, answer
from app.features.paging.values import SEED_WEIGHTS, WEIGHTS, ContentKind
from app.providers.embeddings import WordLlamaEmbedder
from app.providers.tokens import Tokenizers
from tests.unit.paging.micro_faults import Question, asked, by_kind, hit, questions, sources

EMBEDDED_CHARS = 8_000
"""Characters of an object that its vector is made from."""
MODEL = "gpt-4o"


def likenesses() -> list[dict[UUID, float]]:
    """The likeness of each question to each object, 0 to 1."""
    embedder = WordLlamaEmbedder()
    objects = _unit(embedder, [f"{each.name}\n{each.content[:EMBEDDED_CHARS]}" for each in sources()])
    asking = _unit(embedder, [each.text for each in questions()])
    ids = [each.object_id for each in sources()]
    return [dict(zip(ids, map(float, np.maximum(0.0, objects @ each)), strict=True)) for each in asking]


def _unit(embedder: WordLlamaEmbedder, texts: list[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    vectors = np.asarray(embedder.embed_now(texts), dtype=np.float64)
    return np.asarray(vectors / np.maximum(1e-9, np.linalg.norm(vectors, axis=1, keepdims=True)), dtype=np.float64)


def row(name: str, hits: dict[Question, bool], tokens: float) -> None:
    kinds = by_kind(hits)
    told = "".join(
        f"{right:>6}/{total}" if total else f"{'':>9}" for right, total in (kinds[kind] for kind in ContentKind)
    )
    held = [found for each, found in hits.items() if each.held_out]
    print(f"{name:<18}{told}{sum(hits.values()):>8}/{len(hits)}{sum(held):>7}/{len(held)}{tokens:>9.0f}")


def main() -> None:
    count = Tokenizers().for_model(MODEL).count
    alike = likenesses()
    heads = "".join(f"{kind.value:>{len(kind.value) if len(kind.value) > 8 else 9}}" for kind in ContentKind)
    print(f"{'':<18}{heads}{'all':>11}{'held out':>10}{'tokens':>9}")
    for name, weights, budget in (
        ("0.3 / 0.7", WEIGHTS, ANSWER_TOKENS),
        ("0.7 / 0.3", SEED_WEIGHTS, ANSWER_TOKENS),
        ("words alone", (0.0, 1.0), ANSWER_TOKENS),
        ("vectors alone", (1.0, 0.0), ANSWER_TOKENS),
        ("150 tokens", WEIGHTS, ANSWER_TOKENS // 2),
    ):
        given = {each: asked(each, count, like, budget, weights) for each, like in zip(questions(), alike, strict=True)}
        row(
            name,
            {each: hit(each, one) for each, one in given.items()},
            sum(one.tokens for one in given.values()) / len(given),
        )
    alone = {each: answer(each.text, [each.source], count) for each in questions()}
    row(
        "right object",
        {each: hit(each, one) for each, one in alone.items()},
        sum(one.tokens for one in alone.values()) / len(alone),
    )
    whole = sum(count(each.source.content) for each in questions()) / len(questions())
    print(f"the objects have {whole:.0f} tokens on average, over the questions")


if __name__ == "__main__":
    main()
