"""The `learn` job beside learning: the use of memories, remote embedders, batches, and how it reads."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from app.errors import BadBody, Unavailable
from app.jobs.learn import Learner
from app.store.pools import Pool
from tests.support.jobs import SQL
from tests.support.learning import INTRODUCTION, TENANT, Remote, Talk, everything, learner, texts
from tests.support.rows import ensure_history_partitions, ensure_space, read_embeddings

# --- remote embedders, and batches -----------------------------------------------------------------------------------


async def test_a_remote_embedder_embeds_the_messages_in_the_job(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    space = await ensure_space(admin, "scripted", 2)
    remote, talk = Remote(), Talk()
    said = await talk.say(pool, "You are terse.", role="system")
    said += await talk.say(pool, INTRODUCTION)
    said += await talk.say(pool, "Noted.", "   ", role="assistant")
    await learner(pool, remote, space).learn(talk.job(said))
    vectors = await read_embeddings(admin, item_kind=0)
    assert {(row["item_id"], row["item_at"]) for row in vectors} == {
        (each.message_id, each.created_at) for each in said[1:3]
    }


async def test_a_remote_embedder_that_is_away_leaves_everything_as_it_was(
    pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    space = await ensure_space(admin, "scripted", 2)
    remote, talk = Remote(away=True), Talk()
    payload = talk.job(await talk.say(pool, INTRODUCTION))
    before = await everything(admin)
    with pytest.raises(Unavailable):
        await learner(pool, remote, space).learn(payload)
    assert await everything(admin) == before


async def test_an_imported_batch_is_learned_from_like_a_turn(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    said = await talk.say(pool, *(f"I like tea number {n}" for n in range(50)), INTRODUCTION)
    await learn.handlers()["import_index"](talk.job(said))
    assert "Lives in Lisbon" in await texts(admin)


async def test_a_payload_that_cannot_be_read(learn: Learner) -> None:
    with pytest.raises(BadBody):
        await learn.learn(b"nonsense")


async def test_reading_opens_one_month_of_one_user(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    (said,) = await talk.say(pool, INTRODUCTION)
    await ensure_history_partitions(admin, "2026-10-01", "2026-12-01")
    query = SQL["learning.messages"]
    for place, value in ((4, said.created_at), (3, said.created_at), (2, f"{{{said.message_id}}}"), (1, talk.user)):
        query = query.replace(f"${place}", f"'{value}'")
    async with pool.transaction(TENANT) as connection:
        plan = await connection.fetchval("EXPLAIN (FORMAT JSON) " + query)
    opened = {each["Relation Name"] for each in _nodes(plan[0]["Plan"]) if "Relation Name" in each}
    history = {name for name in opened if name.startswith("conversation_history")}
    assert len(history) == 1
    assert history.pop().endswith("_202611")


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for child in node.get("Plans", ()) for each in _nodes(child))]
