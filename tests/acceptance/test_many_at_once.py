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
from tests.support.sockets import RawResponse, fetch

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
