"""Memories tied to things and held against their rows, on a real Postgres: seed 004, table 9 and transformation 2."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import orjson
import pytest
from msgspec.structs import replace

from app.errors import BadBody
from app.features.consolidation.jobs import Consolidator
from app.features.consolidation.store import ConsolidationStore
from app.features.knowledge.jobs import LATER_S, CheckJob
from app.providers.embeddings import WordLlamaEmbedder
from app.store import ids
from app.store.memories import Memories
from app.store.pools import Pool
from app.store.validation import Validation
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.knowing import GAI, Knowing, knowing, with_strategy
from tests.support.learning import NOW, OTHER_TENANT, Talk, everything, memories
from tests.support.rows import (
    age_memories,
    clear_due_users,
    delete_job,
    ensure_space,
    insert_row,
    note_asked,
    read_aliases,
    read_conflicts,
    read_consolidation,
    read_episodes,
    read_memories,
    read_memory_events,
    read_suppressions,
    set_memories,
    set_message,
)

pytestmark = pytest.mark.filterwarnings("error")
NET30 = "Gai Media's payment terms are NET30"


@pytest.fixture(scope="module")
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture
async def know(pool: Pool, admin: asyncpg.Connection[Any], embedder: WordLlamaEmbedder) -> Knowing:
    space = await ensure_space(admin, embedder.space, embedder.dimensions)
    return knowing(pool, admin, embedder, space)


async def say(know: Knowing, pool: Pool, talk: Talk, *texts: str, answer: str = "Noted.") -> bytes:
    """Say something, be answered, and have it learned; the job."""
    said = []
    for text in texts:
        said += await talk.say(pool, text)
        said += await talk.say(pool, answer, role="assistant")
    payload = talk.job(said)
    await know.learn(payload)
    return payload


async def conflicts(admin: asyncpg.Connection[Any]) -> list[dict[str, Any]]:
    found = await read_conflicts(admin)
    return [
        each
        | {
            "conflict_data": orjson.loads(each["conflict_data"]),
            "resolution_outcome": orjson.loads(each["resolution_outcome"] or "null"),
        }
        for each in found
    ]


async def events(admin: asyncpg.Connection[Any], memory: Any) -> list[str]:
    return [row["event"] for row in await read_memory_events(admin, memory_id=memory)]


# --- tied ------------------------------------------------------------------------------------------------------------


async def test_the_seed_s_statement_is_of_the_thing(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """Seed 004, transformation 2: subject customer:gai_123, predicate delivery_day_preference, value Friday, 0.7, active."""
    await say(know, pool, Talk(), "Remember, Gai Media prefers Friday deliveries")
    (memory,) = await memories(admin)
    assert (memory["subject_entity_id"], memory["predicate"], memory["object_value"]) == (
        GAI.id, "delivery_day_preference", "Friday",
    )  # fmt: skip
    assert memory["predicate_type"] == "preference"
    assert memory["confidence"] == pytest.approx(0.7)
    assert memory["entity_ids"][:2] == [GAI.id, "gai-media"]


async def test_the_episode_names_the_thing(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await say(know, pool, Talk(), "What did Gai Media order last month?")
    (episode,) = await read_episodes(admin)
    assert episode["event_type"] == "question"
    assert {GAI.id, "gai-media"} <= set(episode["entities"])
    assert orjson.loads(episode["things"]) == [
        {
            "canonical_id": GAI.id,
            "canonical_name": GAI.name,
            "type": "customer",
            "mentions": [{"text": "Gai Media", "position": 9, "confidence": 0.95, "is_coreference": False}],
        }
    ]


async def test_the_episode_says_what_its_domain_was_asked(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    """Seed 004, layer 3: domain_facts_referenced. From the explanation of the call's own prompt."""
    talk = Talk()
    call = ids.uuid7(NOW)
    query = {"domain": "erp", "query_type": "sales_order", "table": "domain.sales_orders", "result_count": 2}
    audit = orjson.dumps({"domain": {"status": "ok", "queries": [query]}}).decode()
    await insert_row(admin, "compilations", call_id=call, tenant_id=talk.tenant, user_id=talk.user, audit=audit)
    said = await talk.say(pool, "What did Gai Media order last month?")
    said += await talk.say(pool, "Two orders.", role="assistant")
    for message in said:
        assert message.message_id is not None
        await set_message(admin, message.message_id, call_id=call)
    await know.learn(talk.job(said))
    (episode,) = await read_episodes(admin)
    assert orjson.loads(episode["domain_facts"]) == {"queries": [query]}


