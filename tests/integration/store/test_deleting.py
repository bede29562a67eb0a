"""app/store/erasure.py: what goes with a message, what stays, and who must not come in between."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from unittest.mock import ANY
from uuid import UUID

import asyncpg
import pytest

from app.errors import StoreUnavailable
from app.features.paging.store import PagingStore
from app.features.paging.values import ObjectSpan
from app.index import indexes
from app.jobs.learn import Learner
from app.memory.candidate import MemoryCandidate, SourceExchange
from app.memory.text import content_hash
from app.providers.embeddings import WordLlamaEmbedder
from app.store.erasure import ERASER_ROLE, Deleter, Deletion, own_connection
from app.store.ids import mark_of
from app.store.memories import Memories, NewMemory
from app.store.pools import Pool
from app.store.records import MessageRecord
from app.store.sessions import SessionRef
from app.store.tenancy import UserRef
from app.store.turns import TurnStore
from tests.support.clock import FakeClock
from tests.support.indexes import indexes_of
from tests.support.jobs import SQL, until
from tests.support.learning import (
    NOW,
    OTHER_TENANT,
    TENANT,
    Talk,
    by_rules,
    everything,
    learner,
    memories,
    taught,
    texts,
)
from tests.support.paged import made, mark, whole_record
from tests.support.rows import (
    read_embeddings,
    read_index_items,
    read_memory_events,
    read_messages,
    read_sessions,
    read_suppressions,
)

Admin = asyncpg.Connection


@pytest.fixture
def deleter(database: str) -> Deleter:
    return Deleter(own_connection(database, ERASER_ROLE), SQL, FakeClock(NOW))


async def delete(deleter: Deleter, talk: Talk, message: MessageRecord, *, tenant: UUID = TENANT) -> Deletion | None:
    return await deleter.delete(tenant, SessionRef(talk.user, talk.session), message.message_id)


async def stored(admin: Admin, message: MessageRecord) -> dict[str, Any]:
    row = await admin.fetchrow(
        "SELECT * FROM agent_data.conversation_history WHERE message_id = $1", message.message_id
    )
    assert row is not None
    return dict(row)


# --- what goes ------------------------------------------------------------------------------------------------------------


async def test_what_was_learned_from_it_alone_is_forgotten(
    learn: Learner, deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I have a cat", "I live in Lisbon")
    (cat,) = await memories(admin, content_text="Has a cat")
    gone = await delete(deleter, talk, talk.said[0])
    assert gone == Deletion((cat["memory_id"],), ())
    assert await texts(admin) == ["Lives in Lisbon"]
    (forgotten,) = await memories(admin, status="forgotten")
    assert (forgotten["content_text"], forgotten["sources"], forgotten["content_hash"]) == ("", [], b"")
    row = await stored(admin, talk.said[0])
    assert [row[name] for name in ("content", "content_parts", "content_hash")] == [None] * 3
    assert row["is_pruned"]
    assert row["hidden"]
    assert len(await read_index_items(admin)) == 2, "a message and a memory are left"
    vectors = await read_embeddings(admin)
    assert {row["item_id"] for row in vectors}.isdisjoint({talk.said[0].message_id, cat["memory_id"]})


async def test_the_thoughts_of_an_answer_go_with_it(deleter: Deleter, pool: Pool, admin: Admin) -> None:
    talk = Talk()
    (answer,) = await talk.say(pool, "Hello!", role="assistant", reasoning='{"text": "They greet me."}')
    assert (await stored(admin, answer))["reasoning"] == '{"text": "They greet me."}'
    assert await delete(deleter, talk, answer) is not None
    assert (await stored(admin, answer))["reasoning"] is None


async def test_a_session_goes_with_what_it_alone_said(
    learn: Learner, deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    talk, other = Talk(name="gone"), Talk(name="stays")
    await taught(learn, pool, talk, "I have a cat", "I live in Lisbon")
    await taught(learn, pool, other, "I live in Lisbon", "I play the cello")
    gone = await deleter.delete_session(TENANT, SessionRef(talk.user, talk.session))
    assert (gone.messages, len(gone.forgotten), len(gone.kept)) == (len(talk.said), 1, 1)
    assert sorted(await texts(admin)) == ["Lives in Lisbon", "Plays the cello"]
    held = [str(dict(each)) for each in await read_messages(admin)]
    assert sum("cat" in each for each in held) == 0
    assert sum("cello" in each for each in held) == 1
    row = await admin.fetchrow("SELECT * FROM agent_data.sessions WHERE session_id = $1", talk.session)
    assert row is not None
    assert (row["status"], row["metadata"], row["summary_text"]) == (3, "{}", None)
    assert (await deleter.delete_session(TENANT, SessionRef(talk.user, talk.session))).messages == 0
    assert (await deleter.delete_session(OTHER_TENANT, SessionRef(other.user, other.session))).messages == 0, "no one's"


async def test_what_is_recorded_behind_its_last_look_goes_too(
    deleter: Deleter, pool: Pool, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that began before the deletion may be recorded at any moment of it."""
    talk, rest = Talk(), Deleter._rest
    await talk.say(pool, "I have a cat")
    looks = 0

    async def late(self: Deleter, *given: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks == 2:
            await talk.say(pool, "I have a dog")
        return await rest(self, *given)

    monkeypatch.setattr(Deleter, "_rest", late)
    gone = await deleter.delete_session(TENANT, SessionRef(talk.user, talk.session))
    assert gone.messages == len(talk.said)
    held = [str(dict(each)) for each in await read_messages(admin)]
    assert not any(word in each for each in held for word in ("cat", "dog"))
    assert await admin.fetchval("SELECT status FROM agent_data.sessions WHERE session_id = $1", talk.session) == 3


async def test_it_keeps_its_place(learn: Learner, deleter: Deleter, pool: Pool, admin: Admin) -> None:
    talk = Talk()
    said = await talk.say(pool, "a question", "another one")
    before = await stored(admin, said[0])
    await delete(deleter, talk, said[0])
    after = await stored(admin, said[0])
    for name in ("turn_index", "sibling", "parent_message_id", "role", "message_hash", "session_id", "created_at"):
        assert after[name] == before[name], name
    shown = await TurnStore(pool, SQL).session_messages(TENANT, talk.user, [(talk.session, 99)], limit=10)
    assert [(each.content, each.hidden) for each in shown] == [("another one", False), (None, True)]


async def test_a_second_time_there_is_none(learn: Learner, deleter: Deleter, pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I have a cat")
    results = await asyncio.gather(*(delete(deleter, talk, talk.said[0]) for _ in range(4)))
    assert sum(each is not None for each in results) == 1
    before = await everything(admin)
    assert await delete(deleter, talk, talk.said[0]) is None
    assert await everything(admin) == before


async def test_of_others_it_is_not_there(deleter: Deleter, pool: Pool, admin: Admin) -> None:
    talk, other = Talk(), Talk(name="chat-2")
    await talk.say(pool, "a secret")
    await other.say(pool, "something else")
    assert await delete(deleter, talk, talk.said[0], tenant=OTHER_TENANT) is None
    assert await delete(deleter, other, talk.said[0]) is None
    assert await delete(deleter, Talk(user_name="ben"), talk.said[0]) is None
    assert (await stored(admin, talk.said[0]))["content"] == "a secret"


# --- what has other sources -----------------------------------------------------------------------------------------------


async def test_what_others_say_too_stays_and_is_theirs(
    learn: Learner, deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    talk, other = Talk(), Talk(name="chat-2")
    await taught(learn, pool, talk, "I like tea")
    await taught(learn, pool, other, "I really like tea!")
    gone = await delete(deleter, talk, talk.said[0])
    (kept,) = await memories(admin)
    assert gone == Deletion((), (kept["memory_id"],))
    assert kept["content_text"] == "Likes tea"
    assert [each["message_id"] for each in kept["sources"]] == [str(other.said[0].message_id)]
    assert kept["source_message_ids"] == [other.said[0].message_id]
    assert (kept["provenance_turn_id"], kept["session_id"]) == (other.said[0].message_id, other.session)
    assert kept["reinforcement_count"] == 0
    again = await delete(deleter, other, other.said[0])
    assert again == Deletion((kept["memory_id"],), ())
    assert await texts(admin) == []


async def test_what_said_more_goes_and_what_it_replaced_comes_back(
    learn: Learner, deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    talk, other = Talk(), Talk(name="chat-2")
    await taught(learn, pool, talk, "I like hiking in the mountains")
    await taught(learn, pool, other, "I like hiking in the high mountains")
    await delete(deleter, other, other.said[0])
    (back,) = await memories(admin)
    assert (back["content_text"], back["superseded_by"]) == ("Likes hiking in the mountains", None)
    assert not await admin.fetchval(
        "SELECT count(*) FROM agent_data.memory_events WHERE before::text LIKE '%high%' OR after::text LIKE '%high%'"
    )


async def test_of_several_wordings_the_one_that_says_most_comes_back_whole(
    learn: Learner, deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    one, two = Talk(), Talk(name="chat-2")
    await taught(learn, pool, one, "I like hiking in the mountains", "I like hiking up in the mountains")
    await taught(learn, pool, two, "I like hiking in the high mountains")
    wordings = await memories(admin, superseded_how="merged")
    assert len(wordings) == 2
    await delete(deleter, two, two.said[0])
    (back,) = await memories(admin)
    assert back["content_text"].startswith("Likes hiking")
    assert back["memory_id"] in {each["memory_id"] for each in wordings}
    (other,) = await memories(admin, superseded_how="merged")
    assert other["superseded_by"] == back["memory_id"]
    assert other["content_text"].startswith("Likes hiking")
    held = await admin.fetch("SELECT item_id FROM agent_data.embeddings WHERE item_kind = 1")
    assert {row["item_id"] for row in held} == {back["memory_id"], other["memory_id"]}
    # Neither is forgotten, nor what said so.
    hidden = await read_suppressions(admin)
    assert {row["item_id"] for row in hidden}.isdisjoint(
        {each.message_id for each in one.said} | {each["memory_id"] for each in wordings}
    )


async def test_the_older_wording_leaves_the_history_of_what_replaced_it(
    learn: Learner, deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    talk, other = Talk(), Talk(name="chat-2")
    await taught(learn, pool, talk, "I like hiking in the mountains")
    await taught(learn, pool, other, "I like hiking in the high mountains")
    await delete(deleter, talk, talk.said[0])
    assert await texts(admin) == ["Likes hiking in the high mountains"]
    told = [str(dict(row)) for row in await read_memory_events(admin)]
    assert not [each for each in told if "in the mountains" in each]


async def test_what_a_correction_ended_stays_ended(learn: Learner, deleter: Deleter, pool: Pool, admin: Admin) -> None:
    talk, other = Talk(), Talk(name="chat-2")
    await taught(learn, pool, talk, "I live in Lisbon")
    await taught(learn, pool, other, "No, I live in Porto now")
    await delete(deleter, other, other.said[0])
    assert await texts(admin) == []
    assert await texts(admin, status="superseded") == ["Lives in Lisbon"]


async def test_what_a_client_had_said_outright_stays(
    learn: Learner, deleter: Deleter, pool: Pool, admin: Admin, space: int
) -> None:
    talk = Talk()
    store = Memories(pool, SQL, FakeClock(NOW), space=space)
    await store.add(
        TENANT, UserRef(talk.user, talk.user_name), [NewMemory("Likes tea", content_hash("Likes tea"), 2, tier=3)]
    )
    await taught(learn, pool, talk, "I like tea")
    (before,) = await memories(admin)
    assert before["source_message_ids"] == [talk.said[0].message_id], "it was reinforced"
    await delete(deleter, talk, talk.said[0])
    (kept,) = await memories(admin)
    assert (kept["content_text"], kept["sources"], kept["source_message_ids"]) == ("Likes tea", [], [])


# --- what does not come back ------------------------------------------------------------------------------------------------


async def test_the_same_words_are_neither_found_nor_learned_again(
    learn: Learner, deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    talk, again = Talk(), Talk(name="chat-2")
    await taught(learn, pool, talk, "I have a cat")
    await delete(deleter, talk, talk.said[0])
    await taught(learn, pool, again, "I have a cat", "I live in Lisbon")
    assert await texts(admin) == ["Lives in Lisbon"]
    scope: dict[str, Any] = {"confine": None, "session": None, "visible": 1, "ancestors": [], "history": True}
    scan = await indexes_of(pool, 0).scan(
        TENANT, talk.user, "cat Lisbon", None, indexes.IndexScope(history=True), vectors=0, texts=10
    )
    rows = await TurnStore(pool, SQL).fetch_items(TENANT, talk.user, scan.places, **scope)
    assert {row.content for row in rows} == {"I live in Lisbon", "Lives in Lisbon"}
    shown = await TurnStore(pool, SQL).session_messages(TENANT, talk.user, [(again.session, 99)], limit=10)
    assert not any(each.hidden for each in shown), "it was sent again, and stands where it was sent"


async def test_a_job_that_waits_learns_nothing_from_it(
    learn: Learner, deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    talk = Talk()
    said = await talk.say(pool, "I have a cat", "I live in Lisbon")
    await delete(deleter, talk, said[0])
    await learn.learn(talk.job(said))
    assert await texts(admin) == ["Lives in Lisbon"]


async def test_a_job_that_has_read_it_writes_nothing_of_it(
    deleter: Deleter, pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    """It reads again what is left, and learns from that."""
    talk = Talk()
    said = await talk.say(pool, "I have a cat", "I live in Lisbon")
    read: list[str] = []

    async def extract(exchange: SourceExchange) -> Sequence[MemoryCandidate]:
        read.append(exchange.user_text)
        if len(read) == 2:
            await delete(deleter, talk, said[0])
        return await by_rules(exchange)

    await learner(pool, words, space, extract=extract).learn(talk.job(said))
    assert read == ["I have a cat", "I live in Lisbon", "I live in Lisbon"]
    assert await texts(admin) == ["Lives in Lisbon"]
    assert len(await memories(admin, is_active=ANY)) == 1


async def test_a_deletion_waits_for_the_job_that_writes(
    deleter: Deleter, pool: Pool, admin: Admin, learn: Learner
) -> None:
    talk = Talk()
    said = await talk.say(pool, "I have a cat")

    async def waiting(wanted: int) -> bool:
        found: int = await admin.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        return found == wanted

    async with asyncio.TaskGroup() as group, admin.transaction():
        await admin.execute(SQL["learning.lock"], talk.user)
        group.create_task(learn.learn(talk.job(said)))
        await until(lambda: waiting(1))
        deleting = group.create_task(delete(deleter, talk, said[0]))
        await until(lambda: waiting(2))
    gone = deleting.result()
    assert gone is not None
    assert len(gone.forgotten) == 1
    assert await texts(admin) == []


async def test_a_block_that_quotes_it_goes_and_is_not_written_down_again(
    deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    talk, other, third = Talk(), Talk(name="chat-2"), Talk(name="chat-3")
    (said,) = await talk.say(pool, "a canary")
    for each, items in ((other, [said.message_id]), (third, [])):
        (asked,) = await each.say(pool, "a question")
        await admin.execute(
            "INSERT INTO agent_data.context_blocks (user_id, tenant_id, session_id, epoch, message_id, chain_hash,"
            " message_hash, text, item_ids, token_count) VALUES ($1, $2, $3, 0, $4, '', '', 'of a canary', $5, 3)",
            talk.user, TENANT, each.session, asked.message_id, items,
        )  # fmt: skip
    await delete(deleter, talk, said)
    left = await admin.fetch("SELECT session_id FROM agent_data.context_blocks")
    assert [row["session_id"] for row in left] == [third.session]
    epochs = await read_sessions(admin)
    assert {row["session_id"]: row["block_epoch"] for row in epochs} == {
        talk.session: 0, other.session: 1, third.session: 0,
    }  # fmt: skip


async def test_summaries_go_and_what_they_stood_for_is_shown_again(deleter: Deleter, pool: Pool, admin: Admin) -> None:
    talk = Talk()
    said = await talk.say(pool, "a canary", "a heron")
    summary = UUID(int=0x5E)
    await admin.execute(
        "INSERT INTO agent_data.memory_store (memory_id, user_id, tenant_id, session_id, memory_tier, memory_scope, kind,"
        " content_text, content_hash, provenance_type, token_count, source_message_ids)"
        " VALUES ($1, $2, $3, $4, 2, 1, 'summary', 'birds', 'h', 1, 1, $5)",
        summary, talk.user, TENANT, talk.session, [each.message_id for each in said],
    )  # fmt: skip
    await admin.execute("UPDATE agent_data.sessions SET summary_text = 'birds', summary_token_count = 1")
    async with admin.transaction():
        await admin.execute("SET LOCAL ROLE mneme_owner")
        await admin.execute(
            "UPDATE agent_data.conversation_history SET is_compressed = true, compressed_summary_id = $1", summary
        )
    gone = await delete(deleter, talk, said[0])
    assert gone == Deletion((summary,), ())
    assert await admin.fetchval("SELECT summary_text FROM agent_data.sessions") is None
    shown = await TurnStore(pool, SQL).session_messages(TENANT, talk.user, [(talk.session, 99)], limit=10)
    assert [(each.content, each.hidden) for each in shown] == [("a heron", False), (None, True)]


async def test_sessions_of_nobody_have_messages_to_delete_too(
    learn: Learner, deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    talk = Talk(confined=True)
    await taught(learn, pool, talk, "I have a cat")
    assert await texts(admin)
    assert await delete(deleter, talk, talk.said[0])
    assert await texts(admin) == []


async def test_without_a_database_nothing_is_deleted() -> None:
    deleter = Deleter(own_connection("postgresql://127.0.0.1:1/none", ERASER_ROLE), SQL, FakeClock(NOW))
    with pytest.raises(StoreUnavailable):
        await deleter.delete(TENANT, SessionRef(UUID(int=1), UUID(int=2)), UUID(int=3))


# --- what paging made of it -------------------------------------------------------------------------------------------------


async def test_objects_that_stand_in_it_go_with_what_was_asked_of_them(
    deleter: Deleter, pool: Pool, admin: Admin
) -> None:
    """In its session and the branches of that; the same words in another session are another message."""
    store = PagingStore(pool, SQL, FakeClock(NOW))
    talk, other = Talk(), Talk(name="chat-2")
    hashes = [mark("canary"), mark("heron")]
    said = [(await talk.say(pool, text, message_hash=hashed))[0] for text, hashed in zip("ch", hashes, strict=True)]
    again = (await talk.say(pool, "c", message_hash=hashes[0]))[0]
    await other.say(pool, "c", message_hash=hashes[0])
    branch = UUID(int=0xB0)
    await admin.execute(
        "INSERT INTO agent_data.sessions (session_id, user_id, tenant_id, expires_at, parent_session_id)"
        " VALUES ($1, $2, $3, now(), $4)",
        branch, talk.user, TENANT, talk.session,
    )  # fmt: skip
    for session in (talk.session, branch, other.session):
        canary, heron, repeated = (
            made(session, name, f"words of {name}", parts=(ObjectSpan(where, 0, 5), ObjectSpan(mark("beside"), 0, 5)))
            for name, where in (("canary", hashes[0]), ("heron", hashes[1]), ("repeated", mark_of(hashes[0], 1)))
        )
        kept = whole_record(session, (canary, heron), objects=(canary, heron, repeated))
        await store.keep(TENANT, talk.user, UUID(int=5), kept)
    assert await delete(deleter, talk, said[0]) is not None
    for session in (talk.session, branch):
        found = await store.read(TENANT, talk.user, session, chains=[mark(f"{session}answer")])
        assert [each.source_key for each in found.objects] == ["src/heron.py"]
        assert (found.relationships, found.asked, found.hidden) == ((), {}, {})
        assert len(found.marks) == 3, "the client's message is not taken apart again"
        rows = await admin.fetch(
            "SELECT t::text AS row FROM agent_data.fault_history t WHERE session_id = $1"
            " UNION ALL SELECT t::text FROM agent_data.admission_scores t WHERE session_id = $1"
            " UNION ALL SELECT t::text FROM agent_data.fidelity_transitions t WHERE session_id = $1",
            session,
        )
        assert rows, "that something was asked stays"
        assert not any("where?" in row["row"] or str(made(session, "canary").id) in row["row"] for row in rows)
    untouched = await store.read(TENANT, talk.user, other.session, chains=[mark(f"{other.session}answer")])
    assert (len(untouched.objects), len(untouched.hidden)) == (3, 1)
    assert await delete(deleter, talk, again) is not None, "where nothing of it is left"
