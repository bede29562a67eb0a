"""Conversations as clients send them: the whole transcript each time, or a session and what is new. Nothing twice."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.clients import (
    Api,
    Message,
    answer_of,
    ask,
    assistant,
    session_of,
    user,
)
from tests.support.replies import Script, chat_script, reply_json
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
