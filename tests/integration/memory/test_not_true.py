"""Denied and forgotten memories do not come back from what was said before; said again, it is learned again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
import respx

from app.errors import Conflict
from app.jobs.learn import Learner, LearnJob, split_exchanges
from app.jobs.learn_llm import plan_reading
from app.providers.embeddings import WordLlamaEmbedder
from app.store.memories import Memories
from app.store.pools import Pool
from app.store.records import MessageRecord
from app.store.validation import Validation
from tests.integration.memory.test_commands import Teller
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk, memories, taught, texts
from tests.support.llm import URL, ScriptedLlm, llm_learner, stated
from tests.support.rows import delete_rows, read_suppressions

Admin = asyncpg.Connection

FILLER = " Please help me plan the week of the whole team, which is a long story with many parts. " * 4
"""Makes a message so long that it is not hidden for one memory that ended (`memory_ended`)."""
LATER = NOW + timedelta(hours=2)

SAID = ["I live in Lisbon.", "My wife's name is Ana.", "I'm allergic to peanuts."]
OTHERS = [
    ("Ich wohne in Bremen.", " Bitte hilf mir bei der Planung der Woche." * 6),
    ("Vivo en Bilbao.", " Ayúdame a planear la semana del equipo, por favor." * 6),
    ("J'habite à Lyon.", " Aide-moi à planifier la semaine de l'équipe." * 6),
    ("Moro em Braga.", " Ajuda-me a planear a semana da equipa, por favor." * 6),
    ("我住在成都。", "请帮我安排团队这一周的工作计划。" * 16),
    ("I work in the affiliate team at a company called Foo.", FILLER),
]


@pytest.fixture
def store(pool: Pool, space: int) -> Memories:
    return Memories(pool, SQL, FakeClock(NOW), space=space)


@pytest.fixture
def validation(pool: Pool, space: int) -> Validation:
    return Validation(pool, SQL, FakeClock(NOW), space=space)


@pytest.fixture
def teller(pool: Pool, words: WordLlamaEmbedder, space: int) -> Teller:
    return Teller(pool, words, space)


async def read_again(learn: Learner, admin: Admin, talk: Talk, messages: Sequence[MessageRecord]) -> None:
    """Learn from messages once more, as a run over old messages does."""
    await delete_rows(admin, "job_effects")
    await learn.learn(talk.job(messages))


async def deny_all(store: Memories, admin: Admin, talk: Talk) -> None:
    for row in await memories(admin):
        await store.invalidate(TENANT, talk.user, row["memory_id"], reason=None)


async def say_later(pool: Pool, talk: Talk, text: str, **columns: Any) -> list[MessageRecord]:
    return await talk.say(pool, text, created_at=LATER, **columns)


# --- not true ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("statement", "more"), [*((statement, FILLER) for statement in SAID), *OTHERS])
async def test_the_same_words_do_not_bring_back_what_was_denied(
    learn: Learner, pool: Pool, admin: Admin, store: Memories, statement: str, more: str
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, statement + more)
    assert await texts(admin) != []
    await deny_all(store, admin, talk)
    await read_again(learn, admin, talk, talk.said)
    assert await texts(admin) == [], "the same message, read again"
    copy = Talk(name="imported")
    await taught(learn, pool, copy, "Hello!", statement, statement + more)
    assert await texts(admin) == [], "a copy with the old dates"
    again = Talk(name="later")
    await learn.learn(again.job(await say_later(pool, again, statement)))
    assert len(await texts(admin)) == 1, "the user says so again"
    await read_again(learn, admin, talk, talk.said)
    (memory,) = await memories(admin)
    assert [source["message_id"] for source in memory["sources"]] == [str(again.said[0].message_id)]


async def test_other_wordings_of_it_are_denied_too(learn: Learner, pool: Pool, admin: Admin, store: Memories) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I like hiking in the mountains." + FILLER)
    await taught(learn, pool, talk, "I like hiking in the high mountains." + FILLER)
    (memory,) = await memories(admin)
    await store.invalidate(TENANT, talk.user, memory["memory_id"], reason=None)
    for message in talk.said:
        await read_again(learn, admin, talk, [message])
    assert await texts(admin) == []


async def test_what_the_same_clause_says_besides_stays_and_comes_back(
    learn: Learner, pool: Pool, admin: Admin, store: Memories
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "My wife Ana and I live in Porto." + FILLER)
    before = set(await texts(admin))
    assert len(before) > 1, "the clause says two things"
    (home,) = await memories(admin, predicate="lives_in")
    await store.invalidate(TENANT, talk.user, home["memory_id"], reason=None)
    await read_again(learn, admin, talk, talk.said)
    assert set(await texts(admin)) == before - {home["content_text"]}
    for memory in await memories(admin):
        if memory["memory_id"] != home["memory_id"]:
            await delete_rows(admin, "memory_store", memory_id=memory["memory_id"])
    await read_again(learn, admin, talk, talk.said)
    assert set(await texts(admin)) == before - {home["content_text"]}


async def test_restored_it_is_learned_from_old_words_again(
    learn: Learner, pool: Pool, admin: Admin, store: Memories
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon." + FILLER)
    (home,) = await memories(admin)
    await store.invalidate(TENANT, talk.user, home["memory_id"], reason=None)
    await store.restore(TENANT, talk.user, home["memory_id"])
    await taught(learn, pool, Talk(name="chat-2"), "Good morning. I live in Lisbon." + FILLER)
    (home,) = await memories(admin)
    assert home["reinforcement_count"] == 1


async def test_nobody_denies_for_others(learn: Learner, pool: Pool, admin: Admin, store: Memories) -> None:
    mine, theirs = Talk(confined=True), Talk(confined=True, name="chat-2")
    await taught(learn, pool, mine, "I live in Lisbon." + FILLER)
    (home,) = await memories(admin)
    await store.invalidate(TENANT, mine.user, home["memory_id"], reason=None)
    await taught(learn, pool, theirs, "I live in Lisbon." + FILLER)
    (their_memory,) = await memories(admin)
    assert their_memory["dedup_scope"] == theirs.session
    await store.forget(TENANT, mine.user, their_memory["memory_id"])
    third = Talk(confined=True, name="chat-3")
    await taught(learn, pool, third, "I live in Lisbon, near the river." + FILLER)
    assert len(await texts(admin)) == 1


async def test_two_denials_at_once_are_one(
    learn: Learner, pool: Pool, admin: Admin, store: Memories, validation: Validation
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon." + FILLER)
    (home,) = await memories(admin)
    results = await asyncio.gather(
        store.invalidate(TENANT, talk.user, home["memory_id"], reason=None),
        store.invalidate(TENANT, talk.user, home["memory_id"], reason=None),
        validation.deny(TENANT, talk.user, home["memory_id"]),
        return_exceptions=True,
    )
    assert sum(isinstance(result, Conflict) for result in results) == 2
    assert [row["status"] for row in await memories(admin, is_active=False)] == ["invalidated"]


async def test_what_later_words_ended_does_not_come_back_from_earlier_ones(
    learn: Learner, pool: Pool, admin: Admin
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I drive a blue VW Golf." + FILLER)
    await taught(learn, pool, talk, "Gave the Golf to my brother.")
    assert "Golf" not in str(await texts(admin))
    await read_again(learn, admin, talk, talk.said[:1])
    assert "Golf" not in str(await texts(admin))


# --- an LLM's reading --------------------------------------------------------------------------------------------------


async def read_by_llm(pool: Pool, learn: Learner, talk: Talk, llm: ScriptedLlm) -> None:
    """Have an LLM read the talk's messages."""
    job = LearnJob.parse(talk.job(talk.said))
    _, messages = await learn.store.read(job.tenant, job.user, job.messages, job.since, job.until)
    with respx.mock:
        respx.post(f"{URL}/chat/completions").mock(side_effect=llm)
        for record in plan_reading(job, split_exchanges(messages)):
            await llm_learner(pool, learn).learn(record.payload)


