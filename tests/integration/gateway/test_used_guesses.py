"""A guess lives in its session alone, where its own message stands in the prompt: turns that are about it are its use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from app.clock import SystemClock
from app.providers.embeddings import WordLlamaEmbedder
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.gateway_world import World
from tests.support.journey import Message, assistant, build_journey, user
from tests.support.learning import learner
from tests.support.rows import ensure_space, read_memories, take_jobs

GUESSES = {
    "a move": ("I might move to Berlin.", "What would moving to Berlin cost me?", "Is Berlin a good place for me?"),
    "a dog": ("I'm thinking about a dog.", "Which dog would suit me?", "What does a dog cost me a month?"),
    "an allergy": ("I think I'm allergic to nuts.", "Do I have to avoid nuts?", "Which cakes have no nuts in them?"),
    "German": (
        "Ich überlege mir, nach Hamburg zu ziehen.",
        "Was kostet mich eine Wohnung in Hamburg?",
        "Passt Hamburg zu mir?",
    ),
    "Spanish": (
        "Estoy pensando en mudarme a Sevilla.",
        "¿Qué barrio de Sevilla me conviene?",
        "¿Cuánto me costaría Sevilla?",
    ),
}


@pytest.fixture(scope="module")
def words() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture
async def talk(pool: Pool, admin: asyncpg.Connection[Any], words: WordLlamaEmbedder) -> Talk:
    space = await ensure_space(admin, words.space, words.dimensions)
    world = World(
        build_journey(TurnStore(pool, Queries.load()), embedder=words), TurnStore(pool, Queries.load()), admin
    )
    return Talk(world, pool, words, space)


class Talk:
    """A client that sends its whole transcript, and a worker that learns after each turn."""

    def __init__(self, world: World, pool: Pool, words: WordLlamaEmbedder, space: int) -> None:
        self.world = world
        self._learner = learner(pool, words, space, clock=SystemClock())
        self.transcript: list[Message] = []

    async def say(self, text: str, answer: str = "I see.", headers: dict[str, str] | None = None) -> None:
        self.transcript.append(user(text))
        await self.world.ask(self.transcript, headers=headers)
        self.transcript.append(assistant("You said: " + text))
        for job in await take_jobs(self.world.admin, "learn"):
            await self._learner.learn(job["payload"])

    async def guess(self) -> dict[str, Any]:
        memories = await read_memories(self.world.admin, is_active=True)
        (found,) = [memory for memory in memories if memory["memory_tier"] < 3]
        return found


@pytest.mark.parametrize("name", GUESSES)
async def test_turns_that_are_about_a_guess_are_its_use(talk: Talk, name: str) -> None:
    said, *questions = GUESSES[name]
    await talk.say(said)
    before = await talk.guess()
    assert (before["access_count"], before["memory_scope"], before["memory_tier"]) == (0, 0, 1)
    for n, question in enumerate(questions, 1):
        await talk.say(question)
        used = await talk.guess()
        assert used["access_count"] == n, question
        assert 0 < used["relevance_accumulator"] <= n
        assert used["last_accessed_at"] is not None


async def test_a_guess_that_three_turns_are_about_rises(talk: Talk) -> None:
    await talk.say("I might move to Berlin.")
    for question in (
        "What would moving to Berlin cost me?",
        "Is Berlin a good place for me?",
        "Where in Berlin should I move?",
    ):
        await talk.say(question)
    later = datetime.now(UTC) + timedelta(minutes=15)
    await talk.world.admin.fetchval(Queries.load()["lifecycle.promote"], later, 100)
    risen = await talk.guess()
    assert (risen["memory_tier"], risen["memory_scope"], risen["validated_by"]) == (2, 1, "system")


async def test_turns_about_something_else_are_not_its_use(talk: Talk) -> None:
    await talk.say("I might move to Berlin.")
    for other in (
        "Write a haiku about rain.",
        "What is 17 times 23?",
        "Thanks!",
        "Translate good morning into French.",
    ):
        await talk.say(other)
        assert (await talk.guess())["access_count"] == 0, other
    await talk.say("What would moving to Berlin cost me?", headers={"x-mneme-memory": "off"})
    assert (await talk.guess())["access_count"] == 0, "memory was off"


async def test_prompts_stay_as_they_are(talk: Talk) -> None:
    """The message stands in the prompt, so the guess itself adds nothing."""
    await talk.say("I might move to Berlin.")
    await talk.say("What would moving to Berlin cost me?")
    sent = talk.world.journey.upstream.asked[-1]["messages"]
    assert sent == talk.transcript[:-1]
