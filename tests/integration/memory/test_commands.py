"""What users tell memory to do, on the real database: how much of it at once, for whom, and back again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from app.errors import StoreUnavailable
from app.features.commands.commander import Commander
from app.features.commands.store import CommandStore, Doing
from app.gateway.dialects import dialect_of
from app.gateway.dialects.base import ChatRequest
from app.gateway.identify import Identity
from app.gateway.prepare import Obeyed
from app.gateway.reconcile import Place
from app.jobs.learn import Learner
from app.metrics import Metrics
from app.providers.embeddings import WordLlamaEmbedder
from app.store.pools import Pool
from app.store.validation import Validation
from tests.support.cases import cases
from tests.support.clock import FakeClock
from tests.support.jobs import SQL
from tests.support.learning import NOW, TENANT, Talk, memories, taught, texts
from tests.support.rows import read_commands, read_facts, read_messages, read_suppressions

Admin = asyncpg.Connection


def request(*said: str) -> ChatRequest:
    """A transcript, the user's first."""
    messages = [{"role": ("user", "assistant")[n % 2], "content": each} for n, each in enumerate(said)]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    dialect = dialect_of("POST", "/v1/chat/completions")
    assert dialect is not None
    chat = dialect.read(body, json.loads(body))
    assert chat is not None
    return chat


def who(talk: Talk) -> Identity:
    return Identity(TENANT, talk.user_name or "", talk.user, talk.confined, None, None, None, 0, None)


def at(talk: Talk) -> Place:
    return Place(talk.session, False, "continue", False, 0, talk.user, retrieval_session=talk.session)


class Teller:
    """Tells memory to do things."""

    def __init__(self, pool: Pool, words: WordLlamaEmbedder, space: int, *, most: int = 20) -> None:
        self.store = CommandStore(pool, SQL, FakeClock(NOW), space=space)
        self._commander = Commander(
            self.store,
            Validation(pool, SQL, FakeClock(NOW), space=space),
            embedder=words,
            count=lambda text: len(text.split()),
            most=most,
            metrics=Metrics(CollectorRegistry()),
        )

    async def tell(self, talk: Talk, *said: str) -> Obeyed:
        return await self._commander.obey(who(talk), request(*said), at(talk), NOW, writes=True)


@pytest.fixture
def teller(pool: Pool, words: WordLlamaEmbedder, space: int) -> Teller:
    return Teller(pool, words, space)


async def hidden(admin: Admin) -> Sequence[str]:
    found = await read_suppressions(admin)
    return [each["reason"] for each in found]