@pytest.mark.parametrize(
    ("statement", "item"),
    [
        ("I'm allergic to peanuts.", stated("Cannot eat peanuts", "allergic to peanuts")),
        ("I'm allergic to peanuts.", stated("Gets hives from nuts", "I'm allergic to peanuts")),
        (
            "I'm allergic to peanuts.",
            stated(
                "Has a peanut allergy",
                "I'm allergic to peanuts",
                subject="user",
                predicate="has_allergy",
                object="peanuts",
            ),
        ),
        ("I live in Lisbon.", stated("Has a home in Lisbon", "I live in Lisbon. Please help me plan the week")),
        ("My wife's name is Ana.", stated("Is married to Ana", "wife's name is Ana")),
    ],
)
async def test_an_llm_that_words_it_otherwise_does_not_bring_it_back(
    learn: Learner, pool: Pool, admin: Admin, store: Memories, statement: str, item: dict[str, Any]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, statement + FILLER)
    await deny_all(store, admin, talk)
    addition = stated("Plans the week of a team", "plan the week of the whole team")
    llm = ScriptedLlm(lambda _: {"additions": [item, addition]})
    await read_by_llm(pool, learn, talk, llm)
    assert len(llm.asked) == 1
    assert await texts(admin) == ["Plans the week of a team"]


