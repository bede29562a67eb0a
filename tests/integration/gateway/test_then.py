"""Captured requests compiled again, on a real store: as of then to the byte, whatever memory has become since."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from app.store.pools import Pool
from tests.support.journey import (
    user,
)
from tests.support.replaying import ANA, TENANT, ReplayStage, make_stage
from tests.support.talks import FACTS, QUESTIONS, Talk, change_of, client_managed, difference, server_managed


@pytest.fixture(params=[client_managed, server_managed])
async def talk(request: pytest.FixtureRequest, stage: ReplayStage) -> Talk:
    way: Callable[..., Any] = request.param
    memories = await stage.remember(*FACTS)
    # Another session, whose turns are found as well, one of them so long that only a passage is shown.
    await stage.ask([user("My chess teacher is called Ivo.")], session="other")
    await stage.ask([user("Chess notes. " + "The knight moves oddly in chess openings. " * 40)], session="other")
    made = await way(stage)
    assert any(text.encode() in sent for text in FACTS for _, sent in made), "something is remembered"
    return Talk(stage, memories, made)


async def test_as_of_then_to_the_byte_whatever_became_since(talk: Talk) -> None:
    await talk.exact()
    await unchanged(talk)
    await today(talk)
    await later(talk)
    await forgotten(talk)


async def unchanged(talk: Talk) -> None:
    for answer, _ in talk.turns:
        told = difference(await talk.stage.again(answer))
        assert {each["change"] for each in told["items"]} <= {"kept"}
        assert told["eta"]["was"] == pytest.approx(told["eta"]["now"], abs=1e-4)
        assert told["tokens"]["was"] == told["tokens"]["now"]


async def today(talk: Talk) -> None:
    """Today's memory, at the place of then: what was said later in the same conversation is not known there."""
    stage = talk.stage
    told = difference(await stage.again(talk.turns[0][0], "today"))
    assert told["changes"]["new"] == 0
    (new,) = await stage.remember("What about chess: Ana became champion in chess.")
    again = await stage.again(talk.turns[0][0], "today")
    assert str(new) in {each["id"] for each in difference(again)["items"] if each["change"] == "new"}
    assert b"champion" in again.body
    assert not again.identical


async def later(talk: Talk) -> None:
    """Memory goes on: new ones, used ones, superseded, edited and invalidated ones; other settings."""
    stage = talk.stage
    stage.clock.move(timedelta(days=40))
    await stage.remember("Ana now hates chess.", "Ana's chess club has moved to Linz.")
    await stage.admin.execute("UPDATE agent_data.memory_store SET access_count = 500, importance = 1, confidence = 0.1")
    await stage.admin.execute(
        "UPDATE agent_data.memory_store SET status = 'superseded', valid_to = now() WHERE memory_id = $1",
        talk.memories[3],
    )
    await stage.memories.change(TENANT, ANA, talk.memories[1], change_of("Ana's club is elsewhere."))
    await stage.memories.invalidate(TENANT, ANA, talk.memories[2], None)
    await stage.ask([user("More chess?")], session="s")
    await talk.exact()
    again = await stage.again(talk.turns[0][0], model_windows={"*": 500}, memory_budget_tokens=60)
    assert again.body == talk.turns[0][1]


async def forgotten(talk: Talk) -> None:
    """What was forgotten does not come back, and is said to be that."""
    stage, gone = talk.stage, str(talk.memories[0])
    await stage.memories.forget(TENANT, ANA, talk.memories[0])
    shown = 0
    for answer, sent in talk.turns:
        again = await stage.again(answer)
        assert FACTS[0].encode() not in again.body
        if FACTS[0].encode() in sent:
            shown += 1
            assert not again.identical
            if gone in {str(each) for each in again.before["items"]["id"]}:
                assert again.fates[gone] == "forgotten"
            else:  # it stood in an earlier block, which went with its words
                assert again.notes == ["Memory blocks of then quoted what was deleted since: all of them are gone."]
        for item in difference(again)["items"]:
            if item["id"] == gone:
                assert (item["change"], item["now"]["reason"]) == ("gone", "forgotten")
    assert shown


async def test_a_deleted_message_does_not_come_back(pool: Pool, admin: asyncpg.Connection[Any]) -> None:
    stage = await make_stage(pool, admin)
    made = await server_managed(stage)
    message = await admin.fetchval(
        "SELECT message_id FROM agent_data.conversation_history WHERE content = $1", QUESTIONS[1]
    )
    await admin.execute(
        "INSERT INTO agent_data.suppressions (user_id, tenant_id, item_id, reason) VALUES ($1, $2, $3, 'deleted')",
        ANA, TENANT, message,
    )  # fmt: skip
    again = await stage.again(made[-1][0])
    said = json.dumps({"role": "user", "content": QUESTIONS[1]}, separators=(",", ":")).encode()
    assert said in made[-1][1]
    assert said not in again.body
    assert again.notes == ["1 earlier messages of the session are not shown any more."]
