"""Databases of integration tests: each worker has one, and empties it between two tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from app.jobs.learn import Learner
from app.providers.embeddings import WordLlamaEmbedder
from app.store.pools import Pool
from tests.support.learning import learner
from tests.support.reused import ReusedDatabase
from tests.support.rows import ensure_space


@pytest.fixture(scope="session")
async def reused(postgres_server: str, database_template: str) -> AsyncIterator[ReusedDatabase]:
    reused = ReusedDatabase(postgres_server, database_template)
    yield reused
    await reused.close()


@pytest.fixture
async def database(reused: ReusedDatabase) -> AsyncIterator[str]:
    """The DSN of a database with the whole schema and nothing else in it, as superuser."""
    yield await reused.lend()
    await reused.take_back()


@pytest.fixture
async def pool(database: str, reused: ReusedDatabase) -> Pool:
    """The application's pool on `database`: role `mneme_app`, row-level security in force."""
    return await reused.pool()


@pytest.fixture
async def admin(database: str, reused: ReusedDatabase) -> asyncpg.Connection[Any]:
    """A plain connection to `database` as superuser, whom row-level security does not hold: to prepare and to look."""
    return await reused.admin()


@pytest.fixture(scope="session")
def words() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture
async def space(admin: asyncpg.Connection[Any], words: WordLlamaEmbedder) -> int:
    return await ensure_space(admin, words.space, words.dimensions)


@pytest.fixture
def learn(pool: Pool, words: WordLlamaEmbedder, space: int) -> Learner:
    return learner(pool, words, space)
