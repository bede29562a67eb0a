"""What the user answers to a note in doubt, read and done by the job that learns from the turn."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.jobs.learn import Learner, ValidationAnswers
from app.memory.text import content_hash
from app.providers.embeddings import WordLlamaEmbedder
from app.store.pools import Pool
from app.store.validation import Validation
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk, learner, memories
from tests.support.lives import put
from tests.support.rows import ensure_space, note_asked, read_embeddings

QUESTION = "It is on its way. By the way, I have a note that you prefer Friday deliveries. Is that still right?"


@pytest.fixture(scope="module")
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture
async def learn(pool: Pool, admin: asyncpg.Connection[Any], embedder: WordLlamaEmbedder) -> Learner:
    space = await ensure_space(admin, embedder.space, embedder.dimensions)
    clock = FakeClock(NOW)
    answers = ValidationAnswers(
        Validation(pool, SQL, clock, space=space, actor="user"),
        embedder=embedder,
        count=lambda text: len(text.split()),
        refuses=lambda text: "refused" in text,
    )
    return learner(pool, embedder, space, clock=clock, answers=answers)


async def in_doubt(admin: asyncpg.Connection[Any], talk: Talk, text: str, **given: Any) -> UUID:
    """A memory that was asked about in this conversation."""
    at = NOW - timedelta(days=120)
    memory = await put(
        admin,
        **{
            "user_id": talk.user, "tenant_id": TENANT, "content_text": text, "content_hash": content_hash(text),
            "created_at": at, "last_validated_at": at, "status": "aging", "is_validated": True, "validated_by": "user",
            "confidence": 0.8, "importance": 0.8,
        } | given,
    )  # fmt: skip
    await note_asked(admin, TENANT, talk.user, talk.session, memory, NOW - timedelta(minutes=30))
    return memory


async def answered(learn: Learner, pool: Pool, talk: Talk, answer: str, question: str = QUESTION) -> bytes:
    await talk.say(pool, "Where is my parcel?")
    await talk.say(pool, question, role="assistant")
    payload = talk.job(await talk.say(pool, answer))
    await learn.learn(payload)
    return payload


async def one(admin: asyncpg.Connection[Any], memory: UUID) -> dict[str, Any]:
    (row,) = await memories(admin, memory_id=memory)
    return row


async def test_yes_confirms_it_once(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    memory = await in_doubt(admin, talk, "Prefers Friday deliveries")
    payload = await answered(learn, pool, talk, "Yes, that's right.")
    row = await one(admin, memory)
    assert (row["status"], row["last_validated_at"], row["validated_by"]) == ("active", NOW, "user")
    assert row["confidence"] == pytest.approx(0.85)
    assert "asked" not in row["details"]
    await learn.learn(payload)
    assert (await one(admin, memory))["confidence"] == pytest.approx(0.85)


async def test_no_and_what_is_right_takes_its_place(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """Seed 004, active validation flow: "No, Thursday now"."""
    talk = Talk()
    memory = await in_doubt(
        admin, talk, "Prefers Friday deliveries", subject_entity_id="user", predicate="prefers",
        object_value="Friday deliveries",
    )  # fmt: skip
    await answered(learn, pool, talk, "No, Thursday now")
    old = await one(admin, memory)
    assert (old["status"], old["superseded_how"]) == ("superseded", "corrected")
    new = await one(admin, old["superseded_by"])
    assert (new["content_text"], new["object_value"]) == ("Prefers Thursday deliveries", "Thursday deliveries")
    assert new["confidence"] == pytest.approx(0.85)
    assert new["status"] == "active"
    assert len(await read_embeddings(admin, item_id=new["memory_id"])) == 1


async def test_no_alone_ends_it(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    memory = await in_doubt(admin, talk, "Prefers Friday deliveries")
    await answered(learn, pool, talk, "No, not any more.")
    assert (await one(admin, memory))["status"] == "invalidated"
    assert await memories(admin) == []


async def test_what_may_not_be_kept_is_not(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    memory = await in_doubt(
        admin, talk, "Lives in Lisbon", subject_entity_id="user", predicate="lives_in", object_value="Lisbon"
    )
    await answered(learn, pool, talk, "No, refused now", "You live in Lisbon, is that still right?")
    assert (await one(admin, memory))["status"] == "invalidated"
    assert await memories(admin) == []


async def test_what_the_answer_states_in_full_comes_first(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    memory = await in_doubt(
        admin, talk, "Lives in Lisbon", subject_entity_id="user", predicate="lives_in", object_value="Lisbon"
    )
    await answered(learn, pool, talk, "No, I live in Porto now", "You live in Lisbon, is that still right?")
    assert (await one(admin, memory))["status"] == "superseded"
    assert [row["content_text"] for row in await memories(admin)] == ["Lives in Porto"]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("It is on its way.", "Yes, that's right."),  # the assistant did not ask
        (
            "You prefer Friday deliveries, right? And then: shall I book the flight to Rome?",
            "Yes",
        ),  # another question came last
        (QUESTION, "Yes, but only in summer"),
    ],
)
async def test_what_is_unclear_leaves_it_in_doubt(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], question: str, answer: str
) -> None:
    talk = Talk()
    memory = await in_doubt(admin, talk, "Prefers Friday deliveries")
    await answered(learn, pool, talk, answer, question)
    row = await one(admin, memory)
    assert row["status"] == "aging"
    assert '"asked": 1' in row["details"]


async def test_only_the_conversation_that_asked_is_answered(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    memory = await in_doubt(admin, Talk(name="chat-0"), "Prefers Friday deliveries")
    await answered(learn, pool, Talk(), "Yes, that's right.")
    assert (await one(admin, memory))["status"] == "aging"


async def test_only_the_next_answer_counts(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    memory = await in_doubt(admin, talk, "Prefers Friday deliveries")
    await answered(learn, pool, talk, "Where is it now?")
    await talk.say(pool, "In Faro.", role="assistant")
    await learn.learn(talk.job(await talk.say(pool, "Yes, thanks")))
    assert (await one(admin, memory))["status"] == "aging"
