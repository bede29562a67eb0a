"""What the client saw the end of is on disk: after kill -9, without a database, and whatever becomes of the worker."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from app.server.worker import NICE
from tests.support.clients import Api, ask, error_of, user
from tests.support.database import connected
from tests.support.outage import give_back, take_away
from tests.support.replies import Recorded, chat_script
from tests.support.rows import read_jobs
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer, runs
from tests.support.sockets import RawClient, RawResponse, eventually, fetch

CHAT = "/v1/chat/completions"
PIECES = ["Kept ", "is ", "kept."]
DONE = b"data: [DONE]\n\n"

StartServer = Callable[..., MnemeServer]


def body_of(text: str, *, stream: bool) -> bytes:
    return json.dumps({"model": "gpt-4o", "messages": [user(text)], "stream": stream}).encode()


def headers_of(who: str) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", b"application/json"), (b"x-mneme-user", who.encode())]


def chats(upstream: ScriptedUpstream) -> list[Recorded]:
    return [each for each in upstream.requests if each.path == CHAT]


# --- kill -9 ------------------------------------------------------------------------------------------------------------


@dataclass
class Acknowledged:
    """A call whose end a client has seen."""

    question: str
    call: str
    session: str
    body: bytes
    stream: bool


async def acknowledge_and_kill(mneme: MnemeServer, who: str, run: int) -> Acknowledged:
    """One call, and kill -9 the moment its last byte is here."""
    stream = run % 2 == 0
    question = f"Question {run}: remember the number {run * 7919}."
    async with RawClient(mneme.port) as client:
        await client.send("POST", CHAT, headers_of(who), body_of(question, stream=stream))
        head = await client.read_until(b"\r\n\r\n")
        lines = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
        received = b""
        length = int(lines.get(b"content-length", b"0"))
        while DONE not in received if stream else len(received) < length:
            piece = await client.read()
            assert piece, f"the answer broke off after {received!r}"
            received += piece
        mneme.kill9()
    body = received if not stream else _unchunked(received)
    call, session = (lines[name].decode() for name in (b"x-mneme-call-id", b"x-mneme-session-id"))
    return Acknowledged(question, call, session, body, stream)


def _unchunked(data: bytes) -> bytes:
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        body += data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]
    return body


def check_kept(api: Api, expected: Acknowledged) -> None:
    call = api.call(expected.call)
    assert (call["outcome"], call["status"], call["session_id"]) == ("complete", 200, expected.session)
    assert api.raw(expected.call) == expected.body
    if expected.stream:
        assert expected.body.endswith(DONE)
        assert api.stream(expected.call) == expected.body
    assert api.said(expected.session) == [("user", expected.question), ("assistant", "".join(PIECES))]
    assert expected.question.encode() in api.request(expected.call)


async def kill_runs(start: StartServer, database: str, times: int) -> None:
    with ScriptedUpstream(chat_script(lambda asked: PIECES)) as upstream:
        mneme = start(upstream.url)
        kept = []
        for run in range(times):
            kept.append(await acknowledge_and_kill(mneme, "ana", run))
            mneme.restart()
            check_kept(Api(mneme, user="ana"), kept[-1])
            await check_jobs(database, kept[-1])
        api = Api(mneme, user="ana")
        for each in kept:
            check_kept(api, each)
        assert sorted(each["id"] for each in api.calls()) == sorted(each.call for each in kept)
        assert len(api.sessions()) == times


async def check_jobs(database: str, expected: Acknowledged) -> None:
    """The turn's work is queued: a job names the session's messages."""
    async with connected(database) as admin:
        payloads = [job["payload"].decode() for job in await read_jobs(admin)]
    queued = [payload for payload in payloads if expected.session in payload or expected.call in payload]
    assert queued, "no job for this turn is in the queue"


async def test_after_kill_9_everything_acknowledged_is_there(own_server: StartServer, database: str) -> None:
    await kill_runs(own_server, database, 2)


@pytest.mark.heavy
@pytest.mark.timeout(1800)
async def test_after_kill_9_everything_acknowledged_is_there_a_hundred_times(
    own_server: StartServer, database: str
) -> None:
    await kill_runs(own_server, database, 100)


# --- without a database ------------------------------------------------------------------------------------------------------


async def test_without_a_database_and_a_spool_the_end_of_an_answer_is_withheld(
    own_server: StartServer, database: str
) -> None:
    with ScriptedUpstream(chat_script(lambda asked: PIECES)) as upstream:
        mneme = own_server(upstream.url, RETRIEVAL_DEADLINE_MS="500", SPOOL_MAX_BYTES="0")
        before = await fetch(mneme.port, "POST", CHAT, headers_of("ana"), body_of("Before", stream=True))
        assert before.body.endswith(DONE)
        await take_away(database)
        stream = await fetch(mneme.port, "POST", CHAT, headers_of("ana"), body_of("Without", stream=True))
        assert stream.status == 200
        assert stream.header("x-mneme-status") == "degraded"
        assert stream.header("x-mneme-reason") in ("store", "deadline")
        assert b"kept." in stream.body
        assert b"[DONE]" not in stream.body
        assert stream.ended != "whole"
        whole = await fetch(mneme.port, "POST", CHAT, headers_of("ana"), body_of("Without", stream=False))
        assert whole.ended != "whole"
        await asyncio.to_thread(mneme.wait_for_log, "the call could not be stored")
        answer = mneme.http.get("/metrics")
        assert "mneme_" in answer.text
        assert [each.json()["messages"] for each in chats(upstream)[1:]] == [[user("Without")]] * 2

        await give_back(database)
        healed: list[RawResponse] = []
        async with asyncio.timeout(20):
            while not healed or healed[-1].header("x-mneme-status") != "ok":
                healed.append(await fetch(mneme.port, "POST", CHAT, headers_of("ana"), body_of("After", stream=True)))
        assert healed[-1].body.endswith(DONE)
        texts = [each["content"] for s in Api(mneme, user="ana").sessions() for each in Api(mneme).history(s["id"])]
        assert "Before" in texts
        assert "After" in texts
        assert "Without" not in texts


async def test_best_effort_ends_normally_without_a_database_and_a_spool(own_server: StartServer, database: str) -> None:
    with ScriptedUpstream(chat_script(lambda asked: PIECES)) as upstream:
        mneme = own_server(upstream.url, SPOOL_MAX_BYTES="0", RETRIEVAL_DEADLINE_MS="500", DURABILITY="best_effort")
        await take_away(database)
        for stream in (True, False):
            answer = await fetch(mneme.port, "POST", CHAT, headers_of("ana"), body_of("Without", stream=stream))
            assert answer.status == 200
            assert answer.ended == "whole"
            assert answer.header("x-mneme-status") == "degraded"
            assert b"kept." in answer.body
        await asyncio.to_thread(mneme.wait_for_log, "the call could not be stored")
        listing = await fetch(mneme.port, "GET", "/v1/models")
        assert (listing.status, listing.json()["object"]) == (200, "list")
        await give_back(database)


async def test_a_key_that_cannot_be_checked_is_refused_and_never_let_in(own_server: StartServer, database: str) -> None:
    with ScriptedUpstream(chat_script(lambda asked: PIECES)) as upstream:
        mneme = own_server(upstream.url, AUTH="keys")
        cached_key, uncached_key = [await asyncio.to_thread(mneme.create_key, name) for name in ("seen", "unseen")]
        bearer = {"authorization": f"Bearer {cached_key}"}
        assert (await asyncio.to_thread(ask, mneme, "hi", headers=bearer)).status_code == 200
        await take_away(database)
        bearer = {"authorization": f"Bearer {uncached_key}"}
        refused = await asyncio.to_thread(ask, mneme, "hi", headers=bearer)
        assert refused.status_code == 503
        assert error_of(refused)["type"] == "service_unavailable"
        assert len(chats(upstream)) == 1
        await give_back(database)


# --- the worker ---------------------------------------------------------------------------------------------------------------


async def test_a_worker_goes_with_its_server(own_server: StartServer) -> None:
    """After kill -9 of the server its worker ends by itself; the restarted server's own one does the work."""
    with ScriptedUpstream(chat_script(lambda asked: PIECES)) as upstream:
        mneme = own_server(upstream.url, worker=True)
        await eventually(lambda: len(mneme.workers) == 1, "the worker to start")
        (orphan,) = mneme.workers
        await eventually(lambda: os.getpriority(os.PRIO_PROCESS, orphan) == NICE, "the worker to give way")
        mneme.kill9()
        await eventually(lambda: not runs(orphan), "the orphaned worker to end")
        mneme.restart()
        answer = await asyncio.to_thread(ask, mneme, "I live in Lisbon.", headers={"x-mneme-user": "ana"})
        assert answer.status_code == 200
        api = Api(mneme, user="ana")
        await asyncio.to_thread(api.wait_for_quiet)
        assert any("Lisbon" in each["text"] for each in api.all("/memories", "memories"))
