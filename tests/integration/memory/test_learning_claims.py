"""Triples on a real Postgres: conflicts are logged, what ended does not surface, what was forgotten does not come back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest
from msgspec.structs import replace

from app.jobs.learn import Learner
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.text import content_hash
from app.providers.embeddings import WordLlamaEmbedder
from app.store.memories import Memories, MemoryChange, MemoryText
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.clock import FakeClock
from tests.support.learning import NOW, TENANT, Talk, by_rules, learner, memories, taught, texts
from tests.support.rows import (
    give_vectors_to_messages,
    read_conflicts,
    read_embeddings,
    read_memories,
    read_memory_events,
    read_suppressions,
)


@pytest.fixture
def store(pool: Pool, space: int) -> Memories:
    return Memories(pool, Queries.load(), FakeClock(NOW), space=space)


async def suppressed(admin: asyncpg.Connection[Any]) -> dict[UUID, str]:
    return {row["item_id"]: row["reason"] for row in await read_suppressions(admin)}


# --- conflicts -------------------------------------------------------------------------------------------------------


async def test_a_conflict_is_logged_and_the_later_value_stands(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    first, second = Talk(), Talk(name="chat-2")
    await taught(learn, pool, first, "I live in Lisbon")
    second.said.extend(first.said)  # a second later
    await taught(learn, pool, second, "I live in Porto")
    (new,) = await memories(admin)
    (old,) = await memories(admin, is_active=False)
    assert (new["content_text"], new["predicate_type"]) == ("Lives in Porto", "attribute")
    assert (old["status"], old["superseded_how"], old["superseded_by"]) == ("superseded", "conflict", new["memory_id"])
    assert old["valid_to"] == new["valid_from"] == second.said[-1].created_at
    (conflict,) = await read_conflicts(admin)
    data = orjson.loads(conflict["conflict_data"])
    assert (conflict["conflict_type"], conflict["resolution_strategy"]) == ("memory_vs_memory", "trust_recent")
    assert [(each["predicate"], each["value"]) for each in data["memories"]] == [
        ("lives_in", "Porto"), ("lives_in", "Lisbon"),
    ]  # fmt: skip
    assert conflict["memory_ids"] == [new["memory_id"], old["memory_id"]]
    assert orjson.loads(conflict["resolution_outcome"]) == {
        "action": "supersede_memory", "winner": str(new["memory_id"]), "superseded": str(old["memory_id"]),
    }  # fmt: skip
    assert (conflict["resolved_at"], conflict["detected_at_message"]) == (NOW, second.said[-1].message_id)


async def test_two_sisters_may_live_in_two_places(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await taught(learn, pool, Talk(), "My sister lives in Ghent")
    await taught(learn, pool, Talk(name="chat-2"), "My sister lives in Porto")
    assert len(await texts(admin)) == 2
    (conflict,) = await read_conflicts(admin)
    assert (conflict["resolution_strategy"], conflict["resolved_at"]) == ("both", None)


async def test_values_that_are_learned_out_of_order_have_their_own_times(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    said = await talk.say(pool, "I live in Lisbon", "I live in Porto", "I live in Rome")
    for n in (0, 2, 1):
        await learn.learn(talk.job([said[n]]))
    found = sorted(await read_memories(admin), key=lambda row: row["valid_from"])
    at = [each.created_at for each in said]
    assert [(row["content_text"], row["valid_from"], row["valid_to"]) for row in found] == [
        ("Lives in Lisbon", at[0], at[1]), ("Lives in Porto", at[1], at[2]), ("Lives in Rome", at[2], None),
    ]  # fmt: skip


async def test_what_is_no_longer_so_ends_what_was(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon")
    await taught(learn, pool, talk, "I no longer live in Lisbon")
    assert await texts(admin) == ["No longer lives in Lisbon"]


async def test_what_was_meant_corrects_what_was_said(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Paris")
    await taught(learn, pool, talk, "No, I meant Thursday")
    assert await texts(admin) == ["Lives in Paris"], "no place"
    await taught(learn, pool, talk, "No, I meant Paris, Texas")
    (kept,) = await memories(admin)
    assert (kept["content_text"], kept["object_value"]) == ("Lives in Paris, Texas", "Paris, Texas")
    await taught(learn, pool, Talk(name="chat-2"), "No, I meant Rome")
    assert await texts(admin) == ["Lives in Paris, Texas"], "of another conversation"
    await taught(learn, pool, talk, "I meant Rome, not Lyon")
    assert await texts(admin) == ["Lives in Paris, Texas"], "nobody said Lyon"


async def test_within_one_job_too(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await taught(learn, pool, Talk(), "My name is Jon", "Sorry, I meant Jan, not Jon")
    assert await texts(admin) == ["Name is Jan"]
    (old,) = await memories(admin, is_active=False)
    assert old["superseded_how"] == "corrected"


# --- superseded sources ----------------------------------------------------------------------------------------------

LONG = "I live in Lisbon. " + "Please help me plan the week of the whole team, which is a long story. " * 5


async def test_what_said_the_old_value_does_not_surface_as_current(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], store: Memories
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon", LONG)
    await taught(learn, pool, talk, "I moved to Porto")
    brief, long, new = talk.said
    assert await suppressed(admin) == {brief.message_id: "superseded"}, "the long one says much else"
    (old,) = await memories(admin, is_active=False)
    assert set(old["source_message_ids"]) == {brief.message_id, long.message_id}
    (current,) = await memories(admin)
    assert await store.invalidate(TENANT, talk.user, current["memory_id"], reason=None)
    assert set(await suppressed(admin)) == {brief.message_id, new.message_id}
    await store.restore(TENANT, talk.user, current["memory_id"])
    assert set(await suppressed(admin)) == {brief.message_id}


async def test_a_message_comes_back_when_nothing_of_it_is_superseded_any_more(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], store: Memories
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon and I'm single")
    for text in ("Lives in Lisbon", "Is single"):
        (found,) = await memories(admin, content_text=text)
        await store.invalidate(TENANT, talk.user, found["memory_id"], reason=None)
    (home, alone) = await memories(admin, status="invalidated")
    await store.restore(TENANT, talk.user, home["memory_id"])
    assert len(await suppressed(admin)) == 1
    await store.restore(TENANT, talk.user, alone["memory_id"])
    assert await suppressed(admin) == {}


async def test_a_message_that_says_both_stays(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await taught(learn, pool, Talk(), "I live in Lisbon. No wait, I live in Porto")
    assert await suppressed(admin) == {}


# --- forgetting ------------------------------------------------------------------------------------------------------


async def test_forgetting_reaches_all_wordings_and_their_messages(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], store: Memories
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I like hiking in the mountains")
    await taught(learn, pool, talk, "I like hiking in the high mountains")
    await taught(learn, pool, talk, "I like hiking up in the mountains", "I live in Lisbon")
    (kept,) = await memories(admin, is_active=True, kind="preference")
    await give_vectors_to_messages(admin, like=kept["memory_id"])
    assert await store.forget(TENANT, talk.user, kept["memory_id"])
    for read in (read_memories, read_memory_events, read_suppressions, read_conflicts):
        assert "hiking" not in str(await read(admin))
    assert len(await read_embeddings(admin, item_kind=1)) == 1
    hidden = {item for item, reason in (await suppressed(admin)).items() if reason == "forgotten"}
    assert {each.message_id for each in talk.said[:3]} <= hidden
    assert talk.said[3].message_id not in hidden
    # What no search may find has no vector that would keep its space from being dropped.
    left = await read_embeddings(admin, item_kind=0)
    assert [row["item_id"] for row in left] == [talk.said[3].message_id]
    # Every wording is refused, in a new session as well.
    again = Talk(name="chat-2")
    await taught(learn, pool, again, *(each.content or "" for each in talk.said))
    assert await texts(admin) == ["Lives in Lisbon"]
    hidden = {item for item, reason in (await suppressed(admin)).items() if reason == "resent"}
    assert hidden == {each.message_id for each in again.said[:3]}


async def test_a_helper_that_words_it_otherwise_does_not_bring_it_back(
    pool: Pool, admin: asyncpg.Connection[Any], words: WordLlamaEmbedder, space: int, store: Memories
) -> None:
    wordings = iter(["Keeps two bees in a hive on the roof", "Has a beehive up on top of the house"])

    async def helper(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
        return [replace(each, content=next(wordings)) for each in await by_rules(exchange)]

    do = learner(pool, words, space, extract=helper)
    said = "I have two cats and a hive"
    await taught(do, pool, Talk(), said)
    (kept,) = await memories(admin)
    await store.forget(TENANT, Talk().user, kept["memory_id"])
    await taught(do, pool, Talk(name="chat-2"), said)
    assert await texts(admin) == []
    assert next(wordings).startswith("Has"), "the helper was not even asked"


async def test_said_anew_in_other_words_it_is_learned_again(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], store: Memories
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I like tea")
    (kept,) = await memories(admin)
    await store.forget(TENANT, talk.user, kept["memory_id"])
    await taught(learn, pool, talk, "My favourite drink is tea")
    assert await texts(admin) == ["Favourite drink is tea"]


async def test_a_conflict_forgets_with_its_memory(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], store: Memories
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon")
    await taught(learn, pool, talk, "I live in Porto")
    (kept,) = await memories(admin)
    await store.forget(TENANT, talk.user, kept["memory_id"])
    (conflict,) = await read_conflicts(admin)
    assert "Porto" not in str(conflict)
    assert "Lisbon" not in str(conflict)


async def test_an_edited_memory_is_none_that_its_old_wordings_mean(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], store: Memories
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I like hiking in the high mountains", "I like hiking in the mountains")
    (kept,) = await memories(admin)
    edited = MemoryText("Likes rowing", content_hash("Likes rowing"), 2, None)
    await store.change(TENANT, talk.user, kept["memory_id"], MemoryChange(text=edited))
    await taught(learn, pool, Talk(name="chat-2"), "I like hiking in the mountains")
    assert set(await texts(admin)) == {"Likes rowing", "Likes hiking in the mountains"}


# --- what is unusual -------------------------------------------------------------------------------------------------


async def test_a_message_from_long_ago_is_learned_as_of_then(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    old = NOW - timedelta(days=20)
    await taught(learn, pool, talk, "I live in Porto")
    (said,) = await talk.say(pool, "I live in Lisbon", created_at=old)
    await learn.learn(talk.job([said]))
    assert await texts(admin) == ["Lives in Porto"]
