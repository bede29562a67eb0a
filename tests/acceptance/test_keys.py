"""Keys mode: who may enter, whose data it is, and that nothing brings two people, or two conversations of one, together."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.clients import (
    Api,
    Message,
    answer_of,
    ask,
    assistant,
    call_of,
    error_of,
    prompt_of,
    session_of,
    user,
)
from tests.support.replies import Script, chat_script
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

CHAT = "/v1/chat/completions"
WRONG = "mneme_" + "x" * 43
HELLO = "Hello, what can I do for you?"
SECRET = "My locker is 4711 and my name is Alice Zweig."


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return {"AUTH": "keys"}


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(lambda asked: HELLO)


@pytest.fixture(scope="module")
def app_key(mneme: MnemeServer) -> str:
    """The key of an application with many users."""
    return mneme.create_key("app", "--tenant", "one")


@pytest.fixture(scope="module")
def other_key(mneme: MnemeServer) -> str:
    """The key of another tenant."""
    return mneme.create_key("app", "--tenant", "two")


@pytest.fixture(scope="module")
def ana_key(mneme: MnemeServer) -> str:
    """A key made for one user."""
    return mneme.create_key("ana", "--tenant", "one", "--user", "ana")


def bearer(key: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} | {name.replace("_", "-"): value for name, value in more.items()}


def chats(upstream: ScriptedUpstream) -> list[str]:
    return [prompt_of(each) for each in upstream.requests if each.path == CHAT]


# --- getting in -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {}, {"authorization": f"Bearer {WRONG}"}, {"authorization": "Bearer mneme_short"}, {"authorization": "Bearer sk-x"},
        {"authorization": "Basic bW5lbWU6eA=="}, {"x-mneme-key": WRONG}, {"x-mneme-key": ""},
    ],
    ids=["none", "unknown", "malformed", "the upstream's", "basic", "own header, unknown", "own header, empty"],
)  # fmt: skip
def test_without_a_valid_key_nobody_gets_in(
    mneme: MnemeServer, upstream: ScriptedUpstream, headers: dict[str, str]
) -> None:
    answers = [
        ask(mneme, "hi", headers=headers),
        mneme.http.get("/v1/models", headers=headers),
        mneme.http.get("/api/v1/users", headers=headers),
        mneme.http.post("/api/v1/memories/search", headers=headers, content=b"{not json"),
    ]
    for answer in answers:
        assert answer.status_code == 401
        assert error_of(answer)["type"] == "authentication_error"
        assert WRONG not in answer.text
    assert not upstream.requests


def test_a_mneme_key_never_reaches_the_upstream(mneme: MnemeServer, upstream: ScriptedUpstream, app_key: str) -> None:
    own = {"x-mneme-key": app_key, "authorization": "Bearer sk-of-the-upstream"}
    for headers in (bearer(app_key, x_mneme_user="kim"), own, own | {"x-api-key": app_key}):
        assert answer_of(ask(mneme, "hi", headers=headers))
        assert mneme.http.get("/v1/models", headers=headers).status_code == 200
    assert upstream.requests
    for request in upstream.requests:
        assert app_key.encode() not in request.head + request.body
        assert b"x-mneme" not in request.head.lower()
    given = [each.header("authorization") for each in upstream.requests if each.path == CHAT]
    assert given == [None, "Bearer sk-of-the-upstream", "Bearer sk-of-the-upstream"]


def test_a_revoked_key_is_out(mneme: MnemeServer) -> None:
    """Within its short life in the cache."""
    key = mneme.create_key("short-lived")
    listed = json.loads(mneme.command("keys", "list", "--json").stdout)
    assert key not in json.dumps(listed)
    found = next(each for each in listed if each["name"] == "short-lived")
    assert mneme.command("keys", "revoke", found["id"]).returncode == 0
    assert ask(mneme, "hi", headers=bearer(key)).status_code == 401


# --- whose data it is -------------------------------------------------------------------------------------------------------


def test_a_key_of_one_user_is_that_user(mneme: MnemeServer, app_key: str, ana_key: str) -> None:
    first = ask(mneme, "My parrot is called Coco.", headers=bearer(ana_key), user="somebody else")
    assert Api(mneme, user="ana", key=app_key).call(call_of(first))["user"] == "ana"
    refused = ask(mneme, "hi", headers=bearer(ana_key, x_mneme_user="bob"))
    assert refused.status_code == 403
    assert error_of(refused)["type"] == "permission_error"
    assert Api(mneme, user="bob", key=ana_key).send("GET", "/sessions").status_code == 403


def test_another_users_session_is_not_found(mneme: MnemeServer, upstream: ScriptedUpstream, app_key: str) -> None:
    answer = ask(mneme, "A secret of mine: Quetzal.", headers=bearer(app_key, x_mneme_user="mia"))
    session, call = session_of(answer), call_of(answer)
    upstream.requests.clear()
    intruding = ask(mneme, "What did I say?", headers=bearer(app_key, x_mneme_user="noa", x_mneme_session=session))
    assert intruding.status_code == 404
    assert error_of(intruding)["type"] == "not_found_error"
    assert not chats(upstream)
    other = Api(mneme, user="noa", key=app_key)
    for path in (f"/sessions/{session}", f"/sessions/{session}/history", f"/calls/{call}", f"/calls/{call}/raw"):
        assert other.send("GET", path).status_code == 404


def test_another_tenant_sees_nothing(
    mneme: MnemeServer, upstream: ScriptedUpstream, app_key: str, other_key: str
) -> None:
    answer = ask(mneme, "A secret of mine: Ocelot.", headers=bearer(app_key, x_mneme_user="same name"))
    session, call = session_of(answer), call_of(answer)
    upstream.requests.clear()
    ask(mneme, "Do you know my secret, the ocelot?", headers=bearer(other_key, x_mneme_user="same name"))
    assert "Ocelot" not in chats(upstream)[0]
    other = Api(mneme, user="same name", key=other_key)
    for path in (f"/sessions/{session}/history", f"/calls/{call}", f"/calls/{call}/context", f"/calls/{call}/raw"):
        assert other.send("GET", path).status_code == 404
    assert session not in json.dumps(other.sessions())
    found = other.post("/memories/search", {"user": "same name", "query": "secret ocelot"})
    assert "A secret of mine" not in json.dumps(found)


# --- without any user ---------------------------------------------------------------------------------------------------------


def test_two_end_users_without_any_id_are_never_pooled(
    mneme: MnemeServer, upstream: ScriptedUpstream, app_key: str
) -> None:
    """An application that names no user: both of its end users say "hi", get the same answer, and go on differently."""
    hello = [user("hi")]
    one, two = (ask(mneme, hello, headers=bearer(app_key)) for _ in range(2))
    assert one.headers["x-mneme-reason"] == two.headers["x-mneme-reason"] == "no-user"
    assert session_of(one) != session_of(two)
    begun = [*hello, assistant(answer_of(one))]
    ask(mneme, [*begun, user("My secret: I am allergic to peanuts and live in Faro.")], headers=bearer(app_key))
    upstream.requests.clear()
    for question in ("What am I allergic to, and where do I live?", "Peanuts? Faro?"):
        for transcript in ([user(question)], [*begun, user(question)]):
            answer = ask(mneme, transcript, headers=bearer(app_key))
            assert answer.headers["x-mneme-reason"] == "no-user"
    for prompt in chats(upstream):
        assert "I am allergic to peanuts" not in prompt
    # Nor the other way round: what the second one asked is not in the first one's prompts.
    upstream.requests.clear()
    first = [*begun, user("My secret: I am allergic to peanuts and live in Faro."), assistant(answer_of(one))]
    ask(mneme, [*first, user("What did I ask about peanuts?")], headers=bearer(app_key))
    assert "where do I live" not in chats(upstream)[0]


def test_a_trimmed_transcript_without_a_user_gets_nobody_elses_words(
    mneme: MnemeServer, upstream: ScriptedUpstream, app_key: str
) -> None:
    """Two end users whose last turns were alike, sent without what came before them."""
    same = assistant(HELLO)
    alike = [user("ok"), same, user("thanks"), same]
    ask(mneme, [user("I am Ines and live in Evora."), same, *alike[:1]], headers=bearer(app_key))
    ask(mneme, [user("I am Ines and live in Evora."), same, *alike[:3]], headers=bearer(app_key))
    upstream.requests.clear()
    ask(mneme, [*alike, user("Who am I and where do I live? In Evora?")], headers=bearer(app_key))
    assert "Ines" not in chats(upstream)[0]


def test_a_session_without_a_user_remembers_itself(
    mneme: MnemeServer, upstream: ScriptedUpstream, app_key: str
) -> None:
    headers = bearer(app_key, x_mneme_session="visitor 17")
    ask(mneme, "I live in Braga.", headers=headers)
    ask(mneme, "Where do I live?", headers=headers)
    assert "I live in Braga." in chats(upstream)[1]
    ask(mneme, "Where do I live, in Braga?", headers=bearer(app_key, x_mneme_session="visitor 18"))
    assert "I live in Braga." not in chats(upstream)[2]


# --- chance words, a retry's header, a shared key -------------------------------------------------------------------------


def said(mneme: MnemeServer, messages: list[Message], headers: dict[str, str], **fields: Any) -> httpx.Response:
    answer = ask(mneme, messages, headers=headers, **fields)
    assert answer.status_code == 200, answer.text
    return answer


def test_a_stranger_with_the_same_last_words_is_a_stranger(
    mneme: MnemeServer, upstream: ScriptedUpstream, app_key: str
) -> None:
    told = [user(SECRET), assistant(HELLO), user("thanks")]
    session = said(mneme, told[:1], bearer(app_key)).headers["x-mneme-session-id"]
    assert said(mneme, told, bearer(app_key)).headers["x-mneme-session-id"] == session
    answer = said(mneme, [user("thanks"), assistant(HELLO), user("What is my locker and name?")], bearer(app_key))
    assert answer.headers["x-mneme-session-id"] != session
    assert b"4711" not in upstream.requests[-1].body


def test_a_strangers_retry_is_not_mine(mneme: MnemeServer, app_key: str) -> None:
    session = said(mneme, [user("hi")], bearer(app_key)).headers["x-mneme-session-id"]
    answer = said(mneme, [user("hi")], bearer(app_key) | {"x-stainless-retry-count": "1"})
    assert answer.headers["x-mneme-session-id"] != session


def test_a_retry_does_not_take_up_what_has_gone_on(mneme: MnemeServer, app_key: str) -> None:
    own = bearer(app_key) | {"x-mneme-user": f"user-{uuid4()}"}
    session = said(mneme, [user("hi")], own).headers["x-mneme-session-id"]
    again = said(mneme, [user("hi")], own | {"x-stainless-retry-count": "1"})
    assert again.headers["x-mneme-session-id"] == session
    said(mneme, [user("hi"), assistant(HELLO), user(SECRET)], own)
    later = said(mneme, [user("hi")], own | {"x-stainless-retry-count": "1"})
    assert later.headers["x-mneme-session-id"] != session


@pytest.mark.parametrize("named", [True, False])
def test_an_idempotency_key_does_not_reach_into_another_session(
    mneme: MnemeServer, upstream: ScriptedUpstream, app_key: str, named: bool
) -> None:
    own = bearer(app_key) | ({"x-mneme-user": f"user-{uuid4()}"} if named else {})
    mine, other = str(uuid4()), str(uuid4())
    said(mneme, [user(SECRET)], own | {"x-mneme-session": mine})
    first = said(mneme, [user("hi")], own | {"x-mneme-session": mine, "idempotency-key": mine})
    assert b"4711" in upstream.requests[-1].body
    answer = said(mneme, [user("hi")], own | {"x-mneme-session": other, "idempotency-key": mine})
    assert answer.headers["x-mneme-session-id"] != first.headers["x-mneme-session-id"]
    assert not named or answer.headers.get("x-mneme-reason") is None
    assert all(b"4711" not in str(each["content"]).encode() for each in upstream.requests[-1].json()["messages"][:-1])
    again = said(mneme, [user("hi")], own | {"x-mneme-session": other, "idempotency-key": mine})
    assert again.headers["x-mneme-reason"] == "replayed"


@pytest.mark.parametrize(
    "fields", [{"temperature": 1e308}, {"top_p": -1e39}, {"max_tokens": 2**31}, {"max_completion_tokens": 10**18}]
)
def test_a_number_out_of_range_is_the_upstreams_to_judge(
    mneme: MnemeServer, app_key: str, fields: dict[str, Any]
) -> None:
    answer = said(mneme, [user("hello")], bearer(app_key) | {"x-mneme-user": f"user-{uuid4()}"}, **fields)
    assert answer.json()["choices"][0]["message"]["content"] == HELLO


def test_a_key_that_may_not_write_forgets_nothing_by_chat(mneme: MnemeServer, upstream: ScriptedUpstream) -> None:
    options = ("--tenant", "spoken", "--user", "zoe", "--scope", "proxy", "--scope", "read")
    reader, writer = mneme.create_key("reader", *options), mneme.create_key("writer", *options, "--scope", "write")
    ask(mneme, "I live in Lisbon.", headers=bearer(writer))
    ask(mneme, "Forget that I live in Lisbon.", headers=bearer(reader))
    assert "read-only" in chats(upstream)[-1]
    assert [each["text"] for each in Api(mneme, key=reader).get("/memories")["memories"]] == ["Lives in Lisbon"]
    ask(mneme, "Forget that I live in Lisbon.", headers=bearer(writer))
    assert Api(mneme, key=reader).get("/memories")["memories"] == []
