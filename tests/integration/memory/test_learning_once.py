"""A `learn` job has its effect once, and only for whose it is, whatever breaks off, comes twice or comes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest.mock import ANY

import asyncpg
import pytest

from app.errors import StoreUnavailable
from app.jobs.learn import Learner
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.providers.embeddings import WordLlamaEmbedder
from app.store.learning import Effect
from app.store.pools import Pool
from app.store.queue import Counts, Queue
from app.store.records import JobRecord
from tests.support.jobs import SQL, put, until, working
from tests.support.learning import (
    INTRODUCTION,
    OTHER_TENANT,
    TENANT,
    Talk,
    by_rules,
    everything,
    learner,
    memories,
    taught,
    texts,
)
from tests.support.rows import advance_erasure_epoch, delete_users, read_effects

# --- once, and only once ---------------------------------------------------------------------------------------------


async def test_a_job_that_runs_again_has_one_effect(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    payload = await taught(learn, pool, talk, INTRODUCTION)
    before = await everything(admin)
    await learn.learn(payload)
    assert await everything(admin) == before


async def test_a_job_that_broke_off_has_none_and_then_one(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is cut after everything was written, before the commit."""
    talk = Talk()
    payload = talk.job(await talk.say(pool, INTRODUCTION))
    before = await everything(admin)
    cuts = 0

    async def cut(self: object, *_: object) -> None:
        nonlocal cuts
        cuts += 1
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'mneme-test' AND state = 'idle in transaction'"
        )

    with monkeypatch.context() as patched:
        patched.setattr("app.store.learning.Effect.change", cut)
        with pytest.raises(StoreUnavailable):
            await learn.learn(payload)
    assert cuts == 1
    assert await everything(admin) == before
    await learn.learn(payload)
    assert len(await texts(admin)) == 3
    assert len(await read_effects(admin)) == 1


