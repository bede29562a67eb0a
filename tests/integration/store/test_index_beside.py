"""A user who has more than a server keeps: the graph brings of the older messages what the whole index would have found."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import numpy as np
import pytest
from numpy.typing import NDArray

from app.index.indexes import SAMPLE_NEAREST, Indexes, IndexScope
from app.store.item_columns import ids_of
from app.store.pools import Pool, halfvec, set_codecs
from tests.support.indexes import indexes_of
from tests.support.jobs import until
from tests.support.teller import ANA, NOW, TENANT, Teller

ITEMS, KEPT, QUESTIONS, NEAREST = 3_000, 500, 10, 50
DIMENSIONS = 64
LEAST_RECALL = 0.98

SAID = """
INSERT INTO agent_data.conversation_history (message_id, session_id, user_id, tenant_id, turn_index, role, content, token_count,
                                             created_at)
SELECT m.id, md5((m.n / 20)::text)::uuid, $1, $2, m.n % 20 + 1, 1, 'number' || m.n, 1,
       $3::timestamptz + m.n * interval '1 second'
FROM unnest($4::uuid[]) WITH ORDINALITY AS m (id, n)
"""
VECTORS = """
INSERT INTO agent_data.embeddings (user_id, tenant_id, space, item_id, item_kind, item_at, in_hnsw, vector)
SELECT $1, $2, $3, m.id, 0, $4::timestamptz + m.n * interval '1 second', true, m.vector
FROM unnest($5::uuid[], $6::halfvec[]) WITH ORDINALITY AS m (id, vector, n)
"""


def vectors(many: int, seed: int) -> NDArray[np.float32]:
    """Of a hundred subjects, as texts are."""
    chance = np.random.default_rng(seed)
    subjects = np.random.default_rng(0).normal(size=(100, DIMENSIONS))
    made = subjects[chance.integers(0, 100, many)] + 0.7 * chance.normal(size=(many, DIMENSIONS))
    scaled: NDArray[np.float32] = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
    return scaled


async def with_very_many(teller: Teller) -> int:
    """Ana has more than an index holds, all in the graph of the space that is returned."""
    await set_codecs(teller.admin, "public")
    space: int = await teller.admin.fetchval("SELECT agent_data.ensure_embedding_space('beside', $1)", DIMENSIONS)
    items, began = [UUID(int=n << 64 | 7) for n in range(1, ITEMS + 1)], NOW - timedelta(hours=2)
    await teller.admin.execute(
        "INSERT INTO agent_data.users (user_id, tenant_id, external_id) VALUES ($1, $2, 'ana')", ANA, TENANT
    )
    await teller.admin.execute(SAID, ANA, TENANT, began, items)
    await teller.admin.execute(VECTORS, ANA, TENANT, space, began, items, [halfvec(each) for each in vectors(ITEMS, 1)])
    return space


async def test_what_is_too_old_for_the_index_is_found_beside_it(
    teller: Teller, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = await with_very_many(teller)
    whole = indexes_of(pool, DIMENSIONS, space, limit=10**8)
    part = indexes_of(pool, DIMENSIONS, space, limit=10**8, most=KEPT, beside_s=5)
    alone = indexes_of(pool, DIMENSIONS, space, limit=10**8, most=KEPT, beside_s=0)

    async def nearest(indexes: Indexes, vector: NDArray[np.float32], where: IndexScope) -> set[str]:
        scan = await indexes.scan(TENANT, ANA, "", vector, where, vectors=12_000, texts=0)
        return set(ids_of(scan.places[np.argsort(-scan.sims, kind="stable")[:NEAREST]]))

    async def never(*given: object) -> None:
        raise AssertionError("of who has no more than an index holds the graph is not asked")

    monkeypatch.setattr(whole._store, "beside", never)
    shares, without = [], []
    for vector in vectors(QUESTIONS, 2):
        expected = await nearest(whole, vector, IndexScope())
        shares.append(len(expected & await nearest(part, vector, IndexScope())) / NEAREST)
        without.append(len(expected & await nearest(alone, vector, IndexScope())) / NEAREST)
    print(f"recall of the nearest {NEAREST}: {np.mean(shares):.4f}, the least {min(shares):.4f}")
    assert np.mean(shares) >= LEAST_RECALL
    assert np.mean(without) < 0.5, "in no time they are left out"
    # The same filters: what stands in the prompt, and what is suppressed.
    (vector,) = vectors(1, 3)
    near = [UUID(each) for each in await nearest(part, vector, IndexScope())]
    await teller.admin.execute(
        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason)"
        " SELECT $1, $2, i, 'forgotten' FROM unnest($3::uuid[]) AS i",
        ANA, TENANT, near[:10],
    )  # fmt: skip
    left = {UUID(each) for each in await nearest(part, vector, IndexScope())}
    assert not left & set(near[:10])
    assert len(left & set(near)) == NEAREST - 10
    assert await nearest(part, vector, IndexScope(only=1)) == set(), "there are no memories"


class Told:
    """A meter that hears of samples alone."""

    def __init__(self) -> None:
        self.recalls: list[float] = []

    def graph_recall(self, recall: float) -> None:
        self.recalls.append(recall)

    def index_asked(self, how: str) -> None: ...
    def index_loaded(self, seconds: float, items: int) -> None: ...
    def index_unreadable(self, items: int) -> None: ...


async def test_recall_is_sampled_beside_questions(teller: Teller, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first question and, here, every third after; what the graph does not hold any more is missed, and told."""
    monkeypatch.setattr("app.index.indexes.SAMPLE_EVERY", every := 3)
    space, told = await with_very_many(teller), Told()
    asked = indexes_of(pool, DIMENSIONS, space, limit=10**8, most=KEPT, beside_s=5, meter=told)
    for vector in vectors(every + 1, 2):
        await asked.scan(TENANT, ANA, "", vector, IndexScope(), vectors=10, texts=0)
    await until(lambda: len(told.recalls) == 2)
    assert min(told.recalls) >= LEAST_RECALL
    monkeypatch.setattr("app.index.indexes.OLDER_MESSAGES", SAMPLE_NEAREST // 2)
    poor = indexes_of(pool, DIMENSIONS, space, limit=10**8, most=KEPT, beside_s=5, meter=told)
    await poor.scan(TENANT, ANA, "", vectors(1, 4)[0], IndexScope(), vectors=10, texts=0)
    await until(lambda: len(told.recalls) == 3)
    assert told.recalls[-1] <= 0.5
