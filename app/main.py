"""The composition root: the only place that builds and wires.

`create_app` is what uvicorn runs, once in every server process; `run_worker` is the worker process. Both read the same
settings and share nothing but the database.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
from fastapi import FastAPI

from app.api.auth import Authenticator
from app.capture.record import Recorder
from app.clock import Clock, SystemClock
from app.context.compile import Compiler
from app.context.retrieve import Retriever
from app.errors import NotReady
from app.gateway.account import Accountant
from app.gateway.prepare import Preparer
from app.gateway.scout import Scout
from app.gateway.simulated import SimulatedTransport
from app.gateway.transport import AiohttpTransport
from app.gateway.turn import Gateway
from app.gateway.upstream import Router, Transport
from app.metrics import Metrics, process_registry
from app.providers.embeddings import Embedder, build_embedder
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, Tokenizers
from app.settings import Settings
from app.store.migrate import migrate
from app.store.pools import Pool, open_pool
from app.store.queries import Queries
from app.store.queue import install_queue
from app.store.tenancy import Tenancy
from app.store.turns import TurnStore
from app.tasks import Supervisor

log = logging.getLogger("mneme")

APP_ROLE = "mneme_app"
"""What the server and the worker run as; row-level security holds it to one tenant."""

STORED_COUNTS = "gpt-4o"
"""A model counted by o200k_base: the encoding of every stored token count."""


def database_dsn(settings: Settings) -> str:
    """The database to use. Raises NotReady where none is configured: `mneme serve` starts the embedded one."""
    if settings.database_url is None:
        raise NotReady("No database: set MNEME_DATABASE_URL, or start with `mneme serve`.")
    return settings.database_url.get_secret_value()


async def prepare_database(settings: Settings, dsn: str, progress: Callable[[str], None] | None = None) -> None:
    """Bring the schema, the queue and the embedder's space up to date. Needs a login that may create roles."""
    embedder = build_embedder(settings)

    async def space(connection: Any) -> None:
        if embedder.dimensions:
            await connection.execute(
                Queries.load()["turns.ensure_space"].replace("$1", "$1::text"), embedder.space, embedder.dimensions
            )

    connection = await asyncpg.connect(dsn)
    try:
        await migrate(
            connection,
            hash_partitions=settings.hash_partitions,
            history_partitions=settings.history_partitions,
            after=[install_queue, space],
            progress=progress,
        )
    finally:
        await connection.close()
        await embedder.close()


@dataclass(frozen=True, slots=True)
class Core:
    """What every process needs."""

    settings: Settings
    clock: Clock
    queries: Queries
    pool: Pool
    embedder: Embedder
    tokenizers: Tokenizers
    counts: CountCache
    models: ModelRegistry
    tasks: Supervisor


async def open_core(settings: Settings, stack: AsyncExitStack, clock: Clock) -> Core:
    """Open what is shared; `stack` closes it."""
    pool = await open_pool(
        database_dsn(settings),
        size=settings.pool_size,
        timeout_ms=settings.pool_timeout_ms,
        statement_timeout_ms=settings.statement_timeout_ms,
        statement_cache_size=settings.statement_cache_size,
        role=APP_ROLE,
    )
    stack.push_async_callback(pool.close)
    embedder = build_embedder(settings)
    stack.push_async_callback(embedder.close)
    tokenizers = Tokenizers(settings.tokenizer_json)
    await asyncio.to_thread(tokenizers.warm)
    return Core(
        settings=settings,
        clock=clock,
        queries=Queries.load(),
        pool=pool,
        embedder=embedder,
        tokenizers=tokenizers,
        counts=CountCache(),
        models=ModelRegistry(
            windows=settings.model_windows,
            prices=settings.model_prices,
            default_window=settings.default_context_window,
            default_response=settings.default_response_tokens,
        ),
        tasks=Supervisor(),
    )
