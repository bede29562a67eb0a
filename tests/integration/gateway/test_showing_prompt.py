"""Cards that a message asks for, on their way into the prompt and the account, and gone with their answer."""

from __future__ import annotations

import json
from typing import Any

import asyncpg
import pytest

from app.errors import StoreUnavailable
from app.features.cards.keeper import LABEL, CardReader
from app.features.cards.store import Cards, NewCard
from app.features.preview import Previewer, PreviewRequest
from app.gateway.prepare import Preparer
from app.gateway.upstream import Router
from app.store.erasure import ERASER_ROLE, Deleter, own_connection
from app.store.pools import Pool
from app.store.sessions import SessionRef
from app.store.tenancy import UserRef
from app.tasks import Supervisor
from tests.support.clock import FakeClock
from tests.support.journey import Answer, Message, assistant, user
from tests.support.rows import (
    read_audit,
    read_blocks,
    read_cards,
    read_messages,
    read_sessions,
    set_message,
    update_rows,
)
from tests.support.stored_stage import ANA, FACTS, TENANT, StoredStage, make_stage

ASKS = "Show me the second card from the first question"


class Shop:
    """A conversation by its transcript whose answers show two cards each."""

    def __init__(self, stage: StoredStage, pool: Pool) -> None:
        self.stage = stage
        self.cards = Cards(pool, stage.sql)
        self.transcript: list[Message] = []

    async def ask(self, question: str, cards: bool = False) -> Answer:
        self.transcript.append(user(question))
        answer = await self.stage.ask(list(self.transcript))
        self.transcript.append(assistant(answer.text))
        if cards:
            n = len(self.transcript) // 2
            new = [NewCard(kind, {"n": n, "of": kind}, 9, self.stage.clock.now()) for kind in ("product", "chart")]
            await self.cards.add(TENANT, await self.ref(), [(None, each) for each in new])
        return answer

    async def ref(self) -> SessionRef:
        return SessionRef(ANA, (await read_sessions(self.stage.admin))[0]["session_id"])

    def shown(self) -> list[str]:
        """What the last prompt tells of cards."""
        told = [line for each in self.prompt for line in each["content"].splitlines() if line.startswith(LABEL)]
        return [each.removeprefix(LABEL) for each in told]

    @property
    def prompt(self) -> list[Message]:
        messages: list[Message] = json.loads(self.stage.sent())["messages"]
        return messages

    async def account(self) -> Any:
        return (await read_audit(self.stage.admin))["sections"].get("cards")


@pytest.fixture
async def shop(stage: StoredStage, pool: Pool) -> Shop:
    shop = Shop(stage, pool)
    await stage.remember(*FACTS)
    for question in ("What about chess?", "And the club?"):
        await shop.ask(question, cards=True)
    return shop


def card(n: int, of: str) -> str:
    order = {"product": 1, "chart": 2}[of]
    return f'card {order} of question {n} ({of}): {{"n":{n},"of":"{of}"}}'


async def test_the_card_stands_in_this_prompt(shop: Shop) -> None:
    """Seed 003: voice navigation, for every placement of the block."""
    answer = await shop.ask(ASKS)
    assert (answer.headers["x-mneme-status"], answer.headers.get("x-mneme-reason")) == ("ok", None)
    assert shop.shown() == [card(1, "chart")]
    account = await shop.account()
    assert (len(account["chosen"]), account["dropped"], account["visible"]) == (1, [], [])
    assert 0 < account["tokens"] <= account["budget"] <= 800


async def test_who_asks_for_none_asks_no_store(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked(*_: Any) -> Any:
        raise AssertionError("nobody asks")

    monkeypatch.setattr(Cards, "index", asked)
    answer = await shop.ask("What do I like?")
    assert (answer.headers["x-mneme-status"], shop.shown(), await shop.account()) == ("ok", [], None)


async def test_a_store_of_cards_that_fails_takes_nothing_along(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> Any:
        raise StoreUnavailable

    monkeypatch.setattr(Cards, "index", away)
    answer = await shop.ask("Show me the last card")
    assert (answer.headers["x-mneme-status"], answer.headers["x-mneme-reason"]) == ("degraded", "cards")
    assert shop.stage.journey.count("mneme_degradations_total", reason="cards") == 1
    assert await shop.account() is None


async def test_given_anew_the_questions_count_as_before(shop: Shop) -> None:
    """The question is stored: "the previous question" is still the one before it, whatever its first answer showed."""
    await shop.ask("Show me the second card from the previous question", cards=True)
    assert shop.shown() == [card(2, "chart")]
    sent = shop.stage.sent()
    del shop.transcript[-1]
    await shop.stage.ask(list(shop.transcript))
    assert shop.shown() == [card(2, "chart")]
    assert shop.stage.sent() == sent


async def test_a_branch_counts_what_it_shares(shop: Shop) -> None:
    del shop.transcript[2:]
    await shop.ask("Show me the first card from the previous question")
    assert shop.shown() == [card(1, "product")], "not of what was said in the other branch"


async def test_a_preview_has_them(shop: Shop, pool: Pool) -> None:
    stage, tasks = shop.stage, Supervisor()
    preparer = Preparer(stage.store, stage.compiler(), None, CardReader(shop.cards, tasks))
    previewer = Previewer(preparer, Router.from_settings(stage.settings), stage.clock, "gpt-4o")
    messages = [*shop.transcript, user(ASKS)]
    seen = await previewer.preview(PreviewRequest(TENANT, UserRef(ANA, "local"), None, None, messages, None, None))
    assert card(1, "chart") in json.dumps(seen["messages"]).replace('\\"', '"')
    assert len(seen["sections"]["cards"]["chosen"]) == 1


@pytest.mark.parametrize("how", ["answer", "result"])
async def test_what_is_deleted_leaves_the_prompt(
    how: str, pool: Pool, admin: asyncpg.Connection[Any], database: str
) -> None:
    """With the answer, or the tool's result that it was taken from; the block of then begins anew, and says it no more."""
    shop = Shop(await make_stage(pool, admin), pool)
    await shop.ask("What about chess?", cards=True)
    await shop.ask("And the club?")
    answers = await read_messages(admin, role=2)
    if how == "result":  # as the job leaves it that takes cards from results
        await update_rows(admin, "ui_cards_shown", {}, source_message_id=answers[1]["message_id"])
    await shop.ask(ASKS)
    assert shop.shown() == [card(1, "chart")]
    await shop.ask("Thanks, and what about tea?")
    assert shop.shown() == [card(1, "chart")], "the block stands where it stood"

    deleter = Deleter(own_connection(database, ERASER_ROLE), shop.stage.sql, FakeClock(shop.stage.clock.now()))
    assert await deleter.delete(TENANT, await shop.ref(), answers[1 if how == "result" else 0]["message_id"])
    assert await read_cards(admin) == []
    await shop.ask("And coffee?")
    assert shop.shown() == []
    assert not any("of question 1" in block["text"] for block in await read_blocks(admin))


async def test_an_answer_without_words_keeps_its_blocks(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    """As one that calls a tool: the block that quotes its card is not taken for forgotten."""
    shop = Shop(await make_stage(pool, admin), pool)
    await shop.ask("What about chess?", cards=True)
    for message in await read_messages(admin, role=2):
        await set_message(admin, message["message_id"], content="")
    await shop.ask(ASKS)
    await shop.ask("Thanks!")
    assert shop.shown() == [card(1, "chart")]
