"""Fixtures of the tests of learning: the local embedder, its space, and a learner."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from app.jobs.learn import Learner
from app.providers.embeddings import WordLlamaEmbedder
from app.store.pools import Pool
from tests.support.learning import learner


@pytest.fixture(scope="session")
def words() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture
async def space(admin: asyncpg.Connection[Any], words: WordLlamaEmbedder) -> int:
    number: int = await admin.fetchval(
        "SELECT agent_data.ensure_embedding_space($1, $2)", words.space, words.dimensions
    )
    return number


@pytest.fixture
def learn(pool: Pool, words: WordLlamaEmbedder, space: int) -> Learner:
    return learner(pool, words, space)
