"""What is forgotten, on a real Postgres: no channel of retrieval, no quotation, no table but the conversation's own says it."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import orjson
import pytest

from app.context.compile import Compiler
from app.context.request import SearchRequest
from app.context.retrieve import Retriever, Scope
from app.jobs.learn import Learner
from app.providers.embeddings import WordLlamaEmbedder
from app.providers.models import ModelRegistry
from app.providers.tokens import CountCache, Tokenizers
from app.store.memories import Memories
from app.store.pools import Pool
from app.store.queries import Queries
from app.store.turns import TurnStore
from tests.support.clock import FakeClock
from tests.support.indexes import indexes_of
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk, memories, taught, texts
from tests.support.rows import read_suppressions

Admin = asyncpg.Connection
SAID = "I live in Quixeramobim and I'm allergic to peanuts"
ANSWER = "Noted: quixeramobim, and no peanuts."
WORD = "quixeramobim"


@pytest.fixture
def store(pool: Pool, space: int) -> Memories:
    return Memories(pool, Queries.load(), FakeClock(NOW), space=space)


@pytest.fixture
def compiler(pool: Pool, words: WordLlamaEmbedder, space: int) -> Compiler:
    return Compiler(
        Retriever(
            TurnStore(pool, SQL), words, lambda text: len(text.split()), indexes_of(pool, words.dimensions, space)
        ), ModelRegistry(), Tokenizers(), CountCache(),
        nonce_key=lambda: b"k", memory_cap=1500,
    )  # fmt: skip


async def found(compiler: Compiler, talk: Talk, query: str, *, history: bool = False) -> dict[str, str]:
    """The texts that a search finds, with their status."""
    scope = Scope(TENANT, talk.user, history=history)
    result = await compiler.search(SearchRequest(scope=scope, query=query, now=NOW, k=50))
    return {each.candidate.text: result.statuses.get(each.candidate.id, "active") for each in result.items}


async def told(learn: Learner, pool: Pool, talk: Talk, *exchanges: tuple[str, str]) -> None:
    for question, answer in exchanges:
        said = await talk.say(pool, question)
        said += await talk.say(pool, answer, role="assistant")
        await learn.learn(talk.job(said))


async def holding(admin: Admin, word: str) -> set[str]:
    """The tables whose rows hold a word."""
    tables = await admin.fetch(
        "SELECT c.relname AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'user_id'"
        " WHERE c.relnamespace = 'agent_data'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition"
    )
    return {
        row["name"]
        for row in tables
        if await admin.fetchval(
            f"SELECT EXISTS (SELECT FROM agent_data.{row['name']} t WHERE t::text ILIKE $1)", f"%{word}%"
        )
    }


async def test_a_forgotten_sentence_is_said_by_nothing_but_its_own_conversation(
    learn: Learner, pool: Pool, admin: Admin, store: Memories, compiler: Compiler
) -> None:
    talk = Talk()
    await told(learn, pool, talk, (SAID, ANSWER), ("What is the weather like?", "Sunny."))
    assert await texts(admin) == ["Is allergic to peanuts", "Lives in Quixeramobim"]
    assert WORD in str(await found(compiler, talk, "Where do I live?")).lower()
    await admin.execute(
        "INSERT INTO agent_data.context_blocks (user_id, tenant_id, session_id, epoch, chain_hash, message_hash, message_id,"
        " text, item_ids, token_count, created_at) SELECT user_id, tenant_id, session_id, 0, 'c', 'm', $1, 'in Quixeramobim',"
        " ARRAY[memory_id], 3, now() FROM agent_data.memory_store WHERE content_text LIKE 'Lives%'",
        talk.said[2].message_id,
    )
    assert "context_blocks" in await holding(admin, WORD)
    (home,) = await memories(admin, content_text="Lives in Quixeramobim")
    assert await store.forget(TENANT, talk.user, home["memory_id"])

    for query in ("Where do I live?", SAID, WORD):
        for history in (False, True):
            assert WORD not in str(await found(compiler, talk, query, history=history)).lower(), (query, history)
    # The sibling stays, without the sentence; the conversation keeps what was said in it.
    (other,) = await memories(admin)
    assert other["content_text"] == "Is allergic to peanuts"
    assert [each.get("quote") for each in other["sources"]] == [None]
    assert await holding(admin, WORD) == {"conversation_history"}
    assert await admin.fetchval("SELECT block_epoch FROM agent_data.sessions") == 2
    # Neither the words nor the answer come back by being sent again.
    again = Talk(name="chat-2")
    await told(learn, pool, again, (SAID, ANSWER))
    assert await texts(admin) == ["Is allergic to peanuts"]
    assert WORD not in str(await found(compiler, talk, "Where do I live?")).lower()


async def test_what_was_said_more_often_than_a_memory_has_sources_is_hidden_everywhere(
    learn: Learner, pool: Pool, admin: Admin, store: Memories, compiler: Compiler
) -> None:
    talk = Talk()
    often = "I live in Quixeramobim"
    await taught(learn, pool, talk, *[often] * 40)
    (home,) = await memories(admin)
    assert len(home["source_message_ids"]) < 40
    assert await store.forget(TENANT, talk.user, home["memory_id"])
    assert await found(compiler, talk, often, history=True) == {}


async def test_what_was_true_once_is_not_said_by_its_answer_as_if_it_were_now(
    learn: Learner, pool: Pool, admin: Admin, store: Memories, compiler: Compiler
) -> None:
    talk = Talk()
    await told(learn, pool, talk, ("I live in Lisbon", "Lovely, Lisbon has good light!"), ("I like tea", "So do I."))
    later = Talk(name="chat-2", begun=NOW - timedelta(minutes=5))
    await told(learn, pool, later, ("I moved to Porto", "Porto it is."))
    now = await found(compiler, talk, "Where do I live?")
    assert "Lisbon" not in str(now)
    assert "Lives in Porto" in now
    then = await found(compiler, talk, "Where do I live?", history=True)
    hidden = await read_suppressions(admin, reason="superseded")
    assert {row["item_id"] for row in hidden} == {each.message_id for each in talk.said[:2]}
    assert {status for text, status in then.items() if "Lisbon" in text} == {"superseded"}
    # Restored, all of it comes back.
    (old,) = await memories(admin, status="superseded")
    (new,) = await memories(admin, content_text="Lives in Porto")
    await store.invalidate(TENANT, talk.user, new["memory_id"], reason=None)
    await store.restore(TENANT, talk.user, old["memory_id"])
    assert "Lisbon" in str(await found(compiler, talk, "Where do I live?"))
    hidden = await read_suppressions(admin)
    assert {row["item_id"] for row in hidden} == {each.message_id for each in later.said}
    assert "Porto" not in str(await found(compiler, talk, "Where do I live?"))


async def test_an_answer_that_repeats_nothing_stays(
    learn: Learner, pool: Pool, admin: Admin, store: Memories, compiler: Compiler
) -> None:
    talk = Talk()
    await told(learn, pool, talk, ("I live in Lisbon", "Then let us look at ferries."))
    (home,) = await memories(admin)
    await store.forget(TENANT, talk.user, home["memory_id"])
    assert set(await found(compiler, talk, "ferries")) == {"Then let us look at ferries."}


async def test_events_say_that_it_was_deleted_and_nothing_of_what_it_said(
    learn: Learner, pool: Pool, admin: Admin, store: Memories
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I like hiking in the mountains")
    (kept,) = await memories(admin)
    await store.forget(TENANT, talk.user, kept["memory_id"])
    events = await store.events(TENANT, talk.user, kept["memory_id"], after=0, limit=10)
    assert [each.event for each in events] == ["created", "deleted"]
    assert "hiking" not in str(orjson.dumps([each.after for each in events]))
