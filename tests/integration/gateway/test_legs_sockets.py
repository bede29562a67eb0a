"""Turns in which the model asks back, through real sockets: OpenAI SDK, uvicorn, gateway, aiohttp, scripted upstream."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from app.capture.facts import Outcome
from app.gateway.forward import RetryPolicy
from app.gateway.relay import Receive, Send
from app.gateway.transport import AiohttpTransport
from tests.support.faults import StubAnswers, StubPager
from tests.support.phantoms import call, calls, event, usage
from tests.support.replies import Pause, Recorded, Reply, Stall, Until, chunked, reply_events, reply_json
from tests.support.replies import Send as Write
from tests.support.scripted import ScriptedUpstream
from tests.support.sockets import DEADLINE_S, AsgiServer, RawClient, fetch
from tests.support.turns import GatewayStage

CHAT = "/v1/chat/completions"
ON = {"x-mneme-paging": "on"}
DONE = b"data: [DONE]\n\n"
HI: Any = [{"role": "user", "content": "hi"}]

SAID = [event({"role": "assistant", "content": "Let me see. "})]
ASKED = [event(calls(call(0, "memory_query", "", "c1"))), event(calls(call(0, None, '{"question":"which?"}')))]
FAULT = [*SAID, *ASKED, event(finish="tool_calls"), usage(20, 5), DONE]
ANSWER = [event({"role": "assistant", "content": "It is "}), event({"content": "4711."}), event(finish="stop")]
ANSWER = [*ANSWER, usage(30, 7), DONE]


@dataclass
class World:
    """A gateway on a port, before an upstream on another."""

    stage: GatewayStage
    pager: StubPager
    answers: StubAnswers
    upstream: ScriptedUpstream
    port: int

    @property
    def sdk(self) -> openai.OpenAI:
        url = f"http://127.0.0.1:{self.port}/v1"
        return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=DEADLINE_S, default_headers=ON)

    @property
    def facts(self) -> list[Any]:
        return [facts for facts, _, _ in self.stage.recorder.records]

    def answered_by(self, *replies: Reply | list[bytes]) -> None:
        """The upstream's answers, one after the other."""
        self.upstream.script = [each if isinstance(each, Reply) else reply_events(each) for each in replies]


@contextmanager
def running(script: Any = (), *, retry: RetryPolicy | None = None, **settings: Any) -> Iterator[World]:
    pager, answers = StubPager(), StubAnswers()
    stage = GatewayStage(pager=pager, answers=answers, constants={"retry": retry}, **settings)
    transport = AiohttpTransport(connect_timeout_s=5, head_timeout_s=5, idle_timeout_s=5)
    gateway = stage.journey.gateway
    gateway.sender._transports = {False: transport, True: transport}

    async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await gateway(scope, receive, send)
            return
        for step in ("startup", "shutdown"):
            await receive()
            if step == "shutdown":
                await gateway.drained(DEADLINE_S)
                await transport.aclose()
            await send({"type": f"lifespan.{step}.complete"})

    with ScriptedUpstream(script) as upstream:
        object.__setattr__(stage.journey.settings, "upstream_base_url", upstream.url)
        gateway._router = type(gateway._router).from_settings(stage.journey.settings)
        with AsgiServer(app) as server:
            yield World(stage, pager, answers, upstream, server.port)


@pytest.fixture
def world() -> Iterator[World]:
    with running() as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


async def raw(world: World, **fields: Any) -> Any:
    body = json.dumps({"model": "m", "messages": HI, "stream": True, **fields}).encode()
    headers = [(b"content-type", b"application/json"), (b"x-mneme-paging", b"on")]
    return await fetch(world.port, "POST", CHAT, headers, body)


async def test_no_event_waits_for_what_comes_behind_it(world: World) -> None:
    """Text is there while the call comes in, while it is looked up, and while the next leg is awaited."""
    calling, answering = threading.Event(), threading.Event()
    steps = reply_events(SAID, end=[Until(calling), *(Write(chunked(each)) for each in FAULT[1:]), Write(b"0\r\n\r\n")])
    later = reply_events(
        ANSWER[:1], end=[Until(answering), *(Write(chunked(e)) for e in ANSWER[1:]), Write(b"0\r\n\r\n")]
    )
    world.answered_by(steps, later)
    body = json.dumps({"model": "m", "messages": HI, "stream": True}).encode()
    async with RawClient(world.port) as client:
        await client.send("POST", CHAT, [(b"x-mneme-paging", b"on")], body)
        seen = b""
        while b"Let me see." not in seen:
            seen += await client.read(1 << 16)
        assert len(world.upstream.requests) == 1
        calling.set()
        while b"It is" not in seen:
            seen += await client.read(1 << 16)
        assert b"4711" not in seen
        answering.set()
        while b"[DONE]" not in seen:
            seen += await client.read(1 << 16)


def test_a_later_leg_is_tried_again_as_the_settings_say() -> None:
    with running(retry=RetryPolicy(2, first_wait_s=0.001)) as world:
        world.answered_by(FAULT, reply_json({"error": {"message": "busy"}}, "503 Service Unavailable"), ANSWER)
        pieces = world.sdk.chat.completions.create(model="m", messages=HI, stream=True)
        assert "4711" in "".join(each.choices[0].delta.content or "" for each in pieces if each.choices)
        assert len(world.upstream.requests) == 3


@pytest.mark.parametrize("head", [True, False])
async def test_a_client_that_goes_in_a_later_leg_ends_it_within_a_second(world: World, head: bool) -> None:
    second = reply_events(ANSWER[:1], end=[Stall()]) if head else Reply([Stall()])
    world.answered_by(FAULT, second)
    body = json.dumps({"model": "m", "messages": HI, "stream": True}).encode()
    async with RawClient(world.port) as client:
        await client.send("POST", CHAT, [(b"x-mneme-paging", b"on")], body)
        seen = b""
        while (b"It is" if head else b"Let me see") not in seen:
            seen += await client.read(1 << 16)
        await asyncio.to_thread(until, lambda: len(world.upstream.requests) == 2)
        client.close()
    gone: Recorded = world.upstream.requests[1]
    assert await asyncio.to_thread(gone.peer_closed.wait, 1.0)
    await asyncio.to_thread(until, lambda: len(world.facts) == 3)
    assert [each.outcome for each in world.facts] == [Outcome.COMPLETE, Outcome.GONE, Outcome.GONE]


async def test_a_leg_that_says_done_and_does_not_end_holds_nothing_up(world: World) -> None:
    world.answered_by(reply_events(FAULT, end=[Pause(0), Stall()]), ANSWER)
    began = time.monotonic()
    answer = await raw(world)
    assert answer.body.endswith(DONE)
    assert time.monotonic() - began < 2.0, "the stalled leg is let go of beside the next one"
    assert [each.outcome for each in world.facts] == [Outcome.COMPLETE] * 3
