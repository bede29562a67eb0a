"""Cassettes over a real socket: every byte, every piece, every end as recorded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from mneme_replay import timing
from mneme_replay.cassette import Cassette, Chunk, Response
from mneme_replay.deck import Deck
from mneme_replay.files import answered, load, numbered, write
from mneme_replay.player import App, Player
from mneme_replay.requests import Reader
from mneme_replay.serving import Background
from mneme_replay.timing import headers_to_play
from tests.support.cassettes import CHAT, SSE_HEADERS, asking, captured, cassette, streamed, streaming
from tests.support.replies import captured_cases
from tests.support.sockets import RawClient, RawResponse, fetch

NOISE = {"x-mneme-cassette"}


@contextmanager
def playing(
    *cassettes: Cassette, speed: float = 0.0, matching: str = "normalised", once: bool = False
) -> Iterator[int]:
    """The port of a server of these cassettes."""
    app = App()
    app.mount("", Player(Deck(cassettes, Reader.of(matching), "once" if once else "again"), speed=speed))
    with Background(app) as server:
        yield int(server.url.rpartition(":")[2])


async def ask(port: int, call: Cassette) -> RawResponse:
    request = call.request
    headers = [(name.encode(), value.encode()) for name, value in request.headers]
    return await fetch(port, request.method, request.path, headers, request.body)


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[App, int]]:
    """A server that plays one cassette after another, and its port: to stop one takes 0.2 s."""
    app = App()
    with Background(app) as server:
        yield app, int(server.url.rpartition(":")[2])


@pytest.mark.parametrize("case", captured_cases())
async def test_what_a_real_server_sent_is_played_byte_for_byte_and_piece_by_piece(
    case: str, stage: tuple[App, int]
) -> None:
    call = captured(case)
    response = call.response
    assert response is not None
    app, port = stage
    app.mount("", Player(Deck([call], Reader.of("strict")), speed=0.0))
    answer = await ask(port, call)
    assert (answer.status, answer.body) == (response.status, response.body)
    expected = [(name.encode(), value.encode()) for name, value in headers_to_play(response)]
    given = [(name, value) for name, value in answer.headers if name.decode().lower() not in NOISE]
    assert [each for each in given if each[0].lower() not in (b"transfer-encoding", b"connection")] == expected
    assert (answer.ended == "whole") is call.whole
    if answer.header("transfer-encoding") == "chunked":
        assert [len(each) for each in answer.chunks] == [each.size for each in response.chunks]


async def test_a_stream_that_was_cut_is_cut_in_the_same_place() -> None:
    events = streaming("Hel", "lo!")
    body = b"".join(events)[:-30]
    chunks = (Chunk(1, len(events[0])), Chunk(2, len(body) - len(events[0])))
    response = Response(status=200, headers=SSE_HEADERS, body=body, chunks=chunks)
    for outcome in ("broken", "cancelled"):
        call = streamed(response=response, outcome=outcome)
        with playing(call) as port:
            answer = await ask(port, call)
        assert (answer.body, answer.ended) == (body, "eof")
        assert [len(each) for each in answer.chunks] == [each.size for each in chunks]


WAITED = {"latency_ms": 150}
"""How long the client of a recording waited; another one is given twice as long."""


async def test_where_the_client_left_nothing_more_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any speed. No time is asserted but that which cannot be shorter."""
    monkeypatch.setattr(timing, "GRACE_S", 0.0)
    events = streaming("Hel", "lo!")[:2]
    chunks = (Chunk(1, len(events[0])), Chunk(2, len(events[1])))
    response = Response(status=200, headers=SSE_HEADERS, body=b"".join(events), chunks=chunks)
    loop = asyncio.get_running_loop()
    for call in (
        streamed(response=response, outcome="gone", call=WAITED),
        cassette(response=None, outcome="gone", call=WAITED),
    ):
        with playing(call, speed=100.0) as port:
            began = loop.time()
            answer = await ask(port, call)
            assert loop.time() - began >= 0.3
        if call.response is None:
            assert answer.status == 504
            assert "gave up after 0.1 s without an answer" in answer.json()["error"]["message"]
        else:
            assert (answer.chunks, answer.ended) == (events, "eof")


async def test_silence_ends_when_the_client_leaves() -> None:
    call = cassette(response=None, outcome="gone", call={"latency_ms": 3_600_000})
    with playing(call) as port:
        async with RawClient(port) as client:
            await client.send("POST", CHAT, [], call.request.body)
            assert (await fetch(port, "GET", "/healthz")).status == 200
    # Leaving `playing` waits for what is in flight: nothing is.


async def test_an_answer_that_was_whole_ends_though_its_client_had_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last byte and the client's going may have crossed."""
    monkeypatch.setattr(timing, "GRACE_S", 3600.0)
    response = Response(status=200, headers=(("content-length", "3"),), body=b"abc", chunks=(Chunk(1, 3),))
    call = cassette(response=response, outcome="gone")
    with playing(call) as port:
        answer = await ask(port, call)
    assert (answer.body, answer.ended) == (b"abc", "whole")


