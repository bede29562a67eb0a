"""POST /api/v1/sessions/{id}/messages is learned from like any turn: the job that it leaves behind, done."""

from __future__ import annotations

from typing import Any

import asyncpg
import orjson
import pytest

from app.features.facts import Facts
from app.jobs.learn import Learner
from app.providers.embeddings import WordLlamaEmbedder
from app.store import ids
from app.store.pools import Pool
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, Remote, learner, memories, texts
from tests.support.rows import ensure_space, read_embeddings, read_jobs
from tests.support.wired_api import build_api, make_space

LOCAL = ids.LOCAL_TENANT
SAID = [
    {"role": "user", "content": "I live in Lisbon"},
    {"role": "assistant", "content": "I live in a computer"},
    {"role": "user", "content": "I'm vegetarian"},
]


async def waiting(admin: asyncpg.Connection[Any]) -> list[bytes]:
    rows = await read_jobs(admin)
    assert {row["entrypoint"] for row in rows} <= {"learn"}
    return [row["payload"] for row in rows]


@pytest.mark.parametrize("remote", [False, True])
async def test_appended_messages_become_memories_facts_and_vectors(
    remote: bool, learn: Learner, space: int, words: WordLlamaEmbedder, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    api = await build_api(pool, await make_space(admin))
    facts, embedder = Facts(pool, SQL, FakeClock(NOW)), Remote()
    if remote:
        number = await ensure_space(admin, embedder.space, 2)
        learn = learner(pool, embedder, number)
    async with api.client() as client:
        answer = await client.post("/api/v1/sessions/s/messages", json={"user": "ana", "messages": SAID})
        assert answer.status_code in (200, 201), answer.text
    (payload,) = await waiting(admin)
    await learn.learn(payload)
    await learn.learn(payload)  # as after a lost lease

    assert await texts(admin) == ["Lives in Lisbon", "Is vegetarian"]
    user = ids.user_id(LOCAL, "ana")
    assert await facts.profile(LOCAL, user) == {
        "personal": {"lives_in": "Lisbon"},
        "preference": {"diet": "vegetarian"},
    }
    session = orjson.loads(payload)["session"]
    source = (await memories(admin))[0]["sources"][0]
    assert (source["session"], source["session_id"]) == ("s", session)
    if remote:
        vectors = await read_embeddings(admin, space=number)
        assert sorted(row["item_kind"] for row in vectors) == [0, 0, 0, 1, 1]


async def test_messages_that_are_not_to_be_learned_from_leave_no_job(
    pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    api = await build_api(pool, await make_space(admin))
    async with api.client() as client:
        body = {"user": "ana", "messages": SAID, "learn": False}
        answer = await client.post("/api/v1/sessions/s/messages", json=body)
        assert answer.status_code in (200, 201), answer.text
    assert await waiting(admin) == []
