"""Working memory: kept by the learner's job in an unlogged table, and made again when that is empty."""

from __future__ import annotations

from typing import Any

import asyncpg
import orjson

from app.jobs.learn import Learner, Notes, WorkingMemory
from app.providers.embeddings import NoEmbedder
from app.store.learning import LearningStore
from app.store.memories import Memories
from app.store.pools import Pool
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, Talk, by_rules
from tests.support.rows import lose_working_memory, read_memories, read_working_memory

Admin = asyncpg.Connection


def learn(pool: Pool) -> Learner:
    clock = FakeClock(NOW)
    return Learner(
        LearningStore(pool, SQL), embedder=NoEmbedder(), space=None, extract=by_rules, count=len, clock=clock,
        note=Notes(clock),
    )  # fmt: skip


def memory(pool: Pool) -> WorkingMemory:
    return WorkingMemory(pool, SQL, FakeClock(NOW))


async def a_talk(pool: Pool, **of: Any) -> Talk:
    talk = Talk(**of)
    call = {"id": "c1", "type": "function", "function": {"name": "find_flights", "arguments": "{}"}}
    said = await talk.say(pool, "I prefer aisle seats. Find me a flight to Rome, please.")
    said += await talk.say(pool, "", role="assistant", tool_calls=orjson.dumps([call]).decode())
    said += await talk.say(pool, '{"flight": "TP 1364"}', role="tool", tool_call_id="c1")
    said += await talk.say(pool, "There is one. Shall I book it?", role="assistant")
    await learn(pool).learn(talk.job(said))
    return talk


async def test_the_job_keeps_it_and_a_loss_loses_nothing(pool: Pool, admin: Admin) -> None:
    talk = await a_talk(pool)
    (row,) = await read_working_memory(admin)
    assert row["session_id"] == talk.session
    kept, _ = await memory(pool).get(talk.tenant, talk.user, talk.session)
    assert [each["text"] for each in kept.active_preferences] == ["Prefers aisle seats"]
    assert [each["question"] for each in kept.pending_confirmations] == ["Shall I book it?"]
    assert [(each["tool"], each["result"]) for each in kept.tool_results_buffer] == [
        ("find_flights", '{"flight": "TP 1364"}')
    ]
    await lose_working_memory(admin)
    again, _ = await memory(pool).get(talk.tenant, talk.user, talk.session)
    assert again == kept
    assert await read_working_memory(admin)


async def test_a_turn_that_answers_the_assistant_ends_what_was_pending(pool: Pool, admin: Admin) -> None:
    talk = await a_talk(pool)
    said = await talk.say(pool, "Yes, do that")
    said += await talk.say(pool, "It is booked.", role="assistant")
    await learn(pool).learn(talk.job(said))
    kept, _ = await memory(pool).get(talk.tenant, talk.user, talk.session)
    assert kept.pending_confirmations == []
    assert len(kept.tool_results_buffer) == 1


async def test_what_is_forgotten_is_in_it_no_more(pool: Pool, admin: Admin) -> None:
    talk = await a_talk(pool)
    (row,) = await read_memories(admin, kind="preference")
    await Memories(pool, SQL, FakeClock(NOW), space=None).forget(talk.tenant, talk.user, row["memory_id"])
    assert not await read_working_memory(admin)
    kept, _ = await memory(pool).get(talk.tenant, talk.user, talk.session)
    assert kept.active_preferences == []


async def test_nobody_s_sessions_know_nothing_of_each_other(pool: Pool, admin: Admin) -> None:
    await a_talk(pool, confined=True)
    other = Talk(confined=True, name="chat-2")
    said = await other.say(pool, "Hello")
    said += await other.say(pool, "Hello!", role="assistant")
    await learn(pool).learn(other.job(said))
    kept, _ = await memory(pool).get(other.tenant, other.user, other.session)
    assert kept.active_preferences == []
