"""app/features/cards/keeper.py: whether a message asks for cards, of which conversation and when; and a store that fails."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import orjson
import pytest

from app.errors import StoreUnavailable
from app.features.cards.keeper import CardReader
from app.features.cards.store import Card, Indexed
from app.gateway.dialects.base import ChatRequest
from app.gateway.dialects.chat import CHAT
from app.gateway.reconcile import Place
from app.store.sessions import SessionRef
from app.tasks import Supervisor
from tests.support.journey import Message, assistant, user
from tests.support.showing import card
from tests.support.tables import each_of

TENANT, USER, SESSION, PARENT = UUID(int=1), UUID(int=2), UUID(int=3), UUID(int=4)
ASKS = "Show me the first card from the previous question"


class Shop:
    """A store of a conversation of two questions, each with a card. `fail`: raised, or waited for."""

    def __init__(self, fail: BaseException | asyncio.Event | None = None) -> None:
        self.fail = fail
        self.asked: list[tuple[SessionRef, int | None]] = []

    async def index(self, tenant: UUID, ref: SessionRef, upto: int | None = None) -> tuple[list[Indexed], int]:
        self.asked.append((ref, upto))
        if isinstance(self.fail, asyncio.Event):
            await self.fail.wait()
        elif self.fail is not None:
            raise self.fail
        return [Indexed(UUID(int=n), SESSION, n, 2 * n, 0, 1, "chart") for n in (2, 1)], 2

    async def by_id(self, tenant: UUID, user: UUID, cards: Sequence[UUID]) -> list[Card]:
        return [card(each.int) for each in cards]


def chat(*messages: Message) -> ChatRequest:
    body = json.dumps({"model": "m", "messages": messages}).encode()
    read = CHAT.read(body, orjson.loads(body))
    assert read is not None
    return read


def place(**given: Any) -> Place:
    plain: dict[str, Any] = {
        "session_id": SESSION, "new": False, "how": "continue", "server_managed": False, "first_new": 0, "user_id": USER,
    }  # fmt: skip
    return Place(**plain | given)


async def told(shop: Shop, message: str | list[Message], where: Place, deadline_s: float | None = None) -> Any:
    """Numbers of the cards; None: they were not read. "nothing": nobody was asked."""
    messages = [user(message)] if isinstance(message, str) else message
    tasks = Supervisor()
    reading = CardReader(shop, tasks).begin(TENANT, chat(*messages), where, deadline_s)  # type: ignore[arg-type]
    if reading is None:
        assert not shop.asked
        return "nothing"
    found = await reading.cards()
    await tasks.close(1)
    return [each.int for each in found.ids] if found is not None else None


@each_of("message", ["How are you?", "I lost my card", "", "x " * 10_000])
async def test_a_message_that_asks_for_none_asks_nobody(message: str) -> None:
    assert await told(Shop(), message, place()) == "nothing"


async def test_nothing_was_shown_in_a_session_that_begins() -> None:
    assert await told(Shop(), ASKS, place(how="new", new=True)) == "nothing"


async def test_the_message_is_a_question_of_its_own() -> None:
    shop = Shop()
    assert await told(shop, ASKS, place()) == [2]
    assert shop.asked == [(SessionRef(USER, SESSION), None)]


async def test_a_question_that_is_asked_again_is_stored_already() -> None:
    shop = Shop()
    assert await told(shop, ASKS, place(how="regenerate", first_new=1, asked_index=4)) == [1]
    assert shop.asked == [(SessionRef(USER, SESSION), 3)], "what was answered to it, and later, was not shown yet"


async def test_so_is_one_in_a_tool_loop() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    loop = [user(ASKS), assistant(None, tool_calls=[call]), {"role": "tool", "tool_call_id": "c", "content": "1"}]
    assert await told(Shop(), loop, place(first_new=2)) == [1]


async def test_a_branch_begins_with_what_its_parent_showed_before() -> None:
    shop = Shop()
    branch = place(how="branch", new=True, parent_session_id=PARENT, branch_turn_index=4)
    assert await told(shop, ASKS, branch) == [2]
    assert shop.asked == [(SessionRef(USER, PARENT), 4)]


async def test_a_store_that_is_away_is_said_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mneme.cards"):
        assert await told(Shop(StoreUnavailable()), ASKS, place()) is None
    (line,) = caplog.records
    assert (line.message, line.exc_info) == ("cards were not read", None)


async def test_a_bug_is_no_more_and_leaves_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    assert await told(Shop(ValueError("a bug")), ASKS, place()) is None
    assert caplog.records[0].exc_info is not None


async def test_a_store_that_hangs_is_waited_for_until_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    assert await told(Shop(asyncio.Event()), ASKS, place(), 0.01) is None
    assert [each.message for each in caplog.records] == ["cards came too late"]


async def test_whoever_does_not_wait_leaves_nothing_running() -> None:
    tasks, shop = Supervisor(), Shop(asyncio.Event())
    reading = CardReader(shop, tasks).begin(TENANT, chat(user(ASKS)), place())  # type: ignore[arg-type]
    assert reading is not None
    reading.close()
    assert await reading.cards() is None
    assert len(tasks) == 0
