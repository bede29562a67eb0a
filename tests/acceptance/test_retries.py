"""A request that is sent again: by the SDK's own retries, after a break, and under an Idempotency-Key. One turn."""

from __future__ import annotations

import itertools
from typing import Any

import httpx
import pytest

from tests.support.clients import Api, Message, answer_of, ask, assistant, call_of, sdk, session_of, user
from tests.support.replies import Reply, Rst, Script, chat_script, reply_events, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer


def echo(asked: dict[str, Any]) -> str:
    """Answers what was asked last, whatever memory stands before it."""
    return "You said: " + str(asked["messages"][-1]["content"]).rsplit("\n", 1)[-1]


@pytest.fixture(scope="module")
def script() -> Script:
    return chat_script(echo)


names = (f"user-{n}" for n in itertools.count())


@pytest.fixture
def someone() -> str:
    """A user whom no other test knows."""
    return next(names)


@pytest.fixture
def api(mneme: MnemeServer, someone: str) -> Api:
    return Api(mneme, user=someone)


def chats(upstream: ScriptedUpstream) -> list[list[Message]]:
    """The messages of every chat request that the upstream got."""
    return [each.json()["messages"] for each in upstream.requests if each.path == "/v1/chat/completions"]


def refused() -> Reply:
    error = {"error": {"message": "busy", "type": "server_error", "param": None, "code": None}}
    return reply_json(error, "500 Internal Server Error", [("retry-after-ms", "1")])


def cut() -> Reply:
    chunk = b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":'
    events = [chunk + b'{"role":"assistant","content":"You"},"finish_reason":null}]}\n\n']
    return reply_events(events, end=[Rst()])


def first_then(reply: Reply) -> Script:
    """`reply` to the first chat request, then as ever."""
    answers = iter([reply])
    return chat_script(lambda asked: next(answers, None) or echo(asked))


def test_a_retry_of_the_sdk_is_no_second_turn(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str
) -> None:
    upstream.script = first_then(refused())
    with sdk(mneme.url, retries=2) as client:
        answer = client.chat.completions.create(model="m", user=someone, messages=[{"role": "user", "content": "hi"}])
    assert answer.choices[0].message.content == "You said: hi"
    attempts = [each for each in upstream.requests if each.path == "/v1/chat/completions"]
    assert [each.header("x-stainless-retry-count") for each in attempts] == ["0", "1"]
    (session,) = api.sessions()
    assert api.said(session["id"]) == [("user", "hi"), ("assistant", "You said: hi")]
    calls = api.calls()
    assert [(each["status"], each["retry_count"]) for each in calls] == [(200, 1), (500, 0)]


@pytest.mark.parametrize(("managed", "turn"), [("client", 1), ("client", 3), ("server", 3)])
def test_a_retry_after_a_cut_stream_is_no_second_turn(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str, turn: int, managed: str
) -> None:
    headers = {"x-mneme-user": someone}
    transcript: list[Message] = []
    if managed == "server":
        headers["x-mneme-session"] = "cut"
    for n in range(1, turn):
        question = user(f"Question {n}")
        answer = ask(mneme, [*transcript, question], headers=headers)
        transcript += [question, assistant(answer_of(answer))] if managed == "client" else []
    upstream.script = first_then(cut())
    transcript = [*transcript, user(f"Question {turn}")]
    with pytest.raises(httpx.RemoteProtocolError):
        ask(mneme, transcript, headers=headers, stream=True)
    again = ask(mneme, transcript, headers={**headers, "x-stainless-retry-count": "1"}, stream=True)
    assert again.text.endswith("data: [DONE]\n\n")
    history = api.history(session_of(again))
    assert [each["content"] for each in history if each["role"] == "user"] == [
        f"Question {n}" for n in range(1, turn + 1)
    ]
    broken, whole = history[-2:]
    assert (broken["content"], whole["content"]) == ("You", f"You said: Question {turn}")
    assert broken["metadata"].get("interrupted") is True
    assert not whole["metadata"].get("interrupted")
    assert broken["turn_index"] == whole["turn_index"] == 2 * turn
    assert chats(upstream)[-1] == chats(upstream)[-2]


def test_an_idempotency_key_is_one_turn_and_one_body(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str
) -> None:
    """A repeated key sends what was sent the first time, whatever memory has learned since."""
    headers = {"x-mneme-user": someone}
    ask(mneme, "My cat is called Minka.", headers=headers)
    keyed = {**headers, "idempotency-key": f"key of {someone}"}
    first = ask(mneme, "What do you know of my cat?", headers=keyed)
    ask(mneme, "My cat is three years old.", headers=headers)
    second = ask(mneme, "What do you know of my cat?", headers=keyed)
    bodies = [each.body for each in upstream.requests if each.header("idempotency-key")]
    assert len(bodies) == 2
    assert "Minka" in bodies[0].decode()
    assert bodies[0] == bodies[1]
    assert session_of(second) == session_of(first)
    questions = [each for each in api.history(session_of(first)) if each["role"] == "user"]
    assert len(questions) == 1
    assert call_of(first) != call_of(second)


def test_a_key_whose_first_attempt_failed_sends_the_same_body_again(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str
) -> None:
    headers = {"x-mneme-user": someone}
    ask(mneme, "My cat is called Minka.", headers=headers)
    upstream.script = first_then(refused())
    keyed = {**headers, "idempotency-key": f"key of {someone}"}
    assert ask(mneme, "What do you know of my cat?", headers=keyed).status_code == 500
    ask(mneme, "My cat is three years old.", headers=headers)
    answer = ask(mneme, "What do you know of my cat?", headers=keyed)
    bodies = [each.body for each in upstream.requests if each.header("idempotency-key")]
    assert "Minka" in bodies[0].decode()
    assert bodies[0] == bodies[1]
    assert [each["role"] for each in api.history(session_of(answer))] == ["user", "assistant"]


@pytest.mark.parametrize("order", [["off", "on"], ["on", "off", "on"]], ids="-".join)
def test_a_key_that_was_used_without_memory_takes_no_turn_away(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str, order: list[str]
) -> None:
    told = [
        ask(
            mneme,
            "I live in Lisbon.",
            headers={"X-Mneme-User": someone, "Idempotency-Key": "k", "X-Mneme-Memory": memory},
        )
        for memory in order
    ]
    (session,) = api.sessions()
    assert session_of(told[-1]) == session["id"]
    assert api.said(session["id"]) == [("user", "I live in Lisbon."), ("assistant", "You said: I live in Lisbon.")]


@pytest.mark.parametrize("capture", ["on", "off"])
def test_a_key_with_another_body_is_a_turn_of_its_own(mneme: MnemeServer, api: Api, someone: str, capture: str) -> None:
    """A client that gives one key to everything loses nothing by it, whatever order its bodies come in."""
    keyed = {"x-mneme-user": someone, "x-mneme-capture": capture, "idempotency-key": "always the same"}
    answers = [ask(mneme, text, headers=keyed) for text in ("I live in Rome.", "I live in Oslo.", "I live in Rome.")]
    first, second, again = map(session_of, answers)
    assert first == again != second
    for session in (first, second):
        assert [each["role"] for each in api.history(session)] == ["user", "assistant"]


def test_a_key_in_two_named_sessions_is_a_turn_in_each(mneme: MnemeServer, api: Api, someone: str) -> None:
    keyed = {"x-mneme-user": someone, "idempotency-key": "k"}
    for session in ("one", "two", "one", "two"):
        ask(mneme, "hello", headers=keyed | {"x-mneme-session": session})
    for session in ("one", "two"):
        assert [each["role"] for each in api.history(session)] == ["user", "assistant"]
