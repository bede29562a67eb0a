"""Facts as memories keep them: the triggers of sql/schema/006_facts.sql under the learner and the API's stores."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from app.features.facts import FactOut, Facts
from app.jobs.learn import Learner
from app.memory.extract import rules
from app.memory.extract_grammar import words
from app.memory.text import content_hash
from app.store.erasure import ERASER_ROLE, Deleter, Eraser, own_connection
from app.store.memories import Memories, MemoryChange, MemoryText
from app.store.pools import Pool
from app.store.sessions import SessionRef
from app.store.validation import Validation
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import INTRODUCTION, NOW, OTHER_TENANT, TENANT, Talk, memories, taught


@pytest.fixture
def facts(pool: Pool) -> Facts:
    return Facts(pool, SQL, FakeClock(NOW))


@pytest.fixture
def store(pool: Pool, space: int) -> Memories:
    return Memories(pool, SQL, FakeClock(NOW), space=space)


async def known(facts: Facts, talk: Talk) -> dict[str, FactOut]:
    rows = await facts.page(talk.tenant, talk.user, category=None, after=None, limit=100)
    return {each.key: each for each in rows}


async def values(facts: Facts, talk: Talk) -> dict[str, Any]:
    return {key: each.value for key, each in (await known(facts, talk)).items()}


async def memory_of(admin: asyncpg.Connection[Any], text: str) -> UUID:
    found: UUID = await admin.fetchval("SELECT memory_id FROM agent_data.memory_store WHERE content_text = $1", text)
    return UUID(bytes=found.bytes)


async def test_what_a_user_says_becomes_a_profile(learn: Learner, pool: Pool, facts: Facts) -> None:
    talk = Talk()
    await taught(learn, pool, talk, INTRODUCTION, "I'm allergic to peanuts", "I'm allergic to shellfish")

    assert await facts.profile(TENANT, talk.user) == {
        "personal": {"called": "Ana", "lives_in": "Lisbon", "allergic_to": ["peanuts", "shellfish"]},
        "preference": {"diet": "vegetarian"},
    }
    lives = (await known(facts, talk))["lives_in"]
    assert lives.confidence > 50
    assert len(lives.memories) == 1
    assert await facts.profile(OTHER_TENANT, talk.user) == {}


async def test_a_change_of_mind_changes_the_fact_and_its_history_tells(
    learn: Learner, pool: Pool, facts: Facts
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon")
    await taught(learn, pool, talk, "Actually, I live in Porto now")

    assert await values(facts, talk) == {"lives_in": "Porto"}
    told = await facts.history(TENANT, talk.user, "lives_in", category=None, after=0, limit=10)
    assert [(each.event, each.value) for each in told] == [("created", "Lisbon"), ("changed", "Porto")]
    assert {each.actor for each in told} == {"system"}


async def test_what_was_said_earlier_does_not_undo_what_was_said_later(
    learn: Learner, pool: Pool, facts: Facts
) -> None:
    """Jobs and imports come in any order."""
    talk = Talk()
    earlier = talk.job(await talk.say(pool, "I live in Lisbon"))
    later = talk.job(await talk.say(pool, "I live in Porto"))
    await learn.learn(later)
    await learn.learn(earlier)
    assert await values(facts, talk) == {"lives_in": "Porto"}


async def test_what_is_said_not_to_be_so_ends(learn: Learner, pool: Pool, facts: Facts) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I'm allergic to peanuts", "I'm allergic to shellfish")
    await taught(learn, pool, talk, "I'm not allergic to peanuts")
    assert list(await values(facts, talk)) == ["allergic_to:shellfish"]


async def test_a_fact_outlives_the_pruning_of_its_memory_and_not_its_deletion(
    learn: Learner, pool: Pool, facts: Facts, store: Memories, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon", "I'm vegetarian", "My name is Ana")
    await admin.execute("UPDATE agent_data.memory_store SET status = 'expired' WHERE content_text = 'Lives in Lisbon'")
    await admin.execute("DELETE FROM agent_data.memory_store WHERE content_text = 'Is vegetarian'")
    assert await values(facts, talk) == {"lives_in": "Lisbon", "diet": "vegetarian", "name": "Ana"}

    assert await store.forget(TENANT, talk.user, await memory_of(admin, "Name is Ana"))
    assert await store.forget(TENANT, talk.user, await memory_of(admin, "Lives in Lisbon"))
    assert await values(facts, talk) == {"diet": "vegetarian"}
    left = str(await admin.fetch("SELECT * FROM agent_data.user_fact_changes"))
    assert "Lisbon" not in left
    assert '"Ana"' not in left
    assert "vegetarian" in left


async def test_deleting_a_message_takes_along_the_facts_that_it_alone_said(
    learn: Learner, pool: Pool, facts: Facts, database: str, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon", "I'm vegetarian")
    deleter = Deleter(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW))
    message = talk.said[0].message_id
    assert message is not None
    assert await deleter.delete(TENANT, SessionRef(talk.user, talk.session), message) is not None
    assert await values(facts, talk) == {"diet": "vegetarian"}
    assert "Lisbon" not in str(await admin.fetch("SELECT * FROM agent_data.user_fact_changes"))


async def test_forgetting_one_of_two_that_say_so_leaves_the_fact(
    learn: Learner, pool: Pool, facts: Facts, store: Memories, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon")
    first = await memory_of(admin, "Lives in Lisbon")
    await admin.execute(
        "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text,"
        " content_hash, provenance_type, token_count, subject_entity_id, predicate, object_value)"
        " SELECT gen_random_uuid(), user_id, tenant_id, 3, 1, 'Home is Lisbon', 'x', 0, 3, 'user', 'lives_in', 'lisbon'"
        " FROM agent_data.memory_store WHERE memory_id = $1",
        first,
    )
    assert len((await known(facts, talk))["lives_in"].memories) == 2
    await store.forget(TENANT, talk.user, first)
    assert (await known(facts, talk))["lives_in"].memories == [await memory_of(admin, "Home is Lisbon")]
    await store.forget(TENANT, talk.user, await memory_of(admin, "Home is Lisbon"))
    assert await known(facts, talk) == {}


async def test_invalidating_and_restoring_a_memory_does_the_same_to_its_fact(
    learn: Learner, pool: Pool, facts: Facts, store: Memories, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon")
    memory = await memory_of(admin, "Lives in Lisbon")
    await store.invalidate(TENANT, talk.user, memory, None)
    assert await known(facts, talk) == {}
    await store.restore(TENANT, talk.user, memory)
    assert await values(facts, talk) == {"lives_in": "Lisbon"}
    told = await facts.history(TENANT, talk.user, "lives_in", category=None, after=0, limit=10)
    assert [each.event for each in told] == ["created", "ended", "created"]


@pytest.mark.parametrize("value", ["Faro", None])
async def test_an_answer_that_corrects_a_memory_corrects_its_fact_and_hides_what_said_it(
    learn: Learner, pool: Pool, facts: Facts, admin: asyncpg.Connection[Any], space: int, value: str | None
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon")
    memory = await memory_of(admin, "Lives in Lisbon")
    text = MemoryText("Lives in Faro", content_hash("Lives in Faro"), 3, None)
    await Validation(pool, SQL, FakeClock(NOW), space=space).correct(TENANT, talk.user, memory, text, value)
    assert await values(facts, talk) == ({"lives_in": value} if value else {})
    told = await facts.history(TENANT, talk.user, "lives_in", category=None, after=0, limit=10)
    assert [each.event for each in told] == ["created", "changed" if value else "ended"]
    hidden = await admin.fetch("SELECT item_id, reason FROM agent_data.suppressions")
    assert [tuple(row) for row in hidden] == [(talk.said[0].message_id, "superseded")]


async def test_a_text_that_is_edited_does_not_say_its_triple_any_more(
    learn: Learner, pool: Pool, facts: Facts, store: Memories, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon")
    memory = await memory_of(admin, "Lives in Lisbon")
    await store.change(TENANT, talk.user, memory, MemoryChange(tags=["home"]))
    assert await values(facts, talk) == {"lives_in": "Lisbon"}
    await store.change(TENANT, talk.user, memory, MemoryChange(text=MemoryText("Has a flat in Rome", b"r", 5, None)))
    assert await known(facts, talk) == {}
    assert (await memories(admin))[0]["object_value"] is None


async def test_a_deleted_fact_comes_back_only_when_it_is_said_again(
    learn: Learner, pool: Pool, space: int, admin: asyncpg.Connection[Any]
) -> None:
    talk, clock = Talk(), FakeClock(NOW - timedelta(minutes=30))
    facts = Facts(pool, SQL, clock)  # between what was said before, and what will be
    payload = await taught(learn, pool, talk, "I live in Lisbon")
    held = (await known(facts, talk))["lives_in"]
    assert await facts.delete(TENANT, talk.user, held.id)
    await admin.execute("DELETE FROM agent_data.job_effects")
    await learn.learn(payload)
    assert await known(facts, talk) == {}, "it was said before it was deleted"

    message = await talk.say(pool, "I live in Lisbon")
    await admin.execute("UPDATE agent_data.user_fact_changes SET at = $1", message[0].created_at - timedelta(seconds=1))
    await learn.learn(talk.job(message))
    assert await values(facts, talk) == {"lives_in": "Lisbon"}


async def test_what_is_concluded_in_a_session_and_what_nobody_said_is_no_fact(
    learn: Learner, pool: Pool, facts: Facts, admin: asyncpg.Connection[Any]
) -> None:
    nobody = Talk(confined=True)
    await taught(learn, pool, nobody, "I live in Lisbon")
    assert await known(facts, nobody) == {}
    insert = (
        "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, memory_tier, memory_scope, content_text,"
        " content_hash, provenance_type, token_count, subject_entity_id, predicate, object_value)"
        " VALUES (gen_random_uuid(), $1, $2, 1, 0, 'Lives in Rome', 'y', 1, 3, 'user', 'lives_in', 'Rome')"
    )
    talk = Talk()
    await admin.execute(insert, talk.user, TENANT)
    assert await known(facts, talk) == {}
    # Promoted by a sweep, which is the owner's, it is believed everywhere.
    await admin.execute("SET ROLE mneme_owner")
    await admin.execute(
        "UPDATE agent_data.memory_store SET memory_scope = 1, memory_tier = 2 WHERE user_id = $1", talk.user
    )
    await admin.execute("RESET ROLE")
    assert await values(facts, talk) == {"lives_in": "Rome"}


async def test_saying_it_again_makes_it_surer_and_no_more(
    learn: Learner, pool: Pool, facts: Facts, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon")
    await admin.execute("UPDATE agent_data.user_facts SET confidence_score = 20")
    await taught(learn, pool, talk, "I live in Lisbon")
    fact = (await known(facts, talk))["lives_in"]
    assert fact.confidence > 50
    assert fact.said_at > fact.first_mentioned
    told = await facts.history(TENANT, talk.user, "lives_in", category=None, after=0, limit=10)
    assert [each.event for each in told] == ["created", "rated"]


async def test_an_erased_user_has_no_facts(
    learn: Learner, pool: Pool, facts: Facts, database: str, admin: asyncpg.Connection[Any]
) -> None:
    talk, bystander = Talk(), Talk("bob")
    await taught(learn, pool, talk, "I live in Lisbon")
    await taught(learn, pool, bystander, "I live in Oslo")
    receipt = await Eraser(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW)).erase(TENANT, talk.user)
    assert receipt.counts["user_facts"] == receipt.counts["user_fact_changes"] == 1
    assert await values(facts, bystander) == {"lives_in": "Oslo"}
    assert "Lisbon" not in str(await admin.fetch("SELECT * FROM agent_data.user_facts"))


async def test_the_settings_know_every_predicate_of_the_rules(admin: asyncpg.Connection[Any]) -> None:
    many = set(
        (
            await admin.fetchval("SELECT value #>> '{}' FROM agent_data.system_config WHERE key = 'facts_of_many'")
        ).split()
    )
    listed = " ".join(
        [
            row["value"]
            for row in await admin.fetch(
                "SELECT e.value FROM agent_data.system_config c, jsonb_each_text(c.value) e WHERE c.key = 'fact_categories'"
            )
        ]
    )
    assert not many & words("single_valued")
    first_statements = [rule.statements[0] for rule in rules()]
    predicates = [
        statement.predicate for statement in first_statements if statement.predicate and "{" not in statement.predicate
    ]
    assert {predicate.removeprefix("not_") for predicate in predicates} <= set(listed.split())
    assert words("single_valued") <= set(listed.split())
