"""Turns of /v1/messages in which the model asks back. What is the same for every dialect is in `test_legs.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.capture.facts import Outcome
from app.errors import UpstreamTimeout
from app.features.messages import folded
from app.features.paging.body import BLOCKS, HiddenLegs
from app.features.paging.forms import MessagesStream
from app.features.paging.state import PagingPartRecord
from app.features.paging.tools import Names
from app.gateway.dialects.sse import payloads
from tests.support.faults import StubAnswers, StubPager, bytes_of, in_turn
from tests.support.journey import Answer, Reply, user
from tests.support.message_legs import Block, asks, event, streamed, text, thinking, use, whole
from tests.support.phantoms import sent
from tests.support.turns import GatewayStage

PATH = "/v1/messages"
JSON = [(b"content-type", b"application/json")]
OWN = {"name": "weather", "input_schema": {"type": "object"}}
ASKING = [thinking("I must look."), text("Let me see. "), asks("which?", "q")]
SAYING = [thinking("So."), text("It is 4711.")]


@pytest.fixture
def pager() -> StubPager:
    return StubPager()


@pytest.fixture
def answers() -> StubAnswers:
    return StubAnswers()


@pytest.fixture
def stage(pager: StubPager, answers: StubAnswers) -> GatewayStage:
    return GatewayStage(pager=pager, answers=answers)


def events(*chunks: Any) -> Reply:
    return Reply(headers=[(b"content-type", b"text/event-stream")], chunks=chunks)


def leg(blocks: list[Block], *, stream: bool, **more: Any) -> Reply:
    return events(streamed(blocks, **more)) if stream else Reply(chunks=[whole(blocks, **more)])


def request(*, stream: bool, **more: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [user("hi")], "stream": stream, **more}).encode()


async def ask(stage: GatewayStage, *replies: Reply | Exception, stream: bool = True, **more: Any) -> Answer:
    headers = {"x-mneme-paging": "on"}
    return await stage.answering(in_turn(*replies)).post(request(stream=stream, **more), headers=headers, path=PATH)


def message(answer: Answer) -> dict[str, Any]:
    made: dict[str, Any] = folded(payloads(answer.body))[1] if b"event:" in answer.body else answer.json()
    return made


def merged(*legs: bytes) -> bytes:
    engine, body = MessagesStream(Names()), b""
    for n, each in enumerate(legs):
        if n:
            engine.next_leg()
        body += sent(engine.feed(each) + engine.end())
    return body


BOTH = pytest.mark.parametrize("streamed_answer", [True, False], ids=["stream", "body"])


@BOTH
async def test_a_fault_is_answered_within_the_answer(stage: GatewayStage, streamed_answer: bool) -> None:
    first, last = leg(ASKING, stream=streamed_answer, id_="msg_1"), leg(SAYING, stream=streamed_answer, id_="msg_2")
    answer = await ask(stage, first, last, stream=streamed_answer, tools=[OWN])
    assert answer.whole
    made = message(answer)
    assert made["content"] == [*ASKING[:2], *SAYING]
    assert (made["id"], made["stop_reason"]) == ("msg_1", "end_turn")
    assert made["usage"] == {"input_tokens": 20, "cache_read_input_tokens": 8, "output_tokens": 6}
    if streamed_answer:
        assert answer.body == merged(bytes_of(first), bytes_of(last))
    before, asked = stage.upstream.asked
    assert asked["messages"][:1] == before["messages"]
    assert asked["messages"][1:] == [
        {"role": "assistant", "content": ASKING},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "q", "content": 'told {"question":"which?"}'}],
        },
    ], "the thinking goes back with its signature"
    assert asked["tools"] == before["tools"]
    *legs, client = (facts for facts, _, _ in stage.recorder.records)
    assert (client.usage.prompt, client.usage.completion, client.usage.cached) == (28, 6, 8)
    assert client.metadata["legs"] == [str(each.call_id) for each in legs]
    for facts, reply in zip(legs, (first, last), strict=True):
        assert facts.stream is not None
        assert facts.stream.body == bytes_of(reply)
        assert facts.metadata["usage"]["prompt_tokens"] == 14
    facts, exchange, _ = stage.recorder.records[-1]
    assert facts.stream is not None
    assert facts.stream.body == answer.body
    assert isinstance(facts.part, PagingPartRecord)
    assert exchange is not None
    assert exchange.answers[0].message["content"] == "Let me see. \nIt is 4711."
    ((key, row),) = facts.part.record.hidden.items()
    assert key == exchange.answer_chains[0]
    assert HiddenLegs.of_json(row).legs[0][BLOCKS] == ASKING
    await stage.journey.settled()


@BOTH
async def test_a_call_beside_the_clients_own_waits(
    stage: GatewayStage, pager: StubPager, streamed_answer: bool
) -> None:
    reply = leg([asks(), use("weather", {}, "w")], stream=streamed_answer)
    answer = await ask(stage, reply, stream=streamed_answer, tools=[OWN])
    assert (message(answer)["content"], message(answer)["stop_reason"]) == ([use("weather", {}, "w")], "tool_use")
    assert len(stage.upstream.requests) == 1
    assert [each.name for each in pager.paged[0].hidden.beside] == ["memory_query"]


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        (
            Reply(529, JSON, [b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}']),
            {"type": "overloaded_error", "message": "Overloaded"},
        ),
        (UpstreamTimeout("It took too long."), {"type": "timeout_error", "message": "It took too long."}),
        (Reply(chunks=[b"what?"]), {"type": "api_error", "message": "what?"}),
    ],
    ids=["refused", "late", "no-answer"],
)
async def test_a_later_leg_that_fails_is_an_error_event_of_the_api(
    stage: GatewayStage, trouble: Reply | Exception, error: Block
) -> None:
    answer = await ask(stage, leg(ASKING, stream=True), trouble)
    assert (answer.status, answer.whole) == (200, False)
    last = answer.body.split(b"event: ")[-1]
    assert last.startswith(b"error\ndata: ")
    assert json.loads(last.partition(b"data: ")[2]) == {"type": "error", "error": error}
    assert b"message_stop" not in answer.body
    assert stage.recorder.last.outcome == Outcome.BROKEN


@pytest.mark.parametrize("streamed_first", [True, False])
async def test_a_leg_in_the_other_form_is_taken_all_the_same(stage: GatewayStage, streamed_first: bool) -> None:
    replies = leg(ASKING, stream=streamed_first), leg(SAYING, stream=not streamed_first)
    answer = await ask(stage, *replies, stream=streamed_first)
    made = message(answer)
    assert (made["content"], made["stop_reason"], answer.whole) == ([*ASKING[:2], *SAYING], "end_turn", True)
    assert (b"event: message_stop" in answer.body) == streamed_first


async def test_pings_pass_in_every_leg(stage: GatewayStage) -> None:
    ping = event("ping")
    legs = [
        streamed(each).replace(b"event: content_block_stop", ping + b"event: content_block_stop", 1)
        for each in (ASKING, SAYING)
    ]
    answer = await ask(stage, *(events(each) for each in legs))
    assert answer.body.count(ping) == 2
    assert message(answer)["content"] == [*ASKING[:2], *SAYING]