async def test_a_denial_while_the_llm_reads_counts(learn: Learner, pool: Pool, admin: Admin, store: Memories) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I'm allergic to peanuts." + FILLER)
    llm = ScriptedLlm(lambda _: {"additions": [stated("Cannot eat peanuts", "allergic to peanuts")]})

    async def deny() -> None:
        await deny_all(store, admin, talk)

    llm.meanwhile = deny
    await read_by_llm(pool, learn, talk, llm)
    assert await texts(admin) == []


# --- forgotten ---------------------------------------------------------------------------------------------------------

Forget = Callable[[Talk], Awaitable[None]]


@pytest.fixture(params=["page", "chat"])
def forget(request: pytest.FixtureRequest, admin: Admin, store: Memories, teller: Teller) -> Forget:
    """Forget all memories, on the page or in a chat."""

    async def forget_on_page(talk: Talk) -> None:
        for row in await memories(admin):
            await store.forget(TENANT, talk.user, row["memory_id"])

    async def forget_in_chat(talk: Talk) -> None:
        for row in await memories(admin):
            name = {"Lisbon": "I live in Lisbon", "peanuts": "I'm allergic to peanuts", "Ana": "my wife's name is Ana"}
            (phrase,) = [phrase for word, phrase in name.items() if word in row["content_text"]]
            await teller.tell(talk, "Hi", "Hello", f"Forget that {phrase}.")

    return forget_on_page if request.param == "page" else forget_in_chat


@pytest.mark.parametrize("statement", SAID[:3])
async def test_what_was_forgotten_and_is_said_again_is_learned_again(
    learn: Learner, pool: Pool, admin: Admin, forget: Forget, statement: str
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, statement)
    (memory,) = await texts(admin)
    await forget(talk)
    assert await texts(admin) == []
    await read_again(learn, admin, talk, talk.said)
    copy = Talk(name="imported")
    await taught(learn, pool, copy, statement, statement + " ")
    assert await texts(admin) == [], "from old messages and dated copies it does not come back"
    history = Talk(name="resent")
    await learn.learn(history.job(await send_history(pool, history, statement)))
    assert await texts(admin) == [], "nor from a transcript that is sent again"
    again = Talk(name="later")
    await learn.learn(again.job(await say_later(pool, again, statement)))
    assert await texts(admin) == [memory], "the very same words in a new message"
    suppressed = {row["item_id"] for row in await read_suppressions(admin)}
    assert again.said[0].message_id not in suppressed, "and the message is found"


async def send_history(pool: Pool, talk: Talk, statement: str) -> list[MessageRecord]:
    """Record the first request of a session that brings an older exchange along."""
    step = timedelta(microseconds=1)
    asked = await talk.say(pool, statement, created_at=LATER)
    answered = await talk.say(pool, "Noted.", role="assistant", created_at=LATER + step)
    return asked + answered + await talk.say(pool, "What is new?", created_at=LATER + 2 * step)


async def test_the_order_to_forget_itself_teaches_nothing(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I'm allergic to peanuts")
    order = "Forget that I'm allergic to peanuts."
    await teller.tell(talk, "Hi", "Hello", order)
    await learn.learn(talk.job(await say_later(pool, talk, order)))
    assert await texts(admin) == []
    order_id = talk.said[-1].message_id
    assert order_id in {row["item_id"] for row in await read_suppressions(admin, reason="resent")}


# --- words and ways ----------------------------------------------------------------------------------------------------


async def test_a_memory_keeps_who_learned_it_and_from_which_words(learn: Learner, pool: Pool, admin: Admin) -> None:
    talk = Talk()
    message = "I live in Lisbon. I work in the affiliate team at a company called Foo."
    await taught(learn, pool, talk, message)
    found = {row["content_text"]: row["sources"][0] for row in await memories(admin)}
    for source in found.values():
        start, end = source["span"]
        assert " ".join(message[start:end].split()) == source["quote"]
    assert found["Lives in Lisbon"]["way"] == "rule"
    assert {source["way"] for source in found.values()} == {"rule", "judge"}


async def test_a_wording_of_the_llm_has_its_words_and_way(learn: Learner, pool: Pool, admin: Admin) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I like hiking in the mountains")
    llm = ScriptedLlm(
        lambda _: {
            "additions": [stated("Likes hiking up in the high mountains", "hiking in the mountains", kind="preference")]
        }
    )
    await read_by_llm(pool, learn, talk, llm)
    (memory,) = await memories(admin)
    assert memory["content_text"] == "Likes hiking up in the high mountains"
    (source,) = memory["sources"]
    assert (source["way"], source["quote"], source["span"]) == ("llm", "hiking in the mountains", [7, 30])
