"""The `learn` job on a real Postgres: app/jobs/tasks.py, app/memory/ingest.py and app/store/learning.py together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import numpy as np
import orjson
import pytest

from app.clock import FakeClock
from app.errors import BadBody, StoreUnavailable, Unavailable
from app.jobs.tasks import Learner
from app.memory.candidate import Candidate, Exchange
from app.memory.ingest_text import content_hash
from app.providers.embeddings import NoEmbedder, Vectors, WordLlamaEmbedder
from app.store.memories import Memories
from app.store.pools import Pool
from app.store.queries import Queries
from tests.support.jobs import SQL, rows
from tests.support.learning import NOW, OTHER_TENANT, TENANT, Talk, by_rules, learner, memories, taught, texts

INTRODUCTION = "I'm vegetarian, I live in Lisbon, please call me Ana"


@pytest.fixture(scope="module")
def words() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture
async def space(admin: asyncpg.Connection[Any], words: WordLlamaEmbedder) -> int:
    number: int = await admin.fetchval(
        "SELECT agent_data.ensure_embedding_space($1, $2)", words.space, words.dimensions
    )
    return number


@pytest.fixture
def learn(pool: Pool, words: WordLlamaEmbedder, space: int) -> Learner:
    return learner(pool, words, space)


async def _count(admin: asyncpg.Connection[Any], table: str) -> int:
    found: int = await admin.fetchval(f"SELECT count(*) FROM agent_data.{table}")
    return found


async def _everything(admin: asyncpg.Connection[Any]) -> dict[str, Any]:
    """All that a job can change."""
    tables = ("memory_store", "memory_events", "embeddings", "lexemes", "user_stats", "routes", "job_effects")
    return {
        table: sorted(str(row) for row in await rows(admin, f"SELECT * FROM agent_data.{table}")) for table in tables
    }


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
    assert {row["target"] for row in await rows(admin, "SELECT * FROM agent_data.routes WHERE kind = 'memory'")} == ids
    vectors = await rows(admin, "SELECT item_id, item_kind, item_at, space FROM agent_data.embeddings")
    assert {(row["item_id"], row["item_kind"], row["space"]) for row in vectors} == {(each, 1, space) for each in ids}
    assert {row["item_at"] for row in vectors} == {message.created_at}
    told = await rows(admin, "SELECT memory_id, event, after, actor FROM agent_data.memory_events")
    assert {(row["memory_id"], row["event"], row["actor"]) for row in told} == {
        (each, "created", "system") for each in ids
    }


async def test_words_are_counted_once(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    await taught(learn, pool, talk, INTRODUCTION)
    counted = {
        row["lexeme"]: row["documents"] for row in await rows(admin, "SELECT lexeme, documents FROM agent_data.lexemes")
    }
    assert counted["lisbon"] == 2  # the message, and the memory
    assert counted["pleas"] == 1
    (stats,) = await rows(admin, "SELECT documents, vectors, total_terms FROM agent_data.user_stats")
    assert (stats["documents"], stats["vectors"]) == (4, 3)
    assert stats["total_terms"] == sum(each["token_count"] for each in await memories(admin)) + talk.said[0].token_count


async def test_with_learning_off_a_turn_is_only_indexed(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await learn.learn(talk.job(await talk.say(pool, INTRODUCTION), learn=False))
    assert await memories(admin, "true") == []
    assert await admin.fetchval("SELECT documents FROM agent_data.lexemes WHERE lexeme = 'lisbon'") == 1


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
    await admin.execute("UPDATE agent_data.system_config SET value = '2' WHERE key = 'l1_ttl_hours'")
    talk = Talk()
    calls = [{"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}]
    said = await talk.say(pool, "Look it up.")
    said += await talk.say(pool, "", role="assistant", tool_calls=orjson.dumps(calls).decode())
    await learn.learn(talk.job(said))
    assert [each["expires_at"] for each in await memories(admin)] == [NOW + timedelta(hours=2)]


async def test_what_mneme_put_into_a_prompt_is_never_learned(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    block = (
        "<mneme-memory 1234abcd>\n- [fact] Lives in Berlin (2026-01-01)\nI live in Berlin.\n</mneme-memory 1234abcd>"
    )
    await taught(learn, pool, Talk(), f"{block}\n\nI have a cat")
    (found,) = await memories(admin)
    assert found["content_text"] == "Has a cat"
    assert found["sources"][0]["quote"] == "I have a cat"


@pytest.mark.parametrize("wanted", [False, True])
async def test_secrets_are_not_kept_unless_wanted(
    pool: Pool, admin: asyncpg.Connection[Any], words: WordLlamaEmbedder, space: int, wanted: bool
) -> None:
    do = learner(pool, words, space, store_secrets=wanted)
    await taught(do, pool, Talk(), "remember: my card number is 4111 1111 1111 1111")
    assert bool(await texts(admin)) is wanted


async def test_without_vectors_it_learns_too(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    do = learner(pool, NoEmbedder(), None)
    await taught(do, pool, Talk(), INTRODUCTION)
    await taught(do, pool, Talk(name="chat-2"), INTRODUCTION)
    assert len(await texts(admin)) == 3
    assert await _count(admin, "embeddings") == 0


async def test_messages_that_must_not_surface_are_not_learned_from(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    said = await talk.say(pool, INTRODUCTION, "I have a cat")
    await admin.execute(
        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, 'erased')",
        talk.user, TENANT, said[0].message_id,
    )  # fmt: skip
    await learn.learn(talk.job(said))
    assert await texts(admin) == ["Has a cat"]


async def test_what_was_forgotten_is_not_learned_again(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], space: int
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I have a cat")
    (known,) = await memories(admin)
    assert await Memories(pool, Queries.load(), FakeClock(NOW), space=space).forget(
        TENANT, talk.user, known["memory_id"]
    )
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
    events = await rows(admin, "SELECT event FROM agent_data.memory_events ORDER BY at")
    assert [row["event"] for row in events] == ["created", "reinforced"]


async def test_the_more_specific_wins_and_the_older_stays_in_the_chain(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await taught(learn, pool, Talk(), "I like hiking in the mountains")
    await taught(learn, pool, Talk(name="chat-2"), "I like hiking in the high mountains")
    (kept,) = await memories(admin)
    (old,) = await memories(admin, "status = 'superseded'")
    assert kept["content_text"] == "Likes hiking in the high mountains"
    assert old["content_text"] == "Likes hiking in the mountains"
    assert (old["superseded_by"], old["valid_to"]) == (kept["memory_id"], NOW)
    assert (kept["access_count"], kept["reinforcement_count"], kept["memory_tier"]) == (1, 1, 4)
    assert [each["session"] for each in kept["sources"]] == ["chat-1", "chat-2"]
    events = await rows(admin, "SELECT memory_id, event FROM agent_data.memory_events")
    assert {(row["memory_id"], row["event"]) for row in events} == {
        (old["memory_id"], "created"), (old["memory_id"], "superseded"), (kept["memory_id"], "merged"),
    }  # fmt: skip


async def test_the_less_specific_is_not_kept_beside_the_more_specific(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await taught(learn, pool, Talk(), "I like hiking in the high mountains")
    await taught(learn, pool, Talk(name="chat-2"), "I like hiking in the mountains")
    (found,) = await memories(admin, "true")
    assert found["reinforcement_count"] == 1


async def test_near_in_words_and_another_claim(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await taught(learn, pool, Talk(), "I don't want posts longer than 800 words")
    await taught(learn, pool, Talk(name="chat-2"), "I don't want posts longer than 500 words")
    assert len(await texts(admin)) == 2


async def test_the_threshold_of_a_remote_space_is_a_setting(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    space = await admin.fetchval("SELECT agent_data.ensure_embedding_space('scripted', 2)")
    vectors = {"Likes green tea": [1.0, 0.0], "Likes tea": [0.9, float(np.sqrt(1 - 0.81))]}
    do = learner(pool, _Remote(vectors), space)
    await taught(do, pool, Talk(), "I like green tea")
    await taught(do, pool, Talk(name="chat-2"), "I like tea")
    assert len(await texts(admin)) == 2
    await admin.execute("DELETE FROM agent_data.memory_store")
    await admin.execute("DELETE FROM agent_data.embeddings")
    await admin.execute("UPDATE agent_data.system_config SET value = '0.89' WHERE key = 'dedup_threshold'")
    await taught(do, pool, Talk(name="chat-3"), "I like green tea")
    await taught(do, pool, Talk(name="chat-4"), "I like tea")
    assert await texts(admin) == ["Likes green tea"]


async def test_a_correction_takes_the_place_of_what_it_corrects(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    await taught(learn, pool, Talk(), INTRODUCTION)
    await taught(learn, pool, Talk(name="chat-2"), "No, I live in Porto now")
    assert set(await texts(admin)) == {"Is vegetarian", "Lives in Porto", "Wants to be called Ana"}
    (old,) = await memories(admin, "status = 'superseded'")
    (new,) = await memories(admin, "content_text = 'Lives in Porto'")
    assert (old["content_text"], old["superseded_by"]) == ("Lives in Lisbon", new["memory_id"])
    assert (new["kind"], new["provenance_type"]) == ("correction", 2)


async def test_a_batch_meets_its_own_statements(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await taught(learn, pool, Talk(), "I live in Lisbon", "I like tea", "I like tea", "Actually, I moved to Porto")
    assert set(await texts(admin)) == {"Likes tea", "Lives in Porto"}
    (tea,) = await memories(admin, "content_text = 'Likes tea'")
    assert (tea["reinforcement_count"], len(tea["sources"])) == (1, 2)


# --- once, and only once ---------------------------------------------------------------------------------------------


async def test_a_job_that_runs_again_has_one_effect(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    payload = await taught(learn, pool, talk, INTRODUCTION)
    before = await _everything(admin)
    await learn.learn(payload)
    assert await _everything(admin) == before


async def test_a_job_that_broke_off_has_none_and_then_one(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is cut after everything was written, before the commit."""
    talk = Talk()
    payload = talk.job(await talk.say(pool, INTRODUCTION))
    before = await _everything(admin)
    cuts = 0

    async def cut(self: object, messages: object, new: object, since: object, until: object) -> None:
        nonlocal cuts
        cuts += 1
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'mneme-test' AND state = 'idle in transaction'"
        )

    with monkeypatch.context() as patched:
        patched.setattr("app.store.learning.Effect.count_words", cut)
        with pytest.raises(StoreUnavailable):
            await learn.learn(payload)
    assert cuts == 1
    assert await _everything(admin) == before
    await learn.learn(payload)
    assert len(await texts(admin)) == 3
    assert await _count(admin, "job_effects") == 1


