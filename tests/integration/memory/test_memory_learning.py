"""The `learn` job on a real Postgres: app/jobs/learn.py, app/memory/ingest.py and app/store/learning.py together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import asyncpg
import numpy as np
import orjson
import pytest

from app.jobs.learn import Learner
from app.memory.secrets import refuser
from app.memory.text import content_hash
from app.providers.embeddings import NoEmbedder, WordLlamaEmbedder
from app.store.memories import Memories, MemoryChange, MemoryText
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.clock import FakeClock
from tests.support.learning import INTRODUCTION, NOW, TENANT, Remote, Talk, learner, memories, taught, texts
from tests.support.rows import (
    clear_memories,
    ensure_space,
    insert_row,
    read_embeddings,
    read_memory_events,
    read_routes,
    read_sessions,
    set_config,
)

# --- what is learned -------------------------------------------------------------------------------------------------


async def test_what_a_user_states_is_kept_with_its_source(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], space: int
) -> None:
    talk = Talk()
    await talk.say(pool, "Hello there", "How are you?")
    payload = talk.job(await talk.say(pool, INTRODUCTION, metadata='{"channel": "web"}'))
    await learn.learn(payload)

    found = {each["content_text"]: each for each in await memories(admin)}
    assert set(found) == {"Is vegetarian", "Lives in Lisbon", "Wants to be called Ana"}
    lives = found["Lives in Lisbon"]
    message = talk.said[-1]
    assert (lives["memory_tier"], lives["memory_scope"], lives["kind"]) == (3, 1, "fact")
    assert (lives["expires_at"], lives["validated_by"], lives["is_validated"]) == (None, "user", True)
    assert (lives["provenance_turn_id"], lives["provenance_turn_index"]) == (message.message_id, 3)
    assert lives["source_message_ids"] == [message.message_id]
    assert lives["sources"] == [
        {
            "session": "chat-1",
            "session_id": str(talk.session),
            "message_id": str(message.message_id),
            "turn_index": 3,
            "quote": "I live in Lisbon",
            "span": [16, 32],
            "way": "rule",
            "created_at": message.created_at.isoformat(),
            "metadata": {"channel": "web"},
        }
    ]
    assert (lives["subject_entity_id"], lives["predicate"], lives["object_value"]) == ("user", "lives_in", "Lisbon")
    assert (lives["created_at"], lives["updated_at"], lives["session_id"]) == (message.created_at, NOW, talk.session)
    assert lives["content_hash"] == content_hash("lives in lisbon")
    assert (found["Wants to be called Ana"]["memory_tier"], found["Wants to be called Ana"]["kind"]) == (
        4,
        "instruction",
    )

    ids = {each["memory_id"] for each in found.values()}
    assert {row["target"] for row in await read_routes(admin, kind="memory")} == ids
    vectors = await read_embeddings(admin)
    assert {(row["item_id"], row["item_kind"], row["space"]) for row in vectors} == {(each, 1, space) for each in ids}
    assert {row["item_at"] for row in vectors} == {message.created_at}
    told = await read_memory_events(admin)
    assert {(row["memory_id"], row["event"], row["actor"]) for row in told} == {
        (each, "created", "system") for each in ids
    }


async def test_the_assistant_is_not_learned_from(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    said = await talk.say(pool, "What can you do?")
    said += await talk.say(pool, "I live in Berlin, and I prefer tea.", role="assistant")
    await learn.learn(talk.job(said))
    assert await texts(admin) == []


async def test_what_a_tool_did_is_known_in_the_session_and_points_to_the_call(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    calls = [{"id": "c1", "type": "function", "function": {"name": "book_table", "arguments": '{"city": "Lisbon"}'}}]
    said = await talk.say(pool, "Book a table, please.")
    said += await talk.say(pool, "", role="assistant", tool_calls=orjson.dumps(calls).decode())
    said += await talk.say(pool, "done", role="tool", tool_call_id="c1")
    await learn.learn(talk.job(said))
    (found,) = await memories(admin)
    assert found["kind"] == "tool_outcome"
    assert (found["memory_tier"], found["memory_scope"]) == (1, 0)
    assert found["expires_at"] == NOW + timedelta(hours=24)
    assert found["confidence"] <= 0.5
    assert found["provenance_turn_id"] == said[1].message_id


async def test_the_life_of_a_session_memory_is_a_setting(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await set_config(admin, "l1_ttl_hours", 2)
    talk = Talk()
    calls = [{"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}]
    said = await talk.say(pool, "Look it up.")
    said += await talk.say(pool, "", role="assistant", tool_calls=orjson.dumps(calls).decode())
    await learn.learn(talk.job(said))
    assert [each["expires_at"] for each in await memories(admin)] == [NOW + timedelta(hours=2)]


async def test_the_life_of_an_event_is_a_setting(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await set_config(admin, "l2_ttl_days", 3)
    await taught(learn, pool, Talk(), "I have an exam on 5 May")
    (found,) = await memories(admin)
    assert (found["kind"], found["memory_tier"], found["expires_at"]) == ("event", 2, NOW + timedelta(days=3))


@pytest.mark.parametrize("wanted", [False, True])
async def test_secrets_are_not_kept_unless_wanted(
    pool: Pool, admin: asyncpg.Connection[Any], words: WordLlamaEmbedder, space: int, wanted: bool
) -> None:
    do = learner(pool, words, space, store_secrets=wanted)
    await taught(do, pool, Talk(), "remember: my card number is 4111 1111 1111 1111")
    assert bool(await texts(admin)) is wanted


@pytest.mark.parametrize(("kinds", "kept"), [(["email"], ["Lives in Lisbon"]), (["phone"], None)])
async def test_what_the_operator_refuses_is_not_kept(
    pool: Pool,
    admin: asyncpg.Connection[Any],
    words: WordLlamaEmbedder,
    space: int,
    kinds: list[str],
    kept: list[str] | None,
) -> None:
    do = learner(pool, words, space, refuses=refuser(kinds))
    await taught(do, pool, Talk(), "My email is ana@example.org and I live in Lisbon")
    found = await texts(admin)
    assert found == kept if kept else len(found) == 2


async def test_without_vectors_it_learns_too(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    do = learner(pool, NoEmbedder(), None)
    await taught(do, pool, Talk(), INTRODUCTION)
    await taught(do, pool, Talk(name="chat-2"), INTRODUCTION)
    assert len(await texts(admin)) == 3
    assert await read_embeddings(admin) == []


async def test_messages_that_must_not_surface_are_not_learned_from(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    said = await talk.say(pool, INTRODUCTION, "I have a cat")
    await insert_row(
        admin, "suppressions", user_id=talk.user, tenant_id=TENANT, item_id=said[0].message_id, reason="erased"
    )
    await learn.learn(talk.job(said))
    assert await texts(admin) == ["Has a cat"]


async def test_what_a_forgotten_memory_said_before_it_was_edited_is_not_learned_again(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], space: int
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I have a cat")
    (known,) = await memories(admin)
    store = Memories(pool, Queries.load(), FakeClock(NOW), space=space)
    edited = MemoryText("Has two cats", content_hash("Has two cats"), 3, None)
    await store.change(TENANT, talk.user, known["memory_id"], MemoryChange(text=edited))
    assert await store.forget(TENANT, talk.user, known["memory_id"])
    await taught(learn, pool, Talk(name="chat-2"), "I have a cat", "I live in Lisbon")
    assert await texts(admin) == ["Lives in Lisbon"]


# --- said again ------------------------------------------------------------------------------------------------------


async def test_said_in_another_session_it_is_reinforced(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await taught(learn, pool, Talk(), "I like tea")
    await taught(learn, pool, Talk(name="chat-2"), "I really like tea!")
    (found,) = await memories(admin)
    assert (found["access_count"], found["reinforcement_count"]) == (1, 1)
    assert [(each["session"], each["quote"]) for each in found["sources"]] == [
        ("chat-1", "I like tea"), ("chat-2", "I really like tea"),
    ]  # fmt: skip
    assert len(found["source_message_ids"]) == 2
    events = await read_memory_events(admin)
    assert [row["event"] for row in events] == ["created", "reinforced"]


async def test_the_more_specific_wins_and_the_older_stays_in_the_chain(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await taught(learn, pool, Talk(), "I like hiking in the mountains")
    await taught(learn, pool, Talk(name="chat-2"), "I like hiking in the high mountains")
    (kept,) = await memories(admin)
    (old,) = await memories(admin, status="superseded")
    assert kept["content_text"] == "Likes hiking in the high mountains"
    assert old["content_text"] == "Likes hiking in the mountains"
    assert (old["superseded_by"], old["valid_to"]) == (kept["memory_id"], NOW)
    assert (kept["access_count"], kept["reinforcement_count"], kept["memory_tier"]) == (1, 1, 4)
    assert [each["session"] for each in kept["sources"]] == ["chat-1", "chat-2"]
    events = await read_memory_events(admin)
    assert {(row["memory_id"], row["event"]) for row in events} == {
        (old["memory_id"], "created"), (old["memory_id"], "superseded"), (kept["memory_id"], "merged"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("I prefer short blog posts", "I prefer blog posts under 800 words", {"Prefers blog posts under 800 words"}),
        ("I prefer blog posts under 800 words", "I prefer short blog posts", {"Prefers blog posts under 800 words"}),
        ("I like early meetings", "I like meetings before 9 am", {"Likes meetings before 9 am"}),
        (
            "I prefer long blog posts",
            "I prefer blog posts about cooking",
            {"Prefers long blog posts", "Prefers blog posts about cooking"},
        ),
        (
            "I prefer short films",
            "I prefer films before 1990",
            {"Prefers short films", "Prefers films before 1990"},
        ),
        ("I like small dogs", "I like dogs under 3 years", {"Likes small dogs", "Likes dogs under 3 years"}),
    ],
)
async def test_the_worked_merge_of_seed_001(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], first: str, second: str, left: set[str]
) -> None:
    """Seed 001 §4.3: short posts, then posts under 800 words, become one memory, the more specific one."""
    await taught(learn, pool, Talk(), first)
    (before,) = await memories(admin)
    await taught(learn, pool, Talk(name="chat-2"), second)
    found = await memories(admin)
    assert {memory["content_text"] for memory in found} == left
    if len(left) == 1:
        assert found[0]["importance"] == pytest.approx(before["importance"] + 0.05)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("I wake up at 6 on weekdays.", "I wake up at 6 on weekends."),
        ("I'm training for a marathon.", "I'm training for a half marathon."),
        ("I prefer big dogs.", "I prefer dogs over 3 years."),
        ("I prefer cheap wine.", "I prefer wine under 12 percent alcohol."),
        ("I prefer short books.", "I prefer books under 20 euros."),
    ],
)
async def test_two_facts_in_like_words_both_stay(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], first: str, second: str
) -> None:
    await taught(learn, pool, Talk(), first)
    await taught(learn, pool, Talk(name="chat-2"), second)
    assert len(await texts(admin)) == 2


async def test_an_explicit_threshold_takes_the_place_of_the_embedders(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await set_config(admin, "dedup_threshold", 0.9)
    await taught(learn, pool, Talk(), "I prefer short blog posts")
    await taught(learn, pool, Talk(name="chat-2"), "I prefer blog posts under 800 words")
    assert len(await texts(admin)) == 2


async def test_the_threshold_of_a_remote_space_is_a_setting(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    space = await ensure_space(admin, "scripted", 2)
    vectors = {"Likes green tea": [1.0, 0.0], "Likes tea": [0.9, float(np.sqrt(1 - 0.81))]}
    do = learner(pool, Remote(vectors), space)
    await taught(do, pool, Talk(), "I like green tea")
    await taught(do, pool, Talk(name="chat-2"), "I like tea")
    assert len(await texts(admin)) == 2
    await clear_memories(admin)
    await set_config(admin, "dedup_threshold", 0.89)
    await taught(do, pool, Talk(name="chat-3"), "I like green tea")
    await taught(do, pool, Talk(name="chat-4"), "I like tea")
    assert await texts(admin) == ["Likes green tea"]


async def test_how_far_a_statement_is_believed_is_a_parameter(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await set_config(admin, "confidence", {"fact": 0.4, "boost_1": 0.3})
    await taught(learn, pool, Talk(), "I live in Lisbon")
    (once,) = await memories(admin)
    await taught(learn, pool, Talk(name="chat-2"), "I live in Lisbon")
    (twice,) = await memories(admin)
    assert [round(each["confidence"], 4) for each in (once, twice)] == [0.4, 0.7]


async def test_a_batch_meets_its_own_statements(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await taught(learn, pool, Talk(), "I live in Lisbon", "I like tea", "I like tea", "Actually, I moved to Porto")
    assert set(await texts(admin)) == {"Likes tea", "Lives in Porto"}
    (tea,) = await memories(admin, content_text="Likes tea")
    assert (tea["reinforcement_count"], len(tea["sources"])) == (1, 2)


# --- what a role play says -------------------------------------------------------------------------------------------


async def test_what_is_said_in_a_role_play_is_not_learned_in_later_turns_either(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "Let's role-play: you are a waiter and I am a guest called Bruno.", "Welcome!")
    assert [row["in_role_play"] for row in await read_sessions(admin)] == [True]
    await taught(learn, pool, talk, "Waiter, my character hates soup and I am the king of Spain", "Of course, sire.")
    assert await texts(admin) == []


async def test_a_session_without_a_role_play_is_not_marked(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Leeds. What is a good pie?", "Steak and ale.")
    assert [row["in_role_play"] for row in await read_sessions(admin)] == [False]
    assert await texts(admin) == ["Lives in Leeds"]