async def test_a_body_with_a_length_that_was_cut_is_cut_too() -> None:
    response = Response(
        status=200, headers=(("content-length", "100"), ("x", "y")), body=b"abc", chunks=(Chunk(1, 1), Chunk(2, 2))
    )
    call = cassette(response=response, outcome="broken")
    with playing(call) as port:
        answer = await ask(port, call)
    assert (answer.body, answer.ended, answer.header("content-length")) == (b"abc", "eof", "100")


@pytest.mark.parametrize(
    ("error", "status"),
    [("The upstream cannot be reached: refused", 502), ("The upstream did not answer in time.", 504), (None, 502)],
)
async def test_an_answer_that_never_came_is_the_error_that_mneme_gave(error: str | None, status: int) -> None:
    call = cassette(response=None, outcome="failed", error=error)
    with playing(call) as port:
        answer = await ask(port, call)
    assert answer.status == status
    assert answer.json()["error"] == {
        "message": error or "There was no answer.", "type": "upstream_error", "param": None, "code": None,
    }  # fmt: skip


async def test_a_miss_is_a_404_that_shows_the_difference() -> None:
    call = cassette()
    with playing(call) as port:
        answer = await fetch(port, "POST", CHAT, [], asking("Say goodbye."))
        wrong_path = await fetch(port, "GET", "/v1/models")
        health = await fetch(port, "GET", "/healthz")
        again = await ask(port, call)
    assert answer.status == 404
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("not_found_error", "no_cassette")
    assert '-      "content": "Say hello.",\n+      "content": "Say goodbye.",' in error["message"]
    assert "GET /v1/models" in wrong_path.json()["error"]["message"]
    assert (health.status, again.status) == (200, 200)
    assert again.header("x-mneme-cassette") == call.id


async def test_a_file_that_was_damaged_since_is_told(tmp_path: Path) -> None:
    (file,) = write(tmp_path, numbered([cassette()]))
    app = App()
    app.mount("", Player(Deck(load([tmp_path], answers=False)), answered=answered))
    with Background(app) as server:
        port = int(server.url.rpartition(":")[2])
        assert (await ask(port, cassette())).json() == json.loads((cassette().response or Response(status=0)).body)
        file.write_bytes(b'{"mneme_cassette": 1')
        answer = await ask(port, cassette())
    assert (answer.status, answer.json()["error"]["code"]) == (500, "bad_cassette")
    assert f"{file}:1: no JSON: the file is cut off" in answer.json()["error"]["message"]


async def test_time_is_kept_by_the_speed() -> None:
    """No time is asserted but that of the recording, which cannot be shorter: 0.3 s at 1, 0.03 s at 10."""
    events = streaming("Hel", "lo!")
    chunks = tuple(Chunk(60_000 * n, len(each)) for n, each in enumerate(events, 1))
    call = streamed(response=Response(status=200, headers=SSE_HEADERS, body=b"".join(events), chunks=chunks))
    loop = asyncio.get_running_loop()
    for speed, least in ((1.0, 0.3), (10.0, 0.03)):
        with playing(call, speed=speed) as port:
            began = loop.time()
            answer = await ask(port, call)
            assert loop.time() - began >= least
        assert answer.chunks == events


async def test_a_client_that_goes_away_ends_its_replay() -> None:
    events = streaming("Hel", "lo!")
    chunks = (Chunk(0, len(events[0])), *(Chunk(3_600_000_000, len(each)) for each in events[1:]))
    call = streamed(response=Response(status=200, headers=SSE_HEADERS, body=b"".join(events), chunks=chunks))
    with playing(call, speed=1.0) as port:
        async with RawClient(port) as client:
            await client.send("POST", CHAT, [], call.request.body)
            await client.read_until(b"\n\n")
    # Leaving `playing` waits for what is in flight: nothing is.


async def test_many_at_once_get_each_their_own() -> None:
    calls = [cassette(n, body=asking(f"Number {n}"), answer=json.dumps({"n": n}).encode()) for n in range(60)]
    with playing(*calls, once=True) as port:
        answers = await asyncio.gather(*(ask(port, each) for each in reversed(calls)))
    assert [each.json()["n"] for each in answers] == list(reversed(range(60)))


async def test_a_connection_is_used_again() -> None:
    call = cassette()
    with playing(call) as port:
        async with RawClient(port) as client:
            for _ in range(3):
                await client.send("POST", CHAT, [(b"content-type", b"application/json")], call.request.body)
                assert (await client.response()).body == (call.response or Response(status=0)).body


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body(status: int) -> None:
    call = replace(cassette(), response=Response(status=status, headers=(("content-length", "5"),)))
    with playing(call) as port:
        answer = await ask(port, call)
    assert (answer.status, answer.body, answer.ended) == (status, b"", "whole")