async def test_two_runs_of_one_job_at_once_have_one_effect(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    payload = talk.job(await talk.say(pool, INTRODUCTION))
    await asyncio.gather(learn.learn(payload), learn.learn(payload))
    assert len(await memories(admin, "true")) == 3
    assert {each["reinforcement_count"] for each in await memories(admin)} == {0}
    assert await admin.fetchval("SELECT documents FROM agent_data.lexemes WHERE lexeme = 'pleas'") == 1


async def test_jobs_of_one_user_at_once_make_no_duplicates(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    said = ["I like tea", "I live in Lisbon", "I really like tea", "I have a cat", "I live in Lisbon", "I like tea"]
    payloads = []
    for n, text in enumerate(said):
        talk = Talk(name=f"chat-{n}")
        payloads.append(talk.job(await talk.say(pool, text)))
    await asyncio.gather(*(learn.learn(each) for each in payloads))
    assert sorted(await texts(admin, "true")) == ["Has a cat", "Likes tea", "Lives in Lisbon"]
    counts = {each["content_text"]: each["reinforcement_count"] for each in await memories(admin)}
    assert counts == {"Likes tea": 2, "Lives in Lisbon": 1, "Has a cat": 0}


# --- whose it is -----------------------------------------------------------------------------------------------------


async def test_nothing_crosses_between_tenants(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    ours, theirs = Talk(), Talk(tenant=OTHER_TENANT)
    await taught(learn, pool, ours, INTRODUCTION)
    await taught(learn, pool, theirs, INTRODUCTION)
    found = await memories(admin)
    assert len(found) == 6
    assert {each["reinforcement_count"] for each in found} == {0}
    assert {(each["tenant_id"], each["user_id"]) for each in found} == {
        (TENANT, ours.user), (OTHER_TENANT, theirs.user),
    }  # fmt: skip


async def test_a_job_that_names_another_tenants_user_finds_and_changes_nothing(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    theirs = Talk(tenant=OTHER_TENANT)
    await taught(learn, pool, theirs, INTRODUCTION)
    said = await theirs.say(pool, "I have a cat")
    before = await _everything(admin)
    await learn.learn(theirs.job(said, tenant=TENANT))
    assert await _everything(admin) == before


async def test_users_are_apart(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    await taught(learn, pool, Talk(user_name="ana"), "I like tea")
    await taught(learn, pool, Talk(user_name="bo"), "I like tea")
    assert [each["reinforcement_count"] for each in await memories(admin)] == [0, 0]


async def test_without_a_user_nothing_leaves_the_session(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    first, second = Talk(user_name="", name="a", confined=True), Talk(user_name="", name="b", confined=True)
    await taught(learn, pool, first, INTRODUCTION)
    await taught(learn, pool, second, INTRODUCTION)
    await taught(learn, pool, second, "I live in Lisbon")
    found = await memories(admin)
    assert len(found) == 6
    assert {each["memory_scope"] for each in found} == {0}
    assert {(each["session_id"], each["dedup_scope"]) for each in found} == {
        (first.session, first.session), (second.session, second.session),
    }  # fmt: skip
    assert sum(each["reinforcement_count"] for each in found) == 1


async def test_an_erasure_during_the_job_leaves_nothing_behind(
    pool: Pool, admin: asyncpg.Connection[Any], words: WordLlamaEmbedder, space: int
) -> None:
    talk = Talk()

    async def erased_meanwhile(exchange: Exchange) -> Sequence[Candidate]:
        await admin.execute("UPDATE agent_data.users SET erasure_epoch = erasure_epoch + 1")
        return await by_rules(exchange)

    said = await talk.say(pool, INTRODUCTION)
    before = await _everything(admin)
    await learner(pool, words, space, extract=erased_meanwhile).learn(talk.job(said))
    assert await _everything(admin) == before


async def test_a_user_who_is_gone_gets_nothing_new(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    said = await talk.say(pool, INTRODUCTION)
    await admin.execute("DELETE FROM agent_data.users")
    before = await _everything(admin)
    await learn.learn(talk.job(said))
    assert await _everything(admin) == before


# --- the use of memories ---------------------------------------------------------------------------------------------


async def test_the_memories_of_a_prompt_were_of_use_once(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, INTRODUCTION)
    known = {each["content_text"]: each["memory_id"] for each in await memories(admin)}
    said = await talk.say(pool, "Suggest a restaurant")
    call = UUID("01900000-0000-7000-8000-000000000001")
    items = [
        [str(known["Is vegetarian"]), "memory", "fact", 3, 0.75, [], "chosen", None, 3, ["vector"], []],
        [str(known["Lives in Lisbon"]), "memory", "fact", 3, 0.5, [], "over_budget", None, 3, ["vector"], []],
        [said[0].message_id, "message", "message", None, 0.9, [], "chosen", None, 3, ["text"], []],
    ]
    await admin.execute(
        "INSERT INTO agent_data.compilations (call_id, tenant_id, user_id, inputs, audit) VALUES ($1, $2, $3, '{}', $4)",
        call, TENANT, talk.user, orjson.dumps({"items": items}).decode(),
    )  # fmt: skip
    payload = talk.job(said, call=call)
    await learn.learn(payload)
    await learn.learn(payload)
    found = {each["content_text"]: each for each in await memories(admin)}
    used = found["Is vegetarian"]
    assert (used["access_count"], used["last_accessed_at"]) == (1, NOW)
    assert used["relevance_accumulator"] == pytest.approx(0.75)
    assert {each["access_count"] for text, each in found.items() if text != "Is vegetarian"} == {0}


# --- remote embedders, and batches -----------------------------------------------------------------------------------


class _Remote:
    """An embedder behind a network: known texts have known vectors, others each one of their own."""

    local = False
    dimensions = 2
    space = "scripted"
    duplicate_threshold = 0.5

    def __init__(self, known: dict[str, list[float]] | None = None, *, away: bool = False) -> None:
        self.known = known or {}
        self.away = away

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if self.away:
            raise Unavailable("the embedder does not answer: connection refused")
        return np.array([self.known.get(each) or _of_its_own(each) for each in texts], np.float32)

    async def close(self) -> None:
        return None


def _of_its_own(text: str) -> list[float]:
    if not text.strip():
        return [0.0, 0.0]
    angle = int.from_bytes(content_hash(text)[:4], "big")
    return [float(np.cos(angle)), float(np.sin(angle))]


async def test_a_remote_embedder_embeds_the_messages_in_the_job(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    space = await admin.fetchval("SELECT agent_data.ensure_embedding_space('scripted', 2)")
    remote, talk = _Remote(), Talk()
    said = await talk.say(pool, "You are terse.", role="system")
    said += await talk.say(pool, INTRODUCTION)
    said += await talk.say(pool, "Noted.", "   ", role="assistant")
    await learner(pool, remote, space).learn(talk.job(said))
    vectors = await rows(admin, "SELECT item_id, item_at FROM agent_data.embeddings WHERE item_kind = 0")
    assert {(row["item_id"], row["item_at"]) for row in vectors} == {
        (each.message_id, each.created_at) for each in said[1:3]
    }
    (stats,) = await rows(admin, "SELECT vectors FROM agent_data.user_stats")
    assert stats["vectors"] == 2 + len(await memories(admin))


async def test_a_remote_embedder_that_is_away_leaves_everything_as_it_was(
    pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    space = await admin.fetchval("SELECT agent_data.ensure_embedding_space('scripted', 2)")
    remote, talk = _Remote(away=True), Talk()
    payload = talk.job(await talk.say(pool, INTRODUCTION))
    before = await _everything(admin)
    with pytest.raises(Unavailable):
        await learner(pool, remote, space).learn(payload)
    assert await _everything(admin) == before


async def test_a_large_job_leaves_what_costs_to_smaller_ones(
    pool: Pool, admin: asyncpg.Connection[Any], words: WordLlamaEmbedder, space: int
) -> None:
    do, talk = learner(pool, words, space, exchanges_per_job=2), Talk()
    said = await talk.say(pool, "I like tea", "I have a cat", "I live in Lisbon")
    await do.learn(talk.job(said))
    await do.learn(talk.job(said))
    assert await texts(admin) == []
    assert await admin.fetchval("SELECT documents FROM agent_data.lexemes WHERE lexeme = 'tea'") == 1
    parts = await rows(admin, "SELECT entrypoint, payload FROM agent_data.pgqueuer ORDER BY id")
    assert [len(orjson.loads(each["payload"])["messages"]) for each in parts] == [2, 1]
    for each in parts:
        await do.handlers()[each["entrypoint"]](each["payload"])
    assert set(await texts(admin)) == {"Likes tea", "Has a cat", "Lives in Lisbon"}
    assert await admin.fetchval("SELECT documents FROM agent_data.lexemes WHERE lexeme = 'tea'") == 2


async def test_an_imported_batch_is_learned_from_like_a_turn(
    learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]
) -> None:
    talk = Talk()
    said = await talk.say(pool, *(f"I like tea number {n}" for n in range(50)), INTRODUCTION)
    await learn.handlers()["import_index"](talk.job(said))
    assert "Lives in Lisbon" in await texts(admin)
    (stats,) = await rows(admin, "SELECT documents FROM agent_data.user_stats")
    assert stats["documents"] == 51 + len(await memories(admin, "true"))


async def test_a_payload_that_cannot_be_read(learn: Learner) -> None:
    with pytest.raises(BadBody):
        await learn.learn(b"nonsense")


async def test_reading_opens_one_month_of_one_user(learn: Learner, pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    talk = Talk()
    (said,) = await talk.say(pool, INTRODUCTION)
    await admin.execute("SELECT agent_data.ensure_history_partitions('2026-10-01', '2026-12-01')")
    query = SQL["learning.messages"]
    for place, value in ((4, said.created_at), (3, said.created_at), (2, f"{{{said.message_id}}}"), (1, talk.user)):
        query = query.replace(f"${place}", f"'{value}'")
    async with pool.transaction(TENANT) as connection:
        plan = await connection.fetchval("EXPLAIN (FORMAT JSON) " + query)
    opened = {each["Relation Name"] for each in _nodes(plan[0]["Plan"]) if "Relation Name" in each}
    history = {name for name in opened if name.startswith("conversation_history")}
    assert len(history) == 1
    assert history.pop().endswith("_202611")


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for child in node.get("Plans", ()) for each in _nodes(child))]
