"""How answers end before their end: the client goes, or the server is stopped. What there was is kept, and says so."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence

from tests.acceptance.sdk_upstream import chunk
from tests.support.clients import Api, user
from tests.support.replies import Recorded, Reply, Stall, Step, Until, chat_script, reply_events
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import RawClient, RawResponse, eventually

CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
STREAMS = 20

StartServer = Callable[..., MnemeServer]


def body_of(text: str, *, stream: bool) -> bytes:
    return json.dumps({"model": "gpt-4o", "messages": [user(text)], "stream": stream}).encode()


def headers_of(who: str) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", b"application/json"), (b"x-mneme-user", who.encode())]


def begun(*pieces: str, end: Sequence[Step]) -> Reply:
    """A stream that has begun, and then does what `end` says."""
    events = [chunk("gpt-4o", {"role": "assistant", "content": ""}), *(chunk("gpt-4o", {"content": p}) for p in pieces)]
    return reply_events(events, end=list(end))


def rest(*pieces: str) -> list[bytes]:
    """The end of such a stream."""
    return [*(chunk("gpt-4o", {"content": piece}) for piece in pieces), chunk("gpt-4o", {}, "stop"), DONE]


# --- a client that goes --------------------------------------------------------------------------------------------------


async def test_a_stream_that_the_client_leaves_is_kept_as_interrupted(
    mneme: MnemeServer, upstream: ScriptedUpstream
) -> None:
    upstream.script = chat_script(lambda asked: begun("What came ", "is kept", end=[Stall()]))
    async with RawClient(mneme.port) as client:
        await client.send("POST", CHAT, headers_of("leaver"), body_of("Tell me", stream=True))
        head = await client.read_until(b"\r\n\r\n")
        await client.read_until(b"is kept")
        client.reset()
    chats = [each for each in upstream.requests if each.path == CHAT]
    await eventually(chats[0].peer_closed.is_set, "the upstream's connection to be closed")
    api = Api(mneme, user="leaver")
    call = head.split(b"x-mneme-call-id: ")[1].split(b"\r\n")[0].decode()
    await eventually(lambda: api.send("GET", f"/calls/{call}").status_code == 200, "the call to be recorded")
    record = api.call(call)
    assert record["outcome"] == "gone"
    question, answer = api.history(record["session_id"])
    assert question["content"] == "Tell me"
    assert answer["content"] == "What came is kept"
    assert answer["metadata"]["interrupted"] is True
    assert api.stream(call) == api.raw(call)
    assert b"is kept" in api.raw(call)


async def test_a_client_that_goes_before_the_answer_leaves_no_call_open(
    mneme: MnemeServer, upstream: ScriptedUpstream
) -> None:
    upstream.script = chat_script(lambda asked: Reply([Stall()]))
    async with RawClient(mneme.port) as client:
        await client.send("POST", CHAT, headers_of("early"), body_of("Tell me", stream=False))
        await eventually(lambda: any(each.path == CHAT for each in upstream.requests), "the upstream to be asked")
    request = next(each for each in upstream.requests if each.path == CHAT)
    await eventually(request.peer_closed.is_set, "the upstream's connection to be closed")
    api = Api(mneme, user="early")
    await eventually(lambda: len(api.calls()) == 1, "the call to be recorded")
    (call,) = api.calls()
    assert call["status"] is None
    assert call["outcome"] in ("gone", "failed")


# --- SIGTERM ---------------------------------------------------------------------------------------------------------------


async def open_stream(mneme: MnemeServer, who: str) -> RawClient:
    client = await RawClient(mneme.port).__aenter__()
    await client.send("POST", CHAT, headers_of(who), body_of(f"I am {who}", stream=True))
    return client


async def test_sigterm_lets_open_streams_end(own_server: StartServer) -> None:
    go = threading.Event()
    ending = [Until(go), *(step for event in rest("Good night.") for step in reply_events([event]).steps[2:-1])]
    reply = begun("Good ", end=[*ending, *reply_events([]).steps[1:]])
    with ScriptedUpstream(chat_script(lambda asked: reply)) as upstream:
        mneme = own_server(upstream.url, SHUTDOWN_GRACE_S="20")
        clients = [await open_stream(mneme, f"user-{n}") for n in range(STREAMS)]
        await eventually(lambda: len(chats(upstream)) == STREAMS, "all streams to be open")
        mneme.terminate()
        go.set()
        answers = await asyncio.gather(*(client.response() for client in clients))
        for client in clients:
            client.close()
        assert await asyncio.to_thread(mneme.wait) == 0
        assert all(each.ended == "whole" and each.body.endswith(DONE) for each in answers)
        mneme.restart()
        check_outcomes(mneme, answers, "complete")


async def test_sigterm_keeps_what_streams_had_when_the_grace_is_over(own_server: StartServer) -> None:
    with ScriptedUpstream(chat_script(lambda asked: begun("Half ", "an answer", end=[Stall()]))) as upstream:
        mneme = own_server(upstream.url, SHUTDOWN_GRACE_S="1")
        clients = [await open_stream(mneme, f"user-{n}") for n in range(STREAMS)]
        heads = [await client.read_until(b"an answer") for client in clients]
        mneme.terminate()
        assert await asyncio.to_thread(mneme.wait) == 0
        for client in clients:
            client.close()
        assert not any(DONE in head for head in heads)
        mneme.restart()
        for n, head in enumerate(heads):
            api = Api(mneme, user=f"user-{n}")
            call = head.split(b"x-mneme-call-id: ")[1].split(b"\r\n")[0].decode()
            record = api.call(call)
            assert record["outcome"] == "cancelled"
            question, answer = api.history(record["session_id"])
            assert (question["content"], answer["content"]) == (f"I am user-{n}", "Half an answer")
            assert answer["metadata"]["interrupted"] is True


async def test_sigterm_tells_those_who_still_wait_for_an_answer(own_server: StartServer) -> None:
    with ScriptedUpstream(chat_script(lambda asked: Reply([Stall()]))) as upstream:
        mneme = own_server(upstream.url, SHUTDOWN_GRACE_S="1")
        async with RawClient(mneme.port) as client:
            await client.send("POST", CHAT, headers_of("waiter"), body_of("Well?", stream=False))
            await eventually(lambda: len(chats(upstream)) == 1, "the upstream to be asked")
            mneme.terminate()
            answer = await client.response()
        assert await asyncio.to_thread(mneme.wait) == 0
        assert (answer.status, answer.ended, answer.header("retry-after")) == (503, "whole", "1")
        assert answer.json()["error"] == {
            "message": "The server is stopping; try again.",
            "type": "service_unavailable",
            "param": None,
            "code": "server_stopping",
        }
        assert chats(upstream)[0].peer_closed.is_set()
        assert "Traceback" not in mneme.log_text()
        mneme.restart()
        assert Api(mneme, user="waiter").call(answer.header("x-mneme-call-id") or "")["outcome"] == "cancelled"


def chats(upstream: ScriptedUpstream) -> list[Recorded]:
    return [each for each in upstream.requests if each.path == CHAT]


def check_outcomes(mneme: MnemeServer, answers: Sequence[RawResponse], outcome: str) -> None:
    for n, answer in enumerate(answers):
        api = Api(mneme, user=f"user-{n}")
        call = answer.header("x-mneme-call-id") or ""
        assert api.call(call)["outcome"] == outcome
        assert api.raw(call) == answer.body
