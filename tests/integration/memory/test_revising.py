"""Later words of the user close, withdraw or correct what was learned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest

from app.providers.embeddings import WordLlamaEmbedder
from app.store.pools import Pool
from tests.support.learning import NOW, Talk, learner, memories, taught

Admin: TypeAlias = "asyncpg.Connection[Any]"


async def read_in_force(admin: Admin, talk: Talk) -> dict[str, str]:
    """Text and status of the memories in force."""
    return {row["content_text"]: row["status"] for row in await memories(admin, user_id=talk.user) if row["is_active"]}


@pytest.mark.parametrize(
    ("earlier", "later", "remaining"),
    [
        ("I drive a blue VW Golf to the office.", "Gave the Golf to my brother, I take the tram now.", {}),
        ("My boyfriend is called Marc.", "Marc and I split up.", {}),
        ("Mi novio se llama Diego.", "Diego y yo rompimos.", {}),
        ("我的女朋友叫晓雯。", "我和晓雯分手了。", {}),
        ("I'm vegetarian.", "I eat meat again.", {}),
        ("I like chess.", "I quit chess.", {"Likes chess": "aging"}),
        ("I work at Deloitte.", "Deloitte no longer publishes that survey.", {"Works at Deloitte": "active"}),
        ("I live in Leeds.", "Just kidding!", {}),
        ("I live in Leeds.", "Just kidding about Leeds, it's York.", {"Lives in York": "active"}),
        ("Ich wohne in Kiel.", "Kleiner Scherz, ich wohne in Lübeck.", {"Wohnt in Lübeck": "active"}),
        ("My name is Jonh.", "*John", {"Name is John": "active"}),
        ("I'm allergic to shellfish.", "That's my brother, not me.", {}),
        ("I'm a pilot.", "I lied, I'm not a pilot.", {}),
    ],
)
async def test_later_words_revise_what_was_learned(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int, earlier: str, later: str, remaining: dict[str, str]
) -> None:
    talk, do = Talk(), learner(pool, words, space)
    await taught(do, pool, talk, earlier)
    learned = await read_in_force(admin, talk)
    assert learned
    await taught(do, pool, talk, later)
    revised = await read_in_force(admin, talk)
    assert {text: status for text, status in revised.items() if text in {**learned, **remaining}} == remaining


async def test_what_another_session_taught_is_not_taken_back(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    do = learner(pool, words, space)
    await taught(do, pool, Talk(name="first"), "I live in Leeds.")
    await taught(do, pool, Talk(name="second"), "Just kidding!")
    assert await read_in_force(admin, Talk()) == {"Lives in Leeds": "active"}


async def test_a_message_may_take_itself_back(pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int) -> None:
    talk = Talk()
    await taught(learner(pool, words, space), pool, talk, "I'm vegetarian. I live in Leeds. Just kidding, it's York.")
    assert await read_in_force(admin, talk) == {"Is vegetarian": "active", "Lives in York": "active"}


async def test_the_order_of_learning_makes_no_difference(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    before, after = (
        Talk(name="before", begun=NOW - timedelta(days=9)),
        Talk(name="after", begun=NOW - timedelta(days=2)),
    )
    do = learner(pool, words, space)
    first = before.job(await before.say(pool, "My boyfriend is called Marc."))
    await taught(do, pool, after, "Marc and I split up.")
    await do.learn(first)
    assert "Boyfriend's name is Marc" not in await read_in_force(admin, before)
    rows = await memories(admin, user_id=before.user, content_text="Boyfriend's name is Marc")
    assert [row["status"] for row in rows] == ["invalidated"]


@pytest.mark.parametrize(
    "pasted",
    [
        "Here is a review I found\n\nI sold the Golf and got rid of the Audi. Best decision.",
        "Search results:\n- I sold the Golf last year, example.com",
        "Email draft\n\nHi Bob,\n\nScratch that, I sold the Golf.\n\nCheers",
    ],
)
async def test_a_message_of_several_lines_may_hold_anybodys_words_and_ends_nothing(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int, pasted: str
) -> None:
    talk, do = Talk(), learner(pool, words, space)
    await taught(do, pool, talk, "I drive a blue VW Golf to the office.")
    before = await read_in_force(admin, talk)
    await taught(do, pool, talk, pasted)
    revised = await read_in_force(admin, talk)
    assert {text: revised.get(text) for text in before} == before


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I live in Leeds.", "Some news:\n- I no longer live in Leeds\n- new job soon"),
        ("I drive a Golf.", "Some news:\n- I no longer live in Leeds\n- sold the Golf"),
        ("I'm learning Polish.", "quick update\n* gave up Polish\n* started Czech"),
        ("I work at Monzo.", "Hey!\nI don't work at Monzo anymore.\nWhat should I do with my stock options?"),
        ("I live in Leeds.", "Quick message about moving\nI moved to Hull and I'm allergic to nuts."),
        ("Ich wohne in Kiel.", "Frage zu einem Brief\nIch wohne nicht mehr in Kiel. Was nun?"),
        ("Ich fahre einen Golf.", "Neuigkeiten:\n- Ich wohne nicht mehr in Leipzig\n- den Golf habe ich verkauft"),
        ("Je fais du judo le jeudi.", "Salut !\nJ'ai arrêté le judo.\nQue faire le jeudi ?"),
        ("Trabajo en Seat.", "pequeña novedad\nya no trabajo en Seat\nbusco otra cosa"),
        ("Faço natação às quartas.", "Oi!\nDeixei a natação.\nO que faço às quartas?"),
        ("我在华为工作。", "更新一下\n我不在华为工作了\n在找新工作"),
    ],
)
async def test_own_words_of_several_lines_end_what_they_end(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int, earlier: str, later: str
) -> None:
    talk, do = Talk(), learner(pool, words, space)
    await taught(do, pool, talk, earlier)
    learned = await read_in_force(admin, talk)
    await taught(do, pool, talk, later)
    assert learned
    assert not learned.keys() & (await read_in_force(admin, talk)).keys()


@pytest.mark.parametrize(
    "brought",
    [
        "Is this sentence right? I no longer live in Leeds.",
        "I no longer live in Leeds. Translate that to Spanish please.",
        "She goes: I don't live in Leeds any more. Weird, no?",
        "Is this right in English: I no longer live in Leeds?",
        "My friend wrote me: I no longer live in Leeds",
        "Summarize this:\n\nDear all,\nI no longer live in Leeds and I sold the flat.\nBest,\nTom",
        "Chapter 3\n\nI was tired. I no longer live in Leeds, I told her.\nShe laughed.\n\nContinue the story",
    ],
)
async def test_a_text_that_is_brought_along_ends_nothing(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int, brought: str
) -> None:
    talk, do = Talk(), learner(pool, words, space)
    await taught(do, pool, talk, "I live in Leeds.")
    await taught(do, pool, talk, brought)
    assert await read_in_force(admin, talk) == {"Lives in Leeds": "active"}


async def test_nothing_ends_in_a_role_play_until_it_is_stopped(
    pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    talk, do = Talk(), learner(pool, words, space)
    await taught(do, pool, Talk(name="before"), "I live in Leeds.")
    await taught(do, pool, talk, "I want you to act as a text adventure game. I will type what I do.")
    await taught(do, pool, talk, "I no longer live in Leeds.")
    assert "Lives in Leeds" in await read_in_force(admin, talk)
    await taught(do, pool, talk, "Stop the game, please.")
    await taught(do, pool, talk, "I no longer live in Leeds.")
    assert "Lives in Leeds" not in await read_in_force(admin, talk)
