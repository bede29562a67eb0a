"""Levels and vectors of a session's objects, over a real Postgres: from the turn that puts the job into the queue."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import orjson
import pytest
from msgspec.structs import replace

from app.clock import SystemClock
from app.features.paging.store import PagingStore, write
from app.features.paging.summaries import SHRINK, HelperSummary, Shrinker
from app.features.paging.values import ContentKind, Fidelity, SemanticObject, Zone
from app.providers.embeddings import WordLlamaEmbedder
from app.store.pools import Pool
from tests.support.jobs import SQL, until, working
from tests.support.paged import AT, made, record
from tests.support.rows import ensure_space, insert_row, read_jobs, read_objects
from tests.unit.jobs.test_shrinking import DETAILED, GOOD, Scripted
from tests.unit.paging.made import COUNT, LONG_CODE

Admin = asyncpg.Connection
INFINITY = datetime.max.replace(tzinfo=UTC)
TENANT, ANA, S1 = UUID(int=0xA), UUID(int=0x1), UUID(int=0x51)
CODE = made(S1, "money", LONG_CODE, tokens_l0=COUNT(LONG_CODE), source_key="src/money.py")


@pytest.fixture
def store(pool: Pool) -> PagingStore:
    return PagingStore(pool, SQL, SystemClock())


def shrinker(store: PagingStore, helper: Any = None, embedder: Any = None, space: int | None = None) -> Shrinker:
    return Shrinker(store, embedder=embedder or WordLlamaEmbedder(), space=space, count=COUNT, helper=helper)


async def keep(pool: Pool, *objects: SemanticObject, zone: Zone = Zone.CAUTION) -> None:
    """As a turn does."""
    async with pool.transaction(TENANT) as connection:
        await write(connection, SQL, TENANT, ANA, None, AT, record(S1, *objects, zone=zone))


async def row(admin: Admin, made: SemanticObject) -> Any:
    (found,) = await read_objects(admin, object_id=made.id)
    return found


PAYLOAD = orjson.dumps({"tenant": TENANT, "user": ANA, "session": S1})


async def test_a_turn_puts_the_job_into_the_queue_and_the_worker_does_it(
    pool: Pool, admin: Admin, database: str, store: PagingStore
) -> None:
    words = WordLlamaEmbedder()
    space = await ensure_space(admin, words.space, words.dimensions)
    await keep(pool, made(S1, "other"), zone=Zone.NORMAL)
    assert len(await read_jobs(admin)) == 0
    await keep(pool, CODE)
    await keep(pool, CODE)  # one waits: it stands for both
    assert len(await read_jobs(admin, entrypoint=SHRINK)) == 1

    async def idle() -> bool:
        return bool(len(await read_jobs(admin)) == 0)

    async with working(database, {SHRINK: shrinker(store, embedder=words, space=space).shrink}):
        await until(idle, "that the job is done")
    found = await row(admin, CODE)
    assert found["summary_detailed"].startswith("class MoneyError") or "convert_currency" in found["summary_detailed"]
    assert found["tokens_l0"] > found["tokens_l1"] > found["tokens_l2"] > 0
    assert found["space"] == space
    assert (await row(admin, made(S1, "other")))["shrunk_at"] is not None
    # The object is found by what it says now.
    (question,) = words.embed_now(["converting an amount of money into another currency"])
    hits = await store.search(TENANT, ANA, S1, "zzz", question, space, 2)
    assert hits[0].object.id == CODE.id
    assert hits[0].vector > 0.2


async def test_levels_that_are_shown_are_never_made_anew(pool: Pool, admin: Admin, store: PagingStore) -> None:
    await keep(pool, CODE)
    await shrinker(store, Scripted(GOOD)).shrink(PAYLOAD)
    assert (await row(admin, CODE))["summary_detailed"] == DETAILED
    (shown,) = (await store.texts(TENANT, ANA, {CODE.id: Fidelity.DETAILED})).values()
    await shrinker(store).shrink(PAYLOAD)
    assert (await store.texts(TENANT, ANA, {CODE.id: Fidelity.DETAILED})) == {CODE.id: shown}


async def test_two_jobs_at_once_keep_the_first_answer(pool: Pool, admin: Admin, store: PagingStore) -> None:
    await keep(pool, CODE)
    other = GOOD.model_copy(
        update={"detailed": GOOD.detailed.model_copy(update={"text": DETAILED.replace("step by step, and", "then")})}
    )
    helpers = [Scripted(GOOD), Scripted(HelperSummary.model_validate(other))]
    await asyncio.gather(*(shrinker(store, each).shrink(PAYLOAD) for each in helpers))
    found = await row(admin, CODE)
    first = found["summary_detailed"]
    assert first in (DETAILED, other.detailed.text)
    assert found["tokens_l1"] == COUNT(first)


async def test_contents_of_every_kind_and_size(pool: Pool, admin: Admin, store: PagingStore) -> None:
    log = "\n".join(f"2026-11-01 12:{n % 60:02}:00 INFO request {n} took {n % 97} ms" for n in range(160_000))
    objects = [
        replace(made(S1, "huge", log), kind=ContentKind.LOG, tokens_l0=4_000_000),
        replace(made(S1, "nul", "a\0b " * 200), kind=ContentKind.PROSE, tokens_l0=400),
        replace(made(S1, "line", "x" * 3_000_000), kind=ContentKind.PROSE, tokens_l0=400_000),
        replace(made(S1, "blank", " \n" * 500), kind=ContentKind.PROSE, tokens_l0=500),
        *(made(S1, f"code{n}", LONG_CODE, tokens_l0=COUNT(LONG_CODE)) for n in range(6)),
    ]
    assert len(log) > 6_000_000
    await keep(pool, *objects)
    await shrinker(store).shrink(PAYLOAD)
    assert await store.unshrunk(TENANT, ANA, S1, 10) == []
    found = {each.id: await row(admin, each) for each in objects}
    assert 0 < found[objects[0].id]["tokens_l1"] <= 6_000
    assert found[objects[3].id]["tokens_l1"] is None


async def test_an_erased_user_is_left_alone(pool: Pool, admin: Admin, store: PagingStore) -> None:
    await keep(pool, CODE)
    await insert_row(admin, "erased_users", user_id=ANA, tenant_id=TENANT, erasure_id=uuid4(), erased_before=INFINITY)
    await shrinker(store).shrink(PAYLOAD)
    assert (await row(admin, CODE))["shrunk_at"] is None
