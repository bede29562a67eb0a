"""Many requests at once, on more connections than the pool has: each is answered, each is kept, once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from tests.support.clients import Api, user
from tests.support.replies import Script, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer
from tests.support.sockets import RawClient, RawResponse, fetch

CHAT = "/v1/chat/completions"
USERS = 8
EACH = 6
DONE = b"data: [DONE]\n\n"


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(lambda asked: ["One ", "of ", "many."])


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"POOL_SIZE": "2", "MAX_BODY_BYTES": "100000"}


async def ask(mneme: MnemeServer, text: str, who: str, session: str | None = None) -> RawResponse:
    body = json.dumps({"model": "gpt-4o", "messages": [user(text)], "stream": True}).encode()
    headers = [(b"content-type", b"application/json"), (b"x-mneme-user", who.encode())]
    headers += [(b"x-mneme-session", session.encode())] if session is not None else []
    return await fetch(mneme.port, "POST", CHAT, headers, body)


async def test_all_are_answered_and_kept_once(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    answers = await asyncio.gather(
        *(ask(mneme, f"Question {n}", f"user-{who}") for n in range(EACH) for who in range(USERS))
    )
    assert all(each.ended == "whole" and each.body.endswith(DONE) for each in answers)
    assert {each.header("x-mneme-status") for each in answers} == {"ok"}
    assert len({each.header("x-mneme-call-id") for each in answers}) == USERS * EACH
    for who in range(USERS):
        api = Api(mneme, user=f"user-{who}")
        sessions = api.sessions()
        assert len(sessions) == EACH
        texts = Counter(text for session in sessions for _, text in api.said(session["id"]))
        assert texts == Counter([f"Question {n}" for n in range(EACH)]) + Counter({"One of many.": EACH})
        assert {each["outcome"] for each in api.calls()} == {"complete"}


async def test_turns_of_one_session_at_once_all_find_their_place(
    mneme: MnemeServer, upstream: ScriptedUpstream
) -> None:
    answers = await asyncio.gather(*(ask(mneme, f"Question {n}", "crowd", "one") for n in range(EACH)))
    assert len({each.header("x-mneme-session-id") for each in answers}) == 1
    history = Api(mneme, user="crowd").history("one")
    assert Counter(each["role"] for each in history) == {"user": EACH, "assistant": EACH}
    assert len({(each["turn_index"], each["sibling"]) for each in history}) == 2 * EACH
    by_id = {each["id"]: each for each in history}
    for each in history:
        if each["role"] == "assistant":
            asked = by_id[each["parent_id"]]
            assert asked["role"] == "user"
            assert asked["call_id"] == each["call_id"]
            assert asked["turn_index"] < each["turn_index"]


async def test_an_idempotency_key_fifty_times_at_once_is_one_turn(
    mneme: MnemeServer, upstream: ScriptedUpstream
) -> None:
    body = json.dumps({"model": "gpt-4o", "messages": [user("once")], "stream": True}).encode()
    headers = [(b"content-type", b"application/json"), (b"x-mneme-user", b"hasty"), (b"idempotency-key", b"k")]
    answers = await asyncio.gather(*(fetch(mneme.port, "POST", CHAT, headers, body) for _ in range(50)))
    assert all(each.ended == "whole" and each.body.endswith(DONE) for each in answers)
    assert len({each.header("x-mneme-session-id") for each in answers}) == 1
    api = Api(mneme, user="hasty")
    (session,) = api.sessions()
    assert api.said(session["id"]) == [("user", "once"), ("assistant", "One of many.")]
    assert len({each["id"] for each in api.calls()}) == 50


async def test_a_connection_serves_one_request_after_another(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    """Whole, streamed, refused for a header, and something else, on one connection."""
    good = json.dumps({"model": "gpt-4o", "messages": [user("hi")]}).encode()
    streamed = json.dumps({"model": "gpt-4o", "messages": [user("hi")], "stream": True}).encode()
    kind = (b"content-type", b"application/json")
    async with RawClient(mneme.port) as client:
        for _ in range(2):
            statuses = []
            for path, headers, body in (
                (CHAT, [kind], good),
                (CHAT, [kind], streamed),
                (CHAT, [kind, (b"x-mneme-memory", b"perhaps")], good),
                ("/v1/no-such-path", [kind], good),
            ):
                await client.send("POST", path, headers, body)
                statuses.append((await client.response()).status)
            assert statuses == [200, 200, 400, 404]


async def test_a_client_that_waits_for_100_continue_gets_it(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    body = json.dumps({"model": "gpt-4o", "messages": [user("hi")]}).encode()
    async with RawClient(mneme.port) as client:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: test\r\nexpect: 100-continue\r\ncontent-length: {len(body)}\r\n"
        await client.write(head.encode() + b"content-type: application/json\r\n\r\n")
        assert await client.read_until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.write(body)
        assert (await client.response()).status == 200
