"""Calls of the Responses API, compiled again."""

from __future__ import annotations

import json
from datetime import timedelta
from hashlib import sha256

import pytest

from app.features.responses import DIALECT as RESPONSES
from app.gateway.dialects import answer_of
from tests.support.journey import (
    Answer,
    Message,
    Reply,
)
from tests.support.replaying import ANA, TENANT, ReplayStage
from tests.support.responses import asked_last, events_of, response_of, said
from tests.support.talks import FACTS, QUESTIONS, Talk, change_of


def answered(asked: Message) -> Reply:
    """The Responses API: each answer has an id of its own, by which the next request can name it."""
    text = asked_last(asked).rsplit("\n", 1)[-1]
    made = response_of(asked, [said(f"You said: {text}")], "resp_" + sha256(json.dumps(asked).encode()).hexdigest()[:8])
    if asked.get("stream"):
        return Reply(200, [(b"content-type", b"text/event-stream")], events_of(made))
    return Reply(200, [(b"content-type", b"application/json")], [json.dumps(made).encode()])


async def responses(stage: ReplayStage, way: str) -> list[tuple[Answer, bytes]]:
    """The same questions over the Responses API: the client has the conversation, or Mneme, or the upstream."""
    stage.journey.upstream.script = answered
    made: list[tuple[Answer, bytes]] = []
    items: list[Message] = []
    last = None
    for n, question in enumerate(QUESTIONS):
        document: Message = {"model": "gpt-4o", "stream": n % 2 == 0, "instructions": "Be brief."}
        items.append({"role": "user", "content": question})
        document |= {"input": items if way == "client" else question}
        if way == "upstream" and last is not None:
            document["previous_response_id"] = last
        stage.clock.move(timedelta(seconds=60))
        headers = {"x-mneme-session": "s"} if way == "mneme" else None
        answer = await stage.journey.post(json.dumps(document).encode(), headers=headers, path="/v1/responses")
        assert answer.status == 200, answer.body
        await stage.journey.settled()
        told = answer_of(answer.body, RESPONSES)
        last = told.id
        items.append({"role": "assistant", "content": told.choices[0].content})
        made.append((answer, stage.sent()))
    return made


@pytest.mark.parametrize("way", ["client", "mneme", "upstream"])
async def test_a_call_of_the_responses_api_is_read_as_it_speaks(stage: ReplayStage, way: str) -> None:
    memories = await stage.remember(*FACTS)
    made = await responses(stage, way)
    assert any(text.encode() in sent for text in FACTS for _, sent in made)
    talk = Talk(stage, memories, made)
    await talk.exact()
    stage.clock.move(timedelta(days=9))
    await stage.remember("What about chess: Ana became champion in chess.")
    await stage.memories.change(TENANT, ANA, memories[1], change_of("Ana's club is elsewhere."))
    await talk.exact()
    assert b"champion" in (await stage.again(made[0][0], "today")).body