async def test_too_much_at_once_is_asked_about_first(
    learn: Learner, pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    talk, teller = Talk(), Teller(pool, words, space, most=2)
    await taught(learn, pool, talk, "I work at Acme", "My favourite company is Acme")
    order = "Please forget that I worked at Acme."
    asked = await teller.tell(talk, order)
    assert "Ask for confirmation" in asked.told[0].sentence
    assert await hidden(admin) == ["forgotten_by_chat"], "the order itself, when it is sent again"
    assert (await teller.tell(talk, order)).told != (), "a retry is told the same"
    assert len(await read_commands(admin)) == 1
    leave = "Shall I forget it?"
    assert (await teller.tell(talk, order, leave, "No, wait.")).told == ()
    assert (await teller.tell(talk, order, "Would you like a recipe?", "Yes")).told == (), "to another question"
    assert (await teller.tell(talk, order, leave, "A recipe!", leave, "Yes")).told == (), "not the next message"
    done = await teller.tell(talk, order, leave, "Yes, please.")
    assert "has just forgotten" in done.told[0].sentence
    assert done.changed
    assert await texts(admin) == []
    again = await teller.tell(talk, order, leave, "Yes, please.")
    assert (again.told[0].sentence.partition(";")[0], again.changed) == (
        done.told[0].sentence.partition(";")[0],
        False,
    ), "done once, told again"


async def test_undone_it_is_as_it_was_before(learn: Learner, pool: Pool, admin: Admin, teller: Teller) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon")
    await taught(learn, pool, talk, "No, I live in Porto")
    before = {each["memory_id"]: each["status"] for each in await memories(admin, is_active=ANY)}
    assert set(before.values()) == {"active", "superseded"}
    assert await hidden(admin) == ["superseded"]
    await teller.tell(talk, "Forget that I lived in Lisbon.")
    await teller.tell(talk, "Forget that I live in Porto.")
    assert await texts(admin) == []
    assert "superseded" not in await hidden(admin)
    for each in await teller.store.page(TENANT, talk.user, after=None, limit=10):
        await teller.store.undo(TENANT, each.command_id, talk.user)
    assert {each["memory_id"]: each["status"] for each in await memories(admin, is_active=ANY)} == before
    assert await hidden(admin) == ["superseded"]


@pytest.mark.parametrize(
    ("known", "order", "since", "facts"),
    [
        ("I live in Lisbon", "Forget that I live in Lisbon.", "I live in Porto", ["Porto"]),
        ("I like coffee", "Forget that I like coffee.", "I hate coffee", ["coffee"]),
        ("I work at Acme", "Forget that I work at Acme.", "I don't work at Acme any more", []),
    ],
)
async def test_undone_what_took_its_place_since_stays(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller, known: str, order: str, since: str, facts: list[str]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, known)
    await teller.tell(talk, order)
    await taught(learn, pool, talk, since)
    (left,) = await texts(admin)
    (done,) = await teller.store.page(TENANT, talk.user, after=None, limit=10)
    await teller.store.undo(TENANT, done.command_id, talk.user)
    assert await texts(admin) == [left]
    (heir,) = await memories(admin)
    (old,) = await memories(admin, is_active=False)
    assert (old["status"], old["superseded_how"], old["superseded_by"]) == ("superseded", "conflict", heir["memory_id"])
    assert old["valid_to"] == heir["valid_from"]
    found = await read_facts(admin)
    assert [json.loads(each["fact_value"]) for each in found] == facts


@pytest.mark.parametrize("everything", [False, True])
async def test_nobodys_session_forgets_its_own_alone(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller, everything: bool
) -> None:
    mine, theirs = Talk(name="mine", confined=True), Talk(name="theirs", confined=True)
    for talk in (mine, theirs):
        await taught(learn, pool, talk, "I live in Lisbon")
    if everything:
        order = "Forget everything you know about me."
        await teller.tell(mine, order)
        await teller.tell(mine, order, "Forget everything?", "Yes")
    else:
        await teller.tell(mine, "Forget that I live in Lisbon.")
    (kept,) = await memories(admin)
    assert kept["session_id"] == theirs.session


@cases(
    ("text", "alone"),
    [
        ("Please forget that I live in Lisbon.", True),
        ("Thanks! Forget that I live in Lisbon.", True),
        ("Do you remember where my spare key is?", False),
        ("What do you know about my mother's surgery?", False),
        ("Was weißt du über unseren Urlaub in Japan?", False),
        ("Tell me the pancake recipe again", False),
        ("I don't need the dentist appointment anymore", False),
        ("No more bullet points. Spare key?", False),
    ],
)
async def test_a_message_that_says_nothing_but_commands_looks_for_nothing(
    learn: Learner, pool: Pool, teller: Teller, text: str, alone: bool
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I live in Lisbon.")
    assert (await teller.tell(talk, "Hi", "Hello", text)).alone == alone


async def test_what_says_that_it_ended_is_forgotten_with_it(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller
) -> None:
    talk = Talk()
    for said in ("I work at Acme.", "I left Acme."):
        await taught(learn, pool, talk, said)
    assert any("Acme" in each for each in await texts(admin))
    await teller.tell(talk, "Hi", "Hello", "Forget that I work at Acme.")
    assert not any("Acme" in each for each in await texts(admin))


async def test_said_alone_not_to_remember_this_means_the_turn_before(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller
) -> None:
    talk = Talk()
    said = "I live in Lisbon"
    hashed = request(said).transcript.hashes[0]
    fresh = await talk.say(pool, said, message_hash=hashed)
    await learn.learn(talk.job(fresh))
    told = await teller.tell(talk, said, "Noted.", "Don't remember this.")
    assert "nor is the turn before it (2 items)" in told.told[0].sentence
    assert await texts(admin) == []


@cases(
    ("known", "said"),
    [
        ("I am 30 years old", ("What is 6 times 7?", "41.", "That's wrong, it's 42.")),
        ("I live in London", ("What is the capital of France?", "London.", "That's wrong, it's Paris.")),
        ("I live in London", ("When does my train go?", "Your train to London goes at 9.", "That's wrong, it's Rome.")),
        ("My name is Bob", ("Who sang Thriller?", "Bob Dylan.", "That's wrong, it's Michael.")),
        ("I work at Samsung", ("Who makes the iPhone?", "Samsung.", "That's wrong, it's Apple.")),
        ("I am 30 years old", ("How far is it from London to Rome?", "30 km.", "That's wrong, it's 1434.")),
        ("I am 30 years old", ("How old am I?", "You are 29.", "That's wrong, it's 31.")),
        ("I live in London", ("Hi", "Hello", "Thanks", "Welcome", "That's wrong, it's Paris.")),
        ("I live in London", ("Hi", "Hello", "That's wrong, I work at Apple.")),
    ],
)
async def test_a_correction_of_anything_else_changes_nothing_and_is_not_spoken_of(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller, known: str, said: tuple[str, ...]
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, known)
    before = await texts(admin)
    assert (await teller.tell(talk, *said)).told == ()
    assert before == await texts(admin)
    assert await read_commands(admin) == []


@pytest.mark.parametrize(
    ("known", "said", "after"),
    [
        ("I am 30 years old", ("How old am I?", "You are 30.", "That's wrong, it's 31."), "Is 31 years old"),
        ("I live in London", ("Hi", "Hello", "That's wrong, I live in Rome."), "Lives in Rome"),
        (
            "Ich wohne in Bonn",
            ("Wo wohne ich?", "Du wohnst in Bonn.", "Das ist falsch, es ist Porto."),
            "Wohnt in Porto",
        ),
        ("我住在里斯本", ("我住在哪里？", "你住在里斯本。", "不对，是波尔图。"), "住在波尔图"),
    ],
)
async def test_what_was_said_of_the_user_is_set_right(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller, known: str, said: tuple[str, ...], after: str
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, known)
    assert "has just changed" in (await teller.tell(talk, *said)).told[0].sentence
    assert await texts(admin) == [after]


async def test_the_only_thing_that_may_be_meant_is_forgotten_when_the_next_message_confirms(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I am allergic to peanuts")
    order = "Forget my nut allergy."
    asked = await teller.tell(talk, order)
    assert "perhaps this: Is allergic to peanuts" in asked.told[0].sentence
    assert await texts(admin) == ["Is allergic to peanuts"]
    done = await teller.tell(talk, order, "Do you want me to forget your peanut allergy?", "Yes")
    assert "has just forgotten" in done.told[0].sentence
    assert await texts(admin) == []


@pytest.mark.parametrize("again", ["I am vegan", "I'm vegan, by the way.", "Remember that I'm vegan."])
async def test_what_was_forgotten_is_remembered_again_when_the_user_says_so_again_and_not_before(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller, again: str
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I am vegan")
    await teller.tell(talk, "Please forget that I'm vegan.")
    await taught(learn, pool, talk, "As I said, I am vegan", again)
    assert await texts(admin) == [], "what was said before"
    await learn.learn(talk.job(await talk.say(pool, again, created_at=NOW + timedelta(minutes=1))))
    assert await texts(admin) == ["Is vegan"]


@pytest.mark.parametrize(
    ("wish", "back", "outcome"),
    [
        ("Always answer me in bullet points.", "No more bullet points please", "done"),
        ("Never suggest cilantro.", "You can suggest cilantro again.", "done"),
        ("请总是用要点回答。", "不要再用要点回答了。", "done"),
        ("请永远不要推荐香菜。", "你又可以推荐香菜了。", "done"),
        ("Always answer in French and cite your sources.", "You don't have to cite your sources any more.", "ask"),
        ("Always answer in French.", "No more bullet points please", None),
        ("Never use bullet points.", "No more bullet points please", None),
        ("Always suggest cilantro.", "You can suggest cilantro again.", None),
        ("Always answer me in bullet points.", 'Is "no more bullet points" right?', None),
    ],
)
async def test_a_standing_wish_is_taken_back_where_one_speaks_of_it(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller, wish: str, back: str, outcome: str | None
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, wish)
    before = await texts(admin)
    assert before
    told = (await teller.tell(talk, "Hi", "Hello", back)).told
    assert len(told) == (outcome is not None)
    assert (await teller.tell(talk, "Hi", "Hello", back)).told[:1] == told or outcome == "ask", (
        "a retry is told the same"
    )
    assert await texts(admin) == ([] if outcome == "done" else before)
    done = await teller.store.page(TENANT, talk.user, after=None, limit=10)
    assert [each.outcome for each in done] == ([outcome] if outcome else [])
    if outcome == "done":
        await teller.store.undo(TENANT, done[0].command_id, talk.user)
        assert await texts(admin) == before


async def test_a_wish_that_was_taken_back_may_be_asked_for_again(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller
) -> None:
    talk = Talk()
    wish = "Always answer me in bullet points."
    await taught(learn, pool, talk, wish)
    before = await texts(admin)
    await teller.tell(talk, "No more bullet points please")
    assert await texts(admin) == []
    await learn.learn(talk.job(await talk.say(pool, wish, created_at=NOW + timedelta(minutes=1))))
    assert await texts(admin) == before


@pytest.mark.parametrize(
    ("said", "order", "stays", "told"),
    [
        (["My wife Maria has depression."], "Forget that Maria has depression.", ["Wife's name is Maria"], "forgotten"),
        (
            ["My sister Ana is a doctor.", "Ana is allergic to nuts.", "My sister lives in Porto."],
            "Forget that my sister Ana is a doctor.",
            ["Sister's name is Ana", "Sister lives in Porto"],
            "forgotten",
        ),
        (["I was fired from my job for stealing."], "Please forget that I was fired for stealing.", [], "forgotten"),
        (["I have narcolepsy."], "Forget that I have narcolepsy.", [], "forgotten"),
        (["我有嗜睡症。"], "忘记我有嗜睡症。", [], "forgotten"),
        (
            ["My therapist thinks I drink too much."],
            "Forget that my therapist thinks I drink too much.",
            [],
            "forgotten",
        ),
        (
            ["I love hiking in Porto.", "I live in Porto.", "My brother studies in Porto."],
            "Forget that I live in Porto.",
            ["Brother studies in Porto", "Loves hiking in Porto"],
            "forgotten",
        ),
        (
            ["I was born in Rome.", "I visited Rome in May.", "My favourite city is Rome."],
            "Forget that I was born in Rome.",
            ["Favourite city is Rome", "Visited Rome in May 2026"],
            "forgotten",
        ),
        (["My father had cancer."], "Forget my diabetes.", ["Father had cancer"], "nothing was forgotten"),
        (
            ["My password is hunter2.", "My wifi password is blue42."],
            "Forget my password.",
            None,
            "nothing was forgotten",
        ),
        (["I have a meeting at ten."] * 5, "Forget that I have a passport.", None, "nothing was forgotten"),
        (["I live in Porto."], "Forget that I own a submarine.", ["Lives in Porto"], "nothing was forgotten"),
        (
            ["I live in Porto."],
            "Forget that I live in Porto. What is the capital of Peru?",
            ["Lives in Porto"],
            "nothing was forgotten",
        ),
    ],
)
async def test_what_is_meant_goes_and_nothing_else_does(
    learn: Learner,
    pool: Pool,
    admin: Admin,
    teller: Teller,
    said: list[str],
    order: str,
    stays: list[str] | None,
    told: str,
) -> None:
    talk = Talk()
    for each in said:
        await taught(learn, pool, talk, each)
    before = await texts(admin)
    (deed,) = (await teller.tell(talk, "Hi", "Hello", order)).told
    assert told in deed.sentence
    assert sorted(await texts(admin)) == sorted(before if stays is None else stays)
    by_chat = {row["item_id"] for row in await read_suppressions(admin, reason="forgotten_by_chat")}
    hidden_said = by_chat & {row["message_id"] for row in await read_messages(admin)}
    assert len(hidden_said) == (told == "forgotten"), "the message that says it, and no other"


async def test_what_learning_takes_back_is_told_and_undone_for_good(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller
) -> None:
    talk, store = Talk(), teller.store
    await taught(learn, pool, talk, "Always answer me in bullet points.", "Always suggest cilantro.")
    before = await texts(admin)
    await taught(learn, pool, talk, "No more bullet points please")
    (done,) = await store.page(TENANT, talk.user, after=None, limit=10)
    assert (done.kind, done.outcome, list(done.texts.values())) == (
        "stop",
        "done",
        ["Always answer me in bullet points"],
    )
    await store.undo(TENANT, done.command_id, talk.user)
    assert await texts(admin) == before
    await taught(learn, pool, talk, "Always answer me in bullet points.", "Always use emojis.")
    assert sorted(await texts(admin)) == sorted([*before, "Always use emojis"]), "what was undone is not done again"


async def test_the_same_command_at_once_is_done_once_and_told_to_all(
    learn: Learner, pool: Pool, admin: Admin, words: WordLlamaEmbedder, space: int
) -> None:
    talk, teller = Talk(), Teller(pool, words, space, most=4)
    await taught(learn, pool, talk, "I work at Acme", "Acme is nice", "My favourite company is Acme")
    for order, told in (
        ("Forget that I worked at Acme.", "Ask for confirmation"),
        ("Forget everything you know about me.", "Ask for confirmation"),
        ("Forget that my favourite company is Acme.", ""),
    ):
        said = await asyncio.gather(*(teller.tell(talk, order) for _ in range(5)))
        assert {told in each.told[0].sentence for each in said} == {True}, order
        assert len({each.account[0]["id"] for each in said}) == 1, "one command"
    assert len(await read_commands(admin)) == 3


async def test_who_waits_too_long_is_told_what_another_request_did(
    learn: Learner, pool: Pool, teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I work at Acme")
    order, other = "Forget that I work at Acme.", "Forget that I work at Globex."
    await teller.tell(talk, order)
    monkeypatch.setattr("app.features.commands.commander.WITHIN_S", 0.2)
    async with pool.transaction(TENANT) as connection:
        await connection.execute(SQL["learning.lock"], talk.user)
        assert "has just forgotten" in (await teller.tell(talk, order)).told[0].sentence
        assert "could not do now" in (await teller.tell(talk, other)).told[0].sentence


async def test_a_command_that_gave_way_is_done_at_the_second_try(
    learn: Learner, pool: Pool, admin: Admin, teller: Teller, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk()
    await taught(learn, pool, talk, "I work at Acme")
    hide = Doing.hide
    failed: list[Any] = []

    async def deadlocked(self: Doing, *given: Any) -> Any:
        found = await hide(self, *given)
        if not failed:
            failed.append(found)
            raise StoreUnavailable("Two waited for each other.")
        return found

    monkeypatch.setattr(Doing, "hide", deadlocked)
    assert "has just forgotten" in (await teller.tell(talk, "Forget that I work at Acme.")).told[0].sentence
    assert await texts(admin) == []
    assert len(await read_commands(admin)) == 1