async def test_another_alias_is_the_same_subject(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await say(know, pool, Talk(), "Gai Media prefers Friday deliveries")
    await say(know, pool, Talk(name="chat-2", begun=NOW), "Gai prefers Thursday")
    (memory,) = await memories(admin)
    assert (memory["predicate"], memory["object_value"]) == ("delivery_day_preference", "Thursday")
    (old,) = await memories(admin, status="superseded")
    assert old["object_value"] == "Friday"
    (conflict,) = await conflicts(admin)
    assert (conflict["conflict_type"], conflict["entity_id"]) == ("memory_vs_memory", GAI.id)


async def test_they_are_whom_was_spoken_of(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    await say(know, pool, talk, "I called Gai Media today.")
    await say(know, pool, talk, "Well, their industry is entertainment")
    (memory,) = await memories(admin, predicate="industry")
    assert memory["subject_entity_id"] == GAI.id
    assert memory["content_text"] == "Gai Media Entertainment's industry is entertainment"
    assert [each.text for each in know.names.asked[-1][1]] == ["I called Gai Media today.", "Noted."]


async def test_what_was_said_before_the_thing_was_known_is_tied_later(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    names = know.names.known
    know.names.known = {}
    await say(know, pool, Talk(), NET30)
    (memory,) = await memories(admin)
    assert memory["subject_entity_id"] == "gai media"
    know.names.known = names
    await say(know, pool, Talk(name="chat-2"), "What about Gai Media?")
    await know.check()
    (memory,) = await memories(admin, predicate="payment_terms")
    assert (memory["subject_entity_id"], memory["status"]) == (GAI.id, "invalidated"), "and its row was looked at"


async def test_what_is_taught_is_taught_once(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """Within the job's effect: neither lost nor counted twice, however often the job is tried."""
    text = "What about Gai Media?"
    talk = Talk()
    payload = await say(know, pool, talk, text)
    await know.learn(payload)
    assert len(await know.waiting()) == 1
    (taught,) = await read_aliases(admin)
    assert (taught["alias_text"], taught["use_count"]) == (text, 1)
    assert orjson.loads(taught["metadata"])["session"] == str(talk.session)


async def test_a_session_of_nobody_s_knows_what_the_tenant_knows(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await say(know, pool, Talk(confined=True), NET30)
    await know.check()
    ((who, _),) = know.names.asked
    assert who.user is None
    (memory,) = await memories(admin, predicate="payment_terms")
    assert (memory["subject_entity_id"], memory["status"]) == (GAI.id, "invalidated")


async def test_a_tenant_without_knowledge_pays_nothing(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await say(know, pool, Talk(tenant=OTHER_TENANT), NET30)
    assert know.names.asked == []
    assert await know.waiting() == []
    (memory,) = await memories(admin)
    assert memory["subject_entity_id"] == "gai media"


# --- against rows ----------------------------------------------------------------------------------------------------


async def test_net30_against_net15(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """Seed 004, table 9: the row wins, and both sides and the outcome are in the log as in its example."""
    talk = Talk()
    await say(know, pool, talk, NET30)
    (before,) = await memories(admin)
    assert await know.check() == 1
    (memory,) = await memories(admin, predicate="payment_terms")
    assert (memory["memory_id"], memory["status"], memory["valid_to"]) == (before["memory_id"], "invalidated", NOW)
    assert (await events(admin, memory["memory_id"]))[-1] == "invalidated"
    (conflict,) = await conflicts(admin)
    assert (conflict["conflict_type"], conflict["resolution_strategy"]) == ("memory_vs_db", "trust_db")
    assert (conflict["resolved_at"], conflict["entity_id"]) == (NOW, GAI.id)
    assert conflict["detected_at_message"] == talk.said[0].message_id
    data = conflict["conflict_data"]
    assert data["memory"]["memory_id"] == str(memory["memory_id"])
    assert (data["memory"]["predicate"], data["memory"]["value"]) == ("payment_terms", "NET30")
    assert data["memory"]["confidence"] == pytest.approx(0.7)
    assert data["db_source"] == {
        "domain": "erp", "table": "domain.customers", "field": "payment_terms", "value": "NET15",
        "queried_at": "2026-11-20T12:00:00+00:00",
    }  # fmt: skip
    assert conflict["resolution_outcome"] == {
        "action": "supersede_memory",
        "memory_updates": [{"memory_id": str(memory["memory_id"]), "new_status": "invalidated"}],
        "rationale": "Domain database is authoritative for payment terms",
    }
    hidden = [(row["item_id"], row["reason"]) for row in await read_suppressions(admin)]
    assert hidden == [(talk.said[0].message_id, "superseded")], "its message says so no more"


async def test_again_is_as_good_as_once(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    payload = await say(know, pool, Talk(), NET30)
    (job,) = await know.waiting()
    await know.checker.check(job["payload"])
    once = [await everything(admin), await conflicts(admin)]
    await know.learn(payload)
    await know.checker.check(job["payload"])
    assert [await everything(admin), await conflicts(admin)] == once


async def test_older_memories_are_checked_when_the_thing_is_spoken_of(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    know.table.values = {GAI.id: {"payment_terms": "net 30"}}
    await say(know, pool, Talk(), NET30)
    await know.check()
    (memory,) = await memories(admin)
    assert (memory["status"], memory["validated_by"], memory["last_validated_at"]) == ("active", "domain", NOW)
    assert await conflicts(admin) == []
    know.table.values = {GAI.id: {"payment_terms": "NET15"}}  # the row changes
    await say(know, pool, Talk(name="chat-2"), "What about Gai?")
    await know.check()
    assert [each["predicate"] for each in await memories(admin)] == []
    assert len(await conflicts(admin)) == 1


async def test_what_had_lost_to_it_comes_back_with_the_row(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    know.table.values = {GAI.id: {"payment_terms": "NET30"}}
    await say(know, pool, Talk(), NET30)
    await know.check()
    know.table.values = {GAI.id: {"payment_terms": "NET15"}}
    await say(know, pool, Talk(name="chat-2", begun=NOW), "Gai's payment terms are NET 15")
    (memory,) = await memories(admin)
    assert memory["object_value"] == "NET30", "the row had said so, when it was asked last"
    await know.check()
    (memory,) = await memories(admin)
    assert (memory["object_value"], memory["validated_by"]) == ("NET 15", "domain")


async def test_a_memory_that_the_user_brings_back_stays(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await say(know, pool, Talk(), NET30)
    await know.check()
    await set_memories(admin, await read_memories(admin), status="active", valid_to=None)
    await say(know, pool, Talk(name="chat-2"), "What about Gai?")
    await know.check()
    assert len(await memories(admin)) == 1
    assert len(await conflicts(admin)) == 1, "the same contradiction is logged once"
    know.table.values = {GAI.id: {"payment_terms": "NET60"}}
    await say(know, pool, Talk(name="chat-3"), "What about Gai now?")
    await know.check()
    assert await memories(admin) == []
    assert len(await conflicts(admin)) == 2, "another value is another contradiction"


async def test_both_stay_where_the_ontology_says_so(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    with_strategy(know, "both")
    await say(know, pool, Talk(), NET30)
    await know.check()
    assert len(await memories(admin)) == 1
    (conflict,) = await conflicts(admin)
    assert (conflict["resolution_strategy"], conflict["resolved_at"]) == ("both", None)
    know.table.values = {GAI.id: {"payment_terms": "NET 30"}}
    await say(know, pool, Talk(name="chat-2"), "What about Gai?")
    await know.check()
    (conflict,) = await conflicts(admin)
    assert conflict["resolution_outcome"] == {"action": "row_agrees"}
    assert conflict["resolved_at"] == NOW


# --- asking the user -------------------------------------------------------------------------------------------------

QUESTION = "I have a note that Gai Media's payment terms are NET30. Is that still right?"


@pytest.mark.parametrize(
    ("answer", "status", "value", "response"),
    [
        ("Yes, NET30 is right.", "active", "NET30", "yes"),
        ("No, NET15", "superseded", "NET15", "corrected"),
        ("No, not any more.", "invalidated", None, "no"),
    ],
)
async def test_the_user_is_asked_and_the_answer_decides(
    know: Knowing,
    pool: Pool,
    admin: asyncpg.Connection[Any],
    answer: str,
    status: str,
    value: str | None,
    response: str,
) -> None:
    with_strategy(know, "ask_user")
    talk = Talk()
    await say(know, pool, talk, NET30)
    await know.check()
    (memory,) = await memories(admin)
    (conflict,) = await conflicts(admin)
    assert (memory["status"], conflict["resolved_at"]) == ("aging", None)
    due = await Validation(pool, SQL, FakeClock(NOW), space=None).due(talk.tenant, talk.user, limit=5)
    assert [row.memory_id for row in due] == [memory["memory_id"]]
    await age_memories(admin, NOW)
    assert len(await memories(admin, status="aging")) == 1, "no sweep ends this doubt"
    asked_at = NOW - timedelta(minutes=30)
    await note_asked(admin, talk.tenant, talk.user, talk.session, memory["memory_id"], asked_at)
    await talk.say(pool, "And the invoices?")
    await talk.say(pool, QUESTION, role="assistant")
    await know.learn(talk.job(await talk.say(pool, answer)))
    (old,) = await memories(admin, memory_id=memory["memory_id"])
    assert old["status"] == status
    assert "in_conflict" not in old["details"]
    assert [each["object_value"] for each in await memories(admin)] == ([value] if value else [])
    (conflict,) = await conflicts(admin)
    assert conflict["resolution_outcome"]["user_response"] == response
    assert conflict["resolved_at"] == NOW


async def test_no_thursday_now(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """Seed 004, active validation flow: the memory of Friday is in doubt, asked about, and answered."""
    talk = Talk()
    await say(know, pool, talk, "Remember, Gai Media prefers Friday deliveries")
    (memory,) = await memories(admin)
    await set_memories(admin, [memory], status="aging")
    await note_asked(admin, talk.tenant, talk.user, talk.session, memory["memory_id"], NOW)
    await talk.say(pool, "When do we deliver?")
    asked = "I have a note from 1 August that Gai Media prefers Friday deliveries; is that still accurate?"
    await talk.say(pool, asked, role="assistant")
    await know.learn(talk.job(await talk.say(pool, "No, Thursday now")))
    (old,) = await memories(admin, status="superseded")
    (new,) = await memories(admin)
    assert (old["object_value"], old["superseded_by"]) == ("Friday", new["memory_id"])
    assert (new["content_text"], new["object_value"]) == ("Gai Media prefers Thursday deliveries", "Thursday")
    assert (new["subject_entity_id"], new["predicate"]) == (GAI.id, "delivery_day_preference")
    assert new["confidence"] == pytest.approx(0.85)


async def test_a_correction_without_a_question(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    await say(know, pool, talk, "Remember, Gai Media prefers Friday deliveries")
    await say(know, pool, talk, "No, Gai Media prefers Thursday now")
    (new,) = await memories(admin)
    (old,) = await memories(admin, is_active=False)
    assert (new["object_value"], new["confidence"]) == ("Thursday", pytest.approx(0.85))
    assert (old["status"], old["superseded_how"]) == ("superseded", "corrected")


# --- in time ---------------------------------------------------------------------------------------------------------


async def test_both_were_right_each_in_its_time(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    await say(know, pool, talk, "Gai Media's payment terms were NET30 until May")
    await say(know, pool, talk, "Since June, Gai Media's payment terms are NET15")
    await know.check()
    earlier, later = sorted(await memories(admin), key=lambda row: row["valid_from"])
    may, june = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)
    assert (earlier["object_value"], earlier["valid_to"], earlier["status"]) == ("NET30", may, "active")
    assert (later["object_value"], later["valid_from"], later["valid_to"]) == ("NET15", june, None)
    (conflict,) = await conflicts(admin)
    assert (conflict["conflict_type"], conflict["resolution_strategy"]) == ("temporal", "both")
    assert conflict["resolution_outcome"]["action"] == "close_earlier"
    assert await read_suppressions(admin) == [], "what was so until May may still be told"
    assert later["validated_by"] == "domain", "only what is so now is held against the row"
    assert earlier["validated_by"] != "domain"


async def test_a_correction_of_now_leaves_what_was(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    await say(know, pool, talk, "Gai Media's payment terms were NET30 until May")
    await say(know, pool, talk, "No, Gai Media's payment terms are NET15")
    assert {row["object_value"] for row in await memories(admin)} == {"NET30", "NET15"}
    await say(know, pool, talk, "Gai Media's payment terms are NET30")
    found = await memories(admin)
    assert sorted((row["object_value"], row["valid_to"] is None) for row in found) == [
        ("NET30", False),
        ("NET30", True),
    ]


async def test_a_batch_asks_for_each_thing_once(know: Knowing, pool: Pool) -> None:
    await say(know, pool, Talk(), NET30, "What about Gai?", "And Gai Media's invoices?")
    assert await know.check() == 1
    assert len(know.table.asked) == 1


async def test_what_was_said_before_it_changed_is_closed(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await say(know, pool, Talk(begun=NOW - timedelta(days=200)), NET30)
    later = Talk(name="chat-2", begun=NOW - timedelta(days=1))
    await say(know, pool, later, "Since October, Gai's payment terms are NET15")
    (old,) = await memories(admin, status="superseded")
    assert (old["object_value"], old["valid_to"]) == ("NET30", datetime(2026, 10, 1, tzinfo=UTC))
    (conflict,) = await conflicts(admin)
    assert conflict["conflict_type"] == "temporal"


# --- a domain that is away -------------------------------------------------------------------------------------------


async def test_a_domain_that_is_away_is_asked_later(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    know.table.away = True
    await say(know, pool, Talk(), NET30)
    (job,) = await know.waiting()
    await delete_job(admin, job["id"])
    await know.checker.check(job["payload"])
    (later,) = await know.waiting()
    assert later["delay"] >= timedelta(seconds=LATER_S[0] - 5)
    assert len(await memories(admin)) == 1
    assert await conflicts(admin) == []
    know.table.away = False
    await know.check()
    assert await memories(admin) == []
    assert len(await conflicts(admin)) == 1


async def test_not_for_ever(know: Knowing, pool: Pool) -> None:
    know.table.away = True
    await say(know, pool, Talk(), NET30)
    assert await know.check() == 1 + len(LATER_S)
    assert len(know.table.asked) == 1 + len(LATER_S)


async def test_a_job_that_is_none(know: Knowing) -> None:
    for payload in (b"", b"{}", b"[]", b'{"tenant": 1}'):
        with pytest.raises(BadBody):
            await know.checker.check(payload)


async def test_an_erased_user_gets_nothing(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await say(know, pool, Talk(), NET30)
    (job,) = await know.waiting()
    again = replace(CheckJob.parse(job["payload"]), epoch=99)
    await know.checker.check(again.record(0.0).payload)
    assert await conflicts(admin) == []
    assert len(await memories(admin)) == 1


async def test_nothing_is_asked_again_for_an_erased_user(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    """The queue holds ids, and names of things."""
    know.table.away = True
    await say(know, pool, Talk(), NET30)
    (job,) = await know.waiting()
    await delete_job(admin, job["id"])
    again = replace(CheckJob.parse(job["payload"]), epoch=99)
    await know.checker.check(again.record(0.0).payload)
    assert await know.waiting() == []


async def test_one_tenant_s_rows_say_nothing_of_another_s(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    know.names.known[OTHER_TENANT] = know.names.known[Talk().tenant]
    know.ontologies.known[OTHER_TENANT] = know.ontologies.known[Talk().tenant]
    await say(know, pool, Talk(tenant=OTHER_TENANT), NET30)
    await know.check()
    assert know.table.asked == [(OTHER_TENANT, GAI.id)]
    (conflict,) = await conflicts(admin)
    assert conflict["tenant_id"] == OTHER_TENANT


async def test_forgetting_takes_its_conflicts_words(know: Knowing, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    await say(know, pool, talk, NET30)
    await know.check()
    (memory,) = await memories(admin, predicate="payment_terms")
    await Memories(pool, SQL, FakeClock(NOW), space=None).forget(talk.tenant, talk.user, memory["memory_id"])
    (conflict,) = await conflicts(admin)
    assert (conflict["conflict_data"], conflict["entity_id"]) == ({}, None)


# --- profiles --------------------------------------------------------------------------------------------------------


async def test_a_profile_is_the_thing_s_and_ends_with_what_it_quotes(
    know: Knowing, pool: Pool, admin: asyncpg.Connection[Any], embedder: WordLlamaEmbedder
) -> None:
    """Seed 004, transformation 3: three sessions, three names, one profile of customer:gai_123; once its row says otherwise,
    the profile that quotes the memory is not in force, and due anew."""
    know.table.values = {}
    said = (NET30, "Gai prefers Friday deliveries", "What did Gai Media Entertainment order?")
    for n, text in enumerate(said):
        await say(know, pool, Talk(name=f"chat-{n}"), text)
    await know.check()
    talk = Talk()
    draw = Consolidator(
        ConsolidationStore(pool, SQL), embedder=embedder, space=None,
        count=lambda text: len(text.split()), clock=know.clock,
    )  # fmt: skip
    await draw.consolidate(orjson.dumps({"tenant": talk.tenant, "user": talk.user, "id": "one"}, default=str))
    (summary,) = await memories(admin, kind="summary", is_active=True)
    details = orjson.loads(summary["details"])
    assert summary["content_text"].startswith("Gai Media Entertainment: ")
    assert (details["scope_type"], details["scope_identifier"]) == ("entity", GAI.id)
    profile = details["key_facts"]["entity_profile"]
    assert (profile["entity_id"], profile["canonical_name"]) == (GAI.id, "Gai Media Entertainment")
    assert profile["facts"]["payment_terms"]["value"] == "NET30"
    assert profile["facts"]["payment_terms"]["reinforcement_count"] == 0
    assert details["key_facts"]["interaction_patterns"] == {
        "frequent_queries": [], "typical_cadence": None, "session_count": 3,
    }  # fmt: skip
    assert set(details["source_data"]["time_range"]) == {"start", "end"}
    assert details["source_data"]["sessions"] == 3
    assert {GAI.id, "gai", "gai-media"} <= set(summary["entity_ids"])
    await clear_due_users(admin)
    know.table.values = {GAI.id: {"payment_terms": "NET15"}}
    await say(know, pool, Talk(name="chat-9"), "What about Gai?")
    await know.check()
    (ended,) = await memories(admin, kind="summary")
    assert ended["status"] == "invalidated"
    assert [row["due_at"] is not None for row in await read_consolidation(admin)] == [True]
    await draw.consolidate(orjson.dumps({"tenant": talk.tenant, "user": talk.user, "id": "two"}, default=str))
    (anew,) = await memories(admin, kind="summary", is_active=True)
    assert "NET30" not in anew["content_text"]
