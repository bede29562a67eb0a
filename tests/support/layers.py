"""How long the layers of seed 001 §2 take to be read, one at a time: `python -m tests.support.layers`.

Over the persona of `half_year` after two months; the semantic layer is measured with more of it by `loadtests.scale`.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import quantiles

from app.providers.embeddings import WordLlamaEmbedder
from app.store import ids
from app.store.consolidation import Working, keep_working, read_working
from app.store.pools import UserRows, open_pool
from app.store.turns import TurnStore
from tests.support.database import connected, fresh_database, make_template, shared_server
from tests.support.half_year import HalfYear
from tests.support.jobs import SQL
from tests.support.learning import TENANT
from tests.support.rows import ensure_space

DAYS = 60
WARM, TIMES = 30, 1000
"""Reads before those that are timed, and these."""
RESULT = "y" * 500
"""A tool's result as long as one is kept."""


async def timed(name: str, read: Callable[[], Awaitable[object]]) -> None:
    for _ in range(WARM):
        assert await read()
    took: list[float] = []
    for _ in range(TIMES):
        began = time.perf_counter()
        await read()
        took.append(1000 * (time.perf_counter() - began))
    hundredths = quantiles(took, n=100)
    print(f"{name:<10} p50 {hundredths[49]:.2f} ms, p99 {hundredths[98]:.2f} ms")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, shared_server(Path(folder)) as server:
        template = await make_template(server, Path(folder))
        async with fresh_database(server, template) as dsn, connected(dsn) as admin:
            words = WordLlamaEmbedder()
            space = await ensure_space(admin, words.space, words.dimensions)
            pool = await open_pool(
                dsn, size=2, timeout_ms=5000, statement_timeout_ms=30_000, statement_cache_size=256, role="mneme_app",
                application_name="layers",
            )  # fmt: skip
            live = HalfYear(dsn, pool, admin, words, space)
            await live.live(DAYS)
            user, session = live.user, ids.session_id(TENANT, live.user, "chat-40")
            async with pool.transaction(TENANT) as connection:
                kept = Working(tool_results_buffer=[{"result": RESULT}] * 5)
                await keep_working(UserRows(connection, SQL, TENANT, user), session, kept, live.clock.now())
            turns = TurnStore(pool, SQL)

            async def working() -> object:
                async with pool.transaction(TENANT) as connection:
                    return await read_working(UserRows(connection, SQL, TENANT, user), session)

            async def episodic() -> object:
                return await turns.session_messages(TENANT, user, [(session, 99)], limit=40)

            await timed("working", working)
            await timed("episodic", episodic)
            await pool.close()


if __name__ == "__main__":
    asyncio.run(main())
