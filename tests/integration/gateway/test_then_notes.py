"""What a prompt said beside memories, compiled again: the profile, the facts, the question."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import pytest

from app.features.facts import Facts
from app.store.pools import Pool
from app.store.tenancy import Instructions
from tests.support.journey import (
    Answer,
    Message,
    assistant,
    system,
    user,
)
from tests.support.replaying import ANA, TENANT, ReplayStage
from tests.support.talks import FACTS, difference, know


@dataclass
class Told:
    """A conversation whose prompts have the tenant's profile, facts about the user, and a question."""

    stage: ReplayStage
    facts: Facts
    doubtful: UUID
    turns: list[tuple[Answer, bytes]]

    async def exact(self) -> None:
        for answer, sent in self.turns:
            again = await self.stage.again(answer)
            assert (again.body, again.notes) == (sent, [])


@pytest.fixture
async def told(stage: ReplayStage, pool: Pool) -> Told:
    facts = Facts(pool, stage.sql, stage.clock)
    await Instructions(pool, stage.sql, stage.clock).write_profile(
        TENANT, "- Business: Mumbai Bakery\n- Blog: 18 posts"
    )
    for key, value in (("lives_in", "Lisbon"), ("name", "Ana")):
        await know(facts, key, value)
    await stage.remember(*FACTS)
    (doubtful,) = await stage.remember("Ana wants chess deliveries on Fridays.")
    await stage.admin.execute("UPDATE agent_data.memory_store SET status = 'aging' WHERE memory_id = $1", doubtful)
    questions = (
        "When are my chess deliveries on Fridays? And what else do you know about me?",
        "What happened at the chess club yesterday?",
        "And the tea? Where do I live, and what is my name?",
    )
    transcript: list[Message] = [system("Be brief.")]
    turns = []
    for question in questions:
        transcript.append(user(question))
        answer = await stage.ask(transcript, profile="strategy")
        turns.append((answer, stage.sent()))
        transcript.append(assistant(answer.text))
    first = turns[0][1]
    assert b"Tenant context: - Business: Mumbai Bakery" in first
    assert b"lives in: Lisbon" in first
    assert b"To be confirmed by the user: " in first
    return Told(stage, facts, doubtful, turns)


async def test_what_was_said_beside_memories_is_said_again(told: Told, pool: Pool) -> None:
    """The profile, the facts, the question and the strategy of then, whatever the user and the tenant said since."""
    stage = told.stage
    await told.exact()
    assert {(await stage.again(answer)).compilation.audit["strategy"] for answer, _ in told.turns} > {
        "temporal_focused"
    }
    stage.clock.move(timedelta(days=40))
    await know(told.facts, "lives_in", "Porto")
    await know(told.facts, "employer", "a bakery")
    await Instructions(pool, stage.sql, stage.clock).write_profile(TENANT, "A shoe shop")
    await stage.memories.invalidate(TENANT, ANA, told.doubtful, None)
    await told.exact()
    now = await stage.again(told.turns[0][0], "today")
    assert b"lives in: Porto" in now.body
    assert b"A shoe shop" in now.body
    assert b"Lisbon" not in now.body
    assert b"To be confirmed" not in now.body
    compared = difference(now)["sections"]
    assert compared["was"]["questions"]["asked"] == [str(told.doubtful)]
    assert "questions" not in compared["now"]
    last = await stage.again(told.turns[-1][0], "today")  # a block of then says what is not so any more
    assert b"Lisbon" not in last.body
    assert b"lives in: Porto" in last.body


async def test_a_forgotten_fact_is_not_said_again(told: Told) -> None:
    stage = told.stage
    stage.clock.move(timedelta(days=1))
    fact = await know(told.facts, "lives_in", "Porto")
    await told.exact()
    await told.facts.delete(TENANT, ANA, fact)
    for answer, sent in told.turns:
        again = await stage.again(answer)
        if b"Lisbon" in sent:
            assert b"Lisbon" not in again.body
            assert b"About the user:\\n- name: Ana" in again.body
            assert "Of the facts about the user 1 were forgotten since." in again.notes
    kept = str(await stage.admin.fetch("SELECT inputs FROM agent_data.compilations"))
    assert "Lisbon" not in kept
    assert "lives_in" not in kept