async def test_two_runs_of_one_job_at_once_have_one_effect(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    payload = talk.job(await talk.say(pool, INTRODUCTION))
    await asyncio.gather(learn.learn(payload), learn.learn(payload))
    assert len(await memories(admin, is_active=ANY)) == 3
    assert {each["reinforcement_count"] for each in await memories(admin)} == {0}


async def test_jobs_of_one_user_at_once_make_no_duplicates(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    said = ["I like tea", "I live in Lisbon", "I really like tea", "I have a cat", "I live in Lisbon", "I like tea"]
    payloads = []
    for n, text in enumerate(said):
        talk = Talk(name=f"chat-{n}")
        payloads.append(talk.job(await talk.say(pool, text)))
    await asyncio.gather(*(learn.learn(each) for each in payloads))
    assert sorted(await texts(admin, is_active=ANY)) == ["Has a cat", "Likes tea", "Lives in Lisbon"]
    counts = {each["content_text"]: each["reinforcement_count"] for each in await memories(admin)}
    assert counts == {"Likes tea": 2, "Lives in Lisbon": 1, "Has a cat": 0}


async def test_cut_off_in_a_worker_the_job_comes_again_by_itself(
    database: str, learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, whole, cuts = Talk(), Effect.change, 0

    async def cut_once(self: Effect, *arguments: Any) -> None:
        nonlocal cuts
        cuts += 1
        if cuts == 1:
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND (application_name = 'mneme worker' OR state = 'idle in transaction')"
            )
        await whole(self, *arguments)

    monkeypatch.setattr(Effect, "change", cut_once)
    await put(pool, JobRecord("learn", talk.job(await talk.say(pool, INTRODUCTION)), None, 0.0))
    queue = Queue(pool, SQL)

    async def done() -> bool:
        return await queue.counts() == Counts(0, 0, 0)

    async with working(database, learn.handlers(), lease_s=2.0):
        await until(done)
    assert cuts == 2
    assert len(await memories(admin, is_active=ANY)) == 3
    assert {each["reinforcement_count"] for each in await memories(admin)} == {0}


async def test_two_workers_learn_what_one_would(
    database: str, pool: Pool, admin: asyncpg.Connection[Any], words: WordLlamaEmbedder, space: int
) -> None:
    said = ["I like tea", "I live in Lisbon", "I like hiking in the mountains", "I have a cat", INTRODUCTION]
    for n in range(25):
        talk = Talk(name=f"chat-{n}")
        await put(pool, JobRecord("learn", talk.job(await talk.say(pool, said[n % 5])), None, 0.0))
    queue = Queue(pool, SQL)

    async def done() -> bool:
        return await queue.counts() == Counts(0, 0, 0)

    one, other = learner(pool, words, space), learner(pool, words, space)
    async with working(database, one.handlers()), working(database, other.handlers()):
        await until(done)
    found = {each["content_text"]: each["reinforcement_count"] for each in await memories(admin, is_active=ANY)}
    assert found == {
        "Likes tea": 4,
        "Lives in Lisbon": 9,
        "Likes hiking in the mountains": 4,
        "Has a cat": 4,
        "Is vegetarian": 4,
        "Wants to be called Ana": 4,
    }


# --- whose it is -----------------------------------------------------------------------------------------------------


async def test_nothing_crosses_between_tenants(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    ours, theirs = Talk(), Talk(tenant=OTHER_TENANT)
    await taught(learn, pool, ours, INTRODUCTION)
    await taught(learn, pool, theirs, INTRODUCTION)
    found = await memories(admin)
    assert len(found) == 6
    assert {each["reinforcement_count"] for each in found} == {0}
    assert {(each["tenant_id"], each["user_id"]) for each in found} == {
        (TENANT, ours.user), (OTHER_TENANT, theirs.user),
    }  # fmt: skip


async def test_a_job_that_names_another_tenants_user_finds_and_changes_nothing(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    theirs = Talk(tenant=OTHER_TENANT)
    await taught(learn, pool, theirs, INTRODUCTION)
    said = await theirs.say(pool, "I have a cat")
    before = await everything(admin)
    await learn.learn(theirs.job(said, tenant=TENANT))
    assert await everything(admin) == before


async def test_users_are_apart(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await taught(learn, pool, Talk(user_name="ana"), "I like tea")
    await taught(learn, pool, Talk(user_name="bo"), "I like tea")
    assert [each["reinforcement_count"] for each in await memories(admin)] == [0, 0]


async def test_without_a_user_nothing_leaves_the_session(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    first, second = Talk(user_name="", name="a", confined=True), Talk(user_name="", name="b", confined=True)
    await taught(learn, pool, first, INTRODUCTION)
    await taught(learn, pool, second, INTRODUCTION)
    await taught(learn, pool, second, "I live in Lisbon")
    found = await memories(admin)
    assert len(found) == 6
    assert {each["memory_scope"] for each in found} == {0}
    assert {(each["session_id"], each["dedup_scope"]) for each in found} == {
        (first.session, first.session), (second.session, second.session),
    }  # fmt: skip
    assert sum(each["reinforcement_count"] for each in found) == 1


async def test_an_erasure_during_the_job_leaves_nothing_behind(
    pool: Pool, admin: asyncpg.Connection[Any], words: WordLlamaEmbedder, space: int
) -> None:
    talk = Talk()

    async def erased_meanwhile(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
        await advance_erasure_epoch(admin)
        return await by_rules(exchange)

    said = await talk.say(pool, INTRODUCTION)
    before = await everything(admin)
    await learner(pool, words, space, extract=erased_meanwhile).learn(talk.job(said))
    assert await everything(admin) == before


async def test_a_user_who_is_gone_gets_nothing_new(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    said = await talk.say(pool, INTRODUCTION)
    await delete_users(admin)
    before = await everything(admin)
    await learn.learn(talk.job(said))
    assert await everything(admin) == before
