"""Fixtures for every test. Nothing here runs unless a test asks for it: unit tests start no server."""

from __future__ import annotations

import functools
import gc
import ssl
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from app.store.pools import Pool, open_pool
from tests.support.database import connected, fresh_database, make_template, shared_server
from tests.support.ports import free_port
from tests.support.properties import register_profiles

register_profiles()
# Each client of httpx reads all the world's certificates, 18 ms of CPU, and no test speaks TLS.
vars(ssl)["create_default_context"] = functools.cache(ssl.create_default_context)


def pytest_collection_finish() -> None:
    """What was loaded by now stays. To look through it takes half a second, again and again, and in a test that measures its
    own time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def unused_tcp_port() -> int:
    """A port where nobody answers; instead of pytest-asyncio's, which somebody may get meanwhile."""
    return free_port()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The DSN of this worker's server, as superuser."""
    with shared_server(tmp_path_factory.getbasetemp()) as dsn:
        yield dsn


@pytest.fixture(scope="session")
async def database_template(postgres_server: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a database with the whole schema, to be copied."""
    return await make_template(postgres_server, tmp_path_factory.getbasetemp())


@pytest.fixture
async def database(postgres_server: str, database_template: str) -> AsyncIterator[str]:
    """The DSN of a fresh database with the whole schema, as superuser."""
    async with fresh_database(postgres_server, database_template) as dsn:
        yield dsn


@pytest.fixture(scope="module")
async def module_database(postgres_server: str, database_template: str) -> AsyncIterator[str]:
    """The same for all tests of a module."""
    async with fresh_database(postgres_server, database_template) as dsn:
        yield dsn


@pytest.fixture
async def empty_database(postgres_server: str) -> AsyncIterator[str]:
    """The DSN of a fresh database with nothing in it, as superuser."""
    async with fresh_database(postgres_server) as dsn:
        yield dsn


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    """The application's pool on `database`: role `mneme_app`, row-level security in force."""
    pool = await open_pool(
        database,
        size=2,
        timeout_ms=5000,
        statement_timeout_ms=30_000,
        statement_cache_size=256,
        role="mneme_app",
        application_name="mneme-test",
    )
    yield pool
    await pool.close()


@pytest.fixture
async def admin(database: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A plain connection to `database` as superuser, whom row-level security does not hold: to prepare and to look."""
    async with connected(database) as connection:
        yield connection
