"""Role play teaches nothing until it ends, and the user's days are those of their zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, TypeAlias

import asyncpg
import pytest

from app.providers.embeddings import WordLlamaEmbedder
from app.store.pools import Pool
from tests.support.learning import Talk, learner, memories, taught
from tests.support.rows import count_rows, set_session

Admin: TypeAlias = "asyncpg.Connection[Any]"


async def read_texts(admin: Admin, talk: Talk) -> list[str]:
    return sorted(row["content_text"] for row in await memories(admin, user_id=talk.user) if row["is_active"])


async def test_a_role_teaches_nothing_until_the_play_ends(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    talk, do = Talk(), learner(pool, words, space)
    for message in (
        "Let's role-play: you are a waiter and I'm the guest.",
        "I'm allergic to peanuts and my name is Bond.",
        "ok stop the game. suggest a snack",
        "I live in Hull.",
    ):
        await taught(do, pool, talk, message)
    assert await read_texts(admin, talk) == ["Lives in Hull"]
    hidden = await count_rows(admin, "suppressions", user_id=talk.user)
    assert hidden == 2


async def test_a_role_play_goes_on_in_a_session_that_begins_with_its_history(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    """A client without a session's name sends all again, and the history teaches nothing anew."""
    begins = "Let's role-play: you are a waiter and I'm the guest."
    hashed = sha256(begins.encode()).digest()
    do, first, second = learner(pool, words, space), Talk(name="first"), Talk(name="second")
    await do.learn(first.job(await first.say(pool, begins, message_hash=hashed)))
    at, moment = first.begun + timedelta(minutes=5), timedelta(milliseconds=1)
    sent = await second.say(pool, begins, message_hash=hashed, created_at=at)
    sent += await second.say(pool, "Welcome!", role="assistant", created_at=at + moment)
    sent += await second.say(pool, "I'm allergic to figs.", created_at=at + 2 * moment)
    await do.learn(second.job(sent))
    assert await read_texts(admin, first) == []


async def test_what_takes_the_place_of_something_tells_it(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    talk, do = Talk(), learner(pool, words, space)
    await taught(do, pool, talk, "I drive a blue VW Golf to the office.")
    await taught(do, pool, talk, "Gave the Golf to my brother, I take the tram now.")
    assert "Takes the tram now (before: Drives a blue VW Golf to the office)" in await read_texts(admin, talk)


async def test_a_named_mistake_is_taken_back_however_long_ago_it_was(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    talk, do = Talk(), learner(pool, words, space)
    await taught(do, pool, talk, "I live in Leeds.")
    for number in range(4):
        await taught(do, pool, talk, f"What is {number} times 7?")
    await taught(do, pool, talk, "Just kidding about Leeds, it's York.")
    assert await read_texts(admin, talk) == ["Lives in York"]


@pytest.mark.parametrize(
    ("zone", "day"),
    [("Pacific/Auckland", "2026-11-22"), ("Asia/Tokyo", "2026-11-22"), ("America/New_York", "2026-11-21")],
)
async def test_tomorrow_is_counted_in_the_users_zone(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int, zone: str, day: str
) -> None:
    talk, do = Talk(begun=datetime(2026, 11, 20, 17, tzinfo=UTC)), learner(pool, words, space)
    await taught(do, pool, talk, f"My time zone is {zone}.")
    await taught(do, pool, talk, "I have a dentist appointment tomorrow.")
    assert any(day in text for text in await read_texts(admin, talk))


async def test_a_branch_goes_on_with_the_role_play_that_it_leaves(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    """The user edits a message of the play; of what was said before the play, a branch is the user's own."""
    do, talk = learner(pool, words, space), Talk(name="whole")
    for message in ("Hello!", "Let's role-play: you are a waiter and I'm the guest.", "I'm allergic to peanuts."):
        sent = await talk.say(pool, message)
        await do.learn(talk.job(sent + await talk.say(pool, "All right.", role="assistant")))
    for name, turn, message in (("in-play", 4, "I'm allergic to figs."), ("before", 2, "I live in Hull.")):
        branch = Talk(name=name, begun=talk.begun + timedelta(minutes=1))
        await branch.say(pool, message)
        await set_session(admin, branch.session, parent_session_id=talk.session, branch_turn_index=turn)
        await do.learn(branch.job(branch.said))
        await taught(do, pool, branch, "I have a cat." if name == "before" else "I have a snake.")
    assert await read_texts(admin, talk) == ["Has a cat", "Lives in Hull"]
