"""The same cassettes give the same answers to the same requests: in any order, side by side, by every matching."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mneme_replay.cassette import Cassette, Chunk, Response
from mneme_replay.deck import Deck
from mneme_replay.files import answered, load, numbered, write
from mneme_replay.player import App, Player
from mneme_replay.requests import MATCHINGS, Reader
from mneme_replay.serving import Background
from mneme_replay.timing import error_body, failure_of
from tests.support.cassettes import JSON_HEADERS, SSE_HEADERS, asking, cassette, streamed, streaming
from tests.support.sockets import fetch

AT_ONCE = 8
"""Runs side by side."""
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


def mixed() -> list[Cassette]:
    """What an application may have recorded: chat, streams, tools, responses, errors, and answers that broke off or never came.
    Some requests were made several times, with an answer of their own each time."""
    calls = [cassette(n, asking("Throw a die."), json.dumps({"n": n}).encode()) for n in range(1, 4)]
    calls += [streamed(n, asking("Sing.", stream=True), streaming("la ", f"{n}", " 🙂")) for n in range(4, 6)]
    called = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "größe"}'}}
    choice = {"index": 0, "message": {"role": "assistant", "tool_calls": [called]}, "finish_reason": "tool_calls"}
    calls.append(cassette(6, asking("Look.", tools=TOOLS), json.dumps({"id": "c", "choices": [choice]}).encode()))
    events = [
        f'event: response.{name}\ndata: {{"type":"response.{name}"}}\n\n'.encode() for name in ("created", "done")
    ]
    responses = streamed(7, json.dumps({"model": "tiny", "input": "Hi.", "stream": True}).encode(), events)
    calls.append(replace(responses, request=replace(responses.request, path="/v1/responses")))
    slow = error_body("slow down", "requests", "rate_limit_exceeded")
    for n, (status, body) in enumerate([(429, slow), (500, {"oops": True})], 8):
        data = json.dumps(body).encode()
        headers = (*JSON_HEADERS, ("retry-after", "1"))
        answer = Response(status=status, headers=headers, body=data, chunks=(Chunk(1, len(data)),))
        calls.append(cassette(n, asking("Quick."), response=answer))
    calls.append(cassette(10, asking("Quick."), json.dumps({"at": "last"}).encode()))
    cut = b"".join(streaming("never ends"))[:-30]
    half = Response(status=200, headers=SSE_HEADERS, body=cut, chunks=(Chunk(1, 40), Chunk(2, len(cut) - 40)))
    calls.append(cassette(11, asking("Break.", stream=True), response=half, outcome="broken", error="It broke off."))
    calls.append(cassette(12, asking("Fail."), response=None, outcome="failed", error="The upstream did not answer."))
    return calls


class Given(NamedTuple):
    """What a client was given for a request."""

    cassette: str
    status: int
    body: bytes
    pieces: list[int]
    ended: str


def expected(call: Cassette) -> Given:
    """What it is to be given."""
    if call.response is None:
        failure = failure_of(call)
        body = json.dumps(failure.body, ensure_ascii=False, separators=(",", ":")).encode()
        return Given(call.id, failure.status, body, [], "whole")
    pieces = [each.size for each in call.response.chunks]
    return Given(call.id, call.response.status, call.response.body, pieces, "whole" if call.whole else "broken")


async def ask(port: int, mount: str, call: Cassette) -> Given:
    request = call.request
    headers = [(name.encode(), value.encode()) for name, value in request.headers]
    answer = await fetch(port, request.method, f"/{mount}{request.path}", headers, request.body)
    pieces = [len(each) for each in answer.chunks] if answer.header("transfer-encoding") == "chunked" else []
    ended = "whole" if answer.ended == "whole" else "broken"
    return Given(str(answer.header("x-mneme-cassette")), answer.status, answer.body, pieces, ended)


async def run(port: int, app: App, number: int, calls: Sequence[Cassette], folder: Path) -> None:
    """One run of the suite, in an order of its own; some from files whose answers are read when they are played."""
    chance = random.Random(number)
    matching = MATCHINGS[number % len(MATCHINGS)]
    lazy, once, beside = (chance.random() < 0.5 for _ in range(3))
    recorded = load([folder], answers=False) if lazy else calls
    deck = Deck(recorded, Reader.of(matching), "once" if once else "again")
    app.mount(f"run-{number}", Player(deck, answered=answered if lazy else None))
    order = list(calls)
    if matching != "sequence":
        chance.shuffle(order)
    if beside and matching != "sequence":
        given = await asyncio.gather(*(ask(port, f"run-{number}", each) for each in order))
    else:
        given = [await ask(port, f"run-{number}", each) for each in order]
    told = f"run {number}, by {matching}, {'once' if once else 'again'}, {'side by side' if beside else 'in turn'}"
    assert sorted(given) == sorted(map(expected, calls)), told
    if not beside or matching == "sequence":
        # Equal requests are answered in the order of the recording.
        for body in {each.request.body for each in calls}:
            got = [each.cassette for each, call in zip(given, order, strict=True) if call.request.body == body]
            assert got == [each.id for each in calls if each.request.body == body], told
    assert not deck.unplayed
    again = await ask(port, f"run-{number}", calls[0])
    if once:
        assert again.status == 404, told
    else:
        last = calls[0] if matching == "sequence" else calls[2]
        assert again == expected(last), told
    app.unmount(f"run-{number}")


@pytest.mark.parametrize(
    "runs", [50, pytest.param(1000, marks=[pytest.mark.heavy, pytest.mark.timeout(1200)])], ids=lambda each: f"{each}"
)
async def test_every_run_is_the_same(runs: int, tmp_path: Path) -> None:
    calls = mixed()
    write(tmp_path, numbered(calls))
    app = App()
    room = asyncio.Semaphore(AT_ONCE)
    numbers = list(range(runs))
    random.Random(runs).shuffle(numbers)

    async def one(number: int, port: int) -> Any:
        async with room:
            await run(port, app, number, calls, tmp_path)

    with Background(app) as server:
        port = int(server.url.rpartition(":")[2])
        await asyncio.gather(*(one(each, port) for each in numbers))
