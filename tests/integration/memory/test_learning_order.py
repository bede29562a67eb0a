"""The same things said in many words, in any order, by one worker or by eight, end in the same memories."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.jobs.learn import Learner
from app.providers.embeddings import WordLlamaEmbedder
from app.store.pools import Pool, open_pool
from app.store.queue import Counts, Queue
from app.store.records import JobRecord
from tests.support.jobs import SQL, until, working
from tests.support.learning import TENANT, Talk, learner, memories
from tests.support.restatements import FACTS, restatements
from tests.support.rows import read_memories

WORKERS = 8
SEED = 20_261_121
HEAVY_PATIENCE_S = 300.0


@pytest.fixture
async def wide(database: str) -> AsyncIterator[Pool]:
    """A connection for each of the workers."""
    pool = await open_pool(
        database,
        size=WORKERS,
        timeout_ms=60_000,
        statement_timeout_ms=60_000,
        statement_cache_size=256,
        role="mneme_app",
        application_name="mneme-test",
    )
    yield pool
    await pool.close()


async def in_force(admin: asyncpg.Connection[Any], user: str) -> list[tuple[str, str, int]]:
    talk = Talk(user_name=user)
    found = await memories(admin, is_active=True, user_id=talk.user)
    return sorted((each["content_text"], each["kind"], each["memory_tier"]) for each in found)


async def one_by_one(learn: Learner, pool: Pool, user: str, said: Sequence[str]) -> None:
    talk = Talk(user_name=user)
    for message in await talk.say(pool, *said):
        await learn.learn(talk.job([message]))


async def by_eight(
    database: str, pool: Pool, words: WordLlamaEmbedder, space: int, user: str, said: Sequence[str], patience_s: float
) -> None:
    talk = Talk(user_name=user)
    jobs = [JobRecord("learn", talk.job([message]), None, 0.0) for message in await talk.say(pool, *said)]
    async with pool.transaction(TENANT) as connection:
        await connection.execute(SQL["queue.enqueue"], jobs)
    queue = Queue(pool, SQL)

    async def done() -> bool:
        return await queue.counts() == Counts(0, 0, 0)

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(WORKERS):
            await stack.enter_async_context(working(database, learner(pool, words, space).handlers()))
        async with asyncio.timeout(patience_s):
            while not await done():
                with contextlib.suppress(AssertionError):  # `until` has a deadline for what is short
                    await until(done)


async def check(
    database: str,
    admin: asyncpg.Connection[Any],
    pool: Pool,
    words: WordLlamaEmbedder,
    space: int,
    count: int,
    orders: int,
    patience_s: float,
) -> None:
    said = restatements(count, SEED)
    learn = learner(pool, words, space)
    await one_by_one(learn, pool, "order-0", said)
    first = await in_force(admin, "order-0")
    assert len(first) == len(FACTS), "\n".join(text for text, *_ in first)
    for n in range(1, orders):
        again = random.Random(n).sample(said, len(said))
        await one_by_one(learn, pool, f"order-{n}", again)
        assert await in_force(admin, f"order-{n}") == first
    await by_eight(database, pool, words, space, "eight", random.Random(SEED).sample(said, len(said)), patience_s)
    assert await in_force(admin, "eight") == first
    stored = await read_memories(admin)
    counts: Counter[UUID] = Counter()
    for row in stored:
        counts[row["user_id"]] += (row["reinforcement_count"] + 1) * row["is_active"]
    (counted,) = set(counts.values())
    assert 0.95 * count < counted <= count, "each utterance that the rules understand counts once"
    wordings = [(row["user_id"], row["content_hash"]) for row in stored]
    assert len(wordings) == len(set(wordings)), "of each wording one row stands, however often it was said"


@pytest.mark.heavy
async def test_a_thousand_paraphrases_end_in_the_same_memories_in_any_order(
    database: str, admin: asyncpg.Connection[Any], wide: Pool, words: WordLlamaEmbedder, space: int
) -> None:
    await check(database, admin, wide, words, space, count=1_000, orders=3, patience_s=HEAVY_PATIENCE_S)
