"""Conversations as clients send them: the whole transcript each time, or a session and what is new; a request that is sent
again. Nothing twice."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.support.clients import Api, Message, answer_of, ask, assistant, call_of, sdk, session_of, user
from tests.support.replies import Reply, Rst, Script, chat_script, reply_events, reply_json
from tests.support.scripted import ScriptedUpstream
from tests.support.server import MnemeServer

TURNS = 20


def echo(asked: dict[str, Any]) -> str:
    """Answers what was asked last, whatever memory stands before it."""
    content = next(each["content"] for each in reversed(asked["messages"]) if each["role"] == "user")
    return "You said: " + str(content).rsplit("\n", 1)[-1]


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


def converse(
    mneme: MnemeServer, who: str, turns: int, *, transcript: list[Message] | None = None, begin: int = 1
) -> tuple[list[Message], set[str]]:
    """A client-managed conversation; the transcript after it, and the sessions that it was said to belong to."""
    transcript = transcript if transcript is not None else []
    sessions = set()
    for n in range(begin, begin + turns):
        transcript.append(user(f"Question {n}"))
        answer = ask(mneme, transcript, headers={"x-mneme-user": who})
        sessions.add(session_of(answer))
        transcript.append(assistant(answer_of(answer)))
    return transcript, sessions


def spoken(transcript: Sequence[Message]) -> list[tuple[str, Any]]:
    return [(each["role"], each["content"]) for each in transcript if each["role"] != "system"]


def chats(upstream: ScriptedUpstream) -> list[list[Message]]:
    """The messages of every chat request that the upstream got."""
    return [each.json()["messages"] for each in upstream.requests if each.path == "/v1/chat/completions"]


def test_a_client_managed_transcript_is_one_session_with_no_duplicate(
    mneme: MnemeServer, api: Api, someone: str
) -> None:
    transcript, sessions = converse(mneme, someone, TURNS)
    assert len(sessions) == 1
    history = api.history(sessions.pop())
    assert len(history) == 2 * TURNS
    assert [(each["role"], each["content"]) for each in history] == spoken(transcript)
    assert [each["turn_index"] for each in history] == list(range(1, 2 * TURNS + 1))
    assert {each["sibling"] for each in history} == {0}
    assert [each["parent_id"] for each in history] == [None, *(each["id"] for each in history[:-1])]
    assert len(api.sessions()) == 1
    assert api.sessions()[0]["message_count"] == 2 * TURNS


def test_messages_that_come_back_a_little_different_are_the_same(mneme: MnemeServer, api: Api, someone: str) -> None:
    """Clients trim white space, write parts for a text, drop empty fields and add their own."""
    headers = {"x-mneme-user": someone}
    first = ask(mneme, [user("Hello there \n")], headers=headers)
    varied: list[Message] = [
        {"role": "user", "content": [{"type": "text", "text": "Hello there"}]},
        {"role": "assistant", "content": answer_of(first) + "\n", "refusal": None, "annotations": [], "x": 1},
        user("Next"),
    ]
    second = ask(mneme, varied, headers=headers)
    assert session_of(second) == session_of(first)
    assert [each["role"] for each in api.history(session_of(first))] == ["user", "assistant"] * 2


@pytest.mark.parametrize(("texts", "taken"), [(("A", "B", "C"), 1), (("A", "A", "A"), 0)], ids=["different", "alike"])
def test_several_choices_are_siblings_and_any_of_them_goes_on(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str, texts: tuple[str, ...], taken: int
) -> None:
    headers = {"x-mneme-user": someone}
    upstream.script = reply_json({
        "id": "1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": n, "message": assistant(text), "finish_reason": "stop"} for n, text in enumerate(texts)],
    })  # fmt: skip
    transcript = [user("Tell me")]
    first = ask(mneme, transcript, headers=headers, n=3)
    history = api.history(session_of(first))
    assert [(each["turn_index"], each["sibling"]) for each in history] == [(1, 0), (2, 0), (2, 1), (2, 2)]
    assert [each["content"] for each in history[1:]] == list(texts)
    upstream.script = chat_script(echo)
    second = ask(mneme, [*transcript, assistant(texts[taken]), user("More")], headers=headers)
    assert session_of(second) == session_of(first)
    went_on = api.history(session_of(first))[4:]
    assert [each["content"] for each in went_on] == ["More", "You said: More"]
    followed = next(each for each in history if each["id"] == went_on[0]["parent_id"])
    assert followed["content"] == texts[taken]


# --- the same, server-managed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_server_managed_gives_the_same_history_and_the_same_prompts(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str, stream: bool
) -> None:
    client = f"{someone}-client"
    _, (by_transcript,) = converse(mneme, client, TURNS)
    prompts = chats(upstream)
    upstream.requests.clear()
    headers = {"x-mneme-user": someone, "x-mneme-session": "our chat"}
    sessions = {session_of(ask(mneme, f"Question {n}", headers=headers, stream=stream)) for n in range(1, TURNS + 1)}
    assert len(sessions) == 1
    assert chats(upstream) == prompts
    same = ("turn_index", "sibling", "role", "content")
    one, two = (
        [[each[name] for name in same] for each in found]
        for found in (Api(mneme, user=client).history(by_transcript), api.history("our chat"))
    )
    assert one == two
    assert len(two) == 2 * TURNS
    assert api.session("our chat")["id"] in sessions


def test_the_header_says_who_supplies_the_history(
    mneme: MnemeServer, upstream: ScriptedUpstream, api: Api, someone: str
) -> None:
    headers = {"x-mneme-user": someone, "x-mneme-session": "named", "x-mneme-history": "client"}
    ask(mneme, "One", headers=headers)
    ask(mneme, [user("One"), assistant("You said: One"), user("Two")], headers=headers)
    assert len(chats(upstream)[-1]) == 3
    assert len(api.history("named")) == 4


# --- sent again: by the SDK's own retries, after a break, and under an Idempotency-Key ---------------------------------------


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
