"""What must not bring two people together, or two conversations of one: chance words, a retry's header, a shared key."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.clients import Message, assistant, user
from tests.support.replies import Script, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

SECRET = "My locker is 4711 and my name is Alice Zweig."


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(lambda asked: "You're welcome!")


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"auth": "keys"}


@pytest.fixture(scope="module")
def key(mneme: MnemeServer) -> dict[str, str]:
    """A key of an application whose end users are not named."""
    return {"authorization": f"Bearer {mneme.create_key('app')}"}


def post(mneme: MnemeServer, messages: list[Message], headers: dict[str, str], **fields: Any) -> httpx.Response:
    body = {"model": "scripted", "messages": messages, **fields}
    answer = mneme.http.post("/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer


def test_a_stranger_with_the_same_last_words_is_a_stranger(
    mneme: MnemeServer, upstream: ScriptedUpstream, key: dict[str, str]
) -> None:
    told = [user(SECRET), assistant("You're welcome!"), user("thanks")]
    session = post(mneme, told[:1], key).headers["x-mneme-session-id"]
    assert post(mneme, told, key).headers["x-mneme-session-id"] == session
    answer = post(mneme, [user("thanks"), assistant("You're welcome!"), user("What is my locker and name?")], key)
    assert answer.headers["x-mneme-session-id"] != session
    assert b"4711" not in upstream.requests[-1].body


def test_a_strangers_retry_is_not_mine(mneme: MnemeServer, key: dict[str, str]) -> None:
    session = post(mneme, [user("hi")], key).headers["x-mneme-session-id"]
    answer = post(mneme, [user("hi")], key | {"x-stainless-retry-count": "1"})
    assert answer.headers["x-mneme-session-id"] != session


def test_a_retry_does_not_take_up_what_has_gone_on(mneme: MnemeServer, key: dict[str, str]) -> None:
    own = key | {"x-mneme-user": f"user-{uuid4()}"}
    session = post(mneme, [user("hi")], own).headers["x-mneme-session-id"]
    again = post(mneme, [user("hi")], own | {"x-stainless-retry-count": "1"})
    assert again.headers["x-mneme-session-id"] == session
    post(mneme, [user("hi"), assistant("You're welcome!"), user(SECRET)], own)
    later = post(mneme, [user("hi")], own | {"x-stainless-retry-count": "1"})
    assert later.headers["x-mneme-session-id"] != session


@pytest.mark.parametrize("named", [True, False])
def test_an_idempotency_key_does_not_reach_into_another_session(
    mneme: MnemeServer, upstream: ScriptedUpstream, key: dict[str, str], named: bool
) -> None:
    own = key | ({"x-mneme-user": f"user-{uuid4()}"} if named else {})
    mine, other = str(uuid4()), str(uuid4())
    post(mneme, [user(SECRET)], own | {"x-mneme-session": mine})
    first = post(mneme, [user("hi")], own | {"x-mneme-session": mine, "idempotency-key": mine})
    assert b"4711" in upstream.requests[-1].body
    answer = post(mneme, [user("hi")], own | {"x-mneme-session": other, "idempotency-key": mine})
    assert answer.headers["x-mneme-session-id"] != first.headers["x-mneme-session-id"]
    assert not named or answer.headers.get("x-mneme-reason") is None
    assert all(b"4711" not in str(each["content"]).encode() for each in upstream.requests[-1].json()["messages"][:-1])
    again = post(mneme, [user("hi")], own | {"x-mneme-session": other, "idempotency-key": mine})
    assert again.headers["x-mneme-reason"] == "replayed"


@pytest.mark.parametrize(
    "fields", [{"temperature": 1e308}, {"top_p": -1e39}, {"max_tokens": 2**31}, {"max_completion_tokens": 10**18}]
)
def test_a_number_out_of_range_is_the_upstreams_to_judge(
    mneme: MnemeServer, key: dict[str, str], fields: dict[str, Any]
) -> None:
    answer = post(mneme, [user("hello")], key | {"x-mneme-user": f"user-{uuid4()}"}, **fields)
    assert answer.json()["choices"][0]["message"]["content"] == "You're welcome!"
